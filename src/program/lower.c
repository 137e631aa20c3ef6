/*
 * Lowering: a rank's program from graph, placement and schedule.
 *
 *   head once;  the actions of the schedule, each one chunk's nodes for one micro-batch;  tail once
 *
 * A node becomes a kernel, a convert that moves bytes a collective, a value that another stage
 * reads a message. Inputs are loaded where they are first read.
 */
#include "program/lower.h"
#include <string.h>

/* --- What runs here --------------------------------------------------------------------------- */

static bool is_inside(const yoke_node *node)
{
    return node->region == YOKE_REGION_FORWARD || node->region == YOKE_REGION_BACKWARD;
}

/* Stages on which a node runs. */
static uint64_t stages_of_node(const yoke_lowering *low, const yoke_node *node)
{
    if (is_inside(node)) {
        return UINT64_C(1) << low->set->schedule.stage_of_chunk[low->chunk_of_block[node->block]];
    }
    return node->n_out ? low->set->stages[node->out[0]] : low->set->stages[node->in[0]];
}

bool yoke_lowering_runs_here(const yoke_lowering *low, const yoke_node *node)
{
    return stages_of_node(low, node) >> low->stage & 1;
}

/* --- Nodes by chunk --------------------------------------------------------------------------- */

static int bucket_of(const yoke_lowering *low, yoke_region region, int chunk)
{
    bool inside = region == YOKE_REGION_FORWARD || region == YOKE_REGION_BACKWARD;
    return (int)region * low->set->schedule.n_chunks + (inside ? chunk : 0);
}

static int bucket_of_node(const yoke_lowering *low, const yoke_node *node)
{
    return bucket_of(low, node->region, is_inside(node) ? low->chunk_of_block[node->block] : 0);
}

/* True if another stage than the node's own reads what it makes. */
static bool sends(const yoke_lowering *low, const yoke_node *node)
{
    uint64_t readers = 0;
    for (int k = 0; k < node->n_out; k++) {
        readers |= low->readers[node->out[k]];
    }
    return is_inside(node) && readers & ~stages_of_node(low, node);
}

/* By counting; all nodes, or only those that send. */
static yoke_buckets sort_nodes(const yoke_lowering *low, bool only_sending)
{
    const yoke_graph *graph = low->graph;
    int n_buckets = (YOKE_REGION_TAIL + 1) * low->set->schedule.n_chunks;
    yoke_buckets b = {.nodes = YOKE_ARENA_NEW(low->set->arena, int, graph->n_nodes),
                      .first = YOKE_ARENA_NEW(low->set->arena, int, n_buckets + 2)};
    int *count = b.first + 2; /* of each bucket; one entry further down they become its end */
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        count[bucket_of_node(low, node)] += !only_sending || sends(low, node);
    }
    for (int i = 1; i < n_buckets; i++) {
        count[i] += count[i - 1];
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (!only_sending || sends(low, node)) {
            b.nodes[b.first[bucket_of_node(low, node) + 1]++] = (int)i;
        }
    }
    return b;
}

void yoke_lowering_sort_nodes(yoke_lowering *low)
{
    low->all = sort_nodes(low, false);
    low->outgoing = sort_nodes(low, true);
}

yoke_node_list yoke_lowering_nodes(const yoke_lowering *low, const yoke_buckets *buckets,
                                   yoke_region region, int chunk)
{
    int bucket = bucket_of(low, region, chunk);
    int first = buckets->first[bucket];
    return (yoke_node_list){buckets->nodes + first, buckets->first[bucket + 1] - first};
}

yoke_region yoke_action_region(const yoke_action *action)
{
    return action->kind == YOKE_ACTION_F ? YOKE_REGION_FORWARD : YOKE_REGION_BACKWARD;
}

/* --- Last readers ----------------------------------------------------------------------------- */

enum { NOBODY = -1, UNKNOWN = -2 };

