/*
 * Overlap: starts of collectives move up in a rank's program, and waits down, so that messages
 * travel while kernels run.
 *
 * A start may come as soon as its input is whole. Where its result lives short, such as a
 * parameter gathered for a layer, it comes at most one block ahead, since memory holds the result
 * from there on. In place, or where the result lasts anyway, such as the reduction of a gradient,
 * there is no limit: gradients leave in the last backward pass, behind their last contribution. A
 * wait moves down to the first use, if what is sent lasts anyway.
 *
 * So that a channel stays narrow, a transfer is waited for once a number of others of its group have
 * been started.
 *
 * The ranks of a group run the same instructions, so they move alike; but stages of the pipeline
 * run others, so nothing moves past a collective among stages, nor do those themselves.
 */
#include "program/lower.h"

static bool lasts(const yoke_program *program, int buffer)
{
    return program->buffers[program->buffers[buffer].root].kind <= YOKE_BUFFER_OPTIMIZER;
}

static bool shares(const yoke_program *program, int buffer, int other)
{
    bool both = buffer != YOKE_NO_BUFFER && other != YOKE_NO_BUFFER;
    return both && program->buffers[buffer].root == program->buffers[other].root;
}

static bool writes_operand(const yoke_graph *graph, const yoke_instruction *at, int i)
{
    bool updates = at->opcode == YOKE_OPCODE_KERNEL && i < 32 &&
                   (yoke_op_get(graph->nodes[at->node].op)->updates >> i & 1u);
    return i >= at->n_in || updates;
}

/* True if the transfer must not be under way while `at` runs: it writes what is sent, or has to do
 * with what is received. */
static bool disturbs(const yoke_lowering *low, const yoke_instruction *at,
                     const yoke_program_transfer *moving)
{
    const yoke_program *program = low->program;
    const int *operands = program->operands + at->operands;
    for (int i = 0; i < at->n_in + at->n_out; i++) {
        bool writes = writes_operand(low->graph, at, i);
        if (shares(program, operands[i], moving->out) ||
            (writes && shares(program, operands[i], moving->in))) {
            return true;
        }
    }
    if (at->transfer == YOKE_NO_TRANSFER) {
        return false;
    }
    const yoke_program_transfer *other = &program->transfers[at->transfer];
    bool stages = other->axis == YOKE_AXIS_PP && other->kind >= YOKE_EXCHANGE_ALL_REDUCE_SUM;
    return stages || shares(program, other->out, moving->out) ||
           shares(program, other->out, moving->in) || shares(program, other->in, moving->out);
}

static bool same_action(const yoke_instruction *a, const yoke_instruction *b)
{
    return a->region == b->region && a->microbatch == b->microbatch;
}

/* The first instruction of the block before that of `index`, in the same action. */
static int64_t one_block_ahead(const yoke_program *program, int64_t index)
{
    const yoke_instruction *at = &program->instructions[index];
    int block = at->block;
    int n_blocks = 0;
    while (index > 0 && same_action(&program->instructions[index - 1], at)) {
        int before = program->instructions[index - 1].block;
        n_blocks += before != block;
        block = before;
        if (n_blocks > 1) {
            break;
        }
        index--;
    }
    return index;
}

/* Moves instruction `from` to stand at `to`. */
static void move(yoke_program *program, int64_t from, int64_t to)
{
    yoke_instruction moved = program->instructions[from];
    int64_t step = from < to ? 1 : -1;
    for (int64_t i = from; i != to; i += step) {
        program->instructions[i] = program->instructions[i + step];
    }
    program->instructions[to] = moved;
}

static void start_early(yoke_lowering *low, int64_t index)
{
    yoke_program *program = low->program;
    const yoke_program_transfer *t = &program->transfers[program->instructions[index].transfer];
    bool free = t->in == t->out || lasts(program, t->out);
    int64_t limit = free ? 0 : one_block_ahead(program, index);
    int64_t to = index;
    while (to > limit && !disturbs(low, &program->instructions[to - 1], t)) {
        to--;
    }
    move(program, index, to);
}

static void wait_late(yoke_lowering *low, int64_t index)
{
    yoke_program *program = low->program;
    const yoke_program_transfer *t = &program->transfers[program->instructions[index].transfer];
    int64_t to = index;
    while (to + 1 < program->n_instructions && lasts(program, t->in) &&
           !disturbs(low, &program->instructions[to + 1], t)) {
        to++;
    }
    move(program, index, to);
}

static bool may_move(const yoke_program *program, const yoke_instruction *at, yoke_opcode opcode)
{
    const yoke_program_transfer *t =
        at->transfer == YOKE_NO_TRANSFER ? NULL : &program->transfers[at->transfer];
    return t && at->opcode == opcode && t->axis != YOKE_AXIS_PP;
}

/* Of one group: far more than travel at once, and within what a transport keeps. */
enum { MOST_UNDER_WAY = 32 };

static int64_t find_wait(const yoke_program *program, int transfer, int64_t from)
{
    while (program->instructions[from].opcode != YOKE_OPCODE_WAIT ||
           program->instructions[from].transfer != transfer) {
        from++;
    }
    return from;
}

/* Transfers that have been started and not yet waited for, oldest first. */
typedef struct under_way {
    int *transfer;
    int64_t n;
} under_way;

static void end_transfer(under_way *u, int transfer)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < u->n; i++) {
        if (u->transfer[i] != transfer) {
            u->transfer[kept++] = u->transfer[i];
        }
    }
    u->n = kept;
}

/* The oldest of the group, if there are as many as may be; else YOKE_NO_TRANSFER. */
static int oldest_of_many(const yoke_program *program, const under_way *u, int grouping)
{
    int n = 0, oldest = YOKE_NO_TRANSFER;
    for (int64_t i = u->n - 1; i >= 0; i--) {
        if (program->transfers[u->transfer[i]].grouping == grouping) {
            n++;
            oldest = u->transfer[i];
        }
    }
    return n >= MOST_UNDER_WAY ? oldest : YOKE_NO_TRANSFER;
}

static void limit_under_way(yoke_lowering *low)
{
    yoke_program *program = low->program;
    under_way u = {.transfer = YOKE_ARENA_NEW(low->set->arena, int, program->n_transfers)};
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *at = &program->instructions[i];
        if (at->opcode == YOKE_OPCODE_WAIT) {
            end_transfer(&u, at->transfer);
        }
        if (at->opcode != YOKE_OPCODE_COLLECTIVE) {
            continue;
        }
        int oldest = oldest_of_many(program, &u, program->transfers[at->transfer].grouping);
        if (oldest != YOKE_NO_TRANSFER) {
            move(program, find_wait(program, oldest, i), i);
            i--; /* the wait, then the start again */
        } else {
            u.transfer[u.n++] = at->transfer;
        }
    }
}

void yoke_overlap(yoke_lowering *low)
{
    yoke_program *program = low->program;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        if (may_move(program, &program->instructions[i], YOKE_OPCODE_COLLECTIVE)) {
            start_early(low, i);
        }
    }
    for (int64_t i = program->n_instructions - 1; i >= 0; i--) {
        if (may_move(program, &program->instructions[i], YOKE_OPCODE_WAIT)) {
            wait_late(low, i);
        }
    }
    limit_under_way(low);
}
