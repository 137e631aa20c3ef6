/*
 * Attention over blocks of 48 queries; ref/attention.c says what it is.
 *
 * Heads are dealt to the threads. For each head its keys and values are packed once; then, for each block of queries, all
 * scores of the block, the exponentials, and the weighted sum of the values are three small dense passes. Scores take
 * 48 rows, so memory grows with the number of keys.
 */
#include "kernel/vector/attention.h"

typedef struct workspace {
    yoke_attention_plan plan;
    float *k, *v, *score, *q, *y;
} workspace;

static workspace workspace_get(const yoke_kernel_call *call)
{
    workspace w = {
        .plan = yoke_attention_plan_get(call->in[1].shard.extent[1], call->in[1].shard.extent[3])};
    w.k = (float *)call->scratch + thread_slot() * w.plan.forward_floats;
    w.v = w.k + w.plan.key_floats;
    w.score = w.v + w.plan.key_floats;
    w.q = w.score + w.plan.score_floats;
    w.y = w.q + w.plan.query_floats;
    return w;
}

static void pack_keys(const yoke_kernel_call *call, int64_t b, int64_t kv, const workspace *w)
{
    const int64_t at[2] = {b, kv};
    int64_t n_keys = call->in[1].shard.extent[1];
    for (int64_t s = 0; s < n_keys;) {
        yoke_stretch keys = keys_find(call, s);
        packing k = keys_packing(&call->in[1], at, &keys, s);
        packing v = keys_packing(&call->in[2], at, &keys, s);
        pack_turned(&k, w->k);
        pack_straight(&v, n_keys, w->v);
        s += keys.n;
    }
}

/* Turns the scores of one query into exponentials, 0 for keys that it does not see. Returns their sum before dropout and
 * the maximum. */
static float row_softmax(float *score, int64_t n_seen, int64_t n_all, float *max)
{
    lanes best = lanes_set(-INFINITY);
    for (int64_t s = 0; s < n_seen; s += LANES) {
        best = lanes_max(best, lanes_get(score + s, n_seen - s, -INFINITY));
    }
    *max = lanes_highest(best);
    lanes sum = lanes_set(0.0f);
    for (int64_t s = 0; s < n_all; s += LANES) {
        lanes p = lanes_set(0.0f);
        if (s < n_seen) {
            lanes a = lanes_get(score + s, n_seen - s, -INFINITY);
            p = lanes_exp(lanes_sub(a, lanes_set(*max)));
        }
        sum = lanes_add(sum, p);
        lanes_store(score + s, p);
    }
    return lanes_sum(sum);
}

static void row_drop(const yoke_kernel_call *call, const dropout *drop, uint64_t query, float *p,
                     int64_t n)
{
    for (int64_t s = 0; s < n; s += LANES) {
        lanes keep = keys_keep(call, drop, query, s);
        lanes_store(p + s, dropout_apply(keep, lanes_load(p + s)));
    }
}

static void block_attend(const yoke_kernel_call *call, const block *q, const workspace *w)
{
    int64_t width = call->in[0].shard.extent[3];
    dropout drop = dropout_get(call);
    float sum[QUERIES];
    block_copy(&call->in[0], q, call->attributes->scale, w->q);
    multiply_run(&(multiply){.a = {w->q, width, 1},
                             .b = w->k,
                             .c = w->score,
                             .c_row = w->plan.keys_stride,
                             .rows = q->rows,
                             .depth = width,
                             .panels = q->key_panels,
                             .panel_depth = width});
    for (int64_t row = 0; row < q->rows; row++) {
        float *score = w->score + row * w->plan.keys_stride;
        int64_t n_seen = visible_keys(call, q->t + row);
        float max;
        sum[row] = row_softmax(score, n_seen, q->key_panels * LANES, &max);
        ((float *)call->out[1].data)[yoke_piece_head(&call->out[1], q->b, q->t + row, q->h)] =
            max + logf(sum[row]);
        if (drop.rate > 0.0f) {
            row_drop(call, &drop, drop_index(call, q, row), score, n_seen);
        }
    }
    multiply_run(&(multiply){.a = {w->score, w->plan.keys_stride, 1},
                             .b = w->v,
                             .c = w->y,
                             .c_row = w->plan.width,
                             .rows = q->rows,
                             .depth = q->n_keys,
                             .panels = w->plan.width / LANES,
                             .panel_depth = call->in[1].shard.extent[1]});
    for (int64_t row = 0; row < q->rows; row++) {
        real *y =
            (real *)call->out[0].data + yoke_piece_head(&call->out[0], q->b, q->t + row, q->h);
        float factor = sum[row] == 0.0f ? 0.0f : 1.0f / sum[row];
        for (int64_t x = 0; x < width; x += LANES) {
            lanes weighted = lanes_load(w->y + row * w->plan.width + x);
            lanes_put_real(y + x, width - x, lanes_mul(weighted, lanes_set(factor)));
        }
    }
}

void YOKE_VECTOR_NAME(attention)(const yoke_kernel_call *call)
{
    const int64_t *extent = call->in[0].shard.extent;
#pragma omp parallel for schedule(dynamic, 1) if (extent[0] * extent[2] > 1)
    for (int64_t head = 0; head < extent[0] * extent[2]; head++) {
        workspace w = workspace_get(call);
        int64_t b = head / extent[2];
        int64_t h = head % extent[2];
        pack_keys(call, b, head_kv(call, h), &w);
        for (int64_t s = 0; s < extent[1];) {
            block q = block_get(call, b, h, s);
            block_attend(call, &q, &w);
            s += q.rows;
        }
    }
}