/* Which of two nodes, the first of them before the second in the graph, runs later on this stage
 * for a micro-batch. UNKNOWN if the schedule decides: W of one chunk may come before the backward
 * pass of another, or after it. */
static int later(const yoke_lowering *low, int a, int b)
{
    const yoke_node *x = &low->graph->nodes[a], *y = &low->graph->nodes[b];
    if (x->region != y->region || !is_inside(x)) {
        return x->region > y->region ? a : b;
    }
    bool late_a = low->splits_backward && low->for_weights[a];
    bool late_b = low->splits_backward && low->for_weights[b];
    int chunk_a = low->chunk_of_block[x->block], chunk_b = low->chunk_of_block[y->block];
    if (chunk_a == chunk_b) {
        return late_a && !late_b ? a : b;
    }
    if (late_a || late_b) {
        return UNKNOWN;
    }
    return (chunk_a > chunk_b) == (x->region == YOKE_REGION_FORWARD) ? a : b;
}

static void find_last_reads(yoke_lowering *low)
{
    const yoke_graph *graph = low->graph;
    for (int64_t v = 0; v < graph->n_values; v++) {
        low->last_read[v] = NOBODY;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; yoke_lowering_runs_here(low, node) && k < node->n_in; k++) {
            int *last = &low->last_read[node->in[k]];
            if (yoke_node_reads(node, k) && *last != UNKNOWN) {
                *last = *last == NOBODY ? (int)i : later(low, *last, (int)i);
            }
        }
    }
}

bool yoke_lowering_may_take(const yoke_lowering *low, const yoke_node *node, yoke_value value)
{
    const yoke_value_info *info = &low->graph->values[value];
    bool made_here = info->kind == YOKE_VALUE_ACTIVATION || info->kind == YOKE_VALUE_ACCUMULATOR ||
                     info->kind == YOKE_VALUE_STEP;
    if (!made_here || info->output || low->last_read[value] != (int)(node - low->graph->nodes)) {
        return false;
    }
    if (!yoke_value_is_per_microbatch(info)) {
        return !is_inside(node) && low->graph->values[node->out[0]].kind != YOKE_VALUE_ACCUMULATOR;
    }
    bool sent = low->readers[value] & ~(UINT64_C(1) << low->stage) &&
                yoke_lowering_runs_here(low, &low->graph->nodes[info->producer]);
    return !sent;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

static void load_input(yoke_lowering *low, yoke_value value)
{
    int buffer = yoke_lowering_buffer_add(low, value, low->microbatch, YOKE_NO_BUFFER);
    yoke_lowering_emit(
        low, YOKE_OPCODE_LOAD,
        (yoke_instruction){.node = YOKE_NO_NODE, .transfer = YOKE_NO_TRANSFER, .n_out = 1},
        &buffer);
}

static int input_buffer(yoke_lowering *low, const yoke_node *node, int i)
{
    if (!yoke_node_reads(node, i)) {
        return YOKE_NO_BUFFER;
    }
    bool missing = *yoke_lowering_slot(low, node->in[i], low->microbatch) == YOKE_NO_BUFFER;
    if (missing && low->graph->values[node->in[i]].kind == YOKE_VALUE_INPUT) {
        load_input(low, node->in[i]);
    }
    return yoke_lowering_buffer(low, node->in[i], low->microbatch);
}

/* The input whose storage the first output takes over, or YOKE_NO_BUFFER. */
static int reused_buffer(const yoke_lowering *low, const yoke_node *node, const int *in)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    const char *dims = low->graph->values[node->out[0]].dims;
    for (int i = 0; i < node->n_in; i++) {
        bool allowed = yoke_mask_has(def->reuses, i);
        if (allowed && in[i] != YOKE_NO_BUFFER && yoke_lowering_may_take(low, node, node->in[i]) &&
            low->graph->values[node->in[i]].dtype == low->graph->values[node->out[0]].dtype &&
            strcmp(dims, low->graph->values[node->in[i]].dims) == 0) {
            return in[i];
        }
    }
    return YOKE_NO_BUFFER;
}

