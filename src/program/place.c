/*
 * Placement: which pipeline stages hold each value.
 *
 * Inside a micro-batch a value is where its block is. In the head, which starts from inputs and
 * parameters, and in the tail a node runs where all its inputs are; an operator that spans stages takes each input from the first
 * stage that holds it, and its result, a sum over stages, is wherever an input was. So a tied
 * table's gradient needs no rule of its own. Only the pack of the gradients' norms goes to every
 * stage: by it each rank knows whether the step was applied, also one that has nothing to train.
 */
#include "program/lower.h"

static int stage_of_block(const yoke_program_set *set, const int *chunk_of_block, int block)
{
    return set->schedule.stage_of_chunk[chunk_of_block[block]];
}

/* Parameters are where the forward and backward passes read them, as they lie or gathered. */
static void place_parameters(const yoke_program_set *set, const int *chunk_of_block,
                             uint64_t *stages)
{
    const yoke_graph *graph = set->graph;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        bool inside = node->region == YOKE_REGION_FORWARD || node->region == YOKE_REGION_BACKWARD;
        for (int k = 0; inside && k < node->n_in; k++) {
            const yoke_value_info *info = &graph->values[node->in[k]];
            bool stored = info->kind == YOKE_VALUE_PARAMETER;
            if (stored || info->gathered_of != YOKE_NO_VALUE) {
                stages[stored ? node->in[k] : info->gathered_of] |=
                    UINT64_C(1) << stage_of_block(set, chunk_of_block, node->block);
            }
        }
    }
}

static uint64_t stages_around(const yoke_graph *graph, const yoke_node *node,
                              const uint64_t *stages, uint64_t all)
{
    bool spans = yoke_op_get(node->op)->spans;
    uint64_t mask = spans && node->op != YOKE_OP_PACK ? 0 : all;
    for (int i = 0; i < node->n_in; i++) {
        const yoke_value_info *info = &graph->values[node->in[i]];
        if (info->kind == YOKE_VALUE_STATE) {
            continue;
        }
        mask = spans ? mask | stages[node->in[i]] : mask & stages[node->in[i]];
    }
    return mask;
}

yoke_status yoke_place_stages(yoke_program_set *set, const int *chunk_of_block)
{
    const yoke_graph *graph = set->graph;
    uint64_t *stages = YOKE_ARENA_NEW(set->arena, uint64_t, graph->n_values);
    int n_stages = set->schedule.n_stages;
    uint64_t all = n_stages == 64 ? UINT64_MAX : (UINT64_C(1) << n_stages) - 1;
    for (int64_t v = 0; v < graph->n_values; v++) {
        stages[v] = graph->values[v].kind == YOKE_VALUE_INPUT ? all : 0;
    }
    place_parameters(set, chunk_of_block, stages);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        bool around = node->region == YOKE_REGION_TAIL || node->region == YOKE_REGION_HEAD;
        uint64_t mask = around ? stages_around(graph, node, stages, all)
                               : UINT64_C(1) << stage_of_block(set, chunk_of_block, node->block);
        if (mask == 0) {
            return YOKE_FAIL(
                YOKE_BAD_INPUT, "%s: its operands never meet on one pipeline stage; use pp=1",
                node->n_out ? graph->values[node->out[0]].name : yoke_op_get(node->op)->name);
        }
        for (int k = 0; k < node->n_out; k++) {
            stages[node->out[k]] = mask;
        }
        for (int k = 0; k < node->n_in; k++) {
            if (graph->values[node->in[k]].kind == YOKE_VALUE_STATE) {
                stages[node->in[k]] |= mask;
            }
        }
    }
    set->stages = stages;
    return YOKE_OK;
}

int yoke_place_contributor(const yoke_program_set *set, const yoke_node *node, int i)
{
    uint64_t mask = set->stages[node->in[i]];
    int stage = 0;
    while (!(mask >> stage & 1)) {
        stage++;
    }
    return stage;
}
