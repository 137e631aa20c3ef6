/*
 * Sixteen elements of narrow operands at a time; kernel/real.h says what a `real` is. Widening is a shift; rounding is
 * yoke_bf16_round, in integers, so that every processor gives the same bits.
 */
#ifndef YOKE_KERNEL_VECTOR_REAL_H
#define YOKE_KERNEL_VECTOR_REAL_H

#include "kernel/real.h"
#include "kernel/vector/vector.h"

#if defined(YOKE_NARROW)

#if defined(__AVX512F__)

static inline lanes lanes_load_real(const real *from)
{
    __m256i all = _mm256_loadu_si256((const __m256i_u *)from);
    return (lanes){.low = (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(all), 16)};
}

static inline void lanes_store_real(real *to, lanes a)
{
    __m512 wide = (__m512)a.low;
    __m512i bits = (__m512i)a.low;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __mmask16 no_number = _mm512_cmp_ps_mask(wide, wide, _CMP_UNORD_Q);
    __m512i nearest = _mm512_mask_or_epi32(_mm512_add_epi32(bits, half), no_number, bits,
                                           _mm512_set1_epi32(0x400000));
    __m256i all = _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest, 16));
    _mm256_storeu_si256((__m256i_u *)to, all);
}

#else

static inline vec vec_load_real(const real *from)
{
    __m128i all = _mm_loadu_si128((const __m128i_u *)from);
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(all), 16);
}

static inline lanes lanes_load_real(const real *from)
{
    return (lanes){.low = vec_load_real(from), .high = vec_load_real(from + WIDTH)};
}

/* The bits of the nearest bf16 in the lower half of each word. */
static inline __m256i vec_round(vec a)
{
    __m256i bits = (__m256i)a;
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256 nearest = (__m256)_mm256_add_epi32(bits, half);
    __m256 quiet = (__m256)_mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256 no_number = _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q);
    return _mm256_srli_epi32((__m256i)_mm256_blendv_ps(nearest, quiet, no_number), 16);
}

static inline void lanes_store_real(real *to, lanes a)
{
    /* Packing takes turns between its operands, 8 bytes at a time. */
    __m256i mixed = _mm256_packus_epi32(vec_round(a.low), vec_round(a.high));
    _mm256_storeu_si256((__m256i_u *)to, _mm256_permute4x64_epi64(mixed, 0xD8));
}

#endif
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
    real all[LANES];
    lanes_store_real(all, a);
    for (int64_t i = 0; i < n; i++) {
        to[i] = all[i];
    }
}

#endif
