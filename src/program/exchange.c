/*
 * Messages and collectives of a rank's program.
 *
 * A send is started as soon as its value is there. It is waited for when the same value of the
 * micro-batch after the next is to be sent: late enough not to stall, early enough that two buffers
 * of a boundary suffice. Not so where the value is for a distant chunk: that may lag behind by as
 * many micro-batches as there are chunks between, and wait for this stage meanwhile. Such sends,
 * and the last of all others, are waited for at the end of the micro-batches.
 */
#include "program/lower.h"

enum { SENDS_IN_FLIGHT = 2 };

static int add_transfer(yoke_lowering *low, yoke_program_transfer transfer)
{
    yoke_program *program = low->program;
    program->transfers = yoke_arena_grow(low->set->arena, program->transfers, program->n_transfers,
                                         &program->transfers_capacity, sizeof *program->transfers);
    transfer.microbatch = low->microbatch;
    transfer.tag = transfer.value * (low->n_microbatches + 1) + low->microbatch + 1;
    program->transfers[program->n_transfers] = transfer;
    return (int)program->n_transfers++;
}

static void start(yoke_lowering *low, yoke_opcode opcode, int transfer)
{
    const yoke_program_transfer *t = &low->program->transfers[transfer];
    bool in = t->in != YOKE_NO_BUFFER, out = t->out != YOKE_NO_BUFFER;
    const int operands[] = {in ? t->in : t->out, t->out};
    yoke_lowering_emit(
        low, opcode,
        (yoke_instruction){.node = YOKE_NO_NODE, .transfer = transfer, .n_in = in, .n_out = out},
        operands);
}

void yoke_lowering_wait(yoke_lowering *low, int transfer)
{
    yoke_lowering_emit(low, YOKE_OPCODE_WAIT,
                       (yoke_instruction){.node = YOKE_NO_NODE, .transfer = transfer}, NULL);
}

/* --- Messages --------------------------------------------------------------------------------- */

/* Waits for the oldest send of `value` to `stage` once too many are in flight. */
static void limit_sends(yoke_lowering *low, yoke_value value, int stage)
{
    int in_flight = 0;
    yoke_pending_send *oldest = NULL;
    for (int64_t i = low->n_pending - 1; i >= 0; i--) {
        yoke_pending_send *send = &low->pending[i];
        const yoke_program_transfer *t = &low->program->transfers[send->transfer];
        if (!send->waited && t->value == value && t->stage == stage) {
            in_flight++;
            oldest = send;
        }
    }
    if (in_flight >= SENDS_IN_FLIGHT) {
        yoke_lowering_wait(low, oldest->transfer);
        oldest->waited = true;
    }
}

static void send_to(yoke_lowering *low, yoke_value value, int stage)
{
    int buffer = yoke_lowering_buffer(low, value, low->microbatch);
    if (!(low->distant[value] >> stage & 1)) {
        limit_sends(low, value, stage);
    }
    int transfer =
        add_transfer(low, (yoke_program_transfer){
                              .kind = YOKE_EXCHANGE_SEND,
                              .axis = YOKE_AXIS_PP,
                              .value = value,
                              .stage = stage,
                              .elements = yoke_shape_elements(&low->program->buffers[buffer].shape),
                              .in = buffer,
                              .out = YOKE_NO_BUFFER,
                          });
    start(low, YOKE_OPCODE_SEND, transfer);
    low->pending = yoke_arena_grow(low->set->arena, low->pending, low->n_pending,
                                   &low->pending_capacity, sizeof *low->pending);
    low->pending[low->n_pending++] = (yoke_pending_send){.transfer = transfer};
}

void yoke_lowering_send(yoke_lowering *low, yoke_value value)
{
    for (int stage = 0; stage < low->set->schedule.n_stages; stage++) {
        if (stage != low->stage && low->readers[value] >> stage & 1) {
            send_to(low, value, stage);
        }
    }
}