static int output_buffer(yoke_lowering *low, const yoke_node *node, int i, const int *in)
{
    const yoke_value_info *info = &low->graph->values[node->out[i]];
    bool sums = info->kind == YOKE_VALUE_ACCUMULATOR || info->n_makers > 0;
    int found = *yoke_lowering_slot(low, node->out[i], low->microbatch);
    if (sums && found != YOKE_NO_BUFFER) {
        return found;
    }
    int root = i == 0 && !sums ? reused_buffer(low, node, in) : YOKE_NO_BUFFER;
    return yoke_lowering_buffer_add(low, node->out[i], low->microbatch, root);
}

/* True if an earlier micro-batch of the step, or an earlier node of this one, has given the output a
 * value to which this one adds. */
static bool adds_to_output(yoke_lowering *low, yoke_value value)
{
    const yoke_value_info *info = &low->graph->values[value];
    bool anew = yoke_value_is_per_microbatch(info);
    return anew ? info->n_makers > 0 &&
                      *yoke_lowering_slot(low, value, low->microbatch) != YOKE_NO_BUFFER
                : low->written[value];
}

/* A kernel over the node's inputs, which stand in low->operands and may be YOKE_NO_BUFFER. */
static void emit_kernel(yoke_lowering *low, const yoke_node *node)
{
    int *operands = low->operands;
    bool accumulate = false;
    for (int i = 0; i < node->n_out; i++) {
        accumulate = adds_to_output(low, node->out[i]);
        operands[node->n_in + i] = output_buffer(low, node, i, operands);
        low->written[node->out[i]] =
            low->graph->values[node->out[i]].kind == YOKE_VALUE_ACCUMULATOR;
    }
    yoke_lowering_emit(low, YOKE_OPCODE_KERNEL,
                       (yoke_instruction){.node = (int)(node - low->graph->nodes),
                                          .transfer = YOKE_NO_TRANSFER,
                                          .n_in = node->n_in,
                                          .n_out = node->n_out,
                                          .accumulate = accumulate},
                       operands);
}

/* True if some input lives on fewer stages than the result: then each stage adds its own part. */
static bool spans_stages(const yoke_lowering *low, const yoke_node *node)
{
    bool spans = yoke_op_get(node->op)->spans && node->region == YOKE_REGION_TAIL;
    for (int i = 0; spans && i < node->n_in; i++) {
        if (low->set->stages[node->in[i]] != low->set->stages[node->out[0]]) {
            return true;
        }
    }
    return false;
}

/* This stage's part, then the sum over the stages. */
static void emit_spanning(yoke_lowering *low, const yoke_node *node)
{
    int n_here = 0, here = -1;
    for (int i = 0; i < node->n_in; i++) {
        bool mine = yoke_place_contributor(low->set, node, i) == low->stage;
        low->operands[i] =
            mine ? yoke_lowering_buffer(low, node->in[i], low->microbatch) : YOKE_NO_BUFFER;
        n_here += mine;
        here = mine ? i : here;
    }
    if (node->op == YOKE_OP_ADD && n_here == 1) {
        yoke_lowering_take_or_copy(low, node, node->in[here]);
    } else {
        emit_kernel(low, node);
    }
    int buffer = yoke_lowering_buffer(low, node->out[0], low->microbatch);
    yoke_lowering_sum_stages(low, node->out[0], buffer, low->set->stages[node->out[0]]);
}

static bool moves_bytes(const yoke_node *node)
{
    return node->op == YOKE_OP_CONVERT && node->conversion != YOKE_CONVERT_SLICE &&
           node->conversion != YOKE_CONVERT_MASK;
}

static void emit_node(yoke_lowering *low, const yoke_node *node)
{
    low->block = node->block;
    if (spans_stages(low, node)) {
        emit_spanning(low, node);
        return;
    }
    for (int i = 0; i < node->n_in; i++) {
        low->operands[i] = input_buffer(low, node, i);
    }
    if (moves_bytes(node)) {
        yoke_lowering_convert(low, node);
    } else {
        emit_kernel(low, node);
    }
}

