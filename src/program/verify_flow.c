/*
 * Follows the instructions of a class of ranks: what each reads must be there, and what each writes
 * must be free.
 *
 * Which operands are read and written says the instruction, and for kernels the operator's
 * definition. That operands are the right tensors is checked against the graph, so a program that
 * computes on the wrong buffer is refused even where that buffer is in good order.
 */
#include "program/verify.h"

#define FLOW_FAIL(flow, ...) yoke_verify_fail((flow)->verify, (flow)->rank, (flow)->at, __VA_ARGS__)

static const char *tensor(const yoke_flow *flow, int buffer, yoke_verify_text *text)
{
    return yoke_verify_tensor(flow->verify, flow->rank, buffer, text);
}

static const char *instruction(const yoke_flow *flow, int64_t index, yoke_verify_text *text)
{
    return yoke_verify_instruction(flow->verify, flow->rank, index, text);
}

static const yoke_graph *graph_of(const yoke_flow *flow)
{
    return flow->verify->set->graph;
}

static yoke_verify_class *class_of(const yoke_flow *flow)
{
    return &flow->verify->classes[flow->verify->set->class_of[flow->rank]];
}

static const int *operands_of(const yoke_flow *flow, const yoke_instruction *at)
{
    return flow->program->operands + at->operands;
}

static const yoke_node *node_of(const yoke_flow *flow, const yoke_instruction *at)
{
    return at->opcode == YOKE_OPCODE_KERNEL ? &graph_of(flow)->nodes[at->node] : NULL;
}

/* --- What runs on this rank alone ------------------------------------------------------------- */

/* An output may lie on an input only if the operator can do with that, and then exactly on it. */
static yoke_status check_in_place(const yoke_flow *flow, const yoke_instruction *at, int output)
{
    const yoke_node *node = node_of(flow, at);
    const int *in = operands_of(flow, at);
    int out = in[at->n_in + output];
    const yoke_buffer *written = &flow->program->buffers[out];
    for (int i = 0; i < at->n_in; i++) {
        bool read = in[i] != YOKE_NO_BUFFER && (!node || yoke_node_reads(node, i));
        if (!read || !yoke_buffers_overlap(&flow->program->buffers[in[i]], written)) {
            continue;
        }
        bool reuses = node && output == 0 && yoke_mask_has(yoke_op_get(node->op)->reuses, i);
        if (!reuses || flow->program->buffers[in[i]].offset != written->offset) {
            yoke_verify_text a;
            yoke_verify_text b;
            return FLOW_FAIL(flow, "writes %s over its own input %s", tensor(flow, out, &a),
                             tensor(flow, in[i], &b));
        }
    }
    return YOKE_OK;
}

/* Over micro-batches, or over the nodes that add to it, or over both. */
static bool is_sum(const yoke_value_info *info)
{
    return info->kind == YOKE_VALUE_ACCUMULATOR || info->n_makers > 0;
}

static int n_parts(const yoke_flow *flow, int id)
{
    const yoke_buffer *buffer = &flow->program->buffers[id];
    int n_makers = graph_of(flow)->values[buffer->value].n_makers;
    bool over_step = buffer->microbatch == YOKE_ONCE_A_STEP;
    return (n_makers > 0 ? n_makers : 1) *
           (over_step ? flow->verify->set->schedule.n_microbatches : 1);
}

/* A sum is read once the last of its parts is in it: a copy of less would be in good order everywhere
 * else. */
static yoke_status read_whole(yoke_flow *flow, int buffer)
{
    yoke_value value = flow->program->buffers[buffer].value;
    const yoke_hold *hold = &flow->hold[buffer];
    if (is_sum(&graph_of(flow)->values[value]) && hold->state == YOKE_HOLD_VALUE &&
        hold->n_writes < n_parts(flow, buffer)) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "reads %s after %d of its %d parts", tensor(flow, buffer, &a),
                         hold->n_writes, n_parts(flow, buffer));
    }
    return yoke_flow_read(flow, buffer);
}

