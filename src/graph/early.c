/*
 * The loss at the turn from the forward to the backward pass.
 *
 * The divisor of the loss is known before the first forward pass (op/loss.c), so the gradient of the
 * logits can be made as soon as they are there. What makes it and what reads it, the products back to
 * the last layer and to the head's weight, moves to the end of the forward pass. Then logits live for
 * a moment and are never stashed, and layout/strips.c can make them strip by strip (Hsu et al., "Liger
 * Kernel", 2024).
 *
 * Relies on differentiation; knows no layouts.
 */
#include <string.h>
#include "graph/graph.h"

bool yoke_graph_handles_logits(const yoke_graph *graph, const yoke_node *node)
{
    const char *dims = graph->values[graph->logits].dims;
    for (int i = 0; i < node->n_in; i++) {
        if (strcmp(graph->values[node->in[i]].dims, dims) == 0) {
            return true;
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        if (strcmp(graph->values[node->out[i]].dims, dims) == 0) {
            return true;
        }
    }
    return false;
}

/* True if all that the node reads is there at the end of the forward pass. */
static bool is_ready(const yoke_graph *graph, const yoke_node *node, const bool *early)
{
    for (int i = 0; i < node->n_in; i++) {
        int producer = graph->values[node->in[i]].producer;
        bool later = producer != YOKE_NO_NODE && !early[node->in[i]] &&
                     graph->nodes[producer].region > YOKE_REGION_FORWARD;
        if (later) {
            return false;
        }
    }
    return true;
}

/* Marks the backward nodes that can move, or returns false if one that handles logits cannot. */
static bool find_early(const yoke_graph *graph, bool *moves)
{
    bool *early = YOKE_ARENA_NEW(graph->arena, bool, graph->n_values);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        moves[i] = node->region == YOKE_REGION_BACKWARD && yoke_graph_handles_logits(graph, node);
        if (moves[i] && !is_ready(graph, node, early)) {
            return false;
        }
        for (int k = 0; moves[i] && k < node->n_out; k++) {
            early[node->out[k]] = true;
        }
    }
    return true;
}

static void append_early(yoke_graph *graph, const yoke_rewriting *r, const bool *moves)
{
    for (int64_t i = 0; i < r->n_old; i++) {
        if (moves[i]) {
            yoke_node node = r->old[i];
            node.region = YOKE_REGION_FORWARD;
            yoke_graph_node_append(graph, &node);
        }
    }
}

void yoke_graph_end_with_loss(yoke_graph *graph)
{
    YOKE_ASSERT(!graph->has_layouts && graph->gradients);
    bool *moves = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes);
    if (!find_early(graph, moves)) {
        return;
    }
    int loss = graph->values[graph->loss_total].producer;
    yoke_rewriting r = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i < r.n_old; i++) {
        if (!moves[i]) {
            yoke_graph_node_append(graph, &r.old[i]);
        }
        if (i == loss) {
            append_early(graph, &r, moves);
        }
    }
}
