/*
 * Strips of local pieces, and their joining: inserted behind layout inference, never by a model. What is
 * joined in one dim may have had others, and get them back when it is taken apart; a second input of a
 * strip only lends its storage.
 */
#include "op/op.h"

const yoke_op_def yoke_op_strip = {
    .name = "strip",
    .linear = {1 << 0},
    .reuses = 1 << 1,
    .lends = 1 << 1,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};

const yoke_op_def yoke_op_join = {
    .name = "join",
    .linear = {YOKE_ALL_INPUTS},
    .narrow_in = (unsigned)YOKE_ALL_INPUTS,
    .narrow_out = 1 << 0,
};
