/*
 * The load of experts, and the loss that balances it; op/balance.c has the formula. `scale` holds all that does not depend
 * on the load: loss = scale sum of mass chosen.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

void yoke_ref_expert_load(const yoke_kernel_call *call)
{
    const float *gates = call->in[0].data;
    const float *p = call->in[1].data;
    float *mass = call->out[0].data;
    float *chosen = call->out[1].data;
    const int64_t *extent = call->in[0].shard.extent;
    for (int64_t b = 0; b < extent[0]; b++) {
        for (int64_t e = 0; e < extent[2]; e++) {
            double sum = 0.0;
            int64_t n = 0;
            for (int64_t t = 0; t < extent[1]; t++) {
                int64_t i = (b * extent[1] + t) * extent[2] + e;
                sum += (double)p[i];
                n += gates[i] != 0.0f;
            }
            mass[b * extent[2] + e] = (float)sum;
            chosen[b * extent[2] + e] = (float)n;
        }
    }
}

/* The same for each token. */
void yoke_ref_spread(const yoke_kernel_call *call)
{
    const float *a = call->in[0].data;
    float *y = call->out[0].data;
    const int64_t *extent = call->out[0].shard.extent;
    for (int64_t i = 0; i < yoke_piece_elements(&call->out[0]); i++) {
        int64_t b = i / (extent[1] * extent[2]);
        y[i] = a[b * extent[2] + i % extent[2]];
    }
}

void yoke_ref_balance_loss(const yoke_kernel_call *call)
{
    const float *mass = call->in[0].data;
    const float *chosen = call->in[1].data;
    float *loss = call->out[0].data;
    double total = 0.0;
    for (int64_t i = 0; i < yoke_piece_elements(&call->in[0]); i++) {
        total += (double)mass[i] * (double)chosen[i];
    }
    double before = call->accumulate ? (double)loss[0] : 0.0;
    loss[0] = (float)(before + (double)call->attributes->scale * total);
}

void yoke_ref_balance_loss_grad(const yoke_kernel_call *call)
{
    const float *chosen = call->in[0].data;
    double dloss = (double)((const float *)call->in[1].data)[0];
    float *dmass = call->out[0].data;
    for (int64_t i = 0; i < yoke_piece_elements(&call->in[0]); i++) {
        dmass[i] = (float)((double)call->attributes->scale * (double)chosen[i] * dloss);
    }
}

/* A row of zeros stays so. */
void yoke_ref_row_share(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const float *a = (const float *)call->in[0].data + row * n;
        float *y = (float *)call->out[0].data + row * n;
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)a[i];
        }
        for (int64_t i = 0; i < n; i++) {
            y[i] = sum != 0.0 ? (float)((double)a[i] / sum) : 0.0f;
        }
    }
}
