/*
 * Tokens into the slots of their experts and back; op/dispatch.c says what slots are. A token whose slot lies in another
 * piece is left out, so sums over the pieces are the whole.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"
#include "kernel/routes.h"

void YOKE_REF_NAME(dispatch)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->out[0], call->n_in > 2);
    const real *x = call->in[0].data;
    real *u = call->out[0].data;
    for (int64_t i = 0; i < yoke_piece_elements(&call->out[0]); i++) {
        u[i] = real_round(0.0f);
    }
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = yoke_routes_row(&r, i, e);
            float gate = yoke_routes_gate(&r, i, e);
            for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                u[row * r.width + d] = real_round(gate * real_widen(x[i * r.width + d]));
            }
        }
    }
}

void YOKE_REF_NAME(combine)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], call->n_in > 2);
    const real *o = call->in[0].data;
    real *y = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t d = 0; d < r.width; d++) {
            double sum = 0.0;
            for (int64_t e = 0; e < r.n_experts; e++) {
                int64_t row = yoke_routes_row(&r, i, e);
                double gate = (double)yoke_routes_gate(&r, i, e);
                sum += row >= 0 ? gate * (double)real_widen(o[row * r.width + d]) : 0.0;
            }
            y[i * r.width + d] = real_round((float)sum);
        }
    }
}

void YOKE_REF_NAME(combine_grad)(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], false);
    const real *o = call->in[0].data;
    const real *dy = call->in[2].data;
    float *dgates = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = yoke_routes_row(&r, i, e);
            double sum = 0.0;
            for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                double o_d = (double)real_widen(o[row * r.width + d]);
                sum += o_d * (double)real_widen(dy[i * r.width + d]);
            }
            dgates[i * r.n_experts + e] = (float)sum;
        }
    }
}
