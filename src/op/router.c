/*
 * Router of a mixture of experts (Shazeer et al. 2017; in the form of Jiang et al., "Mixtral of
 * experts", 2024): the k experts of the largest logits, ties to the lower number, are weighted by a
 * softmax over the chosen.
 *
 *   probabilities = softmax(logits),   gates = probabilities / (sum over the chosen), 0 for the others
 *
 * A gate that is not 0 is what "chosen" means everywhere else.
 */
#include <string.h>
#include "op/op.h"

yoke_routing yoke_router(yoke_graph *graph, yoke_value logits, int64_t n_chosen)
{
    yoke_routing none = {YOKE_NO_VALUE, YOKE_NO_VALUE, n_chosen};
    if (!yoke_values_good(graph, &logits, 1)) {
        return none;
    }
    const yoke_value_info *info = yoke_value_get(graph, logits);
    int64_t n_experts = info->shape.n_dims == 3 ? info->shape.extent[2] : 0;
    if (n_chosen < 1 || n_chosen > n_experts) {
        yoke_graph_fail(
            graph, "router of [%s]: wants [b,t,experts] and chooses 1 to %lld of them, not %lld",
            info->dims, (long long)n_experts, (long long)n_chosen);
        return none;
    }
    yoke_value out[YOKE_MAX_OUTPUTS] = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE};
    yoke_node_add(graph,
                  &(yoke_node_spec){.op = YOKE_OP_ROUTER,
                                    .n_in = 1,
                                    .in = &logits,
                                    .out_dims = {info->dims, info->dims},
                                    .attributes = {.n_chosen = n_chosen}},
                  out);
    return (yoke_routing){out[0], out[1], n_chosen};
}

/* Probabilities that no loss reads have no gradient. */
static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    const yoke_value in[] = {node->out[0], node->out[1], d_out[0], d_out[1]};
    d_in[0] =
        yoke_node_add(graph,
                      &(yoke_node_spec){.op = YOKE_OP_ROUTER_GRAD,
                                        .n_in = d_out[1] == YOKE_NO_VALUE ? 3 : 4,
                                        .in = in,
                                        .out_dims = {yoke_value_get(graph, node->in[0])->dims}},
                      NULL);
}

const yoke_op_def yoke_op_router = {
    .name = "router",
    .whole = "$",
    .cheap = true,
    .gradient = gradient,
    .narrow_in = 1 << 0,
};

/* Both gradients count together; one that every piece has whole is then counted once. */
const yoke_op_def yoke_op_router_grad = {
    .name = "router_grad",
    .whole = "$",
    .linear = {1 << 2 | 1 << 3},
    .masks = true,
    .narrow_out = 1 << 0,
};