static yoke_status run_inputs(yoke_flow *flow, const yoke_instruction *at)
{
    const yoke_node *node = node_of(flow, at);
    const int *in = operands_of(flow, at);
    unsigned updates = node ? yoke_op_get(node->op)->updates : 0;
    for (int i = 0; i < at->n_in; i++) {
        if (in[i] != YOKE_NO_BUFFER && (!node || yoke_node_reads(node, i))) {
            YOKE_TRY(read_whole(flow, in[i]));
        }
    }
    for (int i = 0; i < at->n_in; i++) {
        if (yoke_mask_has(updates, i)) {
            YOKE_TRY(yoke_flow_update(flow, in[i]));
        }
    }
    return YOKE_OK;
}

/* A sum is written anew only by the first that adds to it. */
static yoke_status check_sum(const yoke_flow *flow, const yoke_instruction *at, int out)
{
    yoke_value value = flow->program->buffers[out].value;
    if (is_sum(&graph_of(flow)->values[value]) && !at->accumulate && flow->hold[out].n_writes > 0) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "writes %s anew, which loses what was added before",
                         tensor(flow, out, &a));
    }
    return YOKE_OK;
}

static yoke_status run_outputs(yoke_flow *flow, const yoke_instruction *at)
{
    const int *out = operands_of(flow, at) + at->n_in;
    for (int i = 0; i < at->n_out; i++) {
        if (out[i] != YOKE_NO_BUFFER && at->accumulate) {
            YOKE_TRY(yoke_flow_read(flow, out[i]));
        }
    }
    for (int i = 0; i < at->n_out; i++) {
        if (out[i] != YOKE_NO_BUFFER) {
            YOKE_TRY(check_in_place(flow, at, i));
            YOKE_TRY(check_sum(flow, at, out[i]));
            YOKE_TRY(yoke_flow_write(flow, out[i], YOKE_HOLD_VALUE));
            flow->hold[out[i]].n_writes++;
        }
    }
    return YOKE_OK;
}

static yoke_status run_local(yoke_flow *flow, const yoke_instruction *at)
{
    YOKE_TRY(run_inputs(flow, at));
    return run_outputs(flow, at);
}

/* --- Transfers -------------------------------------------------------------------------------- */

/* An all_reduce may begin on storage that still stands under the name of what it reduces: no
 * instruction is needed to take it over. */
static yoke_status take_over(yoke_flow *flow, int buffer)
{
    int holder = yoke_flow_holder(flow, buffer);
    if (holder == YOKE_NO_BUFFER || holder == buffer) {
        return YOKE_OK;
    }
    const yoke_buffer *to = &flow->program->buffers[buffer];
    const yoke_buffer *from = &flow->program->buffers[holder];
    bool fits = from->root == to->root && from->bytes == to->bytes &&
                from->microbatch == to->microbatch &&
                yoke_value_stems_from(graph_of(flow), to->value, from->value);
    if (!fits) {
        return YOKE_OK;
    }
    YOKE_TRY(read_whole(flow, holder));
    return yoke_flow_write(flow, buffer, YOKE_HOLD_VALUE);
}

static yoke_status run_start(yoke_flow *flow, const yoke_instruction *at)
{
    const yoke_program_transfer *transfer = &flow->program->transfers[at->transfer];
    int64_t *start = &class_of(flow)->start[at->transfer];
    if (*start != YOKE_NOT_YET) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "is started a second time (%s)", instruction(flow, *start, &a));
    }
    *start = flow->at;
    bool in_place = transfer->in == transfer->out;
    if (in_place) {
        YOKE_TRY(take_over(flow, transfer->in));
    }
    if (transfer->in != YOKE_NO_BUFFER) {
        YOKE_TRY(read_whole(flow, transfer->in));
    }
    if (transfer->in != YOKE_NO_BUFFER && !in_place) {
        flow->hold[transfer->in].n_senders++;
        flow->hold[transfer->in].sender = flow->at;
    }
    return transfer->out != YOKE_NO_BUFFER ? yoke_flow_write(flow, transfer->out, YOKE_HOLD_COMING)
                                           : YOKE_OK;
}

static yoke_status run_wait(yoke_flow *flow, const yoke_instruction *at)
{
    const yoke_program_transfer *transfer = &flow->program->transfers[at->transfer];
    yoke_verify_class *known = class_of(flow);
    if (known->start[at->transfer] == YOKE_NOT_YET) {
        return FLOW_FAIL(flow, "waits for what has not been started");
    }
    if (known->wait[at->transfer] != YOKE_NOT_YET) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "is waited for a second time (%s)",
                         instruction(flow, known->wait[at->transfer], &a));
    }
    known->wait[at->transfer] = flow->at;
    if (transfer->in != YOKE_NO_BUFFER && transfer->in != transfer->out) {
        flow->hold[transfer->in].n_senders--;
    }
    if (transfer->out != YOKE_NO_BUFFER) {
        flow->hold[transfer->out].state = YOKE_HOLD_VALUE;
        flow->hold[transfer->out].since = flow->at;
    }
    return YOKE_OK;
}

