/*
 * What attention and its gradient share: which keys a query sees, and blocks of queries. The pieces of q and of k may each
 * begin at any token, in global numbers.
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
    int64_t n = call->in[0].shard.offset[1] + t + 1 - call->in[1].shard.offset[1];
    return n < 0 ? 0 : smaller(n, n_keys);
}

/* Local key/value head of the local query head, which must be here. */
static inline int64_t head_kv(const yoke_kernel_call *call, int64_t h)
{
    int64_t group = call->attributes->n_heads / call->attributes->n_kv_heads;
    int64_t kv = (call->in[0].shard.offset[2] + h) / group - call->in[1].shard.offset[2];
    YOKE_ASSERT(kv >= 0 && kv < call->in[1].shard.extent[2]);
    return kv;
}

static inline block block_get(const yoke_kernel_call *call, int64_t b, int64_t h, int64_t t)
{
    block q = {
        .b = b,
        .h = h,
        .kv = head_kv(call, h),
        .t = t,
        .rows = smaller(QUERIES, call->in[0].shard.extent[1] - t),
    };
    q.n_keys = visible_keys(call, t + q.rows - 1);
    q.key_panels = ceil_div(q.n_keys, LANES);
    return q;
}

/* Floats from one token to the next in a piece [b, t, h, x]. */
static inline int64_t token_stride(const yoke_tensor *piece)
{
    return piece->shard.extent[2] * piece->shard.extent[3];
}

/* Dropout index of the query in row `row` of the block and local key 0; see ref/attention.c. */
static inline uint64_t drop_index(const yoke_kernel_call *call, const block *q, int64_t row)
{
    const yoke_attributes *attributes = call->attributes;
    const int64_t *offset = call->in[0].shard.offset;
    int64_t head = (offset[0] + q->b) * attributes->n_heads + offset[2] + q->h;
    int64_t query = head * attributes->n_tokens + offset[1] + q->t + row;
    return (uint64_t)(query * attributes->n_tokens + call->in[1].shard.offset[1]);
}

/* The block's rows of a piece, one after the other and times `scale`; zeros up to QUERIES rows. */
static inline void block_copy(const yoke_tensor *piece, const block *q, float scale, float *to)
{
    int64_t width = piece->shard.extent[3];
    for (int64_t row = 0; row < QUERIES; row++) {
        const float *from = NULL;
        if (row < q->rows) {
            from = (const float *)piece->data + yoke_piece_head(piece, q->b, q->t + row, q->h);
        }
        for (int64_t x = 0; x < width; x++) {
            to[row * width + x] = from ? from[x] * scale : 0.0f;
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
