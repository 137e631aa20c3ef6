/*
 * Jitter (Fedus et al., "Switch transformers", 2022): y = a * u with u even in [1 - epsilon,
 * 1 + epsilon), drawn anew for each element and step. As with dropout, u is a function of (seed,
 * step, micro-batch, site, global element index): the same on any mesh, and when it is drawn again
 * for the gradient.
 */
#include "op/op.h"
#include "yoke/random.h"

static yoke_value shake(yoke_graph *graph, yoke_value a, const yoke_attributes *attributes)
{
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_JITTER,
                                           .n_in = 1,
                                           .in = &a,
                                           .out_dims = {yoke_value_get(graph, a)->dims},
                                           .attributes = *attributes},
                         NULL);
}

yoke_value yoke_jitter(yoke_graph *graph, const char *name, yoke_value a, float epsilon)
{
    if (!yoke_values_good(graph, &a, 1)) {
        return YOKE_NO_VALUE;
    }
    if (!(epsilon >= 0 && epsilon < 1)) {
        yoke_graph_fail(graph, "jitter \"%s\": %g is not in [0, 1)", name, (double)epsilon);
        return YOKE_NO_VALUE;
    }
    return shake(graph, a,
                 &(yoke_attributes){.rate = epsilon,
                                    .site = yoke_random_name(name),
                                    .global = {yoke_value_get(graph, a)->shape}});
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    d_in[0] = shake(graph, d_out[0], &node->attributes);
}

const yoke_op_def yoke_op_jitter = {
    .name = "jitter",
    .linear = {1 << 0},
    .reuses = 1 << 0,
    .passes_pin = true,
    .ordered = true,
    .cheap = true,
    .gradient = gradient,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
