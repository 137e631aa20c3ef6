/* Runs of float32, int32 and bf16 elements: see element.h. */
#include "transport/element.h"

#include <string.h>

#include "base/bf16.h"

void *yoke_element_at(void *array, yoke_dtype dtype, int64_t at)
{
    return (char *)array + at * yoke_dtype_bytes(dtype);
}

const void *yoke_element_of(const void *array, yoke_dtype dtype, int64_t at)
{
    return (const char *)array + at * yoke_dtype_bytes(dtype);
}

static void widen(float *restrict to, const yoke_bf16 *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = yoke_bf16_widen(from[i]);
    }
}

static void narrow(yoke_bf16 *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = yoke_bf16_round(from[i]);
    }
}

void yoke_elements_copy(void *to, yoke_dtype to_dtype, const void *from, yoke_dtype from_dtype,
                        int64_t n)
{
    if (to_dtype == from_dtype) {
        memcpy(to, from, (size_t)(n * yoke_dtype_bytes(to_dtype)));
    } else if (to_dtype == YOKE_BF16) {
        narrow(to, from, n);
    } else {
        widen(to, from, n);
    }
}

static void add_floats(float *restrict to, const float *restrict from, int64_t n)
{
    enum { LANES = 16 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            to[i + l] += from[i + l];
        }
    }
    for (; i < n; i++) {
        to[i] += from[i];
    }
}

static void add_narrow(float *restrict to, const yoke_bf16 *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += yoke_bf16_widen(from[i]);
    }
}

void yoke_elements_add(float *to, const void *from, yoke_dtype from_dtype, int64_t n)
{
    if (from_dtype == YOKE_BF16) {
        add_narrow(to, from, n);
    } else {
        add_floats(to, from, n);
    }
}

static void max_floats(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[i] > to[i] || from[i] != from[i] ? from[i] : to[i];
    }
}

void yoke_elements_max(float *to, const void *from, yoke_dtype from_dtype, int64_t n)
{
    enum { BLOCK = 256 };
    float wide[BLOCK];
    if (from_dtype != YOKE_BF16) {
        max_floats(to, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;
        widen(wide, (const yoke_bf16 *)from + i, count);
        max_floats(to + i, wide, count);
    }
}
