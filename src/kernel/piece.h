/*
 * Pieces as arrays: the counting that every kernel does on the shards of its operands.
 *
 * Only extents are read, so all of it also holds for pieces that are empty and have no data.
 */
#ifndef YOKE_KERNEL_PIECE_H
#define YOKE_KERNEL_PIECE_H

#include "kernel/kernel.h"

/* The product of the extents of dims [first, last). */
static inline int64_t yoke_piece_product(const yoke_tensor *piece, int first, int last)
{
    int64_t product = 1;
    for (int dim = first; dim < last; dim++) {
        product *= piece->shard.extent[dim];
    }
    return product;
}

static inline int64_t yoke_piece_elements(const yoke_tensor *piece)
{
    return yoke_piece_product(piece, 0, piece->shard.n_dims);
}

/* A piece as a matrix: the last dim are its columns, all others its rows. */
static inline int64_t yoke_piece_columns(const yoke_tensor *piece)
{
    return piece->shard.n_dims > 0 ? piece->shard.extent[piece->shard.n_dims - 1] : 1;
}

static inline int64_t yoke_piece_rows(const yoke_tensor *piece)
{
    return yoke_piece_product(piece, 0, piece->shard.n_dims - 1);
}

/* Row-major index of the first element of local row `row` of a piece that is not empty, in the global
 * tensor with its tokens at their positions. */
static inline uint64_t yoke_piece_global_row(const yoke_attributes *attributes,
                                             const yoke_shard *shard, int64_t row)
{
    const yoke_shape *global = &attributes->global[0];
    int64_t index = 0;
    int64_t stride = 1;
    for (int dim = shard->n_dims - 1; dim >= 0; dim--) {
        int64_t local = 0;
        if (dim < shard->n_dims - 1) {
            local = row % shard->extent[dim];
            row /= shard->extent[dim];
        }
        int64_t at = shard->offset[dim] + local;
        if (dim == attributes->order_dim) {
            at = yoke_order_position(attributes->order, at);
        }
        index += at * stride;
        stride *= global->extent[dim];
    }
    return (uint64_t)index;
}

/* Where head `h` of token `t` of sample `b` begins in a piece [b, t, h, x], or [b, t, h]. */
static inline int64_t yoke_piece_head(const yoke_tensor *piece, int64_t b, int64_t t, int64_t h)
{
    const int64_t *extent = piece->shard.extent;
    int64_t width = piece->shard.n_dims > 3 ? extent[3] : 1;
    return ((b * extent[1] + t) * extent[2] + h) * width;
}

/* Matrix products of local pieces: `n_batch` times [m | k] times [k | n]. */
typedef struct yoke_product {
    int64_t n_batch;
    int64_t m, n, k;
} yoke_product;

static inline yoke_product yoke_piece_contract(const yoke_kernel_call *call)
{
    const yoke_contraction *c = &call->attributes->contraction;
    const yoke_tensor *a = &call->in[0];
    const yoke_tensor *b = &call->in[1];
    int a_middle = c->n_batch + c->a_split;
    int b_middle = c->n_batch + c->b_split;
    int64_t a_first = yoke_piece_product(a, c->n_batch, a_middle);
    int64_t a_last = yoke_piece_product(a, a_middle, a->shard.n_dims);
    int64_t b_first = yoke_piece_product(b, c->n_batch, b_middle);
    int64_t b_last = yoke_piece_product(b, b_middle, b->shard.n_dims);
    yoke_product product = {
        .n_batch = yoke_piece_product(a, 0, c->n_batch),
        .m = c->a_transposed ? a_last : a_first,
        .k = c->a_transposed ? a_first : a_last,
        .n = c->b_transposed ? b_first : b_last,
    };
    YOKE_ASSERT(product.n_batch == yoke_piece_product(b, 0, c->n_batch));
    YOKE_ASSERT(product.k == (c->b_transposed ? b_last : b_first));
    YOKE_ASSERT(product.n_batch * product.m * product.n == yoke_piece_elements(&call->out[0]));
    return product;
}

#endif
