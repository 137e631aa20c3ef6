/*
 * Overlap: starts of collectives move up in a rank's program, and waits down, so that messages
 * travel while kernels run.
 *
 * A start may come as soon as its input is whole. Where its result lives short, such as a
 * parameter gathered for a layer, it comes at most one block ahead, in the order of use, since memory
 * holds the result from there on. In place, or where the result lasts anyway, such as the reduction
 * of a gradient, there is no limit: gradients leave in the last backward pass, behind their last
 * contribution. A wait moves down to the first use, if what is sent lasts anyway; else, as with the
 * scattering of a gradient, it moves at most to the end of the next block, and what adds the piece
 * to its sum goes with it.
 *
 * So that a channel stays narrow, a transfer is waited for before too many others of its group are
 * started.
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
    bool updates = at->opcode == YOKE_OPCODE_KERNEL &&
                   yoke_mask_has(yoke_op_get(graph->nodes[at->node].op)->updates, i);
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

/* The furthest instruction, in steps of 1 or -1, that is in the same action as `index` and not more
 * than a block away. Transfers may stand among the kernels of other blocks: these alone count. */
static int64_t one_block_away(const yoke_program *program, int64_t index, int step)
{
    const yoke_instruction *at = &program->instructions[index];
    int block = at->block, n_blocks = 0;
    for (int64_t i = index + step; i >= 0 && i < program->n_instructions; i += step) {
        const yoke_instruction *next = &program->instructions[i];
        if (!same_action(next, at)) {
            break;
        }
        if (next->opcode == YOKE_OPCODE_KERNEL && next->block != block) {
            block = next->block;
            n_blocks++;
        }
        if (n_blocks > 1) {
            break;
        }
        index = i;
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

static bool starts_gathering(const yoke_program *program, const yoke_instruction *at)
{
    return at->opcode == YOKE_OPCODE_COLLECTIVE &&
           program->buffers[program->transfers[at->transfer].out].kind == YOKE_BUFFER_GATHERED;
}

/* True if the instruction only prepares, once a step, what is sent: it joins or rounds it. */
static bool prepares(const yoke_lowering *low, const yoke_instruction *at)
{
    if (at->opcode != YOKE_OPCODE_KERNEL || at->region != YOKE_REGION_TAIL) {
        return false;
    }
    yoke_op op = low->graph->nodes[at->node].op;
    return op == YOKE_OP_CAST || op == YOKE_OP_JOIN;
}

/* The first of the kernels right before a start of which each only prepares what the next one reads, and
 * the last what is sent; `index`, that of the start, if there are none. */
static int64_t first_preparing(const yoke_lowering *low, int64_t index, int sent)
{
    const yoke_program *program = low->program;
    while (index > 0 && prepares(low, &program->instructions[index - 1])) {
        const yoke_instruction *at = &program->instructions[index - 1];
        if (!shares(program, program->operands[at->operands + at->n_in], sent)) {
            break;
        }
        sent = program->operands[at->operands];
        index--;
    }
    return index;
}

/* True if kernel `moved`, which prepares, may not run before `at`: it reads what `at` writes, or writes
 * what `at` has to do with. */
static bool holds_back(const yoke_lowering *low, const yoke_instruction *at,
                       const yoke_instruction *moved)
{
    const int *operands = low->program->operands + moved->operands;
    yoke_program_transfer copying = {.out = operands[moved->n_in]};
    for (int i = 0; i < moved->n_in; i++) {
        copying.in = operands[i];
        if (disturbs(low, at, &copying)) {
            return true;
        }
    }
    return false;
}

/* The kernels from `first` on, which prepare, and the start behind them. What a rank sends is a copy
 * then, which lives as long as the transfer. */
static void prepare_and_start_early(yoke_lowering *low, int64_t first, int64_t index)
{
    yoke_program *program = low->program;
    const yoke_program_transfer *t = &program->transfers[program->instructions[index].transfer];
    int64_t to = first;
    for (; to > 0; to--) {
        const yoke_instruction *at = &program->instructions[to - 1];
        bool held = disturbs(low, at, t);
        for (int64_t i = first; !held && i < index; i++) {
            held = holds_back(low, at, &program->instructions[i]);
        }
        if (held) {
            break;
        }
    }
    for (int64_t i = first; i <= index; i++) {
        move(program, i, to + i - first);
    }
}

static void start_early(yoke_lowering *low, int64_t index)
{
    yoke_program *program = low->program;
    const yoke_program_transfer *t = &program->transfers[program->instructions[index].transfer];
    int64_t first = first_preparing(low, index, t->in);
    if (first < index) {
        prepare_and_start_early(low, first, index);
        return;
    }
    bool free = t->in == t->out || lasts(program, t->out);
    int64_t limit = free ? 0 : one_block_away(program, index, -1);
    int64_t to = index;
    while (to > limit && !disturbs(low, &program->instructions[to - 1], t)) {
        if (!free && starts_gathering(program, &program->instructions[to - 1])) {
            break;
        }
        to--;
    }
    move(program, index, to);
}

/* A sum over micro-batches, of what has come as it is or rounded. */
static bool is_sum(yoke_op op)
{
    return op == YOKE_OP_ADD || op == YOKE_OP_CAST;
}

/* The sum to which the instruction after a wait adds what has come, if it does nothing else; or
 * YOKE_NO_BUFFER. */
static int sum_behind(const yoke_lowering *low, int64_t wait, const yoke_program_transfer *t)
{
    const yoke_program *program = low->program;
    const yoke_instruction *at = &program->instructions[wait + 1];
    bool adds = wait + 1 < program->n_instructions && at->opcode == YOKE_OPCODE_KERNEL &&
                is_sum(low->graph->nodes[at->node].op) && at->n_in == 1;
    const int *operands = adds ? program->operands + at->operands : NULL;
    bool these = adds && operands[0] == t->out && lasts(program, operands[1]);
    return these ? operands[1] : YOKE_NO_BUFFER;
}

static bool names(const yoke_program *program, const yoke_instruction *at, int buffer)
{
    for (int i = 0; i < at->n_in + at->n_out; i++) {
        if (shares(program, program->operands[at->operands + i], buffer)) {
            return true;
        }
    }
    return false;
}

/* A wait, and the addition behind it. */
static void wait_late(yoke_lowering *low, int64_t index)
{
    yoke_program *program = low->program;
    const yoke_program_transfer *t = &program->transfers[program->instructions[index].transfer];
    int sum = sum_behind(low, index, t);
    bool adds = sum != YOKE_NO_BUFFER;
    if (!adds && !lasts(program, t->in)) {
        return;
    }
    int64_t last = adds ? one_block_away(program, index, 1) : program->n_instructions - 1;
    int64_t to = index + adds;
    while (to < last && !disturbs(low, &program->instructions[to + 1], t) &&
           !names(program, &program->instructions[to + 1], sum)) {
        to++;
    }
    for (int moved = 0; moved <= adds; moved++) {
        move(program, index, to);
    }
}

static bool may_move(const yoke_program *program, const yoke_instruction *at, yoke_opcode opcode)
{
    const yoke_program_transfer *t =
        at->transfer == YOKE_NO_TRANSFER ? NULL : &program->transfers[at->transfer];
    return t && at->opcode == opcode && t->axis != YOKE_AXIS_PP;
}

/* Of one group, from the oldest that is not waited for to the newest: far more than travel at once,
 * and within what a transport keeps. */
enum { WIDEST = 32 };

/* Transfers of one group in the order of their starts. */
typedef struct window {
    int *transfer;
    int64_t n, capacity;
    int64_t oldest; /* the first that is not yet waited for */
} window;

static int64_t find_wait(const yoke_program *program, int transfer, int64_t from)
{
    while (program->instructions[from].opcode != YOKE_OPCODE_WAIT ||
           program->instructions[from].transfer != transfer) {
        from++;
    }
    return from;
}

/* Room in the window for one more; if there is none, the oldest is to be waited for. */
static bool has_room(window *w, const bool *waited)
{
    while (w->oldest < w->n && waited[w->transfer[w->oldest]]) {
        w->oldest++;
    }
    return w->n - w->oldest < WIDEST;
}

static void keep_windows_narrow(yoke_lowering *low)
{
    yoke_program *program = low->program;
    yoke_arena *arena = low->set->arena;
    window *windows = YOKE_ARENA_NEW(arena, window, low->set->n_groupings);
    bool *waited = YOKE_ARENA_NEW(arena, bool, program->n_transfers);
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *at = &program->instructions[i];
        if (at->opcode == YOKE_OPCODE_WAIT) {
            waited[at->transfer] = true;
        }
        if (at->opcode != YOKE_OPCODE_COLLECTIVE) {
            continue;
        }
        window *w = &windows[program->transfers[at->transfer].grouping];
        if (!has_room(w, waited)) {
            move(program, find_wait(program, w->transfer[w->oldest], i), i);
            waited[w->transfer[w->oldest]] = true;
            continue; /* the wait stands here now, the start comes next */
        }
        w->transfer = yoke_arena_grow(arena, w->transfer, w->n, &w->capacity, sizeof *w->transfer);
        w->transfer[w->n++] = at->transfer;
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
    keep_windows_narrow(low);
}
