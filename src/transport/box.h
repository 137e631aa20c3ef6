/*
 * Boxes: the parts that pieces of one tensor have in common, and moving them. A box is a yoke_shard,
 * in coordinates of the global tensor. Integers and copying only; no ranks.
 */
#ifndef YOKE_TRANSPORT_BOX_H
#define YOKE_TRANSPORT_BOX_H

#include <stdbool.h>
#include <stdint.h>
#include "yoke/graph.h"
#include "yoke/layout.h"

/* Writes what a and b have in common; false if that is nothing. Both have the same n_dims. */
bool yoke_box_intersect(const yoke_shard *a, const yoke_shard *b, yoke_shard *common);
bool yoke_box_equal(const yoke_shard *a, const yoke_shard *b);

/* Whether each element of `box` lies in one of n others. */
bool yoke_box_is_covered(const yoke_shard *box, const yoke_shard *others, int n);

/* A box in parts of at most `limit` elements, which are as long in memory as can be. */
int64_t yoke_box_n_parts(const yoke_shard *box, int64_t limit);
yoke_shard yoke_box_part(const yoke_shard *box, int64_t limit, int64_t index);

/* Pieces are compact row-major arrays; `box` lies in both. What is added to is of floats. */
typedef struct yoke_box_move {
    const yoke_shard *box;
    const yoke_shard *from_shard;
    const yoke_shard *to_shard;
    const void *from; /* [elements of from_shard] */
    void *to;         /* [elements of to_shard] */
    yoke_dtype from_dtype, to_dtype;
    bool adds; /* to += from; else to = from */
} yoke_box_move;

void yoke_box_run(const yoke_box_move *move);

/* Sets the box within a piece to a value. */
void yoke_box_fill(const yoke_shard *box, const yoke_shard *to_shard, float *to, float value);

#endif
