/* Measures of a plan: one pass over the instructions and buffers of each program. */
#include "sim/measure.h"

typedef struct measuring {
    const yoke_program_set *set;
    const yoke_graph *graph;
    yoke_arena *arena;
    const bool *is_layer;   /* [blocks] */
    const bool *for_layers; /* [values] activations that the backward of a layer reads */
    yoke_plan_measures *out;
} measuring;

const bool *yoke_plan_layers(const yoke_graph *graph, yoke_arena *arena)
{
    bool *is_layer = YOKE_ARENA_NEW(arena, bool, graph->n_blocks + 1);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op == YOKE_OP_ATTENTION && node->block >= 0) {
            is_layer[node->block] = true;
        }
    }
    return is_layer;
}

static const bool *find_kept(const yoke_graph *graph, const bool *is_layer, yoke_arena *arena)
{
    bool *for_layers = YOKE_ARENA_NEW(arena, bool, graph->n_values);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        bool reads =
            node->region == YOKE_REGION_BACKWARD && node->block >= 0 && is_layer[node->block];
        for (int k = 0; reads && k < node->n_in; k++) {
            bool activation = graph->values[node->in[k]].kind == YOKE_VALUE_ACTIVATION;
            for_layers[node->in[k]] = for_layers[node->in[k]] || activation;
        }
    }
    return for_layers;
}

/* --- What is moved ---------------------------------------------------------------------------- */

static yoke_traffic traffic_of(const measuring *m, const yoke_instruction *instruction,
                               const yoke_program_transfer *transfer)
{
    const yoke_value_info *info = &m->graph->values[transfer->value];
    if (info->gathered_of != YOKE_NO_VALUE || yoke_value_is_gradient(m->graph, transfer->value)) {
        return YOKE_TRAFFIC_PARAMS;
    }
    if (transfer->kind == YOKE_EXCHANGE_RECV) {
        return YOKE_TRAFFIC_BOUNDARIES;
    }
    bool inside = instruction->block >= 0 && m->is_layer[instruction->block];
    return inside ? YOKE_TRAFFIC_LAYERS : YOKE_TRAFFIC_REST;
}

static void count_moved(measuring *m, const yoke_program *program)
{
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        if (yoke_opcode_get(instruction->opcode)->starts) {
            const yoke_program_transfer *t = &program->transfers[instruction->transfer];
            m->out->moved[t->axis][traffic_of(m, instruction, t)] +=
                program->n_ranks * yoke_program_received_bytes(m->set, t);
        }
    }
}

/* --- What is held ----------------------------------------------------------------------------- */

/* Stash for the backward of layers, at the instruction where it is most. Roots count whole if any
 * value in their storage is read there. */
static double most_layer_stash(const measuring *m, const yoke_program *program)
{
    bool *counts = YOKE_ARENA_NEW(m->arena, bool, program->n_buffers);
    double *change = YOKE_ARENA_NEW(m->arena, double, program->n_instructions + 2);
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_buffer *buffer = &program->buffers[b];
        const yoke_buffer *root = &program->buffers[buffer->root];
        bool kept = root->kind == YOKE_BUFFER_STASH && m->for_layers[buffer->value];
        if (kept && !counts[buffer->root]) {
            counts[buffer->root] = true;
            change[root->first] += (double)root->bytes;
            change[root->last + 1] -= (double)root->bytes;
        }
    }
    double now = 0, most = 0;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        now += change[i];
        most = now > most ? now : most;
    }
    return most;
}

static void raise(double *most, double value)
{
    *most = value > *most ? value : *most;
}

/* Parameters that are whole for the step, though stored in pieces. */
static double gathered_for_step(const yoke_program *program)
{
    double bytes = 0;
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_buffer *buffer = &program->buffers[b];
        bool whole = buffer->kind == YOKE_BUFFER_GATHERED && buffer->root == b &&
                     buffer->microbatch == YOKE_ONCE_A_STEP;
        bytes += whole ? (double)buffer->bytes : 0;
    }
    return bytes;
}

static void hold(measuring *m, const yoke_program *program, int stage)
{
    yoke_stage_bytes *bytes = &m->out->stage[stage];
    for (int kind = 0; kind < YOKE_N_BUFFER_KINDS; kind++) {
        raise(&bytes->kind[kind], (double)program->kind_bytes[kind]);
    }
    raise(&bytes->state,
          gathered_for_step(program) + (double)(program->kind_bytes[YOKE_BUFFER_PARAMS] +
                                                program->kind_bytes[YOKE_BUFFER_GRADS] +
                                                program->kind_bytes[YOKE_BUFFER_OPTIMIZER]));
    raise(&bytes->layer_stash, most_layer_stash(m, program));
}

yoke_plan_measures yoke_plan_measure(const yoke_program_set *set, yoke_arena *arena)
{
    yoke_plan_measures out = {
        .stage = YOKE_ARENA_NEW(arena, yoke_stage_bytes, set->schedule.n_stages),
    };
    const bool *is_layer = yoke_plan_layers(set->graph, arena);
    measuring m = {
        .set = set,
        .graph = set->graph,
        .arena = arena,
        .is_layer = is_layer,
        .for_layers = find_kept(set->graph, is_layer, arena),
        .out = &out,
    };
    for (int i = 0; i < set->n_classes; i++) {
        const yoke_program *program = &set->classes[i];
        count_moved(&m, program);
        hold(&m, program, yoke_mesh_coordinate(&set->mesh, program->rank, YOKE_AXIS_PP));
    }
    return out;
}

double yoke_plan_moved(const yoke_plan_measures *measures, yoke_axis axis)
{
    double bytes = 0;
    for (int part = 0; part < YOKE_N_TRAFFICS; part++) {
        bytes += measures->moved[axis][part];
    }
    return bytes;
}
