/*
 * y = a in another type of storage: rounded to the nearest bf16, ties to even, or widened, which is exact. Inserted by
 * passes, never by a model; a sum of rounded numbers over micro-batches is one of these that adds. A second input only
 * lends its storage, so that what comes back as f32 lies where it was before it was rounded.
 */
#include "op/op.h"

const yoke_op_def yoke_op_cast = {
    .name = "cast",
    .linear = {1 << 0},
    .reuses = 1 << 1,
    .lends = 1 << 1,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
    .mixes = true,
    .accumulates = true,
};
