/*
 * Tokens into the slots of their experts and back; op/dispatch.c says what slots are. A token whose slot lies in another
 * piece is left out, so sums over the pieces are the whole.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"
#include "kernel/routes.h"

void yoke_ref_expert_slots(const yoke_kernel_call *call)
{
    const float *gates = call->in[0].data;
    float *slots = call->out[0].data;
    const int64_t *extent = call->in[0].shard.extent;
    for (int64_t b = 0; b < extent[0]; b++) {
        for (int64_t e = 0; e < extent[2]; e++) {
            int64_t n_taken = 0;
            for (int64_t position = 0; position < extent[1]; position++) {
                int64_t t = yoke_order_index(call->attributes->order, position);
                int64_t i = (b * extent[1] + t) * extent[2] + e;
                bool chosen = gates[i] != 0.0f;
                bool fits = chosen && n_taken < call->attributes->n_slots;
                slots[i] = fits ? (float)n_taken : -1.0f;
                n_taken += chosen;
            }
        }
    }
}

void yoke_ref_dispatch(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->out[0], call->n_in > 2);
    const float *x = call->in[0].data;
    float *u = call->out[0].data;
    for (int64_t i = 0; i < yoke_piece_elements(&call->out[0]); i++) {
        u[i] = 0.0f;
    }
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = yoke_routes_row(&r, i, e);
            for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                u[row * r.width + d] = yoke_routes_gate(&r, i, e) * x[i * r.width + d];
            }
        }
    }
}

void yoke_ref_combine(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], call->n_in > 2);
    const float *o = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t d = 0; d < r.width; d++) {
            double sum = 0.0;
            for (int64_t e = 0; e < r.n_experts; e++) {
                int64_t row = yoke_routes_row(&r, i, e);
                double gate = (double)yoke_routes_gate(&r, i, e);
                sum += row >= 0 ? gate * (double)o[row * r.width + d] : 0.0;
            }
            y[i * r.width + d] = (float)sum;
        }
    }
}

void yoke_ref_combine_grad(const yoke_kernel_call *call)
{
    yoke_routes r = yoke_routes_get(call, &call->in[0], false);
    const float *o = call->in[0].data;
    const float *dy = call->in[2].data;
    float *dgates = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = yoke_routes_row(&r, i, e);
            double sum = 0.0;
            for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                sum += (double)o[row * r.width + d] * (double)dy[i * r.width + d];
            }
            dgates[i * r.n_experts + e] = (float)sum;
        }
    }
}
