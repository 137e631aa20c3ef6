/*
 * Norms over the last dim. LayerNorm: Ba, Kiros, Hinton 2016. RMSNorm: Zhang and Sennrich 2019.
 * Both keep their row statistics for the backward pass, whose input part and gain part are
 * operators of their own: the gain part is nothing that another block waits for.
 *
 * The builders give no optional operands; graph/fuse.c does, and lists of operands here count them.
 */
#include <string.h>
#include "op/op.h"

static bool row_dims(yoke_graph *graph, yoke_value a, yoke_value gain, char rows[YOKE_MAX_DIMS + 1])
{
    const char *da = yoke_value_get(graph, a)->dims;
    size_t n = strlen(da);
    if (n < 2) {
        yoke_graph_fail(graph, "norm of [%s]: wants at least two dims", da);
        return false;
    }
    memcpy(rows, da, n);
    rows[n - 1] = 0;
    return yoke_value_expect(graph, "gain of a norm", gain, da + n - 1);
}

yoke_value yoke_layer_norm(yoke_graph *graph, yoke_value a, yoke_value gain, yoke_value bias,
                           float epsilon)
{
    const yoke_value in[] = {a, gain, bias};
    char rows[YOKE_MAX_DIMS + 1];
    if (!yoke_values_good(graph, in, 3) || !row_dims(graph, a, gain, rows) ||
        !yoke_value_expect(graph, "bias of a norm", bias, yoke_value_get(graph, gain)->dims)) {
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_LAYER_NORM,
                                           .n_in = 3,
                                           .in = in,
                                           .out_dims = {yoke_value_get(graph, a)->dims, rows, rows},
                                           .attributes = {.epsilon = epsilon}},
                         NULL);
}

static void layer_norm_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                                yoke_value *d_in)
{
    yoke_value a = node->in[0], gain = node->in[1], mean = node->out[1], rstd = node->out[2];
    const char *da = yoke_value_get(graph, a)->dims, *dg = yoke_value_get(graph, gain)->dims;
    const yoke_value for_input[] = {d_out[0], a, gain, mean, rstd};
    d_in[0] = yoke_node_add(
        graph,
        &(yoke_node_spec){
            .op = YOKE_OP_LAYER_NORM_GRAD, .n_in = 5, .in = for_input, .out_dims = {da}},
        NULL);
    const yoke_value for_gain[] = {d_out[0], a, mean, rstd};
    yoke_value out[YOKE_MAX_OUTPUTS] = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE};
    yoke_node_add(
        graph,
        &(yoke_node_spec){
            .op = YOKE_OP_LAYER_NORM_GRAD_GAIN, .n_in = 4, .in = for_gain, .out_dims = {dg, dg}},
        out);
    d_in[1] = out[0];
    d_in[2] = out[1];
}

yoke_value yoke_rms_norm(yoke_graph *graph, yoke_value a, yoke_value gain, float epsilon)
{
    const yoke_value in[] = {a, gain};
    char rows[YOKE_MAX_DIMS + 1];
    if (!yoke_values_good(graph, in, 2) || !row_dims(graph, a, gain, rows)) {
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_RMS_NORM,
                                           .n_in = 2,
                                           .in = in,
                                           .out_dims = {yoke_value_get(graph, a)->dims, rows},
                                           .attributes = {.epsilon = epsilon}},
                         NULL);
}

static void rms_norm_gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                              yoke_value *d_in)
{
    yoke_value a = node->in[0], gain = node->in[1], rstd = node->out[1];
    const yoke_value for_input[] = {d_out[0], a, gain, rstd};
    d_in[0] = yoke_node_add(graph,
                            &(yoke_node_spec){.op = YOKE_OP_RMS_NORM_GRAD,
                                              .n_in = 4,
                                              .in = for_input,
                                              .out_dims = {yoke_value_get(graph, a)->dims}},
                            NULL);
    const yoke_value for_gain[] = {d_out[0], a, rstd};
    d_in[1] = yoke_node_add(graph,
                            &(yoke_node_spec){.op = YOKE_OP_RMS_NORM_GRAD_GAIN,
                                              .n_in = 3,
                                              .in = for_gain,
                                              .out_dims = {yoke_value_get(graph, gain)->dims}},
                            NULL);
}

const yoke_op_def yoke_op_layer_norm = {
    .name = "layer_norm",
    .whole = "$",
    .light = true,
    .cheap = true,
    .gradient = layer_norm_gradient,
    .reuses = 1 << 0 | 1 << 3,
    .narrow_in = 1 << 0 | 1 << 3,
    .narrow_out = 1 << 0 | 1 << 3,
};
const yoke_op_def yoke_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .whole = "$",
    .reuses = 1 << 0 | 1 << 1 | 1 << 5,
    .narrow_in = 1 << 0 | 1 << 1 | 1 << 5,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_layer_norm_grad_gain = {
    .name = "layer_norm_grad_gain",
    .whole = "$",
    .accumulates = true,
    .narrow_in = 1 << 0 | 1 << 1,
};
const yoke_op_def yoke_op_rms_norm = {
    .name = "rms_norm",
    .whole = "$",
    .light = true,
    .cheap = true,
    .gradient = rms_norm_gradient,
    .reuses = 1 << 0 | 1 << 2,
    .narrow_in = 1 << 0 | 1 << 2,
    .narrow_out = 1 << 0 | 1 << 2,
};
const yoke_op_def yoke_op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .whole = "$",
    .reuses = 1 << 0 | 1 << 1 | 1 << 4,
    .narrow_in = 1 << 0 | 1 << 1 | 1 << 4,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_rms_norm_grad_gain = {
    .name = "rms_norm_grad_gain",
    .whole = "$",
    .accumulates = true,
    .narrow_in = 1 << 0 | 1 << 1,
};
