/*
 * Embedding: y[b,t,:] = table[ids[b,t],:]. Rows may be divided: a rank yields zeros for ids that
 * are not its own, and the sum over ranks is right (Shoeybi et al., "Megatron-LM", 2019, section
 * 3). The gradient adds rows of dy.
 */
#include "op/op.h"

yoke_value yoke_embedding(yoke_graph *graph, yoke_value table, yoke_value ids)
{
    const yoke_value in[] = {table, ids};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const yoke_value_info *rows = yoke_value_get(graph, table);
    const yoke_value_info *id = yoke_value_get(graph, ids);
    if (rows->shape.n_dims != 2 || id->shape.n_dims != 2 || id->dtype != YOKE_I32) {
        yoke_graph_fail(graph,
                        "embedding of table [%s] and ids [%s]: wants \"vd\" and int32 \"bt\"",
                        rows->dims, id->dims);
        return YOKE_NO_VALUE;
    }
    const char dims[] = {id->dims[0], id->dims[1], rows->dims[1], 0};
    return yoke_node_add(
        graph, &(yoke_node_spec){.op = YOKE_OP_EMBEDDING, .n_in = 2, .in = in, .out_dims = {dims}},
        NULL);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    const yoke_value in[] = {node->in[1], d_out[0]};
    d_in[0] =
        yoke_node_add(graph,
                      &(yoke_node_spec){.op = YOKE_OP_EMBEDDING_GRAD,
                                        .n_in = 2,
                                        .in = in,
                                        .out_dims = {yoke_value_get(graph, node->in[0])->dims}},
                      NULL);
}

const yoke_op_def yoke_op_embedding = {
    .name = "embedding",
    .whole = "$",
    .stream = true,
    .gradient = gradient,
    .mixes = true,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};

const yoke_op_def yoke_op_embedding_grad = {
    .name = "embedding_grad",
    .whole = "$",
    .linear = {1 << 1},
    .accumulates = true,
    .narrow_in = 1 << 1,
};