int yoke_lowering_receive(yoke_lowering *low, yoke_value value, int microbatch)
{
    const yoke_value_info *info = &low->graph->values[value];
    int block = low->graph->nodes[info->producer].block;
    int stage = low->set->schedule.stage_of_chunk[low->chunk_of_block[block]];
    int microbatch_at_hand = low->microbatch;
    low->microbatch = microbatch;
    int buffer = yoke_lowering_buffer_add(low, value, microbatch, YOKE_NO_BUFFER);
    int transfer =
        add_transfer(low, (yoke_program_transfer){
                              .kind = YOKE_EXCHANGE_RECV,
                              .axis = YOKE_AXIS_PP,
                              .value = value,
                              .stage = stage,
                              .elements = yoke_shape_elements(&low->program->buffers[buffer].shape),
                              .in = YOKE_NO_BUFFER,
                              .out = buffer,
                          });
    start(low, YOKE_OPCODE_RECV, transfer);
    low->microbatch = microbatch_at_hand;
    return transfer;
}

void yoke_lowering_wait_sends(yoke_lowering *low)
{
    for (int64_t i = 0; i < low->n_pending; i++) {
        if (!low->pending[i].waited) {
            yoke_lowering_wait(low, low->pending[i].transfer);
        }
    }
    low->n_pending = 0;
}

/* --- Collectives ------------------------------------------------------------------------------ */

/* Index of the groups along an axis, of a pipeline among these stages; made if it is new. */
static int find_grouping(yoke_program_set *set, yoke_axis axis, uint64_t stages)
{
    for (int64_t g = 0; g < set->n_groupings; g++) {
        if (set->groupings[g].axis == axis && set->groupings[g].stages == stages) {
            return (int)g;
        }
    }
    set->groupings = yoke_arena_grow(set->arena, set->groupings, set->n_groupings,
                                     &set->groupings_capacity, sizeof *set->groupings);
    set->groupings[set->n_groupings] = (yoke_grouping){.axis = axis, .stages = stages};
    return (int)set->n_groupings++;
}

/* Works in place. */
static void all_reduce(yoke_lowering *low, yoke_program_transfer transfer, int buffer)
{
    transfer.in = transfer.out = buffer;
    transfer.elements = yoke_shape_elements(&low->program->buffers[buffer].shape);
    int id = add_transfer(low, transfer);
    start(low, YOKE_OPCODE_COLLECTIVE, id);
    yoke_lowering_wait(low, id);
}

void yoke_lowering_convert(yoke_lowering *low, const yoke_node *node)
{
    const yoke_value_info *from = &low->graph->values[node->in[0]];
    yoke_program_transfer transfer = {
        .conversion = node->conversion,
        .axis = node->axis,
        .value = node->out[0],
        .grouping = find_grouping(low->set, node->axis, UINT64_MAX),
    };
    if (node->conversion == YOKE_CONVERT_ALL_REDUCE) {
        bool max = from->layout.place[node->axis] == YOKE_PARTIAL_MAX;
        transfer.kind = max ? YOKE_EXCHANGE_ALL_REDUCE_MAX : YOKE_EXCHANGE_ALL_REDUCE_SUM;
        all_reduce(low, transfer, yoke_lowering_take_or_copy(low, node, node->in[0]));
        return;
    }
    transfer.kind =
        node->conversion == YOKE_CONVERT_REDUCE_SCATTER ? YOKE_EXCHANGE_SUM : YOKE_EXCHANGE_COPY;
    transfer.in = yoke_lowering_buffer(low, node->in[0], low->microbatch);
    transfer.out = yoke_lowering_buffer_add(low, node->out[0], low->microbatch, YOKE_NO_BUFFER);
    transfer.elements = yoke_shape_elements(&low->program->buffers[transfer.out].shape);
    int id = add_transfer(low, transfer);
    start(low, YOKE_OPCODE_COLLECTIVE, id);
    yoke_lowering_wait(low, id);
}

void yoke_lowering_sum_stages(yoke_lowering *low, yoke_value value, int buffer, uint64_t stages)
{
    all_reduce(low,
               (yoke_program_transfer){
                   .kind = YOKE_EXCHANGE_ALL_REDUCE_SUM,
                   .conversion = YOKE_CONVERT_ALL_REDUCE,
                   .axis = YOKE_AXIS_PP,
                   .value = value,
                   .grouping = find_grouping(low->set, YOKE_AXIS_PP, stages),
               },
               buffer);
}
