/*
 * Order: at which index of a tensor each token of a sequence stands.
 *
 * Causal attention of a late token costs more than that of an early one. So that pieces of equal
 * length cost the same, a sequence is cut into an even number of chunks; the first stands beside the
 * last, the second beside the last but one, and so on (Llama Team, "The Llama 3 herd of models",
 * 2024, section 3.3.2). A piece of a tensor stays an interval of indices; what a token is, its
 * position in the sequence, is told here. Integers only; no tensor is moved.
 */
#ifndef YOKE_MESH_ORDER_H
#define YOKE_MESH_ORDER_H

#include <stdint.h>

typedef struct yoke_order {
    int64_t n_tokens; /* of a sequence */
    int64_t n_chunks; /* even, and divides n_tokens; 0: every token stands at its position */
} yoke_order;

int64_t yoke_order_position(yoke_order order, int64_t index);
int64_t yoke_order_index(yoke_order order, int64_t position);

/* Tokens that follow one another by index and by position alike. */
typedef struct yoke_stretch {
    int64_t index, position; /* of the first */
    int64_t n;
} yoke_stretch;

/* Indices [first, first + n) by position: from the j-th token on, 0 <= j < n, as many as are in one
 * stretch. */
yoke_stretch yoke_order_find(yoke_order order, int64_t first, int64_t n, int64_t j);

/* How many tokens at the indices [first, first + n) are at `position` or before it. */
int64_t yoke_order_count(yoke_order order, int64_t first, int64_t n, int64_t position);

#endif
