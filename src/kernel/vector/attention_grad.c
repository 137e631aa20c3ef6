/*
 * The gradient of attention over blocks of 48 queries; ref/attention.c says what it is.
 *
 * Key/value heads are dealt to the threads, and a thread takes all local query heads of its own, so that dK and dV belong
 * to one thread and are added in one order. Probabilities are computed again from lse.
 */
#include "kernel/vector/attention.h"

typedef struct workspace {
    yoke_attention_plan plan;
    float *k_turned, *v_turned, *k_straight; /* panels of the keys and values */
    float *dk, *dv;                          /* [keys, width] */
    float *p, *ds;                           /* [queries, keys] */
    float *q, *dy;                           /* [queries, x] */
    float *q_straight, *dy_straight;         /* panels of them */
    float *dq;                               /* [queries, width] */
} workspace;

static workspace workspace_get(const yoke_kernel_call *call)
{
    workspace w = {
        .plan = yoke_attention_plan_get(call->in[1].shard.extent[1], call->in[1].shard.extent[3])};
    const yoke_attention_plan *plan = &w.plan;
    w.k_turned = (float *)call->scratch + thread_slot() * plan->gradient_floats;
    w.v_turned = w.k_turned + plan->key_floats;
    w.k_straight = w.v_turned + plan->key_floats;
    w.dk = w.k_straight + plan->key_floats;
    w.dv = w.dk + plan->key_floats;
    w.p = w.dv + plan->key_floats;
    w.ds = w.p + plan->score_floats;
    w.q = w.ds + plan->score_floats;
    w.dy = w.q + plan->query_floats;
    w.q_straight = w.dy + plan->query_floats;
    w.dy_straight = w.q_straight + plan->query_floats;
    w.dq = w.dy_straight + plan->query_floats;
    return w;
}

static void head_begin(const yoke_kernel_call *call, int64_t b, int64_t kv, const workspace *w)
{
    const int64_t at[2] = {b, kv};
    int64_t n_keys = call->in[1].shard.extent[1];
    for (int64_t s = 0; s < n_keys;) {
        yoke_stretch keys = keys_find(call, s);
        packing k = keys_packing(&call->in[1], at, &keys, s);
        packing v = keys_packing(&call->in[2], at, &keys, s);
        pack_turned(&k, w->k_turned);
        pack_turned(&v, w->v_turned);
        pack_straight(&k, n_keys, w->k_straight);
        s += keys.n;
    }
    memset(w->dk, 0, (size_t)(2 * w->plan.key_floats) * sizeof(float));
}

/* Writes dk or dv of a head, of which the sums stand as keys are packed. */
static void head_end(const yoke_kernel_call *call, int output, const int64_t at[2],
                     const float *sum, int64_t sum_row)
{
    const yoke_tensor *piece = &call->out[output];
    int64_t width = piece->shard.extent[3];
    for (int64_t s = 0; s < piece->shard.extent[1];) {
        yoke_stretch keys = keys_find(call, s);
        for (int64_t i = 0; i < keys.n; i++) {
            real *to = (real *)piece->data + yoke_piece_head(piece, at[0], keys.index + i, at[1]);
            const float *from = sum + (s + i) * sum_row;
            for (int64_t x = 0; x < width; x += LANES) {
                lanes_put_real(to + x, width - x, lanes_load(from + x));
            }
        }
        s += keys.n;
    }
}

static float dot(const real *a, const real *b, int64_t n)
{
    lanes sum = lanes_set(0.0f);
    for (int64_t i = 0; i < n; i += LANES) {
        sum =
            lanes_fma(lanes_get_real(a + i, n - i, 0.0f), lanes_get_real(b + i, n - i, 0.0f), sum);
    }
    return lanes_sum(sum);
}

/* From scores and dp of one query to dropped probabilities and ds, both 0 for keys that it does not see. */
static void row_grad(const yoke_kernel_call *call, const block *q, int64_t row, const workspace *w)
{
    const float *lse = call->in[4].data;
    dropout drop = dropout_get(call);
    int64_t width = call->in[0].shard.extent[3];
    int64_t at = yoke_piece_head(&call->in[3], q->b, q->t + row, q->h);
    int64_t n_seen = visible_keys(call, q->t + row);
    uint64_t query = drop_index(call, q, row);
    lanes log_sum = lanes_set(lse[yoke_piece_head(&call->in[4], q->b, q->t + row, q->h)]);
    lanes delta = lanes_set(
        dot((const real *)call->in[5].data + at, (const real *)call->in[3].data + at, width));
    float *score = w->p + row * w->plan.keys_stride;
    float *ds = w->ds + row * w->plan.keys_stride;
    for (int64_t s = 0; s < n_seen; s += LANES) {
        lanes p = lanes_exp(lanes_sub(lanes_get(score + s, n_seen - s, -INFINITY), log_sum));
        lanes dp = lanes_get(ds + s, n_seen - s, 0.0f);
        lanes kept = p;
        if (drop.rate > 0.0f) {
            lanes keep = keys_keep(call, &drop, query, s);
            dp = dropout_apply(keep, dp);
            kept = dropout_apply(keep, p);
        }
        lanes_store(score + s, kept);
        lanes_store(ds + s, lanes_mul(p, lanes_sub(dp, delta)));
    }
    for (int64_t s = ceil_div(n_seen, LANES); s <= q->key_panels; s++) {
        lanes_store(score + s * LANES, lanes_set(0.0f));
        lanes_store(ds + s * LANES, lanes_set(0.0f));
    }
}

