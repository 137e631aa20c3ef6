/* The programs of all ranks: cut, schedule, find classes, lower, plan; and what can be read off. */
#include <stdlib.h>
#include <string.h>
#include "pipe/cut.h"
#include "program/lower.h"

/* Blocks without products still cost something: what a pass over their values takes, on the scale
 * of flops. What is computed again does not count: the cut stays the same whatever the memory allows
 * to keep. */
static double cost_of_block(const yoke_graph *graph, int block)
{
    double elements = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->block == block && node->n_out && !node->recomputed) {
            elements += (double)yoke_shape_elements(&graph->values[node->out[0]].shape);
        }
    }
    /* A core moves an element to and from memory in about the time of 16 flops of a product. */
    return yoke_graph_flops(graph, block) + 16 * elements;
}

static yoke_status balance(const yoke_program_set *set, int *first)
{
    int n_blocks = (int)set->graph->n_blocks;
    double *cost = YOKE_ARENA_NEW(set->arena, double, n_blocks);
    for (int b = 0; b < n_blocks; b++) {
        cost[b] = cost_of_block(set->graph, b);
    }
    return yoke_cut_balance(cost, n_blocks, set->schedule.n_chunks, first);
}

/* The user gave stages; chunks are the schedule's. Where both are the same the cut says it all. */
static yoke_status check_chunks(const yoke_program_set *set, const yoke_schedule_def *def)
{
    int n_blocks = (int)set->graph->n_blocks, n_stages = set->schedule.n_stages;
    int n_chunks = set->schedule.n_chunks, each = (n_chunks + n_stages - 1) / n_stages;
    if (n_chunks <= n_blocks || n_chunks == n_stages) {
        return YOKE_OK;
    }
    char stages[32] = "", chunks[48] = "";
    if (n_blocks >= each) {
        snprintf(stages, sizeof stages, "pp <= %d, ", n_blocks / each);
    }
    /* A file has its own, and no number by itself. */
    if (def->takes_chunks && def->default_chunks > 0 && n_blocks >= 2 * n_stages) {
        snprintf(chunks, sizeof chunks, "chunks_per_stage <= %d, ", n_blocks / n_stages);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule %s: pp=%d stages of %d chunks are %d chunks over %d blocks "
                     "(embedding and head are one each), and each needs one: use %s%sa schedule "
                     "with one chunk a stage, or more layers",
                     set->schedule.name, n_stages, each, n_chunks, n_blocks, stages, chunks);
}

/* A set beside another is cut where that one is, whatever its own blocks cost: the parameters are
 * where training has them. */
static yoke_status cut(yoke_program_set *set, const yoke_program_set *beside, int **chunk_of_block)
{
    int n_blocks = (int)set->graph->n_blocks, n_chunks = set->schedule.n_chunks;
    int *first = YOKE_ARENA_NEW(set->arena, int, n_chunks + 1);
    if (beside) {
        YOKE_ASSERT(beside->schedule.n_chunks == n_chunks && beside->graph->n_blocks == n_blocks);
        memcpy(first, beside->first_block, sizeof *first * (size_t)(n_chunks + 1));
    } else {
        YOKE_TRY(balance(set, first));
    }
    *chunk_of_block = YOKE_ARENA_NEW(set->arena, int, n_blocks);
    for (int c = 0; c < n_chunks; c++) {
        for (int b = first[c]; b < first[c + 1]; b++) {
            (*chunk_of_block)[b] = c;
        }
    }
    set->first_block = first;
    return YOKE_OK;
}

/* Chunks from the one that makes a value to that of `node`, which reads it; what the head makes has
 * no chunk. */
static int distance(const yoke_graph *graph, const int *chunk_of_block, yoke_value value,
                    const yoke_node *node)
{
    int producer = graph->values[value].producer;
    int block = producer == YOKE_NO_NODE ? YOKE_NO_BLOCK : graph->nodes[producer].block;
    return block < 0 ? 0 : abs(chunk_of_block[node->block] - chunk_of_block[block]);
}

static void find_readers(yoke_lowering *low)
{
    const yoke_graph *graph = low->graph;
    uint64_t *readers = YOKE_ARENA_NEW(low->set->arena, uint64_t, graph->n_values);
    uint64_t *distant = YOKE_ARENA_NEW(low->set->arena, uint64_t, graph->n_values);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; node->block >= 0 && k < node->n_in; k++) {
            yoke_value value = node->in[k];
            int chunk = low->chunk_of_block[node->block];
            uint64_t stage = UINT64_C(1) << low->set->schedule.stage_of_chunk[chunk];
            if (graph->values[value].kind == YOKE_VALUE_ACTIVATION && yoke_node_reads(node, k)) {
                bool far = distance(graph, low->chunk_of_block, value, node) > 1;
                readers[value] |= stage;
                distant[value] |= far ? stage : 0;
            }
        }
    }
    low->readers = readers;
    low->distant = distant;
}

