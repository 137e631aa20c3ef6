/*
 * Sixteen elements of narrow operands at a time; kernel/real.h says what a `real` is. Widening is a shift; rounding is
 * yoke_bf16_round, in integers, so that every processor gives the same bits.
 */
#ifndef YOKE_KERNEL_VECTOR_REAL_H
#define YOKE_KERNEL_VECTOR_REAL_H

#include "kernel/real.h"
#include "kernel/vector/vector.h"

#if defined(YOKE_NARROW)

typedef uint32_t vec_words __attribute__((vector_size(WIDTH * sizeof(uint32_t))));

/* The bits of the nearest bf16 in the lower half of each word. */
static inline vec_words vec_round(vec a)
{
    vec_words bits = (vec_words)a;
    vec_words nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    vec_words no_number = (vec_words)(a != a);
    return (no_number & (bits >> 16 | 0x40)) | (~no_number & nearest);
}

static inline lanes lanes_load_real(const real *from)
{
    lanes r;
#if defined(__AVX512F__)
    __m256i all = _mm256_loadu_si256((const __m256i_u *)from);
    r.low = (vec)((vec_words)_mm512_cvtepu16_epi32(all) << 16);
#else
    __m128i low = _mm_loadu_si128((const __m128i_u *)from);
    __m128i high = _mm_loadu_si128((const __m128i_u *)(from + WIDTH));
    r.low = (vec)((vec_words)_mm256_cvtepu16_epi32(low) << 16);
    r.high = (vec)((vec_words)_mm256_cvtepu16_epi32(high) << 16);
#endif
    return r;
}

static inline void lanes_store_real(real *to, lanes a)
{
#if defined(__AVX512F__)
    __m256i all = _mm512_cvtepi32_epi16((__m512i)vec_round(a.low));
#else
    /* Packing takes turns between its operands, 8 bytes at a time. */
    __m256i mixed = _mm256_packus_epi32((__m256i)vec_round(a.low), (__m256i)vec_round(a.high));
    __m256i all = _mm256_permute4x64_epi64(mixed, 0xD8);
#endif
    _mm256_storeu_si256((__m256i_u *)to, all);
}

#else

static inline lanes lanes_load_real(const real *from)
{
    return lanes_load(from);
}

static inline void lanes_store_real(real *to, lanes a)
{
    lanes_store(to, a);
}

#endif

/* As lanes_get and lanes_put. */
static inline lanes lanes_get_real(const real *from, int64_t n, float fill)
{
    if (n >= LANES) {
        return lanes_load_real(from);
    }
    float all[LANES];
    for (int64_t i = 0; i < LANES; i++) {
        all[i] = i < n ? real_widen(from[i]) : fill;
    }
    return lanes_load(all);
}

static inline void lanes_put_real(real *to, int64_t n, lanes a)
{
    if (n >= LANES) {
        lanes_store_real(to, a);
        return;
    }
    float all[LANES];
    lanes_store(all, a);
    for (int64_t i = 0; i < n; i++) {
        to[i] = real_round(all[i]);
    }
}

#endif
