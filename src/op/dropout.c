/*
 * Dropout (Srivastava et al. 2014), scaled while training. Whether an element stays is a function
 * of (seed, step, micro-batch, site, global element index): no state, the same on any mesh, and the
 * gradient draws the same mask again.
 */
#include "op/op.h"
#include "yoke/random.h"

static yoke_value drop(yoke_graph *graph, yoke_value a, const yoke_attributes *attributes)
{
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_DROPOUT,
                                           .n_in = 1,
                                           .in = &a,
                                           .out_dims = {yoke_value_get(graph, a)->dims},
                                           .attributes = *attributes},
                         NULL);
}

yoke_value yoke_dropout(yoke_graph *graph, const char *name, yoke_value a, float rate)
{
    if (!yoke_values_good(graph, &a, 1)) {
        return YOKE_NO_VALUE;
    }
    if (!(rate >= 0 && rate < 1)) {
        yoke_graph_fail(graph, "dropout \"%s\": rate %g is not in [0, 1)", name, (double)rate);
        return YOKE_NO_VALUE;
    }
    return drop(graph, a,
                &(yoke_attributes){.rate = rate,
                                   .site = yoke_random_name(name),
                                   .global = {yoke_value_get(graph, a)->shape}});
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    d_in[0] = drop(graph, d_out[0], &node->attributes);
}

const yoke_op_def yoke_op_dropout = {
    .name = "dropout",
    .linear = {1 << 0},
    .reuses = 1 << 0,
    .passes_pin = true,
    .ordered = true,
    .cheap = true,
    .gradient = gradient,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
