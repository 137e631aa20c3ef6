/*
 * Rows from bf16 to f32 and back, at the speed of memory.
 *
 * Plain loops, once for any processor and once for AVX2, which both give the same bits.
 */
#include "kernel/product.h"

#include "base/bf16.h"

static inline __attribute__((always_inline)) void widen(const yoke_bf16 *in, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = yoke_bf16_widen(in[i]);
    }
}

static inline __attribute__((always_inline)) void round_row(const float *in, yoke_bf16 *out,
                                                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = yoke_bf16_round(in[i]);
    }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static void widen_avx2(const yoke_bf16 *in, float *out, int64_t n)
{
    widen(in, out, n);
}

__attribute__((target("avx2"))) static void round_avx2(const float *in, yoke_bf16 *out, int64_t n)
{
    round_row(in, out, n);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

#else

#define widen_avx2 widen
#define round_avx2 round_row

static bool has_avx2(void)
{
    return false;
}

#endif

void yoke_product_widen(const yoke_bf16 *in, float *out, int64_t n)
{
    if (has_avx2()) {
        widen_avx2(in, out, n);
    } else {
        widen(in, out, n);
    }
}

void yoke_product_round(const float *in, yoke_bf16 *out, int64_t n)
{
    if (has_avx2()) {
        round_avx2(in, out, n);
    } else {
        round_row(in, out, n);
    }
}
