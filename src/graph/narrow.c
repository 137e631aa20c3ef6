/*
 * Storage in bf16 (Micikevicius et al., "Mixed precision training", 2018; Kalamkar et al., "A study
 * of bfloat16", 2019): activations and their gradients take two bytes an element where the operators
 * that make and read them allow it. Parameters, their gradients, the optimizer's state, statistics of
 * rows and whatever is kept for others stay float32, and every sum is made in float32.
 */
#include "graph/graph.h"

static bool *allowed_by_producers(const yoke_graph *graph)
{
    bool *narrow = YOKE_ARENA_NEW(graph->arena, bool, graph->n_values);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_out; k++) {
            const yoke_value_info *info = &graph->values[node->out[k]];
            narrow[node->out[k]] = yoke_mask_has(yoke_op_get(node->op)->narrow_out, k) &&
                                   info->kind == YOKE_VALUE_ACTIVATION && !info->output &&
                                   yoke_value_parameter(graph, node->out[k]) == YOKE_NO_VALUE;
        }
    }
    return narrow;
}

/* Makes a value wide; true if it was not. */
static bool widen(bool *narrow, yoke_value value)
{
    bool was = narrow[value];
    narrow[value] = false;
    return was;
}

/* What must be wide to be read, and all that may be narrow where one of it is wide. */
static bool widen_for_node(const yoke_node *node, bool *narrow)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    bool changed = false, all = true;
    for (int i = 0; i < node->n_in; i++) {
        if (!yoke_node_reads(node, i)) {
            continue;
        }
        if (!yoke_mask_has(def->narrow_in, i)) {
            changed = widen(narrow, node->in[i]) || changed;
        }
        all = all && (narrow[node->in[i]] || !yoke_mask_has(def->narrow_in, i));
    }
    for (int k = 0; k < node->n_out; k++) {
        all = all && (narrow[node->out[k]] || !yoke_mask_has(def->narrow_out, k));
    }
    if (all || def->mixes) {
        return changed;
    }
    for (int i = 0; i < node->n_in; i++) {
        changed = (yoke_node_reads(node, i) && widen(narrow, node->in[i])) || changed;
    }
    for (int k = 0; k < node->n_out; k++) {
        changed = widen(narrow, node->out[k]) || changed;
    }
    return changed;
}

void yoke_graph_narrow(yoke_graph *graph)
{
    bool *narrow = allowed_by_producers(graph);
    bool changed = true;
    while (changed) {
        changed = false;
        for (int64_t i = 0; i < graph->n_nodes; i++) {
            changed = widen_for_node(&graph->nodes[i], narrow) || changed;
        }
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        if (narrow[v]) {
            graph->values[v].dtype = YOKE_BF16;
        }
    }
}
