/*
 * Elements in memory: copying and adding runs of them where the two sides may be of other types.
 * Sums are always floats.
 */
#ifndef YOKE_TRANSPORT_ELEMENT_H
#define YOKE_TRANSPORT_ELEMENT_H

#include "yoke/graph.h"

/* Element `at` of an array of that type. */
void *yoke_element_at(void *array, yoke_dtype dtype, int64_t at);
const void *yoke_element_of(const void *array, yoke_dtype dtype, int64_t at);

/* to = from, n elements, converted where the types differ; no overlap. */
void yoke_elements_copy(void *to, yoke_dtype to_dtype, const void *from, yoke_dtype from_dtype,
                        int64_t n);

/* to += from */
void yoke_elements_add(float *to, const void *from, yoke_dtype from_dtype, int64_t n);

/* The larger one, or NaN if one is: a maximum must not hide what went wrong. */
void yoke_elements_max(float *to, const void *from, yoke_dtype from_dtype, int64_t n);

#endif
