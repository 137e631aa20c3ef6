/*
 * AdamW (Loshchilov and Hutter 2019). One control operator decides for the whole step: whether it
 * is applied, the rate, and the clipping; the update of a parameter reads it.
 */
#include "op/op.h"

const yoke_op_def yoke_op_adamw_control = {
    .name = "adamw_control", .whole = "*", .updates = 1 << 2};
const yoke_op_def yoke_op_adamw = {.name = "adamw", .updates = 1 << 0 | 1 << 1 | 1 << 2};