/* Backward nodes that no other block waits for: they make gradients of parameters, by W. */
static const bool *find_weight_nodes(const yoke_program_set *set)
{
    const yoke_graph *graph = set->graph;
    bool *for_weights = YOKE_ARENA_NEW(set->arena, bool, graph->n_nodes);
    bool *waited_for = YOKE_ARENA_NEW(set->arena, bool, graph->n_values);
    for (int64_t i = graph->n_nodes - 1; i >= 0; i--) {
        const yoke_node *node = &graph->nodes[i];
        bool backward = node->region == YOKE_REGION_BACKWARD;
        for_weights[i] = backward;
        for (int k = 0; k < node->n_out; k++) {
            for_weights[i] = for_weights[i] && !waited_for[node->out[k]];
        }
        for (int k = 0; backward && k < node->n_in; k++) {
            int producer = graph->values[node->in[k]].producer;
            bool elsewhere = producer >= 0 && graph->nodes[producer].block != node->block;
            waited_for[node->in[k]] = waited_for[node->in[k]] || !for_weights[i] || elsewhere;
        }
    }
    return for_weights;
}

static bool splits_backward(const yoke_schedule *schedule)
{
    for (int s = 0; s < schedule->n_stages; s++) {
        for (int i = 0; i < schedule->stage[s].n; i++) {
            if (schedule->stage[s].action[i].kind == YOKE_ACTION_W) {
                return true;
            }
        }
    }
    return false;
}

/* Where the transfers of a program stand that share a sender and a receiver, or a group. */
typedef struct channel {
    int *transfer; /* in the order of their starts */
    int64_t n, capacity;
    int64_t oldest; /* the first that is not yet waited for */
} channel;

static channel *channel_of(const yoke_program_set *set, channel *channels,
                           const yoke_program_transfer *t)
{
    int n_stages = set->schedule.n_stages;
    if (t->kind == YOKE_EXCHANGE_SEND) {
        return &channels[t->stage];
    }
    return &channels[t->kind == YOKE_EXCHANGE_RECV ? n_stages + t->stage
                                                   : 2 * n_stages + t->grouping];
}

/* Most transfers in one channel from the oldest that is not waited for to the newest started. */
static int widest_window(const yoke_program_set *set, const yoke_program *program)
{
    channel *channels =
        YOKE_ARENA_NEW(set->arena, channel, 2 * (int64_t)set->schedule.n_stages + set->n_groupings);
    bool *waited = YOKE_ARENA_NEW(set->arena, bool, program->n_transfers);
    int64_t widest = 1;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        if (instruction->transfer == YOKE_NO_TRANSFER) {
            continue;
        }
        channel *c = channel_of(set, channels, &program->transfers[instruction->transfer]);
        if (yoke_opcode_get(instruction->opcode)->starts) {
            c->transfer =
                yoke_arena_grow(set->arena, c->transfer, c->n, &c->capacity, sizeof *c->transfer);
            c->transfer[c->n++] = instruction->transfer;
        } else {
            waited[instruction->transfer] = true;
        }
        while (c->oldest < c->n && waited[c->transfer[c->oldest]]) {
            c->oldest++;
        }
        widest = c->n - c->oldest > widest ? c->n - c->oldest : widest;
    }
    return (int)widest;
}

static int most_inputs(const yoke_graph *graph)
{
    int most = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        most = graph->nodes[i].n_in > most ? graph->nodes[i].n_in : most;
    }
    return most;
}

static yoke_lowering begin_lowering(yoke_program_set *set, const yoke_program_request *request,
                                    const int *chunk_of_block)
{
    const yoke_graph *graph = set->graph;
    int64_t n_values = graph->n_values;
    yoke_lowering low = {
        .set = set,
        .graph = graph,
        .n_microbatches = request->microbatches,
        .chunk_of_block = chunk_of_block,
        .buffer_of = YOKE_ARENA_NEW(set->arena, int, n_values *(request->microbatches + 1)),
        .operands = YOKE_ARENA_NEW(set->arena, int, most_inputs(graph) + YOKE_MAX_OUTPUTS),
        .wanted = YOKE_ARENA_NEW(set->arena, bool, n_values),
        .written = YOKE_ARENA_NEW(set->arena, bool, n_values),
        .last_read = YOKE_ARENA_NEW(set->arena, int, n_values),
        .for_weights = find_weight_nodes(set),
        .splits_backward = splits_backward(&set->schedule),
    };
    find_readers(&low);
    yoke_lowering_sort_nodes(&low);
    return low;
}

static void lower_all(yoke_lowering *low, const yoke_program_request *request)
{
    yoke_program_set *set = low->set;
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        low->program = &set->classes[class_id];
        low->rank = low->program->rank;
        low->stage = yoke_mesh_coordinate(&set->mesh, low->rank, YOKE_AXIS_PP);
        yoke_lower_rank(low);
        yoke_overlap(low);
        yoke_plan_memory(set, low->program, request);
        int window = widest_window(set, low->program);
        set->depth = window > set->depth ? window : set->depth;
    }
}

/* Of all classes together. A kernel takes up to 0.7 KB with its buffers and operands (measured on
 * the tiny presets, 1 to 8 ranks), so these fill the 8 GiB that an arena has. */
static const int64_t MOST_KERNELS = 8000000;