/* Scores into p and dp into ds, then what the rows make of them. */
static void block_probabilities(const yoke_kernel_call *call, const block *q, const workspace *w)
{
    int64_t width = call->in[0].shard.extent[3];
    multiply m = {.a = {w->q, width, 1},
                  .b = w->k_turned,
                  .c = w->p,
                  .c_row = w->plan.keys_stride,
                  .rows = q->rows,
                  .depth = width,
                  .panels = q->key_panels,
                  .panel_depth = width};
    multiply_run(&m);
    m.a.data = w->dy;
    m.b = w->v_turned;
    m.c = w->ds;
    multiply_run(&m);
    for (int64_t row = 0; row < q->rows; row++) {
        row_grad(call, q, row, w);
    }
}

/* As pack_straight, from the rows of a block. */
static void block_panels(const float *from, int64_t rows, int64_t width, float *to)
{
    for (int64_t x = 0; x < width; x += LANES) {
        for (int64_t row = 0; row < rows; row++) {
            lanes_store(to, lanes_get(from + row * width + x, width - x, 0.0f));
            to += LANES;
        }
    }
}

static void block_grad(const yoke_kernel_call *call, const block *q, const workspace *w)
{
    int64_t width = call->in[0].shard.extent[3];
    int64_t panels = w->plan.width / LANES;
    float scale = call->attributes->scale;
    block_copy(&call->in[0], q, scale, w->q);
    block_copy(&call->in[5], q, 1.0f, w->dy);
    block_panels(w->q, q->rows, width, w->q_straight);
    block_panels(w->dy, q->rows, width, w->dy_straight);
    block_probabilities(call, q, w);
    multiply m = {.a = {w->ds, w->plan.keys_stride, 1},
                  .b = w->k_straight,
                  .c = w->dq,
                  .c_row = w->plan.width,
                  .rows = q->rows,
                  .depth = q->n_keys,
                  .panels = panels,
                  .panel_depth = call->in[1].shard.extent[1]};
    multiply_run(&m);
    for (int64_t row = 0; row < q->rows; row++) {
        real *dq =
            (real *)call->out[0].data + yoke_piece_head(&call->out[0], q->b, q->t + row, q->h);
        for (int64_t x = 0; x < width; x += LANES) {
            lanes sum = lanes_load(w->dq + row * w->plan.width + x);
            lanes_put_real(dq + x, width - x, lanes_mul(sum, lanes_set(scale)));
        }
    }
    m = (multiply){.a = {w->ds, 1, w->plan.keys_stride},
                   .b = w->q_straight,
                   .c = w->dk,
                   .c_row = w->plan.width,
                   .rows = q->n_keys,
                   .depth = q->rows,
                   .panels = panels,
                   .panel_depth = q->rows,
                   .add = true};
    multiply_run(&m);
    m.a.data = w->p;
    m.b = w->dy_straight;
    m.c = w->dv;
    multiply_run(&m);
}

void YOKE_VECTOR_NAME(attention_grad)(const yoke_kernel_call *call)
{
    const int64_t *extent = call->in[0].shard.extent;
    const int64_t n_kv = call->in[1].shard.extent[2];
#pragma omp parallel for schedule(dynamic, 1) if (extent[0] * n_kv > 1)
    for (int64_t head = 0; head < extent[0] * n_kv; head++) {
        workspace w = workspace_get(call);
        int64_t b = head / n_kv;
        int64_t kv = head % n_kv;
        const int64_t at[2] = {b, kv};
        head_begin(call, b, kv, &w);
        for (int64_t h = 0; h < extent[2]; h++) {
            for (int64_t s = 0; s < extent[1] && head_kv(call, h) == kv;) {
                block q = block_get(call, b, h, s);
                block_grad(call, &q, &w);
                s += q.rows;
            }
        }
        head_end(call, 1, at, w.dk, w.plan.width);
        head_end(call, 2, at, w.dv, w.plan.width);
    }
}
