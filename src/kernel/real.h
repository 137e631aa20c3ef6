/*
 * One source for two widths of storage: `real` is what the operands that yoke_op_def calls narrow are stored in. It is
 * float, or bf16 where the source is compiled once more with YOKE_NARROW. All computing is in float or double in both.
 */
#ifndef YOKE_KERNEL_REAL_H
#define YOKE_KERNEL_REAL_H

#include "base/bf16.h"

#if defined(YOKE_NARROW)

typedef yoke_bf16 real;

static inline float real_widen(real a)
{
    return yoke_bf16_widen(a);
}

static inline real real_round(float a)
{
    return yoke_bf16_round(a);
}

#else

typedef float real;

static inline float real_widen(real a)
{
    return a;
}

static inline real real_round(float a)
{
    return a;
}

#endif
#endif
