/*
 * Sixteen floats at a time, in plain C: what all vectorised kernels are written in.
 *
 * Every file of this folder is compiled once for each instruction set, with YOKE_ISA its name; exported names carry it
 * (YOKE_VECTOR_NAME). Those whose operands may be bf16 are compiled once more, see real.h. `lanes` is one register of AVX-512 or two of AVX2, so both sets add in the same order and give the
 * same bits. Only what the language has no word for is an intrinsic: fused multiply-add, square root, broadcast.
 */
#ifndef YOKE_KERNEL_VECTOR_VECTOR_H
#define YOKE_KERNEL_VECTOR_VECTOR_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "kernel/kernel.h"
#include "kernel/piece.h"

#define YOKE_VECTOR_PASTE_(isa, name) yoke_##isa##_##name
#define YOKE_VECTOR_PASTE(isa, name)  YOKE_VECTOR_PASTE_(isa, name)
#if defined(YOKE_NARROW)
#define YOKE_VECTOR_NAME(name) YOKE_VECTOR_PASTE(YOKE_ISA, narrow_##name)
#else
#define YOKE_VECTOR_NAME(name) YOKE_VECTOR_PASTE(YOKE_ISA, name)
#endif

/* X(enumerator, name): the operators that the vector sets have, those also for bf16 apart. */
#define YOKE_VECTOR_LIST(X)                                                                        \
    YOKE_VECTOR_NARROW_LIST(X)                                                                     \
    X(SUM_SQUARES, sum_squares)                                                                    \
    X(ADAMW, adamw)

#define YOKE_VECTOR_NARROW_LIST(X)                                                                 \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(ADD_BIAS, add_bias)                                                                          \
    X(SUM_ROWS, sum_rows)                                                                          \
    X(ADD, add)                                                                                    \
    X(LAYER_NORM, layer_norm)                                                                      \
    X(LAYER_NORM_GRAD, layer_norm_grad)                                                            \
    X(LAYER_NORM_GRAD_GAIN, layer_norm_grad_gain)                                                  \
    X(RMS_NORM, rms_norm)                                                                          \
    X(RMS_NORM_GRAD, rms_norm_grad)                                                                \
    X(RMS_NORM_GRAD_GAIN, rms_norm_grad_gain)                                                      \
    X(ROPE, rope)                                                                                  \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_COMBINE, attention_combine)                                                        \
    X(GELU, gelu)                                                                                  \
    X(GELU_GRAD, gelu_grad)                                                                        \
    X(GELU_ERF, gelu_erf)                                                                          \
    X(GELU_ERF_GRAD, gelu_erf_grad)                                                                \
    X(SWIGLU, swiglu)                                                                              \
    X(SWIGLU_GRAD, swiglu_grad)                                                                    \
    X(DROPOUT, dropout)                                                                            \
    X(JITTER, jitter)                                                                              \
    X(DISPATCH, dispatch)                                                                          \
    X(COMBINE, combine)                                                                            \
    X(COMBINE_GRAD, combine_grad)                                                                  \
    X(ROW_MAX, row_max)                                                                            \
    X(ROW_SUM_EXP, row_sum_exp)                                                                    \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad)                                                      \
    X(CAST, cast)

#define YOKE_VECTOR_DECLARE(upper, lower)                                                          \
    void YOKE_VECTOR_PASTE(YOKE_ISA, lower)(const yoke_kernel_call *call);
#define YOKE_VECTOR_DECLARE_NARROW(upper, lower)                                                   \
    void YOKE_VECTOR_PASTE(YOKE_ISA, narrow_##lower)(const yoke_kernel_call *call);
YOKE_VECTOR_LIST(YOKE_VECTOR_DECLARE)
YOKE_VECTOR_NARROW_LIST(YOKE_VECTOR_DECLARE_NARROW)
#undef YOKE_VECTOR_DECLARE
#undef YOKE_VECTOR_DECLARE_NARROW

enum {
    LANES = 16,
#if defined(__AVX512F__)
    WIDTH = 16,     /* floats in a register */
    TILE_ROWS = 12, /* of the micro-kernel in gemm.h: as many sums as fit into registers */
#else
    WIDTH = 8,
    TILE_ROWS = 6,
#endif
    PARTS = LANES / WIDTH,
};

typedef float vec __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t vec_bits __attribute__((vector_size(WIDTH * sizeof(int32_t))));

/* Members and not an array: gcc 12 keeps only the former in registers. */
typedef struct lanes {
    vec low;
#if defined(__AVX512F__)
#define IF_TWO(...)
#else
    vec high;
#define IF_TWO(...) __VA_ARGS__
#endif
} lanes;

static inline vec vec_set(float a)
{
#if defined(__AVX512F__)
    return (vec)_mm512_set1_ps(a);
#else
    return (vec)_mm256_set1_ps(a);
#endif
}

/* a b + c, rounded once. */
static inline vec vec_fma(vec a, vec b, vec c)
{
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}

static inline vec vec_sqrt(vec a)
{
#if defined(__AVX512F__)
    return (vec)_mm512_sqrt_ps((__m512)a);
#else
    return (vec)_mm256_sqrt_ps((__m256)a);
#endif
}

/* a where the mask is all ones, b where it is zero. */
static inline vec vec_select(vec_bits mask, vec a, vec b)
{
    return (vec)((mask & (vec_bits)a) | (~mask & (vec_bits)b));
}

static inline vec vec_load(const float *from)
{
    vec r;
    memcpy(&r, from, sizeof(r));
    return r;
}

static inline void vec_store(float *to, vec a)
{
    memcpy(to, &a, sizeof(a));
}

static inline lanes lanes_set(float a)
{
    lanes r;
    r.low = vec_set(a);
    IF_TWO(r.high = vec_set(a);)
    return r;
}

static inline lanes lanes_load(const float *from)
{
    lanes r;
    r.low = vec_load(from);
    IF_TWO(r.high = vec_load(from + WIDTH);)
    return r;
}

static inline void lanes_store(float *to, lanes a)
{
    vec_store(to, a.low);
    IF_TWO(vec_store(to + WIDTH, a.high);)
}

/* The next n elements, at most 16; `fill` stands for those that are missing. */
static inline lanes lanes_get(const float *from, int64_t n, float fill)
{
    if (n >= LANES) {
        return lanes_load(from);
    }
    float all[LANES];
    for (int64_t i = 0; i < LANES; i++) {
        all[i] = i < n ? from[i] : fill;
    }
    return lanes_load(all);
}

static inline void lanes_put(float *to, int64_t n, lanes a)
{
    if (n >= LANES) {
        lanes_store(to, a);
        return;
    }
    float all[LANES];
    lanes_store(all, a);
    for (int64_t i = 0; i < n; i++) {
        to[i] = all[i];
    }
}

#define LANES_BINARY(name, operator)                                                               \
    static inline lanes name(lanes a, lanes b)                                                     \
    {                                                                                              \
        a.low = a.low operator b.low;                                                              \
        IF_TWO(a.high = a.high operator b.high;)                                                   \
        return a;                                                                                  \
    }
LANES_BINARY(lanes_add, +)
LANES_BINARY(lanes_sub, -)
LANES_BINARY(lanes_mul, *)
LANES_BINARY(lanes_div, /)
#undef LANES_BINARY

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    c.low = vec_fma(a.low, b.low, c.low);
    IF_TWO(c.high = vec_fma(a.high, b.high, c.high);)
    return c;
}

