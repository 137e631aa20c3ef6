/*
 * What attention and its gradient share: which keys a query sees, and blocks of queries. The pieces of q and of k may each
 * begin at any token, in global numbers, and tokens may stand in the order of mesh/order.h. Packed keys stand by position,
 * so a query sees the first so many of them; and blocks are of queries that follow one another.
 */
#ifndef YOKE_KERNEL_VECTOR_ATTENTION_H
#define YOKE_KERNEL_VECTOR_ATTENTION_H

#include "kernel/attention_plan.h"
#include "kernel/vector/random.h"
#include "kernel/vector/tile.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

enum { QUERIES = YOKE_ATTENTION_QUERIES };

/* A block of queries [t, t + rows) of one head. */
typedef struct block {
    int64_t b, h, kv; /* local */
    int64_t t, rows;
    int64_t n_keys;     /* that its last query sees */
    int64_t key_panels; /* that hold them */
} block;

static inline int64_t visible_keys(const yoke_kernel_call *call, int64_t t)
{
    int64_t n_keys = call->in[1].shard.extent[1];
    if (!call->attributes->causal) {
        return n_keys;
    }
    yoke_order order = call->attributes->order;
    int64_t position = yoke_order_position(order, call->in[0].shard.offset[1] + t);
    return yoke_order_count(order, call->in[1].shard.offset[1], n_keys, position);
}

/* From the s-th packed key on, those that also stand together in the piece; their index is the local one. */
static inline yoke_stretch keys_find(const yoke_kernel_call *call, int64_t s)
{
    const yoke_shard *k = &call->in[1].shard;
    yoke_stretch keys = yoke_order_find(call->attributes->order, k->offset[1], k->extent[1], s);
    keys.index -= k->offset[1];
    return keys;
}

/* Local key/value head of the local query head, which must be here. */
static inline int64_t head_kv(const yoke_kernel_call *call, int64_t h)
{
    int64_t group = call->attributes->n_heads / call->attributes->n_kv_heads;
    int64_t kv = (call->in[0].shard.offset[2] + h) / group - call->in[1].shard.offset[2];
    YOKE_ASSERT(kv >= 0 && kv < call->in[1].shard.extent[2]);
    return kv;
}

/* The block that begins with the s-th query by position. */
static inline block block_get(const yoke_kernel_call *call, int64_t b, int64_t h, int64_t s)
{
    const yoke_shard *piece = &call->in[0].shard;
    yoke_stretch queries =
        yoke_order_find(call->attributes->order, piece->offset[1], piece->extent[1], s);
    block q = {
        .b = b,
        .h = h,
        .kv = head_kv(call, h),
        .t = queries.index - piece->offset[1],
        .rows = smaller(QUERIES, queries.n),
    };
    q.n_keys = visible_keys(call, q.t + q.rows - 1);
    q.key_panels = ceil_div(q.n_keys, LANES);
    return q;
}

/* Floats from one token to the next in a piece [b, t, h, x]. */
static inline int64_t token_stride(const yoke_tensor *piece)
{
    return piece->shard.extent[2] * piece->shard.extent[3];
}

/* Rows of k or v of a stretch of keys, to be packed from key `s` on. */
static inline packing keys_packing(const yoke_tensor *piece, const int64_t at[2],
                                   const yoke_stretch *keys, int64_t s)
{
    return (packing){
        .from = (const real *)piece->data + yoke_piece_head(piece, at[0], keys->index, at[1]),
        .stride = token_stride(piece),
        .rows = keys->n,
        .width = piece->shard.extent[3],
        .first = s,
    };
}

/* Dropout index of the query in row `row` of the block and the key at position 0; see ref/attention.c. */
static inline uint64_t drop_index(const yoke_kernel_call *call, const block *q, int64_t row)
{
    const yoke_attributes *attributes = call->attributes;
    const int64_t *offset = call->in[0].shard.offset;
    int64_t head = (offset[0] + q->b) * attributes->n_heads + offset[2] + q->h;
    int64_t token = yoke_order_position(attributes->order, offset[1] + q->t + row);
    return (uint64_t)((head * attributes->n_tokens + token) * attributes->n_tokens);
}

/* What the packed keys [s, s + 16) are multiplied by; `query` is its drop_index. Those of a piece may lie apart. */
static inline lanes keys_keep(const yoke_kernel_call *call, const dropout *drop, uint64_t query,
                              int64_t s)
{
    int64_t n_keys = call->in[1].shard.extent[1];
    if (n_keys == call->attributes->n_tokens) {
        return dropout_keep(drop, query + (uint64_t)s);
    }
    yoke_stretch keys = keys_find(call, s);
    lanes keep = dropout_keep(drop, query + (uint64_t)keys.position);
    if (keys.n >= smaller(LANES, n_keys - s)) {
        return keep;
    }
    float joined[2 * LANES];
    lanes_store(joined, keep);
    for (int64_t i = keys.n; i < smaller(LANES, n_keys - s); i += keys.n) {
        keys = keys_find(call, s + i);
        lanes_store(joined + i, dropout_keep(drop, query + (uint64_t)keys.position));
    }
    return lanes_load(joined);
}

/* The block's rows of a piece, one after the other and times `scale`; zeros up to QUERIES rows. */
static inline void block_copy(const yoke_tensor *piece, const block *q, float scale, float *to)
{
    int64_t width = piece->shard.extent[3];
    for (int64_t row = 0; row < QUERIES; row++) {
        const real *from = NULL;
        if (row < q->rows) {
            from = (const real *)piece->data + yoke_piece_head(piece, q->b, q->t + row, q->h);
        }
        for (int64_t x = 0; x < width; x++) {
            to[row * width + x] = from ? real_widen(from[x]) * scale : 0.0f;
        }
    }
}

/* Slot of the calling thread in scratch. */
static inline int thread_slot(void)
{
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

#endif
