/* Bias: y = a + bias, over the last dims of a, and perhaps + b (graph/fuse.c). The gradient of the
 * bias is the sum of the rows. */
#include <string.h>
#include "op/op.h"

yoke_value yoke_add_bias(yoke_graph *graph, yoke_value a, yoke_value bias)
{
    const yoke_value in[] = {a, bias};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const char *da = yoke_value_get(graph, a)->dims, *db = yoke_value_get(graph, bias)->dims;
    size_t n_a = strlen(da), n_b = strlen(db);
    if (n_b == 0 || n_b >= n_a || strcmp(da + n_a - n_b, db) != 0) {
        yoke_graph_fail(graph, "bias [%s] is not the last dims of [%s]", db, da);
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(
        graph, &(yoke_node_spec){.op = YOKE_OP_ADD_BIAS, .n_in = 2, .in = in, .out_dims = {da}},
        NULL);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    d_in[0] = d_out[0];
    d_in[1] =
        yoke_node_add(graph,
                      &(yoke_node_spec){.op = YOKE_OP_SUM_ROWS,
                                        .n_in = 1,
                                        .in = d_out,
                                        .out_dims = {yoke_value_get(graph, node->in[1])->dims}},
                      NULL);
}

const yoke_op_def yoke_op_add_bias = {
    .name = "add_bias",
    .reuses = 1 << 0 | 1 << 2,
    .passes_pin = true,
    .cheap = true,
    .gradient = gradient,
    .narrow_in = 1 << 0 | 1 << 2,
    .narrow_out = 1 << 0,
};

const yoke_op_def yoke_op_sum_rows = {
    .name = "sum_rows",
    .linear = {1 << 0},
    .accumulates = true,
    .narrow_in = 1 << 0,
};
