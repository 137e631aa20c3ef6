/* Binding and running of one rank's program: see executor.h. */
#include "run/executor.h"
#include <string.h>
#include "base/clock.h"

struct yoke_executor {
    yoke_executor_request at;
    const yoke_program *program;
    yoke_arena *arena;
    yoke_kernel_call *calls;  /* [instructions] */
    yoke_kernel *kernels;     /* [instructions] of the calls */
    yoke_transfer *transfers; /* [transfers] */
    yoke_request *requests;   /* [transfers] */
    double exposed_s[YOKE_N_AXES];

    /* [values] of what is redistributed to them, the pieces of each member and then the own one */
    const yoke_shard **pieces;
};

/* --- Binding ---------------------------------------------------------------------------------- */

static void *address(const yoke_executor *executor, int buffer)
{
    bool none = buffer == YOKE_NO_BUFFER;
    return none ? NULL : executor->at.slab + executor->program->buffers[buffer].offset;
}

/* This rank's piece, where it begins included. */
static yoke_shard shard_of(const yoke_executor *executor, int buffer)
{
    yoke_value value = executor->program->buffers[buffer].value;
    return yoke_program_shard(executor->at.set, executor->at.rank, value);
}

static yoke_dtype dtype_of(const yoke_graph *graph, const yoke_program *program, int buffer)
{
    return graph->values[program->buffers[buffer].value].dtype;
}

/* As the kernel sees it; what is not read, or not here, has neither data nor extent. */
static yoke_tensor tensor_of(const yoke_executor *executor, int buffer)
{
    if (buffer == YOKE_NO_BUFFER) {
        return (yoke_tensor){0};
    }
    return (yoke_tensor){.data = address(executor, buffer),
                         .shard = shard_of(executor, buffer),
                         .dtype = dtype_of(executor->at.set->graph, executor->program, buffer)};
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
            tensors[n++] = tensor_of(executor, operands[i]);
            n_in += i < instruction->n_in;
        }
    }
    return n_in;
}

