/* Conversion of a layout along one axis: inserted by layout inference, never by a model. */
#include "op/op.h"

const yoke_op_def yoke_op_convert = {.name = "convert"};
