/*
 * Tokens into the slots of their experts and back; ref/dispatch.c says what it is. Work is dealt to the threads by the slots
 * of one expert and sequence, or by tokens, so each element is made by one thread.
 */
#include "kernel/routes.h"
#include "kernel/vector/real.h"

enum { STRIP = 1024 }; /* columns of a token that are summed at a time */

/* to = scale * from */
static void scale_row(const real *from, float scale, real *to, int64_t width)
{
    for (int64_t d = 0; d < width; d += LANES) {
        lanes_put_real(to + d, width - d,
                       lanes_mul(lanes_set(scale), lanes_get_real(from + d, width - d, 0.0f)));
    }
}

/* All slots of expert `e` for sequence `b`. */
static void dispatch(const yoke_kernel_call *call, const yoke_routes *r, int64_t b, int64_t e)
{
    const real *x = call->in[0].data;
    real *u = call->out[0].data;
    int64_t n = r->n_slots * r->width;
    memset(u + (e * r->n_batch + b) * n, 0, (size_t)n * sizeof *u);
    for (int64_t i = b * r->n_tokens; i < (b + 1) * r->n_tokens; i++) {
        int64_t row = yoke_routes_row(r, i, e);
        if (row >= 0) {
            scale_row(x + i * r->width, yoke_routes_gate(r, i, e), u + row * r->width, r->width);
        }
    }
}

void YOKE_VECTOR_NAME(dispatch)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->out[0], call->n_in > 2);
    int64_t n = r.n_batch * r.n_experts;
    if (yoke_piece_elements(&call->out[0]) == 0) {
        return;
    }
#pragma omp parallel for schedule(static) if (yoke_piece_elements(&call->out[0]) > GRAIN)
    for (int64_t i = 0; i < n; i++) {
        dispatch(call, &r, i / r.n_experts, i % r.n_experts);
    }
}

/* Columns [first, first + n) of the sum over the experts of token `i`, in ascending order. It is rounded once. */
static void combine_strip(const yoke_kernel_call *call, const yoke_routes *r, int64_t i,
                          int64_t first, int64_t n)
{
    float sum[STRIP];
    bool any = false;
    for (int64_t e = 0; e < r->n_experts; e++) {
        int64_t row = yoke_routes_row(r, i, e);
        if (row < 0) {
            continue;
        }
        const real *o = (const real *)call->in[0].data + row * r->width + first;
        lanes gate = lanes_set(yoke_routes_gate(r, i, e));
        for (int64_t d = 0; d < n; d += LANES) {
            lanes before = any ? lanes_load(sum + d) : lanes_set(0.0f);
            lanes_store(sum + d, lanes_fma(gate, lanes_get_real(o + d, n - d, 0.0f), before));
        }
        any = true;
    }
    real *y = (real *)call->out[0].data + i * r->width + first;
    for (int64_t d = 0; d < n; d += LANES) {
        lanes_put_real(y + d, n - d, any ? lanes_load(sum + d) : lanes_set(0.0f));
    }
}

void YOKE_VECTOR_NAME(combine)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], call->n_in > 2);
    int64_t n = r.width > 0 ? r.n_batch * r.n_tokens : 0;
#pragma omp parallel for schedule(static) if (n * r.width > GRAIN)
    for (int64_t i = 0; i < n; i++) {
        for (int64_t d = 0; d < r.width; d += STRIP) {
            combine_strip(call, &r, i, d, smaller(STRIP, r.width - d));
        }
    }
}

static float dot(const real *a, const real *b, int64_t n)
{
    lanes sum = lanes_set(0.0f);
    for (int64_t d = 0; d < n; d += LANES) {
        sum =
            lanes_fma(lanes_get_real(a + d, n - d, 0.0f), lanes_get_real(b + d, n - d, 0.0f), sum);
    }
    return lanes_sum(sum);
}

void YOKE_VECTOR_NAME(combine_grad)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], false);
    const real *o = call->in[0].data;
    const real *dy = call->in[2].data;
    float *dgates = call->out[0].data;
    int64_t n = r.n_batch * r.n_tokens;
#pragma omp parallel for schedule(static) if (n * r.width > GRAIN)
    for (int64_t i = 0; i < n; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = yoke_routes_row(&r, i, e);
            bool here = row >= 0 && r.width > 0;
            dgates[i * r.n_experts + e] =
                here ? dot(o + row * r.width, dy + i * r.width, r.width) : 0.0f;
        }
    }
}
