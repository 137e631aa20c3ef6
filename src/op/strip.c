/* Strips of local pieces, and their joining: inserted behind layout inference, never by a model. */
#include "op/op.h"

const yoke_op_def yoke_op_strip = {
    .name = "strip",
    .linear = {1 << 0},
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};

const yoke_op_def yoke_op_join = {
    .name = "join",
    .linear = {YOKE_ALL_INPUTS},
    .narrow_in = (unsigned)YOKE_ALL_INPUTS,
    .narrow_out = 1 << 0,
};
