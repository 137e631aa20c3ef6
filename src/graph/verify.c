/* Checks of a graph by itself, and its cost. A fault found here is ours: the builder, autodiff or a
 * pass made it. */
#include "graph/graph.h"

/* A node may read what lies before it in time: its own region or an earlier one, and never an input
 * in the tail. */
static bool may_read(const yoke_graph *graph, const yoke_node *node, const yoke_value_info *info)
{
    if (info->producer == YOKE_NO_NODE) {
        return info->kind != YOKE_VALUE_INPUT || node->region != YOKE_REGION_TAIL;
    }
    yoke_region made = graph->nodes[info->producer].region;
    bool step = info->kind == YOKE_VALUE_STEP || info->kind == YOKE_VALUE_ACCUMULATOR;
    return made < node->region ||
           (made == node->region &&
            (!step || node->region == YOKE_REGION_HEAD || node->region == YOKE_REGION_TAIL));
}

static yoke_status verify_node(const yoke_graph *graph, int64_t index, int *updates)
{
    const yoke_node *node = &graph->nodes[index];
    const yoke_op_def *def = yoke_op_get(node->op);
    for (int i = 0; i < node->n_in; i++) {
        const yoke_value_info *info = &graph->values[node->in[i]];
        if (info->producer >= index || !may_read(graph, node, info)) {
            return YOKE_FAIL(YOKE_CHECK, "graph: node %lld %s (%s) reads %s, which is made later",
                             (long long)index, def->name, yoke_region_name(node->region),
                             info->name);
        }
        updates[node->in[i]] += yoke_mask_has(def->updates, i);
    }
    return YOKE_OK;
}

yoke_status yoke_graph_verify(const yoke_graph *graph)
{
    int *updates = YOKE_ARENA_NEW(graph->arena, int, graph->n_values);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        YOKE_TRY(verify_node(graph, i, updates));
    }
    int wanted = graph->control != YOKE_NO_VALUE ? 1 : 0;
    for (int64_t i = 0; i < graph->n_values; i++) {
        const yoke_value_info *info = &graph->values[i];
        bool lasting = info->kind == YOKE_VALUE_PARAMETER || info->kind == YOKE_VALUE_STATE;
        if (updates[i] != (lasting && !info->frozen ? wanted : 0)) {
            return YOKE_FAIL(YOKE_CHECK, "graph: %s is updated %d times in a step, not %d",
                             info->name, updates[i], lasting && !info->frozen ? wanted : 0);
        }
    }
    return YOKE_OK;
}

double yoke_graph_flops(const yoke_graph *graph, int block)
{
    double flops = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        const yoke_op_def *def = yoke_op_get(node->op);
        if (def->flops && !node->recomputed && (block < 0 || node->block == block)) {
            flops += def->flops(graph, node);
        }
    }
    return flops;
}