static yoke_status run(yoke_flow *flow, const yoke_instruction *at)
{
    YOKE_TRY(yoke_verify_shape(flow, at));
    if (yoke_opcode_get(at->opcode)->starts) {
        return run_start(flow, at);
    }
    return yoke_opcode_get(at->opcode)->ends ? run_wait(flow, at) : run_local(flow, at);
}

/* --- The end of the step ---------------------------------------------------------------------- */

static yoke_status check_transfers_ended(const yoke_flow *flow)
{
    const yoke_verify_class *known = class_of(flow);
    for (int64_t i = 0; i < flow->program->n_transfers; i++) {
        const yoke_program_transfer *transfer = &flow->program->transfers[i];
        const char *name = graph_of(flow)->values[transfer->value].name;
        if (known->start[i] == YOKE_NOT_YET) {
            return yoke_verify_fail(flow->verify, flow->rank, YOKE_NOT_YET,
                                    "transfer %lld, of %s (micro-batch %d), is never started",
                                    (long long)i, name, transfer->microbatch);
        }
        if (known->wait[i] == YOKE_NOT_YET) {
            return yoke_verify_fail(flow->verify, flow->rank, known->start[i],
                                    "is never waited for");
        }
    }
    return YOKE_OK;
}

/* What lasts, and what somebody will ask for, is there; parameters and so on were updated once. */
static yoke_status check_end(yoke_flow *flow, int id)
{
    const yoke_buffer *buffer = &flow->program->buffers[id];
    const yoke_value_info *info = &graph_of(flow)->values[buffer->value];
    const yoke_hold *hold = &flow->hold[id];
    bool lasts = buffer->kind == YOKE_BUFFER_PARAMS || buffer->kind == YOKE_BUFFER_OPTIMIZER;
    bool wanted = lasts && !info->frozen && graph_of(flow)->control != YOKE_NO_VALUE &&
                  !flow->verify->set->schedule.forward_only;
    yoke_verify_text a;
    yoke_verify_text b;
    tensor(flow, id, &a);
    if ((lasts || info->output) && hold->state == YOKE_HOLD_LOST && buffer->bytes > 0) {
        return yoke_verify_fail(flow->verify, flow->rank, hold->since,
                                "writes %s over %s, which must last to the end of the step",
                                tensor(flow, hold->by, &b), a.at);
    }
    if (info->output && hold->state != YOKE_HOLD_VALUE) {
        return yoke_verify_fail(flow->verify, flow->rank, YOKE_NOT_YET,
                                "%s is wanted after the step, but never written", a.at);
    }
    if (is_sum(info) && hold->n_writes != n_parts(flow, id)) {
        return yoke_verify_fail(flow->verify, flow->rank, hold->since,
                                "%s is a sum of %d parts, but %d are added", a.at,
                                n_parts(flow, id), hold->n_writes);
    }
    if (wanted && hold->updated == YOKE_NOT_YET) {
        return yoke_verify_fail(flow->verify, flow->rank, hold->first_read,
                                "reads %s, which nothing updates in the step", a.at);
    }
    if (lasts && !wanted && hold->updated != YOKE_NOT_YET) {
        return yoke_verify_fail(flow->verify, flow->rank, hold->updated,
                                "updates %s in a program that only evaluates", a.at);
    }
    return YOKE_OK;
}

yoke_status yoke_verify_flow(const yoke_verify *verify, int rank)
{
    yoke_flow flow;
    YOKE_TRY(yoke_flow_init(&flow, verify, rank));
    for (flow.at = 0; flow.at < flow.program->n_instructions; flow.at++) {
        YOKE_TRY(run(&flow, &flow.program->instructions[flow.at]));
    }
    YOKE_TRY(check_transfers_ended(&flow));
    for (int i = 0; i < flow.program->n_buffers; i++) {
        YOKE_TRY(check_end(&flow, i));
    }
    return YOKE_OK;
}
