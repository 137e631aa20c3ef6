/* Binding and running of one rank's program: see executor.h. */
#include "run/executor.h"
#include <string.h>

struct yoke_executor {
    yoke_executor_request at;
    const yoke_program *program;
    yoke_kernel_call *calls;  /* [instructions] */
    yoke_transfer *transfers; /* [transfers] */
    yoke_request *requests;   /* [transfers] */
};

/* --- Binding ---------------------------------------------------------------------------------- */

static void *address(const yoke_executor *executor, int buffer)
{
    bool none = buffer == YOKE_NO_BUFFER;
    return none ? NULL : executor->at.slab + executor->program->buffers[buffer].offset;
}

/* As the kernel sees it; what is not read, or not here, has neither data nor extent. */
static yoke_tensor tensor_of(const yoke_program *program, int buffer, char *slab)
{
    if (buffer == YOKE_NO_BUFFER) {
        return (yoke_tensor){0};
    }
    const yoke_buffer *b = &program->buffers[buffer];
    return (yoke_tensor){.data = slab + b->offset, .shard = b->shard};
}

/* Fills `tensors` with the operands, inputs first; returns how many inputs there are. What another
 * stage has to add is no part of this rank's sum: add gets only what is here. */
static int bind_operands(const yoke_executor *executor, const yoke_instruction *instruction,
                         yoke_op op, yoke_tensor *tensors)
{
    const int *operands = executor->program->operands + instruction->operands;
    int n = 0, n_in = 0;
    for (int i = 0; i < instruction->n_in + instruction->n_out; i++) {
        if (op != YOKE_OP_ADD || operands[i] != YOKE_NO_BUFFER) {
            tensors[n++] = tensor_of(executor->program, operands[i], executor->at.slab);
            n_in += i < instruction->n_in;
        }
    }
    return n_in;
}

static void bind_kernel(yoke_arena *arena, yoke_executor *executor,
                        const yoke_instruction *instruction, yoke_kernel_call *call)
{
    const yoke_node *node = &executor->at.set->graph->nodes[instruction->node];
    yoke_tensor *tensors =
        YOKE_ARENA_NEW(arena, yoke_tensor, instruction->n_in + instruction->n_out);
    int n_in = bind_operands(executor, instruction, node->op, tensors);
    const yoke_attributes *attributes = &node->attributes;
    if (node->op == YOKE_OP_CONVERT) {
        yoke_attributes *own = YOKE_ARENA_NEW(arena, yoke_attributes, 1);
        *own = node->attributes;
        own->sign = instruction->keeps;
        attributes = own;
    }
    *call = (yoke_kernel_call){
        .in = tensors,
        .out = tensors + n_in,
        .n_in = n_in,
        .n_out = instruction->n_out,
        .attributes = attributes,
        .accumulate = instruction->accumulate,
        .scratch = executor->at.slab + executor->program->kernel_scratch_offset,
        .seed = executor->at.seed,
        .microbatch = instruction->microbatch < 0 ? 0 : instruction->microbatch,
    };
}

static yoke_transfer bind_transfer(const yoke_executor *executor,
                                   const yoke_program_transfer *transfer)
{
    static const yoke_transfer_kind kinds[] = {
        [YOKE_EXCHANGE_SEND] = YOKE_TRANSFER_SEND,
        [YOKE_EXCHANGE_RECV] = YOKE_TRANSFER_RECV,
        [YOKE_EXCHANGE_ALL_REDUCE_SUM] = YOKE_TRANSFER_ALL_REDUCE_SUM,
        [YOKE_EXCHANGE_ALL_REDUCE_MAX] = YOKE_TRANSFER_ALL_REDUCE_MAX,
        [YOKE_EXCHANGE_COPY] = YOKE_TRANSFER_REDISTRIBUTE_COPY,
        [YOKE_EXCHANGE_SUM] = YOKE_TRANSFER_REDISTRIBUTE_SUM,
    };
    return (yoke_transfer){
        .kind = kinds[transfer->kind],
        .group = executor->at.first_group + transfer->group,
        .peer = transfer->peer,
        .tag = transfer->tag,
        .elements = transfer->elements,
        .in = address(executor, transfer->in),
        .out = address(executor, transfer->out),
        .in_shards = transfer->in_shards,
        .out_shard = transfer->out_shard,
    };
}

