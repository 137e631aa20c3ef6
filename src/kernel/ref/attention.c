/*
 * Attention with grouped queries, one row of scores at a time: memory grows with the number of tokens.
 *
 *   score[s] = scale q.k[s] for the keys s that the query sees, p = exp(score - lse), lse = log sum exp(score),
 *   y = sum of p[s] keep[s] v[s], keep = 0 or 1 / (1 - rate) by dropout, 1 without.
 * Gradient as in FlashAttention-2 (Dao, 2023), which keeps only lse:
 *   dp[s] = keep[s] dy.v[s], delta = dy.y, ds[s] = p[s] (dp[s] - delta),
 *   dq = scale sum of ds[s] k[s], dk[s] = scale sum of ds[s] q, dv[s] = sum of p[s] keep[s] dy over the queries.
 * Query head h uses key/value head h / (n_heads / n_kv_heads), in global numbers (Ainslie et al., "GQA", 2023).
 *
 * A query sees all keys, or the ones at or before it if causal. Positions are global: a piece of q may begin at any
 * token and any head, and tokens may stand in the order of mesh/order.h. Keys are taken by position. A query that sees no key has y = 0 and lse = -inf. The key/value head of
 * each local query head must be here; those that no local query head uses get a gradient of zero: other ranks hold theirs.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"
#include "yoke/random.h"

typedef struct query {
    int64_t b, t, h; /* local */
    int64_t kv;      /* local key/value head */
    int64_t n_keys;  /* local keys that it sees: the first by position */
    uint64_t first;  /* dropout index of the key at position 0 */
} query;

static query query_get(const yoke_kernel_call *call, int64_t b, int64_t t, int64_t h)
{
    const yoke_attributes *attributes = call->attributes;
    const yoke_shard *q = &call->in[0].shard;
    const yoke_shard *k = &call->in[1].shard;
    int64_t token = yoke_order_position(attributes->order, q->offset[1] + t);
    int64_t head = q->offset[2] + h;
    int64_t n_seen = yoke_order_count(attributes->order, k->offset[1], k->extent[1], token);
    int64_t kv = head / (attributes->n_heads / attributes->n_kv_heads) - k->offset[2];
    YOKE_ASSERT(kv >= 0 && kv < k->extent[2]);
    return (query){
        .b = b,
        .t = t,
        .h = h,
        .kv = kv,
        .n_keys = attributes->causal ? n_seen : k->extent[1],
        .first =
            (uint64_t)((((q->offset[0] + b) * attributes->n_heads + head) * attributes->n_tokens +
                        token) *
                       attributes->n_tokens),
    };
}

static const real *row_get(const yoke_tensor *piece, const query *row)
{
    return (const real *)piece->data + yoke_piece_head(piece, row->b, row->t, row->h);
}

/* The local key that is the s-th by position. */
static yoke_stretch key_find(const yoke_kernel_call *call, int64_t s)
{
    const yoke_shard *k = &call->in[1].shard;
    yoke_stretch key = yoke_order_find(call->attributes->order, k->offset[1], k->extent[1], s);
    key.index -= k->offset[1];
    return key;
}

/* Its row of k, input 1, or of v, input 2. */
static const real *key_get(const yoke_kernel_call *call, int input, const query *row, int64_t s)
{
    const yoke_tensor *piece = &call->in[input];
    int64_t at = yoke_piece_head(piece, row->b, key_find(call, s).index, row->kv);
    return (const real *)piece->data + at;
}

static double dot(const real *a, const real *b, int64_t width)
{
    double sum = 0.0;
    for (int64_t x = 0; x < width; x++) {
        sum += (double)real_widen(a[x]) * (double)real_widen(b[x]);
    }
    return sum;
}

/* 0 where the probability of the s-th key is dropped, else what it is multiplied by. */
static double keep_get(const yoke_kernel_call *call, const query *row, int64_t s)
{
    const yoke_attributes *attributes = call->attributes;
    if (!(attributes->rate > 0.0f)) {
        return 1.0;
    }
    yoke_random_key key =
        yoke_random_stream_hashed(call->seed, attributes->site, call->step, call->microbatch);
    uint64_t index = row->first + (uint64_t)key_find(call, s).position;
    bool keep = yoke_random_uniform(key, index) >= attributes->rate;
    return keep ? 1.0 / (1.0 - (double)attributes->rate) : 0.0;
}

/* Element x of the sum of the values, each times its score. */
static double weigh_values(const yoke_kernel_call *call, const query *row, const double *score,
                           int64_t x)
{
    int64_t stride = yoke_piece_product(&call->in[2], 2, 4);
    double sum = 0.0;
    for (int64_t s = 0; s < row->n_keys;) {
        const real *v = key_get(call, 2, row, s) + x;
        int64_t end = s + key_find(call, s).n;
        for (; s < row->n_keys && s < end; s++, v += stride) {
            sum += score[s] * (double)real_widen(*v);
        }
    }
    return sum;
}

