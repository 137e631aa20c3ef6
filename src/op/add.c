/* Addition of tensors of equal dims: the residual stream, and the sum of the gradients that meet in
 * a value. Where some of them are partial sums, one that is whole may be counted once among them, so
 * that one reduction serves all. */
#include <string.h>
#include "op/op.h"

yoke_value yoke_add(yoke_graph *graph, yoke_value a, yoke_value b)
{
    const yoke_value in[] = {a, b};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const char *da = yoke_value_get(graph, a)->dims, *db = yoke_value_get(graph, b)->dims;
    if (strcmp(da, db) != 0) {
        yoke_graph_fail(graph, "add of [%s] and [%s]: the dims differ", da, db);
        return YOKE_NO_VALUE;
    }
    return yoke_node_add(
        graph, &(yoke_node_spec){.op = YOKE_OP_ADD, .n_in = 2, .in = in, .out_dims = {da}}, NULL);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    (void)graph;
    for (int i = 0; i < node->n_in; i++) {
        d_in[i] = d_out[0];
    }
}

const yoke_op_def yoke_op_add = {
    .name = "add",
    .linear = {YOKE_ALL_INPUTS},
    .reuses = (unsigned)YOKE_ALL_INPUTS,
    .stream = true,
    .passes_pin = true,
    .spans = true,
    .masks = true,
    .gradient = gradient,
    .accumulates = true,
    .cheap = true,
    .narrow_in = (unsigned)YOKE_ALL_INPUTS,
    .narrow_out = 1 << 0,
};