yoke_executor *yoke_executor_create(yoke_arena *arena, const yoke_executor_request *request)
{
    const yoke_program *program = &request->set->programs[request->rank];
    yoke_executor *executor = YOKE_ARENA_NEW(arena, yoke_executor, 1);
    executor->at = *request;
    executor->program = program;
    executor->calls = YOKE_ARENA_NEW(arena, yoke_kernel_call, program->n_instructions);
    executor->transfers = YOKE_ARENA_NEW(arena, yoke_transfer, program->n_transfers);
    executor->requests = YOKE_ARENA_NEW(arena, yoke_request, program->n_transfers);
    for (int64_t i = 0; i < program->n_instructions; i++) {
        if (program->instructions[i].opcode == YOKE_OPCODE_KERNEL) {
            bind_kernel(arena, executor, &program->instructions[i], &executor->calls[i]);
        }
    }
    for (int64_t t = 0; t < program->n_transfers; t++) {
        executor->transfers[t] = bind_transfer(executor, &program->transfers[t]);
    }
    return executor;
}

/* --- Running ---------------------------------------------------------------------------------- */

static void run_load(const yoke_executor *executor, const yoke_instruction *instruction,
                     int64_t step)
{
    int id = executor->program->operands[instruction->operands];
    const yoke_buffer *buffer = &executor->program->buffers[id];
    const char *name = executor->at.set->graph->values[buffer->value].name;
    bool known = executor->at.load(executor->at.load_user, name, step, instruction->microbatch,
                                   &buffer->shard, address(executor, id));
    YOKE_ASSERT(known);
}

static void run_copy(const yoke_executor *executor, const yoke_instruction *instruction)
{
    const int *operands = executor->program->operands + instruction->operands;
    memcpy(address(executor, operands[1]), address(executor, operands[0]),
           (size_t)executor->program->buffers[operands[1]].bytes);
}

static yoke_status run_instruction(yoke_executor *executor, int64_t index, int64_t step)
{
    const yoke_instruction *instruction = &executor->program->instructions[index];
    int transfer = instruction->transfer;
    switch (instruction->opcode) {
    case YOKE_OPCODE_LOAD:
        run_load(executor, instruction, step);
        return YOKE_OK;
    case YOKE_OPCODE_KERNEL:
        executor->calls[index].step = step;
        executor->at.kernels[executor->at.set->graph->nodes[instruction->node].op](
            &executor->calls[index]);
        return YOKE_OK;
    case YOKE_OPCODE_COPY:
        run_copy(executor, instruction);
        return YOKE_OK;
    case YOKE_OPCODE_SEND:
    case YOKE_OPCODE_RECV:
    case YOKE_OPCODE_COLLECTIVE:
        return yoke_transfer_start(executor->at.endpoint, &executor->transfers[transfer],
                                   &executor->requests[transfer]);
    case YOKE_OPCODE_WAIT:
        return yoke_transfer_wait(executor->at.endpoint, &executor->requests[transfer]);
    case YOKE_N_OPCODES:
        break;
    }
    YOKE_ASSERT(false && "an opcode that is not in the list");
    return YOKE_OK;
}

yoke_status yoke_executor_step(yoke_executor *executor, int64_t step)
{
    for (int64_t i = 0; i < executor->program->n_instructions; i++) {
        yoke_endpoint_mark(executor->at.endpoint, executor->at.first_mark + i);
        YOKE_TRY(run_instruction(executor, i, step));
    }
    return yoke_endpoint_check(executor->at.endpoint);
}

void *yoke_executor_find(const yoke_executor *executor, yoke_value value)
{
    for (int64_t b = 0; b < executor->program->n_buffers; b++) {
        if (executor->program->buffers[b].value == value) {
            return address(executor, (int)b);
        }
    }
    return NULL;
}

/* --- Scratch ---------------------------------------------------------------------------------- */

enum { MAX_SHAPED = 8 };

int64_t yoke_executor_scratch_bytes(const yoke_graph *graph, const yoke_program *program,
                                    const yoke_instruction *instruction, void *user)
{
    const yoke_node *node = &graph->nodes[instruction->node];
    if (instruction->n_in + instruction->n_out > MAX_SHAPED + YOKE_MAX_OUTPUTS) {
        return 0; /* pack or add of many: no scratch */
    }
    yoke_tensor tensors[MAX_SHAPED + YOKE_MAX_OUTPUTS];
    for (int i = 0; i < instruction->n_in + instruction->n_out; i++) {
        tensors[i] = tensor_of(program, program->operands[instruction->operands + i], NULL);
    }
    yoke_kernel_call call = {
        .in = tensors,
        .out = tensors + instruction->n_in,
        .n_in = instruction->n_in,
        .n_out = instruction->n_out,
        .attributes = &node->attributes,
        .accumulate = instruction->accumulate,
    };
    const int *n_threads = user;
    return (int64_t)yoke_kernel_scratch_bytes(node->op, &call, *n_threads);
}
