/*
 * One gradient for both places of a parameter that serves twice, such as a table tied to the head: the
 * second place adds to what the first has made, and the sum in the tail is gone, with the memory of a
 * term. For programs of one micro-batch in which no place is on another stage; there the bits are those
 * of the sum (docs/decisions/0002).
 *
 * Relies on layouts, and on kernels that add their own sum to what is there before.
 */
#include "layout/infer.h"

/* True for a term that its makers can add to the other: a sum by itself, which nobody else reads. */
static bool is_term(const yoke_graph *graph, yoke_value value, const yoke_value_info *like)
{
    const yoke_value_info *info = &graph->values[value];
    return info->kind == YOKE_VALUE_ACCUMULATOR && info->n_uses == 1 && !info->output &&
           graph->nodes[info->producer].n_out == 1 && yoke_layout_equal(info->layout, like->layout);
}

static bool is_sum_of_two(const yoke_graph *graph, const yoke_node *node)
{
    if (node->op != YOKE_OP_ADD || node->region != YOKE_REGION_TAIL || node->n_in != 2 ||
        node->in[0] == node->in[1]) {
        return false;
    }
    const yoke_value_info *out = &graph->values[node->out[0]];
    return yoke_value_parameter(graph, node->out[0]) != YOKE_NO_VALUE &&
           is_term(graph, node->in[0], out) && is_term(graph, node->in[1], out);
}

static int n_makers(const yoke_graph *graph, yoke_value value)
{
    int n = graph->values[value].n_makers;
    return n > 0 ? n : 1;
}

/* Lets both terms, and whoever reads the sum, have `shared`. */
static void replace(yoke_graph *graph, const yoke_node *sum, yoke_value shared)
{
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        yoke_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_out; k++) {
            node->out[k] = node->out[k] == sum->in[1] ? shared : node->out[k];
        }
        for (int k = 0; k < node->n_in; k++) {
            node->in[k] = node->in[k] == sum->out[0] ? shared : node->in[k];
        }
    }
    for (int64_t p = 0; p < graph->n_parameters; p++) {
        graph->gradients[p] = graph->gradients[p] == sum->out[0] ? shared : graph->gradients[p];
    }
}

void yoke_layout_share_sums(yoke_graph *graph)
{
    YOKE_ASSERT(graph->has_layouts && graph->gradients);
    bool *gone = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        gone[i] = is_sum_of_two(graph, node);
        if (gone[i]) {
            yoke_value shared = node->in[0];
            graph->values[shared].n_makers = n_makers(graph, shared) + n_makers(graph, node->in[1]);
            replace(graph, node, shared);
        }
    }
    yoke_graph_nodes_drop(graph, gone);
    yoke_graph_count_uses(graph);
}