/* By the types of what it works on. */
static yoke_kernel choose_kernel(const yoke_executor *executor, yoke_op op,
                                 const yoke_kernel_call *call)
{
    bool narrow = false;
    for (int i = 0; i < call->n_in; i++) {
        narrow = narrow || call->in[i].dtype == YOKE_BF16;
    }
    for (int i = 0; i < call->n_out; i++) {
        narrow = narrow || call->out[i].dtype == YOKE_BF16;
    }
    yoke_kernel kernel = narrow ? executor->at.narrow_kernels[op] : executor->at.kernels[op];
    YOKE_ASSERT(kernel);
    return kernel;
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
        own->sign = yoke_program_keeps(executor->at.set, executor->at.rank, node);
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

/* Of a redistribution, the pieces that the members have; the same for all micro-batches. */
static const yoke_shard *bind_pieces(yoke_executor *executor, const yoke_program_transfer *transfer)
{
    const yoke_program_set *set = executor->at.set;
    const yoke_shard **bound = &executor->pieces[transfer->value];
    if (*bound) {
        return *bound;
    }
    const yoke_grouping *grouping = &set->groupings[transfer->grouping];
    yoke_value source = executor->program->buffers[transfer->in].value;
    int n = yoke_grouping_size(set, grouping);
    int *members = YOKE_ARENA_NEW(executor->arena, int, n);
    yoke_shard *pieces = YOKE_ARENA_NEW(executor->arena, yoke_shard, n + 1);
    yoke_grouping_members(set, grouping, yoke_grouping_find(set, grouping, executor->at.rank),
                          members);
    for (int i = 0; i < n; i++) {
        pieces[i] = yoke_program_shard(set, members[i], source);
    }
    pieces[n] = shard_of(executor, transfer->out); /* what this rank wants */
    *bound = pieces;
    return pieces;
}

static void bind_collective(yoke_executor *executor, const yoke_program_transfer *transfer,
                            yoke_transfer *bound)
{
    const yoke_program_set *set = executor->at.set;
    const yoke_grouping *grouping = &set->groupings[transfer->grouping];
    bound->group = executor->at.first_group + yoke_grouping_find(set, grouping, executor->at.rank);
    for (int g = 0; g < transfer->grouping; g++) {
        bound->group += yoke_grouping_n_groups(set, &set->groupings[g]);
    }
    if (transfer->kind == YOKE_EXCHANGE_COPY || transfer->kind == YOKE_EXCHANGE_SUM) {
        bound->in_shards = bind_pieces(executor, transfer);
        bound->out_shard = bound->in_shards + yoke_grouping_size(set, grouping);
    }
}

static yoke_transfer bind_transfer(yoke_executor *executor, const yoke_program_transfer *transfer)
{
    static const yoke_transfer_kind kinds[] = {
        [YOKE_EXCHANGE_SEND] = YOKE_TRANSFER_SEND,
        [YOKE_EXCHANGE_RECV] = YOKE_TRANSFER_RECV,
        [YOKE_EXCHANGE_ALL_REDUCE_SUM] = YOKE_TRANSFER_ALL_REDUCE_SUM,
        [YOKE_EXCHANGE_ALL_REDUCE_MAX] = YOKE_TRANSFER_ALL_REDUCE_MAX,
        [YOKE_EXCHANGE_COPY] = YOKE_TRANSFER_REDISTRIBUTE_COPY,
        [YOKE_EXCHANGE_SUM] = YOKE_TRANSFER_REDISTRIBUTE_SUM,
    };
    yoke_transfer bound = {
        .kind = kinds[transfer->kind],
        .tag = transfer->tag,
        .dtype = executor->at.set->graph->values[transfer->value].dtype,
        .elements = transfer->elements,
        .in = address(executor, transfer->in),
        .out = address(executor, transfer->out),
    };
    if (transfer->kind == YOKE_EXCHANGE_SEND || transfer->kind == YOKE_EXCHANGE_RECV) {
        bound.peer = yoke_program_peer(executor->at.set, executor->at.rank, transfer);
    } else {
        bind_collective(executor, transfer, &bound);
    }
    return bound;
}

yoke_executor *yoke_executor_create(yoke_arena *arena, const yoke_executor_request *request)
{
    const yoke_program *program = yoke_program_of(request->set, request->rank);
    yoke_executor *executor = YOKE_ARENA_NEW(arena, yoke_executor, 1);
    executor->at = *request;
    executor->program = program;
    executor->arena = arena;
    executor->calls = YOKE_ARENA_NEW(arena, yoke_kernel_call, program->n_instructions);
    executor->kernels = YOKE_ARENA_NEW(arena, yoke_kernel, program->n_instructions);
    executor->transfers = YOKE_ARENA_NEW(arena, yoke_transfer, program->n_transfers);
    executor->requests = YOKE_ARENA_NEW(arena, yoke_request, program->n_transfers);
    executor->pieces = YOKE_ARENA_NEW(arena, const yoke_shard *, request->set->graph->n_values);
    for (int64_t i = 0; i < program->n_instructions; i++) {
        if (program->instructions[i].opcode == YOKE_OPCODE_KERNEL) {
            bind_kernel(arena, executor, &program->instructions[i], &executor->calls[i]);
            yoke_op op = request->set->graph->nodes[program->instructions[i].node].op;
            executor->kernels[i] = choose_kernel(executor, op, &executor->calls[i]);
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
    yoke_shard shard = shard_of(executor, id);
    bool known = executor->at.load(executor->at.load_user, name, step, instruction->microbatch,
                                   &shard, address(executor, id));
    YOKE_ASSERT(known);
}

static void run_copy(const yoke_executor *executor, const yoke_instruction *instruction)
{
    const int *operands = executor->program->operands + instruction->operands;
    memcpy(address(executor, operands[1]), address(executor, operands[0]),
           (size_t)executor->program->buffers[operands[1]].bytes);
}

/* The start of a transfer, or its wait. */
static yoke_status run_transfer(yoke_executor *executor, const yoke_instruction *instruction)
{
    yoke_endpoint *endpoint = executor->at.endpoint;
    int transfer = instruction->transfer;
    double before = yoke_clock_s();
    if (yoke_opcode_get(instruction->opcode)->starts) {
        YOKE_TRY(yoke_transfer_start(endpoint, &executor->transfers[transfer],
                                     &executor->requests[transfer]));
    } else {
        YOKE_TRY(yoke_transfer_wait(endpoint, &executor->requests[transfer]));
    }
    executor->exposed_s[executor->program->transfers[transfer].axis] += yoke_clock_s() - before;
    return YOKE_OK;
}

static yoke_status run_instruction(yoke_executor *executor, int64_t index, int64_t step)
{
    const yoke_instruction *instruction = &executor->program->instructions[index];
    switch (instruction->opcode) {
    case YOKE_OPCODE_LOAD:
        run_load(executor, instruction, step);
        return YOKE_OK;
    case YOKE_OPCODE_KERNEL:
        executor->calls[index].step = step;
        executor->kernels[index](&executor->calls[index]);
        return YOKE_OK;
    case YOKE_OPCODE_COPY:
        run_copy(executor, instruction);
        return YOKE_OK;
    case YOKE_OPCODE_SEND:
    case YOKE_OPCODE_RECV:
    case YOKE_OPCODE_COLLECTIVE:
    case YOKE_OPCODE_WAIT:
        return run_transfer(executor, instruction);
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

double yoke_executor_exposed_s(const yoke_executor *executor, yoke_axis axis)
{
    return executor->exposed_s[axis];
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

/* A piece without data. Where it begins differs between the ranks of a class, and scratch does not
 * depend on it. */
static yoke_tensor shape_of(const yoke_graph *graph, const yoke_program *program, int buffer)
{
    yoke_tensor tensor = {0};
    if (buffer != YOKE_NO_BUFFER) {
        tensor.dtype = dtype_of(graph, program, buffer);
        const yoke_shape *shape = &program->buffers[buffer].shape;
        tensor.shard.n_dims = shape->n_dims;
        memcpy(tensor.shard.extent, shape->extent, sizeof shape->extent);
    }
    return tensor;
}

int64_t yoke_executor_scratch_bytes(const yoke_graph *graph, const yoke_program *program,
                                    const yoke_instruction *instruction, void *user)
{
    const yoke_node *node = &graph->nodes[instruction->node];
    if (instruction->n_in + instruction->n_out > MAX_SHAPED + YOKE_MAX_OUTPUTS) {
        return 0; /* pack or add of many: no scratch */
    }
    yoke_tensor tensors[MAX_SHAPED + YOKE_MAX_OUTPUTS];
    for (int i = 0; i < instruction->n_in + instruction->n_out; i++) {
        tensors[i] = shape_of(graph, program, program->operands[instruction->operands + i]);
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
