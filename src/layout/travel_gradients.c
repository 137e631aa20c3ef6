/*
 * Gradients in bf16 while they are reduced (the reduce_dtype of PyTorch's FSDP). Each reduction of a gradient becomes
 *
 *   rounded -> reduced -> widened
 *
 * unless what makes the gradient can store bf16 itself, or what reads the sum is one more reduction. A sum over
 * micro-batches of what has been reduced adds the bf16 pieces in f32. Where the sum has the shape of what was rounded,
 * it comes back to its storage.
 */
#include "layout/travel.h"

typedef struct gradients {
    yoke_graph *graph;
    int64_t n_values; /* before the pass */
    bool *narrow;     /* [n_values] stored in bf16 from where it is made */

    /* [n_values] of what is narrow, the f32 value of which it is the sum over ranks in the same shape, or
     * YOKE_NO_VALUE. */
    yoke_value *wide;
} gradients;

/* True for a sum over ranks of a gradient, of a part of it, or of a bucket of them. */
static bool reduces(const yoke_graph *graph, const yoke_node *node)
{
    bool sums = node->op == YOKE_OP_CONVERT && (node->conversion == YOKE_CONVERT_ALL_REDUCE ||
                                                node->conversion == YOKE_CONVERT_REDUCE_SCATTER);
    return sums && graph->values[node->out[0]].dtype == YOKE_F32 &&
           yoke_value_is_gradient(graph, node->out[0]);
}

/* True for a node that does nothing but add what it reads to a sum over micro-batches. */
static bool accumulates(const yoke_graph *graph, const yoke_node *node)
{
    return node->op == YOKE_OP_ADD && node->n_in == 1 &&
           graph->values[node->out[0]].kind == YOKE_VALUE_ACCUMULATOR;
}

/* True if the node's one output may be stored in bf16 from where it is made. */
static bool makes_narrow(const yoke_graph *graph, const yoke_node *node)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    const yoke_value_info *out = &graph->values[node->out[0]];
    bool part = node->n_out == 1 && out->kind == YOKE_VALUE_ACTIVATION && out->n_makers == 0 &&
                out->dtype == YOKE_F32;
    return reduces(graph, node) || (part && def->mixes && yoke_mask_has(def->narrow_out, 0));
}

static void find_narrow(gradients *g)
{
    yoke_graph *graph = g->graph;
    g->n_values = graph->n_values;
    g->narrow = YOKE_ARENA_NEW(graph->arena, bool, graph->n_values);
    g->wide = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        g->wide[v] = YOKE_NO_VALUE;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        yoke_value out = node->n_out > 0 ? node->out[0] : YOKE_NO_VALUE;
        if (out != YOKE_NO_VALUE && yoke_value_is_gradient(graph, out)) {
            g->narrow[out] = graph->values[out].n_uses > 0 && makes_narrow(graph, node);
        }
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_in; k++) {
            /* Only behind a reduction are pieces of different micro-batches rounded already. */
            int producer = graph->values[node->in[k]].producer;
            bool reduced = producer >= 0 && reduces(graph, &graph->nodes[producer]);
            bool takes = reduces(graph, node) || (reduced && accumulates(graph, node));
            g->narrow[node->in[k]] = g->narrow[node->in[k]] && takes;
        }
    }
}

/* The input of a reduction in bf16. */
static yoke_value rounded(const gradients *g, const yoke_node *node)
{
    yoke_value in = node->in[0];
    if (g->narrow[in]) {
        return in;
    }
    yoke_value copy = yoke_travel_value_add(g->graph, in, YOKE_BF16);
    yoke_value_info *info = &g->graph->values[copy];
    info->kind = node->region == YOKE_REGION_TAIL ? YOKE_VALUE_STEP : YOKE_VALUE_ACTIVATION;
    yoke_travel_cast(g->graph, in, copy, node);
    return copy;
}

static void append_reduction(const gradients *g, const yoke_node *old)
{
    yoke_graph *graph = g->graph;
    yoke_node node = *old;
    yoke_value in = rounded(g, old), out = old->out[0];
    yoke_value wide = in == old->in[0] ? g->wide[in] : old->in[0];
    wide = node.conversion == YOKE_CONVERT_ALL_REDUCE ? wide : YOKE_NO_VALUE;
    g->wide[out] = wide;
    node.in = YOKE_ARENA_NEW(graph->arena, yoke_value, 1);
    node.in[0] = in;
    node.out[0] = g->narrow[out] ? out : yoke_travel_value_add(graph, out, YOKE_BF16);
    yoke_graph_node_append(graph, &node);
    if (!g->narrow[out] && wide != YOKE_NO_VALUE) {
        yoke_travel_cast_into(graph, (const yoke_value[]){node.out[0], wide}, out, old);
    } else if (!g->narrow[out]) {
        yoke_travel_cast(graph, node.out[0], out, old);
    }
}

void yoke_travel_gradients(yoke_graph *graph)
{
    YOKE_ASSERT(graph->has_layouts);
    gradients g = {.graph = graph};
    find_narrow(&g);
    yoke_rewriting r = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i < r.n_old; i++) {
        yoke_node node = r.old[i];
        if (reduces(graph, &node)) {
            append_reduction(&g, &node);
            continue;
        }
        bool adds_narrow = node.n_in == 1 && g.narrow[node.in[0]];
        node.op = adds_narrow && accumulates(graph, &node) ? YOKE_OP_CAST : node.op;
        yoke_graph_node_append(graph, &node);
    }
    for (int64_t v = 0; v < g.n_values; v++) {
        graph->values[v].dtype = g.narrow[v] ? YOKE_BF16 : graph->values[v].dtype;
    }
    yoke_graph_count_uses(graph);
}