/* --- The step --------------------------------------------------------------------------------- */

static void add_lasting_buffers(yoke_lowering *low)
{
    const yoke_graph *graph = low->graph;
    for (int64_t v = 0; v < graph->n_values; v++) {
        bool lasting = graph->values[v].kind == YOKE_VALUE_PARAMETER ||
                       graph->values[v].kind == YOKE_VALUE_STATE;
        if (lasting && low->set->stages[v] >> low->stage & 1) {
            yoke_lowering_buffer_add(low, (yoke_value)v, YOKE_ONCE_A_STEP, YOKE_NO_BUFFER);
        }
    }
}

/* True if the node adds to a sum over micro-batches, or makes what each of them has anew. */
static bool is_for_each_microbatch(const yoke_lowering *low, const yoke_node *node)
{
    const yoke_value_info *out = node->n_out ? &low->graph->values[node->out[0]] : NULL;
    return out && (out->kind == YOKE_VALUE_ACCUMULATOR || yoke_value_is_per_microbatch(out));
}

/* Nodes of head or tail: those for each micro-batch if it is one, else those for the step. */
static void emit_around(yoke_lowering *low, yoke_region region, int microbatch)
{
    low->region = region;
    low->microbatch = microbatch;
    yoke_node_list list = yoke_lowering_nodes(low, &low->all, region, 0);
    for (int i = 0; i < list.n; i++) {
        const yoke_node *node = &low->graph->nodes[list.node[i]];
        bool due = is_for_each_microbatch(low, node) == (microbatch != YOKE_ONCE_A_STEP);
        if (due && yoke_lowering_runs_here(low, node)) {
            emit_node(low, node);
        }
    }
}

bool yoke_lowering_in_action(const yoke_lowering *low, const yoke_action *action,
                             const yoke_node *node)
{
    bool split = action->kind == YOKE_ACTION_I || action->kind == YOKE_ACTION_W;
    return !split || low->for_weights[node - low->graph->nodes] == (action->kind == YOKE_ACTION_W);
}

static void emit_action(yoke_lowering *low, const yoke_action *action)
{
    low->region = yoke_action_region(action);
    low->microbatch = action->microbatch;
    yoke_inbox_receive(low, action);
    yoke_node_list list = yoke_lowering_nodes(low, &low->all, low->region, action->chunk);
    for (int i = 0; i < list.n; i++) {
        const yoke_node *node = &low->graph->nodes[list.node[i]];
        if (!yoke_lowering_in_action(low, action, node)) {
            continue;
        }
        emit_node(low, node);
        for (int k = 0; k < node->n_out; k++) {
            yoke_lowering_send(low, node->out[k]);
        }
    }
}

void yoke_lower_rank(yoke_lowering *low)
{
    int64_t slots = low->graph->n_values * (low->n_microbatches + 1);
    for (int64_t i = 0; i < slots; i++) {
        low->buffer_of[i] = YOKE_NO_BUFFER;
    }
    memset(low->written, 0, sizeof(bool) * (size_t)low->graph->n_values);
    find_last_reads(low);
    yoke_inbox_fill(low);
    low->block = YOKE_NO_BLOCK;
    add_lasting_buffers(low);
    for (int m = 0; m < low->n_microbatches; m++) {
        emit_around(low, YOKE_REGION_HEAD, m);
    }
    emit_around(low, YOKE_REGION_HEAD, YOKE_ONCE_A_STEP);
    const yoke_stage_actions *actions = &low->set->schedule.stage[low->stage];
    for (int i = 0; i < actions->n; i++) {
        emit_action(low, &actions->action[i]);
    }
    low->region = YOKE_REGION_TAIL;
    yoke_lowering_wait_sends(low);
    emit_around(low, YOKE_REGION_TAIL, YOKE_ONCE_A_STEP);
}