static void attend(const yoke_kernel_call *call, const query *row)
{
    const real *q = row_get(&call->in[0], row);
    real *y = (real *)call->out[0].data + yoke_piece_head(&call->out[0], row->b, row->t, row->h);
    float *lse =
        (float *)call->out[1].data + yoke_piece_head(&call->out[1], row->b, row->t, row->h);
    int64_t width = call->in[0].shard.extent[3];
    double *score = call->scratch;
    double max = (double)-INFINITY;
    for (int64_t s = 0; s < row->n_keys; s++) {
        score[s] = (double)call->attributes->scale * dot(q, key_get(call, 1, row, s), width);
        max = score[s] > max ? score[s] : max;
    }
    double sum = 0.0;
    for (int64_t s = 0; s < row->n_keys; s++) {
        score[s] = exp(score[s] - max);
        sum += score[s];
        score[s] *= keep_get(call, row, s);
    }
    for (int64_t x = 0; x < width; x++) {
        double weighted = weigh_values(call, row, score, x);
        y[x] = real_round(row->n_keys > 0 ? (float)(weighted / sum) : 0.0f);
    }
    *lse = (float)(max + log(sum));
}

void YOKE_REF_NAME(attention)(const yoke_kernel_call *call)
{
    const int64_t *extent = call->in[0].shard.extent;
    for (int64_t b = 0; b < extent[0]; b++) {
        for (int64_t t = 0; t < extent[1]; t++) {
            for (int64_t h = 0; h < extent[2]; h++) {
                query row = query_get(call, b, t, h);
                attend(call, &row);
            }
        }
    }
}

/* Gradient of one query: dq, and what it adds to the sums dk and dv [key, x] of its key/value head. */
static void attend_grad(const yoke_kernel_call *call, const query *row, double *dk, double *dv)
{
    const real *q = row_get(&call->in[0], row);
    const real *dy = row_get(&call->in[5], row);
    real *dq = (real *)call->out[0].data + yoke_piece_head(&call->out[0], row->b, row->t, row->h);
    int64_t width = call->in[0].shard.extent[3];
    double scale = (double)call->attributes->scale;
    const float *all_lse = call->in[4].data;
    double lse = (double)all_lse[yoke_piece_head(&call->in[4], row->b, row->t, row->h)];
    double delta = dot(dy, row_get(&call->in[3], row), width);
    double *sum = dv + call->in[1].shard.extent[1] * width;
    for (int64_t x = 0; x < width; x++) {
        sum[x] = 0.0;
    }
    for (int64_t s = 0; s < row->n_keys; s++) {
        const real *k = key_get(call, 1, row, s);
        double keep = keep_get(call, row, s);
        double p = exp(scale * dot(q, k, width) - lse);
        double ds = p * (keep * dot(dy, key_get(call, 2, row, s), width) - delta);
        for (int64_t x = 0; x < width; x++) {
            sum[x] += scale * ds * (double)real_widen(k[x]);
            dk[s * width + x] += scale * ds * (double)real_widen(q[x]);
            dv[s * width + x] += p * keep * (double)real_widen(dy[x]);
        }
    }
    for (int64_t x = 0; x < width; x++) {
        dq[x] = real_round((float)sum[x]);
    }
}

static void write_key_grads(const yoke_kernel_call *call, int output, const int64_t at[2],
                            const double *sum)
{
    const yoke_tensor *piece = &call->out[output];
    int64_t width = piece->shard.extent[3];
    for (int64_t s = 0; s < piece->shard.extent[1]; s++) {
        real *row =
            (real *)piece->data + yoke_piece_head(piece, at[0], key_find(call, s).index, at[1]);
        for (int64_t x = 0; x < width; x++) {
            row[x] = real_round((float)sum[s * width + x]);
        }
    }
}

void YOKE_REF_NAME(attention_grad)(const yoke_kernel_call *call)
{
    const int64_t *extent = call->in[0].shard.extent;
    const int64_t *kv_extent = call->in[1].shard.extent;
    int64_t n_sums = kv_extent[1] * kv_extent[3];
    double *dk = call->scratch;
    double *dv = dk + n_sums;
    for (int64_t pair = 0; pair < extent[0] * kv_extent[2]; pair++) {
        int64_t b = pair / kv_extent[2];
        int64_t kv = pair % kv_extent[2];
        for (int64_t i = 0; i < 2 * n_sums; i++) {
            dk[i] = 0.0;
        }
        for (int64_t h = 0; h < extent[2]; h++) {
            for (int64_t t = 0; t < extent[1]; t++) {
                query row = query_get(call, b, t, h);
                if (row.kv == kv) {
                    attend_grad(call, &row, dk, dv);
                }
            }
        }
        const int64_t at[2] = {b, kv};
        write_key_grads(call, 1, at, dk);
        write_key_grads(call, 2, at, dv);
    }
}
