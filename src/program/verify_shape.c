/*
 * The form of single instructions: that every index in them is one, and that their operands are the
 * tensors that the graph's node, the copy or the transfer is about.
 */
#include "program/verify.h"

#define FLOW_FAIL(flow, ...) yoke_verify_fail((flow)->verify, (flow)->rank, (flow)->at, __VA_ARGS__)

static const char *tensor(const yoke_flow *flow, int buffer, yoke_verify_text *text)
{
    return yoke_verify_tensor(flow->verify, flow->rank, buffer, text);
}

static const yoke_graph *graph_of(const yoke_flow *flow)
{
    return flow->verify->set->graph;
}

static const int *operands_of(const yoke_flow *flow, const yoke_instruction *at)
{
    return flow->program->operands + at->operands;
}

static const yoke_node *node_of(const yoke_flow *flow, const yoke_instruction *at)
{
    return at->opcode == YOKE_OPCODE_KERNEL ? &graph_of(flow)->nodes[at->node] : NULL;
}

/* Every index that the instruction holds is one. It cannot be printed before that is known. */
static yoke_status check_indices(const yoke_flow *flow, const yoke_instruction *at)
{
    const yoke_program *program = flow->program;
    bool known = (int)at->opcode >= 0 && at->opcode < YOKE_N_OPCODES;
    bool moves =
        known && (yoke_opcode_get(at->opcode)->starts || yoke_opcode_get(at->opcode)->ends);
    bool good = known && at->n_in >= 0 && at->n_out >= 0 && at->operands >= 0 &&
                (int64_t)at->operands + at->n_in + at->n_out <= program->n_operands;
    if (moves) {
        good = good && at->transfer >= 0 && at->transfer < program->n_transfers;
        int value = good ? program->transfers[at->transfer].value : YOKE_NO_VALUE;
        good = good && value >= 0 && value < graph_of(flow)->n_values;
        int stage = good ? program->transfers[at->transfer].stage : 0;
        good = good && stage >= 0 && stage < flow->verify->set->schedule.n_stages;
    }
    if (known && at->opcode == YOKE_OPCODE_KERNEL) {
        good = good && at->node >= 0 && at->node < graph_of(flow)->n_nodes;
    }
    for (int i = 0; good && i < at->n_in + at->n_out; i++) {
        int id = operands_of(flow, at)[i];
        good = id >= YOKE_NO_BUFFER && id < program->n_buffers;
    }
    return good ? YOKE_OK
                : yoke_verify_fail(flow->verify, flow->rank, YOKE_NOT_YET,
                                   "#%lld names an opcode, node, transfer or buffer that is not "
                                   "there",
                                   (long long)flow->at);
}

/* A buffer of a step, or of this micro-batch. */
static bool is_due(const yoke_buffer *buffer, yoke_value value, int microbatch)
{
    return buffer->value == value &&
           (buffer->microbatch == YOKE_ONCE_A_STEP || buffer->microbatch == microbatch);
}

/* A kernel's operands are those of its node. */
static yoke_status check_kernel(const yoke_flow *flow, const yoke_instruction *at)
{
    const yoke_node *node = node_of(flow, at);
    if (at->n_in != node->n_in || at->n_out != node->n_out) {
        return FLOW_FAIL(flow, "has %d inputs and %d outputs, its operator %d and %d", at->n_in,
                         at->n_out, node->n_in, node->n_out);
    }
    for (int i = 0; i < at->n_in + at->n_out; i++) {
        bool in = i < at->n_in;
        int id = operands_of(flow, at)[i];
        yoke_value value = in ? node->in[i] : node->out[i - at->n_in];
        const char *name = graph_of(flow)->values[value].name;
        bool read = in && yoke_node_reads(node, i);
        yoke_verify_text a;
        if (id == YOKE_NO_BUFFER && read && !yoke_op_get(node->op)->spans) {
            return FLOW_FAIL(flow, "reads %s, of which this rank has no buffer", name);
        }
        if (id != YOKE_NO_BUFFER && !is_due(&flow->program->buffers[id], value, at->microbatch)) {
            return FLOW_FAIL(flow, "%s %s instead of %s", in ? "reads" : "writes",
                             tensor(flow, id, &a), name);
        }
    }
    return YOKE_OK;
}

bool yoke_value_stems_from(const yoke_graph *graph, yoke_value made, yoke_value source)
{
    int producer = graph->values[made].producer;
    const yoke_node *node = producer != YOKE_NO_NODE ? &graph->nodes[producer] : NULL;
    for (int i = 0; node && i < node->n_in; i++) {
        if (node->in[i] == source) {
            return true;
        }
    }
    return false;
}