static yoke_status check_size(const yoke_program_set *set, int n_microbatches, int n_classes)
{
    int64_t n_nodes = 0;
    for (int64_t i = 0; i < set->graph->n_nodes; i++) {
        n_nodes += set->graph->nodes[i].block >= 0;
    }
    int64_t for_each = n_nodes * n_classes / set->mesh.size[YOKE_AXIS_PP];
    if (for_each * n_microbatches > MOST_KERNELS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "microbatches=%d on %d ranks, of which %d differ, make programs of %lld "
                         "kernels, and the most is %lld: use at most %lld microbatches, fewer "
                         "ranks, or sizes that divide evenly",
                         n_microbatches, set->n_ranks, n_classes,
                         (long long)(for_each * n_microbatches), (long long)MOST_KERNELS,
                         (long long)(MOST_KERNELS / for_each));
    }
    return YOKE_OK;
}

static yoke_status build(yoke_program_set *set, const yoke_program_request *request)
{
    int n_stages = set->mesh.size[YOKE_AXIS_PP];
    if (n_stages > 64) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "pp=%d: at most 64 pipeline stages", n_stages);
    }
    YOKE_TRY(check_size(set, request->microbatches, n_stages)); /* there are no fewer classes */
    yoke_schedule_request wanted = {
        .n_stages = n_stages,
        .n_microbatches = request->microbatches,
        .chunks_per_stage = request->chunks_per_stage,
        .forward_only = request->forward_only,
        .file = request->schedule_file,
    };
    YOKE_TRY(yoke_schedule_build(request->schedule, &wanted, set->arena, &set->schedule));
    int *chunk_of_block;
    YOKE_TRY(check_chunks(set, request->schedule));
    YOKE_TRY(cut(set, request->beside, &chunk_of_block));
    YOKE_TRY(yoke_place_stages(set, chunk_of_block));
    yoke_lowering low = begin_lowering(set, request, chunk_of_block);
    yoke_classes_find(set, low.readers, request);
    YOKE_TRY(check_size(set, request->microbatches, set->n_classes));
    lower_all(&low, request);
    return YOKE_OK;
}

yoke_status yoke_program_set_create(const yoke_program_request *request, yoke_program_set **set)
{
    YOKE_ASSERT(request->graph->has_layouts && request->microbatches >= 1);
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    yoke_program_set *made = YOKE_ARENA_NEW(arena, yoke_program_set, 1);
    *made = (yoke_program_set){
        .arena = arena,
        .graph = request->graph,
        .mesh = request->graph->mesh,
        .n_ranks = yoke_mesh_n_ranks(&request->graph->mesh),
    };
    yoke_status status = build(made, request);
    if (status) {
        yoke_arena_destroy(arena);
        return status;
    }
    *set = made;
    return YOKE_OK;
}

void yoke_program_set_destroy(yoke_program_set *set)
{
    if (set) {
        yoke_arena_destroy(set->arena);
    }
}

/* --- What can be read off --------------------------------------------------------------------- */

int64_t yoke_program_set_n_instructions(const yoke_program_set *set)
{
    int64_t n = 0;
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        n += set->classes[class_id].n_instructions * set->classes[class_id].n_ranks;
    }
    return n;
}

double yoke_program_received_bytes(const yoke_program_set *set,
                                   const yoke_program_transfer *transfer)
{
    double element_bytes = (double)yoke_dtype_bytes(set->graph->values[transfer->value].dtype);
    if (transfer->kind == YOKE_EXCHANGE_SEND) {
        return 0;
    }
    if (transfer->kind == YOKE_EXCHANGE_RECV) {
        return element_bytes * (double)transfer->elements;
    }
    int n = yoke_grouping_size(set, &set->groupings[transfer->grouping]);
    double whole = (double)transfer->elements;
    bool whole_is_in = transfer->kind == YOKE_EXCHANGE_SUM ||
                       transfer->conversion == YOKE_CONVERT_ALL_TO_ALL ||
                       transfer->conversion == YOKE_CONVERT_ROTATE;
    if (whole_is_in) {
        whole *= n; /* elements counts what comes out, one piece of n */
    }
    return element_bytes * yoke_conversion_elements(transfer->conversion, whole, n);
}

double yoke_program_set_comm_bytes(const yoke_program_set *set, yoke_axis axis)
{
    double bytes = 0;
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        const yoke_program *program = &set->classes[class_id];
        double received = 0;
        for (int64_t t = 0; t < program->n_transfers; t++) {
            received += program->transfers[t].axis == axis
                            ? yoke_program_received_bytes(set, &program->transfers[t])
                            : 0.0;
        }
        bytes += received * program->n_ranks;
    }
    return bytes;
}

double yoke_program_set_bubble(const yoke_program_set *set)
{
    return yoke_schedule_bubble(&set->schedule, 1, 2);
}

int yoke_program_find(const yoke_program *program, yoke_value value, int microbatch)
{
    for (int64_t b = 0; b < program->n_buffers; b++) {
        if (program->buffers[b].value == value && program->buffers[b].microbatch == microbatch) {
            return (int)b;
        }
    }
    return YOKE_NO_BUFFER;
}
