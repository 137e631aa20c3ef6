/*
 * AdamW and the scalars that control a step; see yoke/optimizer.h.
 *
 *   g = gradient scale,  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
 *   p = p - lr (m / bias1 / (sqrt(v / bias2) + epsilon) + decay p)
 *
 * The elements are computed in float, in the order written, so that a vectorised form gives the same bits.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

void yoke_ref_adamw_control(const yoke_kernel_call *call)
{
    const yoke_optimizer *optimizer = call->attributes->optimizer;
    float norm = (float)sqrt((double)((const float *)call->in[0].data)[0]);
    float n_valid = ((const float *)call->in[1].data)[0];
    float *applied = call->in[2].data;
    float *control = call->out[0].data;
    bool apply = n_valid > 0.0f && isfinite(norm);
    double n = (double)applied[0] + (apply ? 1.0 : 0.0);
    double previous = n > 0.0 ? n - 1.0 : 0.0;
    bool clipped = optimizer->clip > 0.0 && (double)norm > optimizer->clip;
    applied[0] = (float)n;
    control[YOKE_CONTROL_APPLY] = apply ? 1.0f : 0.0f;
    control[YOKE_CONTROL_LR] = (float)yoke_optimizer_lr(optimizer, (int64_t)previous);
    control[YOKE_CONTROL_SCALE] = clipped ? (float)(optimizer->clip / (double)norm) : 1.0f;
    control[YOKE_CONTROL_BIAS1] = (float)(1.0 - pow(optimizer->beta1, n));
    control[YOKE_CONTROL_BIAS2] = (float)(1.0 - pow(optimizer->beta2, n));
    control[YOKE_CONTROL_NORM] = norm;
    control[YOKE_CONTROL_STEP] = (float)n;
    control[YOKE_CONTROL_UNUSED] = 0.0f;
}

void yoke_ref_adamw(const yoke_kernel_call *call)
{
    const yoke_optimizer *optimizer = call->attributes->optimizer;
    const float *control = call->in[4].data;
    const float *gradient = call->in[3].data;
    float *parameter = call->in[0].data;
    float *first = call->in[1].data;
    float *second = call->in[2].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    if (!(control[YOKE_CONTROL_APPLY] > 0.0f)) {
        return;
    }
    float beta1 = (float)optimizer->beta1;
    float beta2 = (float)optimizer->beta2;
    float rest1 = (float)(1.0 - optimizer->beta1);
    float rest2 = (float)(1.0 - optimizer->beta2);
    float epsilon = (float)optimizer->epsilon;
    float lr = control[YOKE_CONTROL_LR];
    for (int64_t i = 0; i < n; i++) {
        float g = gradient[i] * control[YOKE_CONTROL_SCALE];
        first[i] = beta1 * first[i] + rest1 * g;
        second[i] = beta2 * second[i] + rest2 * (g * g);
        float m = first[i] / control[YOKE_CONTROL_BIAS1];
        float root = sqrtf(second[i] / control[YOKE_CONTROL_BIAS2]);
        parameter[i] -= lr * (m / (root + epsilon) + call->attributes->decay * parameter[i]);
    }
}
