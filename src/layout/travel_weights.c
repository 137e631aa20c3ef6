/*
 * Weights gathered in bf16 (the param_dtype of PyTorch's FSDP; Zhao et al. 2023): each is rounded once a step, where it is
 * stored in pieces, and the rounded pieces are gathered, half the bytes. Matrix products read them so, and tables of
 * embeddings whose rows are rounded anyway. Gains and biases are gathered in f32, and what is not gathered is read
 * as it is stored.
 *
 * Relies on conversions that policies have led to: gathered_of tells what is a weight that is gathered.
 */
#include "layout/travel.h"

typedef struct weights {
    yoke_graph *graph;
    bool *narrow; /* [values] gathered in bf16 */
    yoke_value
        *rounded; /* [values] the copy in bf16 of which others are gathered, or YOKE_NO_VALUE */
} weights;

static bool is_gathered(const yoke_graph *graph, yoke_value value)
{
    return graph->values[value].gathered_of != YOKE_NO_VALUE;
}

/* True if the node can have input i in bf16. */
static bool takes_rounded(const weights *w, const yoke_node *node, int i)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    if (node->op == YOKE_OP_CONVERT) {
        return w->narrow[node->out[0]];
    }
    bool rounds = node->op == YOKE_OP_MATMUL ||
                  (node->n_out > 0 && w->graph->values[node->out[0]].dtype == YOKE_BF16);
    return def->mixes && yoke_mask_has(def->narrow_in, i) && rounds;
}

/* From the last reader to the first, since what is gathered along two axes is gathered twice. */
static void find_narrow(weights *w)
{
    yoke_graph *graph = w->graph;
    w->narrow = YOKE_ARENA_NEW(graph->arena, bool, graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        w->narrow[v] = is_gathered(graph, (yoke_value)v) && graph->values[v].n_uses > 0;
    }
    for (int64_t i = graph->n_nodes - 1; i >= 0; i--) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_in; k++) {
            if (yoke_node_reads(node, k) && is_gathered(graph, node->in[k])) {
                w->narrow[node->in[k]] = w->narrow[node->in[k]] && takes_rounded(w, node, k);
            }
        }
    }
}

/* True for the first conversion of a weight that is gathered in bf16. */
static bool reads_copy(const weights *w, const yoke_node *node)
{
    return node->op == YOKE_OP_CONVERT && w->narrow[node->out[0]] && !w->narrow[node->in[0]];
}

static void add_copies(weights *w)
{
    yoke_graph *graph = w->graph;
    int64_t n_values = graph->n_values;
    w->rounded = YOKE_ARENA_NEW(graph->arena, yoke_value, n_values);
    for (int64_t v = 0; v < n_values; v++) {
        w->rounded[v] = YOKE_NO_VALUE;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (!reads_copy(w, node) || w->rounded[node->in[0]] != YOKE_NO_VALUE) {
            continue;
        }
        yoke_value copy = yoke_travel_value_add(graph, node->in[0], YOKE_BF16);
        yoke_value_info *info = &graph->values[copy];
        if (info->kind == YOKE_VALUE_PARAMETER) {
            info->kind = YOKE_VALUE_STEP;
            info->gathered_of = node->in[0];
        }
        w->rounded[node->in[0]] = copy;
    }
}

static void append(const weights *w, const yoke_node *old)
{
    yoke_graph *graph = w->graph;
    yoke_node node = *old;
    if (reads_copy(w, old)) {
        node.in = YOKE_ARENA_NEW(graph->arena, yoke_value, 1);
        node.in[0] = w->rounded[old->in[0]];
    }
    yoke_graph_node_append(graph, &node);
    for (int k = 0; k < node.n_out; k++) {
        if (w->rounded[node.out[k]] != YOKE_NO_VALUE) {
            yoke_travel_cast(graph, node.out[k], w->rounded[node.out[k]], &node);
        }
    }
}

void yoke_travel_weights(yoke_graph *graph)
{
    static const yoke_node start = {.region = YOKE_REGION_HEAD, .block = YOKE_NO_BLOCK};
    YOKE_ASSERT(graph->has_layouts);
    weights w = {.graph = graph};
    find_narrow(&w);
    int64_t n_values = graph->n_values;
    add_copies(&w);
    yoke_rewriting r = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        yoke_value parameter = graph->parameters[i];
        if (w.rounded[parameter] != YOKE_NO_VALUE) {
            yoke_travel_cast(graph, parameter, w.rounded[parameter], &start);
        }
    }
    for (int64_t i = 0; i < r.n_old; i++) {
        append(&w, &r.old[i]);
    }
    for (int64_t v = 0; v < n_values; v++) {
        graph->values[v].dtype = w.narrow[v] ? YOKE_BF16 : graph->values[v].dtype;
    }
    yoke_graph_count_uses(graph);
}
