/*
 * Cross entropy in parts that work on a shard of the vocabulary (Shoeybi et al., "Megatron-LM", 2019): each rank has the
 * maximum, the sum of exponentials and the picked logit of its columns; the maximum over the ranks comes between.
 *
 *   loss = sum over valid labels of log(sum) + max - picked,   dlogits = (exp(logit - max) / sum - onehot) dloss
 *
 * A label is a global column; a negative one is not valid and counts nowhere. A shard without columns has maximum -inf
 * and sum 0.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

void YOKE_REF_NAME(row_max)(const yoke_kernel_call *call)
{
    const real *logits = call->in[0].data;
    float *max = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        float best = -INFINITY;
        for (int64_t v = 0; v < width; v++) {
            float logit = real_widen(logits[row * width + v]);
            /* A logit that is not a number must reach the loss, where it stops the step. */
            best = logit > best || isnan(logit) ? logit : best;
        }
        max[row] = best;
    }
}

void YOKE_REF_NAME(row_sum_exp)(const yoke_kernel_call *call)
{
    const real *logits = call->in[0].data;
    const float *max = call->in[1].data;
    float *sum = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        double total = 0.0;
        for (int64_t v = 0; v < width; v++) {
            total += exp((double)real_widen(logits[row * width + v]) - (double)max[row]);
        }
        sum[row] = (float)total;
    }
}

void YOKE_REF_NAME(row_pick)(const yoke_kernel_call *call)
{
    const real *logits = call->in[0].data;
    const int32_t *labels = call->in[1].data;
    float *picked = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        int64_t column = labels[row] - call->in[0].shard.offset[2];
        bool is_here = labels[row] >= 0 && column >= 0 && column < width;
        picked[row] = is_here ? real_widen(logits[row * width + column]) : 0.0f;
    }
}

void YOKE_REF_NAME(cross_entropy)(const yoke_kernel_call *call)
{
    const float *max = call->in[1].data;
    const float *sum = call->in[2].data;
    const float *picked = call->in[3].data;
    const int32_t *labels = call->in[4].data;
    float *loss = call->out[0].data;
    int64_t rows = yoke_piece_elements(&call->in[4]);
    double total = call->accumulate ? (double)loss[0] : 0.0;
    for (int64_t row = 0; row < rows; row++) {
        if (labels[row] >= 0) {
            total += log((double)sum[row]) + (double)max[row] - (double)picked[row];
        }
    }
    loss[0] = (float)total;
}

void YOKE_REF_NAME(cross_entropy_grad)(const yoke_kernel_call *call)
{
    const real *logits = call->in[0].data;
    const float *max = call->in[1].data;
    const float *sum = call->in[2].data;
    const int32_t *labels = call->in[3].data;
    double dloss = (double)((const float *)call->in[4].data)[0];
    real *dlogits = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        int64_t column = labels[row] - call->in[0].shard.offset[2];
        for (int64_t v = 0; v < width; v++) {
            double logit = (double)real_widen(logits[row * width + v]);
            double p = exp(logit - (double)max[row]) / (double)sum[row];
            double grad = (p - (v == column ? 1.0 : 0.0)) * dloss;
            dlogits[row * width + v] = real_round(labels[row] >= 0 ? (float)grad : 0.0f);
        }
    }
}
