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

static exponentials exponentials_of(const real *logits, int64_t n)
{
    exponentials e = {.max = -(double)INFINITY};
    for (int64_t i = 0; i < n; i++) {
        double logit = (double)real_widen(logits[i]);
        e.max = logit > e.max ? logit : e.max;
    }
    for (int64_t i = 0; i < n; i++) {
        e.sum += exp((double)real_widen(logits[i]) - e.max);
    }
    return e;
}

/* Marks the largest logit that is not marked yet, the first of equal ones, with a gate of 1. There are as many. */
static void choose_next(const real *logits, int64_t n, float *gates)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        bool better = best < 0 || real_widen(logits[i]) > real_widen(logits[best]);
        best = gates[i] == 0.0f && better ? i : best;
    }
    gates[best] = 1.0f;
}

static void route_row(const real *logits, int64_t n, int64_t n_chosen, float *gates, float *p)
{
    exponentials all = exponentials_of(logits, n);
    bool good = isfinite(all.max) && isfinite(all.sum);
    for (int64_t i = 0; i < n; i++) {
        p[i] = good ? (float)(exp((double)real_widen(logits[i]) - all.max) / all.sum) : NAN;
        gates[i] = good ? 0.0f : NAN;
    }
    for (int64_t i = 0; good && i < n_chosen; i++) {
        choose_next(logits, n, gates);
    }
    double sum = 0.0;
    for (int64_t i = 0; good && i < n; i++) {
        sum += gates[i] != 0.0f ? exp((double)real_widen(logits[i]) - all.max) : 0.0;
    }
    for (int64_t i = 0; good && i < n; i++) {
        gates[i] =
            gates[i] != 0.0f ? (float)(exp((double)real_widen(logits[i]) - all.max) / sum) : 0.0f;
    }
}

void YOKE_REF_NAME(router)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        route_row((const real *)call->in[0].data + row * n, n, call->attributes->n_chosen,
                  (float *)call->out[0].data + row * n, (float *)call->out[1].data + row * n);
    }
}

/* The mean of dp over a distribution p; without a gradient, 0. Taken from the first on, so that where
 * all are equal, as those of a balance loss over all experts, what is left of each is 0 and not what
 * rounding leaves of a sum that should be 1. */
static double mean_of(const float *p, const float *dp, int64_t n)
{
    double mean = dp ? (double)dp[0] : 0.0;
    for (int64_t i = 1; dp && i < n; i++) {
        mean += (double)p[i] * ((double)dp[i] - (double)dp[0]);
    }
    return mean;
}

void YOKE_REF_NAME(router_grad)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const float *gates = (const float *)call->in[0].data + row * n;
        const float *p = (const float *)call->in[1].data + row * n;
        real *dlogits = (real *)call->out[0].data + row * n;
        const float *dgates = (const float *)call->in[2].data + row * n;
        const float *dp = call->n_in > 3 ? (const float *)call->in[3].data + row * n : NULL;
        double gates_mean = mean_of(gates, dgates, n);
        double p_mean = mean_of(p, dp, n);
        for (int64_t i = 0; i < n; i++) {
            float slope = (float)((double)gates[i] * ((double)dgates[i] - gates_mean));
            double other = dp ? (double)p[i] * ((double)dp[i] - p_mean) : 0.0;
            dlogits[i] = real_round(dp ? (float)((double)slope + other) : slope);
        }
    }
}

void YOKE_REF_NAME(z_loss)(const yoke_kernel_call *call)
{
    float *loss = call->out[0].data;
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double total = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        exponentials e = exponentials_of((const real *)call->in[0].data + row * n, n);
        double z = e.max + log(e.sum);
        total += z * z;
    }
    double before = call->accumulate ? (double)loss[0] : 0.0;
    loss[0] = (float)(before + (double)call->attributes->scale * total);
}

void YOKE_REF_NAME(z_loss_grad)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double dloss = (double)((const float *)call->in[1].data)[0];
    for (int64_t row = 0; row < rows; row++) {
        const real *logits = (const real *)call->in[0].data + row * n;
        real *dlogits = (real *)call->out[0].data + row * n;
        exponentials e = exponentials_of(logits, n);
        double z = e.max + log(e.sum);
        double slope = 2.0 * (double)call->attributes->scale * z * dloss / e.sum;
        for (int64_t i = 0; i < n; i++) {
            dlogits[i] = real_round((float)(slope * exp((double)real_widen(logits[i]) - e.max)));
        }
    }
}
