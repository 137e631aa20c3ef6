/*
 * Activations, element by element. GELU in its tanh form and in its exact one (Hendrycks and Gimpel
 * 2016); SwiGLU: silu(gate) * up (Shazeer 2020).
 */
#include "op/op.h"

static yoke_value add_activation(yoke_graph *graph, yoke_op op, yoke_value a)
{
    if (!yoke_values_good(graph, &a, 1)) {
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(
        graph,
        &(yoke_node_spec){
            .op = op, .n_in = 1, .in = &a, .out_dims = {yoke_value_get(graph, a)->dims}},
        NULL);
}

static yoke_value add_gradient(yoke_graph *graph, yoke_op op, yoke_value a, yoke_value dy)
{
    const yoke_value in[] = {a, dy};
    return yoke_node_add(
        graph,
        &(yoke_node_spec){
            .op = op, .n_in = 2, .in = in, .out_dims = {yoke_value_get(graph, a)->dims}},
        NULL);
}

yoke_value yoke_gelu(yoke_graph *graph, yoke_value a)
{
    return add_activation(graph, YOKE_OP_GELU, a);
}

static void gelu_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                          yoke_value *d_in)
{
    d_in[0] = add_gradient(graph, YOKE_OP_GELU_GRAD, node->in[0], d_out[0]);
}

yoke_value yoke_gelu_erf(yoke_graph *graph, yoke_value a)
{
    return add_activation(graph, YOKE_OP_GELU_ERF, a);
}

static void gelu_erf_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                              yoke_value *d_in)
{
    d_in[0] = add_gradient(graph, YOKE_OP_GELU_ERF_GRAD, node->in[0], d_out[0]);
}

yoke_value yoke_swiglu(yoke_graph *graph, yoke_value gate, yoke_value up)
{
    const yoke_value in[] = {gate, up};
    if (!yoke_values_good(graph, in, 2) ||
        !yoke_value_expect(graph, "up of swiglu", up, yoke_value_get(graph, gate)->dims)) {
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_SWIGLU,
                                           .n_in = 2,
                                           .in = in,
                                           .out_dims = {yoke_value_get(graph, gate)->dims}},
                         NULL);
}

static void swiglu_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                            yoke_value *d_in)
{
    const char *dims = yoke_value_get(graph, node->in[0])->dims;
    const yoke_value in[] = {node->in[0], node->in[1], d_out[0]};
    yoke_node_add(
        graph,
        &(yoke_node_spec){.op = YOKE_OP_SWIGLU_GRAD, .n_in = 3, .in = in, .out_dims = {dims, dims}},
        d_in);
}

const yoke_op_def yoke_op_gelu = {
    .name = "gelu",
    .light = true,
    .cheap = true,
    .gradient = gelu_gradient,
    .reuses = 1 << 0,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_gelu_grad = {
    .name = "gelu_grad",
    .reuses = 1 << 0 | 1 << 1,
    .narrow_in = 1 << 0 | 1 << 1,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_gelu_erf = {
    .name = "gelu_erf",
    .light = true,
    .cheap = true,
    .gradient = gelu_erf_gradient,
    .reuses = 1 << 0,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_gelu_erf_grad = {
    .name = "gelu_erf_grad",
    .reuses = 1 << 0 | 1 << 1,
    .narrow_in = 1 << 0 | 1 << 1,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_swiglu = {
    .name = "swiglu",
    .light = true,
    .cheap = true,
    .gradient = swiglu_gradient,
    .narrow_in = 1 << 0 | 1 << 1,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_swiglu_grad = {
    .name = "swiglu_grad",
    .narrow_in = 1 << 0 | 1 << 1 | 1 << 2,
    .narrow_out = 1 << 0 | 1 << 1,
};
