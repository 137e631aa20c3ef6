/*
 * The router of a mixture of experts: each row of logits is one token's, the columns are experts.
 *
 *   p = softmax(logits),   gates = p / (sum of the chosen p) for the k largest logits, 0 for the others
 *   dlogits = gates (dgates - sum(gates dgates)) + p (dp - sum(p dp))
 *   z-loss = scale sum over rows of z^2, z = log(sum(exp(logits))),   dlogits = 2 scale z p dloss
 *
 * A row with a logit that is not finite has gates and probabilities that are not numbers, so that the step stops.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

typedef struct exponentials {
    double max, sum; /* of the logits, and of exp(logit - max) */
} exponentials;

static exponentials exponentials_of(const float *logits, int64_t n)
{
    exponentials e = {.max = -(double)INFINITY};
    for (int64_t i = 0; i < n; i++) {
        e.max = (double)logits[i] > e.max ? (double)logits[i] : e.max;
    }
    for (int64_t i = 0; i < n; i++) {
        e.sum += exp((double)logits[i] - e.max);
    }
    return e;
}

/* Marks the largest logit that is not marked yet, the first of equal ones, with a gate of 1. There are as many. */
static void choose_next(const float *logits, int64_t n, float *gates)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        bool better = best < 0 || logits[i] > logits[best];
        best = gates[i] == 0.0f && better ? i : best;
    }
    gates[best] = 1.0f;
}

static void route_row(const float *logits, int64_t n, int64_t n_chosen, float *gates, float *p)
{
    exponentials all = exponentials_of(logits, n);
    bool good = isfinite(all.max) && isfinite(all.sum);
    for (int64_t i = 0; i < n; i++) {
        p[i] = good ? (float)(exp((double)logits[i] - all.max) / all.sum) : NAN;
        gates[i] = good ? 0.0f : NAN;
    }
    for (int64_t i = 0; good && i < n_chosen; i++) {
        choose_next(logits, n, gates);
    }
    double sum = 0.0;
    for (int64_t i = 0; good && i < n; i++) {
        sum += gates[i] != 0.0f ? exp((double)logits[i] - all.max) : 0.0;
    }
    for (int64_t i = 0; good && i < n; i++) {
        gates[i] = gates[i] != 0.0f ? (float)(exp((double)logits[i] - all.max) / sum) : 0.0f;
    }
}

void yoke_ref_router(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        route_row((const float *)call->in[0].data + row * n, n, call->attributes->n_chosen,
                  (float *)call->out[0].data + row * n, (float *)call->out[1].data + row * n);
    }
}

/* y_i = p_i (dp_i - sum(p dp)), added to y or not. */
static void softmax_grad(const float *p, const float *dp, int64_t n, float *y, bool adds)
{
    double mean = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)p[i] * (double)dp[i];
    }
    for (int64_t i = 0; i < n; i++) {
        double slope = (double)p[i] * ((double)dp[i] - mean);
        y[i] = (float)(adds ? (double)y[i] + slope : slope);
    }
}

void yoke_ref_router_grad(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const float *gates = (const float *)call->in[0].data + row * n;
        const float *p = (const float *)call->in[1].data + row * n;
        float *dlogits = (float *)call->out[0].data + row * n;
        softmax_grad(gates, (const float *)call->in[2].data + row * n, n, dlogits, false);
        if (call->n_in > 3) {
            softmax_grad(p, (const float *)call->in[3].data + row * n, n, dlogits, true);
        }
    }
}

void yoke_ref_z_loss(const yoke_kernel_call *call)
{
    float *loss = call->out[0].data;
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double total = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        exponentials e = exponentials_of((const float *)call->in[0].data + row * n, n);
        double z = e.max + log(e.sum);
        total += z * z;
    }
    double before = call->accumulate ? (double)loss[0] : 0.0;
    loss[0] = (float)(before + (double)call->attributes->scale * total);
}

void yoke_ref_z_loss_grad(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double dloss = (double)((const float *)call->in[1].data)[0];
    for (int64_t row = 0; row < rows; row++) {
        const float *logits = (const float *)call->in[0].data + row * n;
        float *dlogits = (float *)call->out[0].data + row * n;
        exponentials e = exponentials_of(logits, n);
        double z = e.max + log(e.sum);
        double slope = 2.0 * (double)call->attributes->scale * z * dloss / e.sum;
        for (int64_t i = 0; i < n; i++) {
            dlogits[i] = (float)(slope * exp((double)logits[i] - e.max));
        }
    }
}
