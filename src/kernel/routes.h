/*
 * Routes of tokens to the slots of experts, as the kernels of op/dispatch.c read them.
 *
 * Pieces may be divided by expert, sequence, token and slot. A token whose slot lies elsewhere has no row here.
 */
#ifndef YOKE_KERNEL_ROUTES_H
#define YOKE_KERNEL_ROUTES_H

#include "kernel/kernel.h"

typedef struct yoke_routes {
    const float *slots, *gates; /* [b,t,e]; gates may be NULL: all 1 */
    int64_t n_batch, n_tokens, n_experts, width;
    int64_t first_slot, n_slots; /* of the piece */
} yoke_routes;

/* `experts` is [e,b,c,d]; slots are the second input of a call, gates the third if it has them. */
static inline yoke_routes yoke_routes_get(const yoke_kernel_call *call, const yoke_tensor *experts,
                                          bool has_gates)
{
    const int64_t *extent = call->in[1].shard.extent;
    return (yoke_routes){
        .slots = call->in[1].data,
        .gates = has_gates ? call->in[2].data : NULL,
        .n_batch = extent[0],
        .n_tokens = extent[1],
        .n_experts = extent[2],
        .first_slot = experts->shard.offset[2],
        .n_slots = experts->shard.extent[2],
        .width = experts->shard.extent[3],
    };
}

/* Row of [e,b,c] for expert e of token i of [b,t], or -1 if it has none in this piece. */
static inline int64_t yoke_routes_row(const yoke_routes *routes, int64_t i, int64_t e)
{
    float slot = routes->slots[i * routes->n_experts + e];
    int64_t here = (int64_t)slot - routes->first_slot;
    bool found = slot >= 0.0f && here >= 0 && here < routes->n_slots;
    return found ? (e * routes->n_batch + i / routes->n_tokens) * routes->n_slots + here : -1;
}

static inline float yoke_routes_gate(const yoke_routes *routes, int64_t i, int64_t e)
{
    return routes->gates ? routes->gates[i * routes->n_experts + e] : 1.0f;
}

#endif
