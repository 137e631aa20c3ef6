/*
 * Which slot of an expert each of its tokens takes; op/dispatch.c says what slots are.
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
