/*
 * bfloat16: the upper half of a float, which has its range and 8 bits of precision.
 */
#ifndef YOKE_BASE_BF16_H
#define YOKE_BASE_BF16_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_bf16 {
    uint16_t bits;
} yoke_bf16;

static inline float yoke_bf16_widen(yoke_bf16 a)
{
    uint32_t bits = (uint32_t)a.bits << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* The nearest, ties to even; what is not a number stays so. */
static inline yoke_bf16 yoke_bf16_round(float a)
{
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (yoke_bf16){(uint16_t)(bits >> 16 | 0x40u)};
    }
    bits += 0x7fffu + (bits >> 16 & 1u);
    return (yoke_bf16){(uint16_t)(bits >> 16)};
}

#ifdef __cplusplus
}
#endif
#endif
