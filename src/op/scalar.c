/* Reductions to scalars, and arithmetic on them: the norm of the gradients is made of these. */
#include "op/op.h"

const yoke_op_def yoke_op_sum_squares = {.name = "sum_squares"};
const yoke_op_def yoke_op_sum = {.name = "sum", .whole = "*"};
const yoke_op_def yoke_op_multiply = {.name = "multiply", .linear = {1 << 0, 1 << 1}};

/* Scalars of all parameters side by side, or tensors of all layers. One that every rank of an axis holds is counted by
 * the first of them, one that a pipeline stage does not have is 0 there: so one reduction completes
 * all of them and none is counted twice. */
const yoke_op_def yoke_op_pack = {
    .name = "pack",
    .whole = "*",
    .linear = {YOKE_ALL_INPUTS},
    .spans = true,
    .masks = true,
};
