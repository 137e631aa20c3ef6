/* Buffers and instructions of a rank's program, as lowering makes them. */
#include "program/lower.h"

bool yoke_value_is_per_microbatch(const yoke_value_info *info)
{
    return info->kind == YOKE_VALUE_INPUT || info->kind == YOKE_VALUE_ACTIVATION;
}

int *yoke_lowering_slot(yoke_lowering *low, yoke_value value, int microbatch)
{
    bool per = yoke_value_is_per_microbatch(&low->graph->values[value]);
    int column = per ? microbatch + 1 : 0;
    return &low->buffer_of[(int64_t)value * (low->n_microbatches + 1) + column];
}

int yoke_lowering_buffer(yoke_lowering *low, yoke_value value, int microbatch)
{
    int buffer = *yoke_lowering_slot(low, value, microbatch);
    YOKE_ASSERT(buffer != YOKE_NO_BUFFER);
    return buffer;
}

/* Lasting kinds are told by the value; the rest is settled by the plan, once it is known how long
 * they live. */
static yoke_buffer_kind kind_of(const yoke_value_info *info)
{
    if (info->kind == YOKE_VALUE_PARAMETER) {
        return YOKE_BUFFER_PARAMS;
    }
    if (info->kind == YOKE_VALUE_STATE) {
        return YOKE_BUFFER_OPTIMIZER;
    }
    if (info->gathered_of != YOKE_NO_VALUE) {
        return YOKE_BUFFER_GATHERED;
    }
    /* What travels in bf16 is a copy of a gradient, soon widened. */
    bool gradient = info->gradient_of != YOKE_NO_VALUE && info->dtype == YOKE_F32;
    bool lasts = info->kind == YOKE_VALUE_ACCUMULATOR || info->kind == YOKE_VALUE_STEP;
    return gradient && lasts ? YOKE_BUFFER_GRADS : YOKE_BUFFER_SCRATCH;
}

int yoke_lowering_buffer_add(yoke_lowering *low, yoke_value value, int microbatch, int root)
{
    yoke_program *program = low->program;
    const yoke_value_info *info = &low->graph->values[value];
    bool per = yoke_value_is_per_microbatch(info);
    program->buffers = yoke_arena_grow(low->set->arena, program->buffers, program->n_buffers,
                                       &program->buffers_capacity, sizeof *program->buffers);
    int id = (int)program->n_buffers++;
    yoke_buffer *buffer = &program->buffers[id];
    *buffer = (yoke_buffer){
        .value = value,
        .microbatch = per ? microbatch : YOKE_ONCE_A_STEP,
        .kind = root == YOKE_NO_BUFFER ? kind_of(info) : program->buffers[root].kind,
        .shape = {.n_dims = info->shape.n_dims},
        .root = root == YOKE_NO_BUFFER ? id : program->buffers[root].root,
        .first = -1,
        .last = -1,
    };
    yoke_shard piece = yoke_program_shard(low->set, low->rank, value);
    for (int d = 0; d < piece.n_dims; d++) {
        buffer->shape.extent[d] = piece.extent[d];
    }
    buffer->bytes = yoke_shard_elements(&piece) * yoke_dtype_bytes(info->dtype);
    *yoke_lowering_slot(low, value, microbatch) = id;
    return id;
}

int yoke_lowering_take_or_copy(yoke_lowering *low, const yoke_node *node, yoke_value value)
{
    int in = yoke_lowering_buffer(low, value, low->microbatch);
    if (yoke_lowering_may_take(low, node, value)) {
        return yoke_lowering_buffer_add(low, node->out[0], low->microbatch, in);
    }
    int out = yoke_lowering_buffer_add(low, node->out[0], low->microbatch, YOKE_NO_BUFFER);
    const int operands[] = {in, out};
    yoke_lowering_emit(
        low, YOKE_OPCODE_COPY,
        (yoke_instruction){
            .node = YOKE_NO_NODE, .transfer = YOKE_NO_TRANSFER, .n_in = 1, .n_out = 1},
        operands);
    return out;
}

void yoke_lowering_emit(yoke_lowering *low, yoke_opcode opcode, yoke_instruction extra,
                        const int *in_out)
{
    yoke_program *program = low->program;
    yoke_arena *arena = low->set->arena;
    extra.opcode = opcode;
    extra.region = low->region;
    extra.block = low->block;
    extra.microbatch = low->microbatch;
    extra.operands = (int)program->n_operands;
    for (int i = 0; i < extra.n_in + extra.n_out; i++) {
        program->operands = yoke_arena_grow(arena, program->operands, program->n_operands,
                                            &program->operands_capacity, sizeof *program->operands);
        program->operands[program->n_operands++] = in_out[i];
    }
    program->instructions =
        yoke_arena_grow(arena, program->instructions, program->n_instructions,
                        &program->instructions_capacity, sizeof *program->instructions);
    program->instructions[program->n_instructions++] = extra;
}
