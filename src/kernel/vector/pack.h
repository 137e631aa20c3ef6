/*
 * Operands of matrix products in panels: `width` rows or columns side by side, [depth][width], so that each step along
 * the depth reads what lies together. Numbers are f32 or bf16 as stored, and f32 in panels.
 *
 * `width` and `narrow` are constants wherever these are called, and all is inlined.
 */
#ifndef YOKE_KERNEL_VECTOR_PACK_H
#define YOKE_KERNEL_VECTOR_PACK_H

#include <stddef.h>
#include "base/bf16.h"
#include "kernel/vector/vector.h"

typedef float quad __attribute__((vector_size(4 * sizeof(float))));

/* Where a panel comes from. Straight: [depth][side] is stored; turned: [side][depth]. Lanes that are missing are 0. */
typedef struct stored {
    const char *from;
    int64_t stride; /* elements from one stored row to the next */
    int64_t side;   /* at most `width` */
    int64_t depth;
    bool turned;
} stored;

static inline __attribute__((always_inline)) const char *element_at(const char *from, int64_t at,
                                                                    bool narrow)
{
    return from + at * (int64_t)(narrow ? sizeof(yoke_bf16) : sizeof(float));
}

static inline __attribute__((always_inline)) quad quad_load(const char *from, bool narrow)
{
    quad r;
    if (narrow) {
        __m128i all = _mm_loadl_epi64((const __m128i_u *)from);
        r = (quad)_mm_slli_epi32(_mm_cvtepu16_epi32(all), 16);
    } else {
        memcpy(&r, from, sizeof(r));
    }
    return r;
}

static inline __attribute__((always_inline)) float element_load(const char *from, bool narrow)
{
    if (narrow) {
        yoke_bf16 a;
        memcpy(&a, from, sizeof(a));
        return yoke_bf16_widen(a);
    }
    float a;
    memcpy(&a, from, sizeof(a));
    return a;
}

/* Four rows of four numbers, `stride` elements apart, become four columns of the panel. */
static inline __attribute__((always_inline)) void turn_four(const char *from, int64_t stride,
                                                            bool narrow, float *to, int width)
{
    quad row[4];
    for (int i = 0; i < 4; i++) {
        row[i] = quad_load(element_at(from, i * stride, narrow), narrow);
    }
    quad low_a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    quad high_a = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    quad low_b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    quad high_b = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    quad turned[4] = {__builtin_shufflevector(low_a, low_b, 0, 1, 4, 5),
                      __builtin_shufflevector(low_a, low_b, 2, 3, 6, 7),
                      __builtin_shufflevector(high_a, high_b, 0, 1, 4, 5),
                      __builtin_shufflevector(high_a, high_b, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) {
        memcpy(to + (ptrdiff_t)i * width, &turned[i], sizeof(quad));
    }
}

/* Lanes come in fours; where the width is no multiple, the last four overlap the ones before. */
static inline __attribute__((always_inline)) int lane_of(int i, int width)
{
    return i + 4 <= width ? i : width - 4;
}

static inline __attribute__((always_inline)) void panel_pack(const stored *p, int width,
                                                             bool narrow, float *to)
{
    int64_t d = 0;
    int64_t whole = p->side == width ? p->depth / 4 * 4 : 0;
    for (; d < whole && p->turned; d += 4) {
        for (int i = 0; i < width; i += 4) {
            int lane = lane_of(i, width);
            turn_four(element_at(p->from, lane * p->stride + d, narrow), p->stride, narrow,
                      to + d * width + lane, width);
        }
    }
    for (; d < whole; d++) {
        for (int i = 0; i < width; i += 4) {
            int lane = lane_of(i, width);
            quad four = quad_load(element_at(p->from, d * p->stride + lane, narrow), narrow);
            memcpy(to + d * width + lane, &four, sizeof(four));
        }
    }
    for (; d < p->depth; d++) {
        for (int64_t i = 0; i < width; i++) {
            int64_t at = p->turned ? i * p->stride + d : d * p->stride + i;
            to[d * width + i] =
                i < p->side ? element_load(element_at(p->from, at, narrow), narrow) : 0.0f;
        }
    }
}

#endif
