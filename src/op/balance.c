/*
 * What keeps the experts of a layer equally busy, and what shows whether they are.
 *
 * The balance loss (Fedus et al., "Switch transformers", 2022, section 2.2), for each sequence of T
 * tokens that choose k of E experts each:
 *
 *   T * E * sum over e of (n_e / T) * (sum over t of p[t,e] / T)
 *
 * n_e is the number of tokens that chose e, through which no gradient flows; equal load gives k T, as
 * HuggingFace counts, where the shares n_e / T add up to k too. The z-loss (Zoph et al., "ST-MoE", 2022, section 3.2): the sum over tokens of log(sum(exp(logits)))^2.
 *
 * Both are sums over tokens, like the loss itself, and are divided with it by the number of valid
 * labels of the step, in one place (op/step.h).
 */
#include <string.h>
#include "op/op.h"
#include "op/step.h"

static yoke_value add_node(yoke_graph *graph, yoke_op op, const yoke_value in[2], const char *dims,
                           float scale)
{
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = op,
                                           .n_in = in[1] == YOKE_NO_VALUE ? 1 : 2,
                                           .in = in,
                                           .out_dims = {dims},
                                           .attributes = {.scale = scale}},
                         NULL);
}

/* Sums over the tokens of each sequence: {mass, chosen} [b,r]. */
static void count_load(yoke_graph *graph, const yoke_routing *routing, yoke_value load[2])
{
    const yoke_value in[] = {routing->gates, routing->probabilities};
    const char *dims = yoke_value_get(graph, routing->gates)->dims;
    const char rows[] = {dims[0], dims[2], 0};
    yoke_value out[YOKE_MAX_OUTPUTS] = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE};
    yoke_node_add(
        graph,
        &(yoke_node_spec){.op = YOKE_OP_EXPERT_LOAD, .n_in = 2, .in = in, .out_dims = {rows, rows}},
        out);
    load[0] = out[0];
    load[1] = out[1];
}

void yoke_expert_balance(yoke_graph *graph, const yoke_routing *routing, float coefficient)
{
    const yoke_value in[] = {routing->gates, routing->probabilities};
    yoke_value load[2];
    if (!yoke_values_good(graph, in, 2) ||
        !yoke_value_expect(graph, "probabilities of a balance loss", routing->probabilities,
                           yoke_value_get(graph, routing->gates)->dims)) {
        return;
    }
    const yoke_shape shape = yoke_value_get(graph, routing->gates)->shape;
    count_load(graph, routing, load);
    if (!yoke_values_good(graph, load, 2)) {
        return;
    }
    const char *dims = yoke_value_get(graph, load[1])->dims;
    const yoke_value chosen[] = {load[1], YOKE_NO_VALUE};
    yoke_step_expert_load(graph, add_node(graph, YOKE_OP_SUM_ROWS, chosen, dims + 1, 0));
    if (coefficient > 0) {
        double scale = (double)coefficient * (double)shape.extent[2] / (double)shape.extent[1];
        yoke_step_auxiliary_loss(graph,
                                 add_node(graph, YOKE_OP_BALANCE_LOSS, load, "", (float)scale));
    }
}

void yoke_router_z_loss(yoke_graph *graph, yoke_value logits, float coefficient)
{
    const yoke_value in[] = {logits, YOKE_NO_VALUE};
    if (yoke_values_good(graph, in, 1) && coefficient > 0) {
        yoke_step_auxiliary_loss(graph, add_node(graph, YOKE_OP_Z_LOSS, in, "", coefficient));
    }
}

/* Of the mass alone, the first output. */
static void load_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                          yoke_value *d_in)
{
    const yoke_value in[] = {d_out[0], YOKE_NO_VALUE};
    d_in[1] = add_node(graph, YOKE_OP_SPREAD, in, yoke_value_get(graph, node->in[1])->dims, 0);
}

static void balance_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                             yoke_value *d_in)
{
    const yoke_value in[] = {node->in[1], d_out[0]};
    d_in[0] = add_node(graph, YOKE_OP_BALANCE_LOSS_GRAD, in,
                       yoke_value_get(graph, node->in[0])->dims, node->attributes.scale);
}

static void z_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                       yoke_value *d_in)
{
    const yoke_value in[] = {node->in[0], d_out[0]};
    d_in[0] = add_node(graph, YOKE_OP_Z_LOSS_GRAD, in, yoke_value_get(graph, node->in[0])->dims,
                       node->attributes.scale);
}

const yoke_op_def yoke_op_expert_load = {.name = "expert_load", .gradient = load_gradient};
const yoke_op_def yoke_op_spread = {.name = "spread", .linear = {1 << 0}};
const yoke_op_def yoke_op_balance_loss = {
    .name = "balance_loss",
    .linear = {1 << 0, 1 << 1},
    .gradient = balance_gradient,
    .accumulates = true,
};
const yoke_op_def yoke_op_balance_loss_grad = {.name = "balance_loss_grad", .linear = {1 << 0}};

/* The logits of a row are needed together. */
const yoke_op_def yoke_op_z_loss = {
    .name = "z_loss",
    .whole = "er",
    .gradient = z_gradient,
    .accumulates = true,
    .narrow_in = 1 << 0,
};
const yoke_op_def yoke_op_z_loss_grad = {
    .name = "z_loss_grad",
    .whole = "$",
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_row_share = {.name = "row_share", .whole = "$"};
