/*
 * The way of tokens to their experts and back (Lepikhin et al., "GShard", 2021).
 *
 * Each expert has c slots for each sequence. A token takes the next free slot of an expert that it
 * chose, in the order of the sequence; one that finds none is dropped there, and with all its experts
 * full contributes 0. So drops depend on the sequence alone, and never on the batch or the mesh.
 *
 *   u[e,b,c,:] = x[b,t,:] of the token in that slot, 0 if there is none
 *   y[b,t,:]   = sum over e of gates[b,t,e] * o[e,b,slots[b,t,e],:]
 *
 * The two are each other's transpose, and so the kernels of each other's gradients. Experts are
 * numbered along `e` where they compute, where tensors may be divided by expert, and along the last
 * dim of gates and slots, which are small and never are.
 */
#include <math.h>
#include <string.h>
#include "op/op.h"

enum { MOST_SLOTS = 1 << 24 }; /* whole numbers that a float holds */

/* True if the gates or slots are [b,t,experts]. */
static bool routes(yoke_graph *graph, const char *what, yoke_value value)
{
    const yoke_value_info *info = yoke_value_get(graph, value);
    if (info->shape.n_dims == 3 && strncmp(info->dims, "bt", 2) == 0) {
        return true;
    }
    yoke_graph_fail(graph, "%s: %s has dims [%s], wants [b,t,experts]", what, info->name,
                    info->dims);
    return false;
}

/* Slots of each expert and sequence, or 0 and a failed graph. */
static int64_t count_slots(yoke_graph *graph, const yoke_routing *routing, double capacity_factor)
{
    const yoke_shape *shape = &yoke_value_get(graph, routing->gates)->shape;
    int64_t n_tokens = shape->extent[1];
    double share = (double)n_tokens * (double)routing->n_chosen / (double)shape->extent[2];
    double wanted = ceil(capacity_factor * share);
    bool all = capacity_factor == 0 || wanted > (double)n_tokens;
    int64_t n_slots = all ? n_tokens : wanted < 1 ? 1 : (int64_t)wanted;
    int64_t before = yoke_letter_extent(graph, 'c');
    if (!(capacity_factor >= 0) || n_slots > MOST_SLOTS || (before != 0 && before != n_slots)) {
        yoke_graph_fail(graph,
                        "capacity factor %g gives experts %lld slots for %lld tokens of a sequence "
                        "(letter 'c': %lld before); use one factor of 0 or more, at most %d slots",
                        capacity_factor, (long long)n_slots, (long long)n_tokens, (long long)before,
                        MOST_SLOTS);
        return 0;
    }
    if (before == 0) {
        yoke_letter(graph, 'c', n_slots);
    }
    return n_slots;
}

yoke_value yoke_expert_slots(yoke_graph *graph, const yoke_routing *routing, double capacity_factor)
{
    yoke_value gates = routing->gates;
    if (!yoke_values_good(graph, &gates, 1) || !routes(graph, "gates", gates)) {
        return YOKE_NO_VALUE;
    }
    int64_t n_slots = count_slots(graph, routing, capacity_factor);
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_EXPERT_SLOTS,
                                           .n_in = 1,
                                           .in = &gates,
                                           .out_dims = {yoke_value_get(graph, gates)->dims},
                                           .attributes = {.n_slots = n_slots}},
                         NULL);
}

/* A move of x by slots, weighted by gates unless these are YOKE_NO_VALUE. */
static yoke_value move(yoke_graph *graph, yoke_op op, const yoke_value in[3])
{
    bool dispatches = op == YOKE_OP_DISPATCH;
    const char *const rules[] = {dispatches ? "btd" : "ebcd", "bte", "bte"};
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = op,
                                           .n_in = in[2] == YOKE_NO_VALUE ? 2 : 3,
                                           .in = in,
                                           .in_rules = rules,
                                           .out_dims = {dispatches ? "ebcd" : "btd"}},
                         NULL);
}

/* True if there are as many experts as the last dim of the slots counts. */
static bool counts_fit(yoke_graph *graph, yoke_value slots)
{
    int64_t n_routes = yoke_value_get(graph, slots)->shape.extent[2];
    if (yoke_letter_extent(graph, 'e') == n_routes) {
        return true;
    }
    yoke_graph_fail(graph, "%lld experts (letter 'e') and routes to %lld; make them equal",
                    (long long)yoke_letter_extent(graph, 'e'), (long long)n_routes);
    return false;
}

yoke_value yoke_expert_dispatch(yoke_graph *graph, yoke_value x, yoke_value slots)
{
    const yoke_value in[] = {x, slots, YOKE_NO_VALUE};
    if (!yoke_values_good(graph, in, 2) || !yoke_value_expect(graph, "dispatch", x, "btd") ||
        !routes(graph, "dispatch", slots) || !counts_fit(graph, slots)) {
        return YOKE_NO_VALUE;
    }
    return move(graph, YOKE_OP_DISPATCH, in);
}

yoke_value yoke_expert_combine(yoke_graph *graph, yoke_value o, yoke_value slots, yoke_value gates)
{
    const yoke_value in[] = {o, slots, gates};
    if (!yoke_values_good(graph, in, 3) || !yoke_value_expect(graph, "combine", o, "ebcd") ||
        !routes(graph, "combine", slots) || !counts_fit(graph, slots) ||
        !yoke_value_expect(graph, "gates of combine", gates, yoke_value_get(graph, slots)->dims)) {
        return YOKE_NO_VALUE;
    }
    return move(graph, YOKE_OP_COMBINE, in);
}

static void dispatch_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                              yoke_value *d_in)
{
    const yoke_value in[] = {d_out[0], node->in[1], YOKE_NO_VALUE};
    d_in[0] = move(graph, YOKE_OP_COMBINE, in);
}

static void combine_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                             yoke_value *d_in)
{
    const yoke_value for_experts[] = {d_out[0], node->in[1], node->in[2]};
    const yoke_value for_gates[] = {node->in[0], node->in[1], d_out[0]};
    const char *const rules[] = {"ebcd", "bte", "btd"};
    d_in[0] = move(graph, YOKE_OP_DISPATCH, for_experts);
    d_in[2] =
        yoke_node_add(graph,
                      &(yoke_node_spec){.op = YOKE_OP_COMBINE_GRAD,
                                        .n_in = 3,
                                        .in = for_gates,
                                        .in_rules = rules,
                                        .out_dims = {yoke_value_get(graph, node->in[2])->dims},
                                        .out_rules = {"bte"}},
                      NULL);
}

/* A token's slot depends on those before it. */
const yoke_op_def yoke_op_expert_slots = {
    .name = "expert_slots", .whole = "t", .ordered = true, .cheap = true};

/* Tokens could be divided too, each piece filling its own slots. But then sums of parts would go
 * where tokens go now, and slots are more than tokens. */
const yoke_op_def yoke_op_dispatch = {
    .name = "dispatch",
    .whole = "t",
    .linear = {1 << 0},
    .cheap = true,
    .gradient = dispatch_gradient,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_combine = {
    .name = "combine",
    .linear = {1 << 0},
    .gradient = combine_gradient,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_combine_grad = {
    .name = "combine_grad",
    .linear = {1 << 0, 1 << 2},
    .narrow_in = 1 << 0 | 1 << 2,
};