static inline lanes lanes_sqrt(lanes a)
{
    a.low = vec_sqrt(a.low);
    IF_TWO(a.high = vec_sqrt(a.high);)
    return a;
}

/* The larger; what is not a number wins. */
static inline vec vec_max(vec a, vec b)
{
    return vec_select((vec_bits)((b > a) | (b != b)), b, a);
}

static inline lanes lanes_max(lanes a, lanes b)
{
    a.low = vec_max(a.low, b.low);
    IF_TWO(a.high = vec_max(a.high, b.high);)
    return a;
}

/* Sum of all lanes, always in this order. */
static inline float lanes_sum(lanes a)
{
    float all[LANES];
    lanes_store(all, a);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            all[i] += all[i + half];
        }
    }
    return all[0];
}

static inline float lanes_highest(lanes a)
{
    float all[LANES];
    lanes_store(all, a);
    float highest = all[0];
    for (int i = 1; i < LANES; i++) {
        highest = all[i] > highest || isnan(all[i]) ? all[i] : highest;
    }
    return highest;
}

/*
 * exp to about 1 ulp: exp(a) = 2^n exp(r) with |r| <= log(2)/2, the polynomial of Moshier's Cephes. Overflow gives
 * infinity, underflow zero, and what is not a number stays so.
 */
static inline vec vec_exp(vec a)
{
    const vec round =
        vec_set(12582912.0f); /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    vec_bits is_low = (vec_bits)(a < vec_set(-87.3f));
    vec_bits is_high = (vec_bits)(a > vec_set(88.72283f));
    vec bounded = vec_select(is_low | is_high, vec_set(0.0f), a);
    vec shifted = vec_fma(bounded, vec_set(1.44269504088896341f), round);
    vec n = shifted - round;
    vec r = vec_fma(n, vec_set(-0.693359375f), bounded);
    r = vec_fma(n, vec_set(2.12194440e-4f), r);
    vec p = vec_fma(vec_set(1.9875691500e-4f), r, vec_set(1.3981999507e-3f));
    p = vec_fma(p, r, vec_set(8.3334519073e-3f));
    p = vec_fma(p, r, vec_set(4.1665795894e-2f));
    p = vec_fma(p, r, vec_set(1.6666665459e-1f));
    p = vec_fma(p, r, vec_set(5.0000001201e-1f));
    p = vec_fma(p, r * r, r) + vec_set(1.0f);
    /* 2^128 is no float, so the scaling is in two steps of half the exponent. */
    vec_bits exponent = (vec_bits)shifted - (vec_bits)round;
    vec_bits half = exponent >> 1;
    p = p * (vec)((half + 127) << 23) * (vec)((exponent - half + 127) << 23);
    p = vec_select(is_low, vec_set(0.0f), p);
    return vec_select(is_high, vec_set(INFINITY), p);
}

static inline lanes lanes_exp(lanes a)
{
    a.low = vec_exp(a.low);
    IF_TWO(a.high = vec_exp(a.high);)
    return a;
}

/* 1 / (1 + exp(-a)) */
static inline lanes lanes_sigmoid(lanes a)
{
    lanes one = lanes_set(1.0f);
    return lanes_div(one, lanes_add(one, lanes_exp(lanes_sub(lanes_set(0.0f), a))));
}

/* Elements in a unit of parallel work: the same for any number of threads, and worth handing to one. */
enum { GRAIN = 8192 };

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows of `width` in a unit of work. */
static inline int64_t grain_rows(int64_t width)
{
    return width < GRAIN ? GRAIN / (width > 0 ? width : 1) : 1;
}

#endif
