/*
 * Attributes: the constants of a node that are not tensors. Plain data; a field that an operator
 * does not use is zero.
 */
#ifndef YOKE_OP_ATTRIBUTES_H
#define YOKE_OP_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>
#include "mesh/order.h"
#include "yoke/graph.h"
#include "yoke/optimizer.h"

/* Matrix products in the dims of their operands: one for each index of the first `n_batch` dims,
 * which all three share. Of the others, the first `a_split` dims of a are one side of the matrix,
 * the rest the other: [M | K], or [K | M] if a_transposed. Likewise b: [K | N], or [N | K] if
 * b_transposed. The output is [M | N]. */
typedef struct yoke_contraction {
    int a_split, b_split;
    bool a_transposed, b_transposed;
    int n_batch;
} yoke_contraction;

/* A part of each rank's piece: along one dim, from a local index on. */
typedef struct yoke_strip {
    int dim;
    int64_t first;
} yoke_strip;

typedef struct yoke_attributes {
    float epsilon;                         /* norms */
    float rate;                            /* dropout, jitter */
    float scale;                           /* attention, losses of a router */
    float base;                            /* rope */
    int sign;                              /* rope: +1 forward, -1 gradient */
    uint64_t site;                         /* dropout, jitter: yoke_random_name */
    int64_t n_heads, n_kv_heads, n_tokens; /* attention: global sizes */
    int64_t n_chosen;                      /* router: experts for each token */
    int64_t n_slots;                       /* expert_slots: of each expert and sequence */
    bool causal;                           /* attention: no key behind the query is seen */
    yoke_order order;                      /* where ordered: of tokens along order_dim */
    int order_dim;                         /* dim of the first input */
    float decay;                           /* adamw: decoupled weight decay of this parameter */
    yoke_contraction contraction;          /* matmul */
    const yoke_optimizer *optimizer;       /* adamw and its control; lives as long as the graph */
    yoke_strip strip;                      /* strip, join */
    yoke_shape global[2];                  /* dropout, jitter, convert: of the input [0] */
} yoke_attributes;

#endif
