/* Conversion of a layout along one axis: inserted by layout inference, never by a model. */
#include "op/op.h"

const yoke_op_def yoke_op_convert = {
    .name = "convert",
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
