/*
 * Rotary position embedding (Su et al., "RoFormer", 2021) in HuggingFace's convention: element i of
 * a head turns with element i + x/2, by the angle position * base^(-2i/x). The gradient turns back.
 */
#include <string.h>
#include "op/op.h"

static yoke_value rotate(yoke_graph *graph, yoke_value a, yoke_value positions, float base,
                         int sign)
{
    const yoke_value in[] = {a, positions};
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_ROPE,
                                           .n_in = 2,
                                           .in = in,
                                           .out_dims = {yoke_value_get(graph, a)->dims},
                                           .attributes = {.base = base, .sign = sign}},
                         NULL);
}

yoke_value yoke_rope(yoke_graph *graph, yoke_value a, yoke_value positions, float base)
{
    const yoke_value in[] = {a, positions};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const yoke_value_info *info = yoke_value_get(graph, a);
    if (info->shape.n_dims != 4 || info->shape.extent[3] % 2 != 0) {
        yoke_graph_fail(graph, "rope of [%s] with head width %lld: wants [b,t,h,x] with x even",
                        info->dims,
                        info->shape.n_dims == 4 ? (long long)info->shape.extent[3] : -1LL);
        return YOKE_NO_VALUE;
    }
    const yoke_value_info *at = yoke_value_get(graph, positions);
    const char rows[] = {info->dims[0], info->dims[1], 0};
    if (at->dtype != YOKE_I32 || strcmp(at->dims, rows) != 0) {
        yoke_graph_fail(graph, "rope of [%s] at positions [%s]: wants int32 positions [%s]",
                        info->dims, at->dims, rows);
        return YOKE_NO_VALUE;
    }
    return rotate(graph, a, positions, base, 1);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    d_in[0] = rotate(graph, d_out[0], node->in[1], node->attributes.base, -node->attributes.sign);
}

const yoke_op_def yoke_op_rope = {
    .name = "rope",
    .whole = "x",
    .linear = {1 << 0},
    .reuses = 1 << 0,
    .cheap = true,
    .gradient = gradient,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