static yoke_status check_copy(const yoke_flow *flow, const yoke_instruction *at)
{
    const int *operands = operands_of(flow, at);
    if (at->n_in != 1 || at->n_out != 1 || operands[0] == YOKE_NO_BUFFER ||
        operands[1] == YOKE_NO_BUFFER) {
        return FLOW_FAIL(flow, "wants one buffer to copy and one to copy it to");
    }
    const yoke_buffer *in = &flow->program->buffers[operands[0]];
    const yoke_buffer *out = &flow->program->buffers[operands[1]];
    if (in->bytes != out->bytes || !yoke_value_stems_from(graph_of(flow), out->value, in->value)) {
        yoke_verify_text a;
        yoke_verify_text b;
        return FLOW_FAIL(flow, "copies %s to %s, which is not made of it",
                         tensor(flow, operands[0], &a), tensor(flow, operands[1], &b));
    }
    return YOKE_OK;
}

/* --- Transfers -------------------------------------------------------------------------------- */

static bool is_all_reduce(yoke_exchange kind)
{
    return kind == YOKE_EXCHANGE_ALL_REDUCE_SUM || kind == YOKE_EXCHANGE_ALL_REDUCE_MAX;
}

static yoke_opcode opcode_of(yoke_exchange kind)
{
    if (kind == YOKE_EXCHANGE_SEND) {
        return YOKE_OPCODE_SEND;
    }
    return kind == YOKE_EXCHANGE_RECV ? YOKE_OPCODE_RECV : YOKE_OPCODE_COLLECTIVE;
}

static yoke_status check_ends(const yoke_flow *flow, const yoke_instruction *at,
                              const yoke_program_transfer *transfer)
{
    const int ends[] = {transfer->in, transfer->out};
    const bool wanted[] = {transfer->kind != YOKE_EXCHANGE_RECV,
                           transfer->kind != YOKE_EXCHANGE_SEND};
    for (int i = 0; i < 2; i++) {
        bool there = ends[i] >= 0 && ends[i] < flow->program->n_buffers;
        if (ends[i] < YOKE_NO_BUFFER || ends[i] >= flow->program->n_buffers || there != wanted[i]) {
            return FLOW_FAIL(flow, "has buffer %d of %lld as its %s", ends[i],
                             (long long)flow->program->n_buffers, i == 0 ? "input" : "output");
        }
    }
    if (at->opcode != opcode_of(transfer->kind)) {
        return FLOW_FAIL(flow, "starts a transfer of another kind");
    }
    if (is_all_reduce(transfer->kind) && transfer->in != transfer->out) {
        yoke_verify_text a;
        yoke_verify_text b;
        return FLOW_FAIL(flow, "works in place, but reads %s and writes %s",
                         tensor(flow, transfer->in, &a), tensor(flow, transfer->out, &b));
    }
    return YOKE_OK;
}

/* Elements count what comes out, or what goes if nothing does. */
static yoke_status check_size(const yoke_flow *flow, const yoke_program_transfer *transfer)
{
    int counted = transfer->out != YOKE_NO_BUFFER ? transfer->out : transfer->in;
    const yoke_buffer *buffer = &flow->program->buffers[counted];
    int64_t elements = yoke_shape_elements(&buffer->shape);
    yoke_verify_text a;
    if (!is_due(buffer, transfer->value, transfer->microbatch)) {
        return FLOW_FAIL(flow, "moves %s instead of %s", tensor(flow, counted, &a),
                         graph_of(flow)->values[transfer->value].name);
    }
    if (transfer->elements != elements) {
        return FLOW_FAIL(flow, "moves %lld elements of %s, which has %lld here",
                         (long long)transfer->elements, tensor(flow, counted, &a),
                         (long long)elements);
    }
    return YOKE_OK;
}

/* Pieces are those of the tensor that the graph converts, and become those of the result. */
static yoke_status check_redistribution(const yoke_flow *flow,
                                        const yoke_program_transfer *transfer)
{
    if (transfer->kind != YOKE_EXCHANGE_COPY && transfer->kind != YOKE_EXCHANGE_SUM) {
        return YOKE_OK;
    }
    const yoke_graph *graph = graph_of(flow);
    int producer = graph->values[transfer->value].producer;
    const yoke_node *node = producer != YOKE_NO_NODE ? &graph->nodes[producer] : NULL;
    bool converts = node && node->op == YOKE_OP_CONVERT && node->axis == transfer->axis &&
                    node->conversion == transfer->conversion;
    const yoke_buffer *in = &flow->program->buffers[transfer->in];
    if (!converts || !is_due(in, node->in[0], transfer->microbatch)) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "makes %s of %s, which it is not made of",
                         graph->values[transfer->value].name, tensor(flow, transfer->in, &a));
    }
    return YOKE_OK;
}

yoke_status yoke_verify_shape(const yoke_flow *flow, const yoke_instruction *at)
{
    YOKE_TRY(check_indices(flow, at));
    if (at->opcode == YOKE_OPCODE_KERNEL) {
        return check_kernel(flow, at);
    }
    if (at->opcode == YOKE_OPCODE_COPY) {
        return check_copy(flow, at);
    }
    if (!yoke_opcode_get(at->opcode)->starts) {
        return YOKE_OK;
    }
    const yoke_program_transfer *transfer = &flow->program->transfers[at->transfer];
    YOKE_TRY(check_ends(flow, at, transfer));
    YOKE_TRY(check_size(flow, transfer));
    return check_redistribution(flow, transfer);
}
