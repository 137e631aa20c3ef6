/*
 * Operator definitions: index rule, cost and gradient of each operator in op/list.h, as one
 * constant struct.
 */
#ifndef YOKE_OP_OP_H
#define YOKE_OP_OP_H

#include "op/node.h"

enum { YOKE_MAX_LINEAR = 2, YOKE_ALL_INPUTS = -1 };

typedef struct yoke_op_def {
    const char *name;

    /* Letters that the operator cannot split, though they stand in its rule: 'x' of attention, the
     * last dim of a norm (written '$'). NULL: every letter may be split. */
    const char *whole;

    /* Sets of inputs (masks, or YOKE_ALL_INPUTS) in which the operator is linear together: where
     * all of a set are partial, so is the output. */
    int linear[YOKE_MAX_LINEAR];

    /* Masks of inputs: written in place; named only so that gradients find them; of which the first
     * output may take the storage, where the shapes are equal. */
    unsigned updates, unread, reuses;
    unsigned lends; /* of the last: those that are there for nothing else */

    /* Masks of inputs and outputs that may be stored in bf16: all of a node's in the same type,
     * unless the operator mixes. The others are always f32. */
    unsigned narrow_in, narrow_out;
    bool mixes; /* each of them may have a type of its own */

    bool stream;      /* the output is the residual stream */
    bool passes_pin;  /* a pin on the output is worth having on the inputs: add, bias, dropout */
    bool maximum;     /* a letter missing in the output is reduced by max, not by sum */
    bool accumulates; /* the kernel can add to its outputs: over micro-batches */
    bool spans;       /* inputs may live on different pipeline stages: each adds its own part */
    bool masks;       /* a replicated input may be counted on one rank alone (R -> P) */
    bool
        sums_whole; /* partial inputs become whole on every rank, not pieces: others read them so */
    bool ordered;   /* the result depends on where tokens stand in the sequence: attributes.order */
    bool light;     /* one pass over what its gradient reads anyway */
    bool cheap;     /* little work for what its outputs fill: rather computed again than kept */

    /* A letter that is divided with `letter`, if `n_parts` ranks allow it, or 0. NULL: none. */
    char (*companion)(const yoke_graph *graph, const yoke_node *node, char letter, int n_parts);

    /* Adds the nodes that compute d_in[i] (YOKE_NO_VALUE: no gradient) from d_out. NULL: no
     * gradient flows. */
    void (*gradient)(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in);

    /* Of the whole node; NULL: too few to count. */
    double (*flops)(const yoke_graph *graph, const yoke_node *node);
} yoke_op_def;

const yoke_op_def *yoke_op_get(yoke_op op);

/* Whether input or output `i` is in a mask of a definition. A node may have more than a mask has bits:
 * those are in YOKE_ALL_INPUTS alone. */
bool yoke_mask_has(unsigned mask, int i);

#define YOKE_OP_DECLARE(upper, lower) extern const yoke_op_def yoke_op_##lower;
YOKE_OP_LIST(YOKE_OP_DECLARE)
#undef YOKE_OP_DECLARE

#endif
