/*
 * The reference kernels: one for each operator, in plain C. They are the definition of the operators: the clearest
 * loop, reductions in double, one thread. Faster sets are tested against them.
 */
#ifndef YOKE_KERNEL_REF_REF_H
#define YOKE_KERNEL_REF_REF_H

#include "kernel/kernel.h"

#define YOKE_REF_DECLARE(upper, lower) void yoke_ref_##lower(const yoke_kernel_call *call);
YOKE_OP_LIST(YOKE_REF_DECLARE)
#undef YOKE_REF_DECLARE

#endif
