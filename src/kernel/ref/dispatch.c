/*
 * Tokens into the slots of their experts and back; op/dispatch.c says what slots are.
 *
 * Pieces may be divided by expert, sequence, token and slot. A token whose slot lies elsewhere is left out, so sums over
 * the pieces are the whole.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

void yoke_ref_expert_slots(const yoke_kernel_call *call)
{
    const float *gates = call->in[0].data;
    float *slots = call->out[0].data;
    const int64_t *extent = call->in[0].shard.extent;
    for (int64_t b = 0; b < extent[0]; b++) {
        for (int64_t e = 0; e < extent[2]; e++) {
            int64_t n_taken = 0;
            for (int64_t t = 0; t < extent[1]; t++) {
                int64_t i = (b * extent[1] + t) * extent[2] + e;
                bool chosen = gates[i] != 0.0f;
                bool fits = chosen && n_taken < call->attributes->n_slots;
                slots[i] = fits ? (float)n_taken : -1.0f;
                n_taken += chosen;
            }
        }
    }
}

/* The dims that experts and tokens share, whichever operand has them. */
typedef struct routes {
    const float *slots, *gates; /* [b,t,e]; gates may be NULL: all 1 */
    int64_t n_batch, n_tokens, n_experts, width;
    int64_t first_slot, n_slots; /* of the piece at hand */
} routes;

static routes routes_get(const yoke_kernel_call *call, const yoke_tensor *in_slots)
{
    const int64_t *extent = call->in[1].shard.extent;
    return (routes){
        .slots = call->in[1].data,
        .gates = call->n_in > 2 ? call->in[2].data : NULL,
        .n_batch = extent[0],
        .n_tokens = extent[1],
        .n_experts = extent[2],
        .first_slot = in_slots->shard.offset[2],
        .n_slots = in_slots->shard.extent[2],
        .width = in_slots->shard.extent[3],
    };
}

/* Row of [e,b,c] for expert e of token t of sequence b, or -1 if it has none in this piece. */
static int64_t find_row(const routes *r, int64_t b, int64_t t, int64_t e)
{
    int64_t slot = (int64_t)r->slots[(b * r->n_tokens + t) * r->n_experts + e] - r->first_slot;
    bool dropped = r->slots[(b * r->n_tokens + t) * r->n_experts + e] < 0.0f;
    bool here = !dropped && slot >= 0 && slot < r->n_slots;
    return here ? (e * r->n_batch + b) * r->n_slots + slot : -1;
}

static double gate_of(const routes *r, int64_t b, int64_t t, int64_t e)
{
    return r->gates ? (double)r->gates[(b * r->n_tokens + t) * r->n_experts + e] : 1.0;
}

void yoke_ref_dispatch(const yoke_kernel_call *call)
{
    routes r = routes_get(call, &call->out[0]);
    const float *x = call->in[0].data;
    float *u = call->out[0].data;
    for (int64_t i = 0; i < yoke_piece_elements(&call->out[0]); i++) {
        u[i] = 0.0f;
    }
    for (int64_t b = 0; b < r.n_batch; b++) {
        for (int64_t t = 0; t < r.n_tokens; t++) {
            for (int64_t e = 0; e < r.n_experts; e++) {
                int64_t row = find_row(&r, b, t, e);
                double gate = gate_of(&r, b, t, e);
                for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                    double value = (double)x[(b * r.n_tokens + t) * r.width + d];
                    u[row * r.width + d] = (float)(gate * value);
                }
            }
        }
    }
}

void yoke_ref_combine(const yoke_kernel_call *call)
{
    routes r = routes_get(call, &call->in[0]);
    const float *o = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t d = 0; d < r.width; d++) {
            double sum = 0.0;
            for (int64_t e = 0; e < r.n_experts; e++) {
                int64_t row = find_row(&r, i / r.n_tokens, i % r.n_tokens, e);
                double gate = gate_of(&r, i / r.n_tokens, i % r.n_tokens, e);
                sum += row >= 0 ? gate * (double)o[row * r.width + d] : 0.0;
            }
            y[i * r.width + d] = (float)sum;
        }
    }
}

void yoke_ref_combine_grad(const yoke_kernel_call *call)
{
    routes r = routes_get(call, &call->in[0]);
    const float *o = call->in[0].data;
    const float *dy = call->in[2].data;
    float *dgates = call->out[0].data;
    for (int64_t i = 0; i < r.n_batch * r.n_tokens; i++) {
        for (int64_t e = 0; e < r.n_experts; e++) {
            int64_t row = find_row(&r, i / r.n_tokens, i % r.n_tokens, e);
            double sum = 0.0;
            for (int64_t d = 0; row >= 0 && d < r.width; d++) {
                sum += (double)o[row * r.width + d] * (double)dy[i * r.width + d];
            }
            dgates[i * r.n_experts + e] = (float)sum;
        }
    }
}
