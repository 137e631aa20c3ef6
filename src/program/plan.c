/*
 * The memory plan of a class of ranks: an offset for every buffer.
 *
 *   slab: | params | grads | optimizer | stash | gathered | scratch, kernels' scratch last |
 *
 * Lasting buffers lie one after the other. The others are in use from the first instruction that
 * names them to the last, the waits of their transfers included; they are placed in the order of
 * the program, each in the smallest gap that fits, so stash takes exactly the slots of the
 * micro-batches in flight, as the schedule has it.
 */
#include <string.h>
#include "program/lower.h"

typedef struct gap {
    int64_t offset, bytes;
} gap;

/* The free space of one kind; the last gap is open-ended. */
typedef struct space {
    yoke_arena *arena;
    gap *gaps;
    int64_t n, capacity;
    int64_t top; /* highest end so far */
} space;

static int64_t pad(int64_t bytes)
{
    return (bytes + YOKE_ALIGNMENT - 1) / YOKE_ALIGNMENT * YOKE_ALIGNMENT;
}

/* --- Lives ------------------------------------------------------------------------------------ */

static void touch(yoke_program *program, int buffer, int64_t at)
{
    if (buffer != YOKE_NO_BUFFER) {
        yoke_buffer *root = &program->buffers[program->buffers[buffer].root];
        root->first = root->first < 0 ? (int)at : root->first;
        root->last = (int)at;
    }
}

static void find_lives(const yoke_graph *graph, yoke_program *program)
{
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in + instruction->n_out; k++) {
            touch(program, program->operands[instruction->operands + k], i);
        }
        if (instruction->transfer != YOKE_NO_TRANSFER) {
            touch(program, program->transfers[instruction->transfer].in, i);
            touch(program, program->transfers[instruction->transfer].out, i);
        }
    }
    for (int64_t b = 0; b < program->n_buffers; b++) {
        if (graph->values[program->buffers[b].value].output) {
            touch(program, (int)b, program->n_instructions);
        }
    }
}

static bool lasts(yoke_buffer_kind kind)
{
    return kind == YOKE_BUFFER_PARAMS || kind == YOKE_BUFFER_GRADS || kind == YOKE_BUFFER_OPTIMIZER;
}

/* Stash is what lives on from before the backward pass into it. */
static void tell_stash(yoke_program *program)
{
    for (int64_t b = 0; b < program->n_buffers; b++) {
        yoke_buffer *buffer = &program->buffers[b];
        if (buffer->root != b || buffer->kind != YOKE_BUFFER_SCRATCH || buffer->first < 0 ||
            buffer->microbatch < 0) {
            continue;
        }
        int64_t last =
            buffer->last < program->n_instructions ? buffer->last : program->n_instructions - 1;
        bool before = program->instructions[buffer->first].region != YOKE_REGION_BACKWARD;
        bool into = program->instructions[last].region == YOKE_REGION_BACKWARD;
        buffer->kind = before && into ? YOKE_BUFFER_STASH : YOKE_BUFFER_SCRATCH;
    }
}

/* --- Placing ---------------------------------------------------------------------------------- */

static void insert_gap(space *s, int64_t at, gap g)
{
    s->gaps = yoke_arena_grow(s->arena, s->gaps, s->n, &s->capacity, sizeof *s->gaps);
    memmove(s->gaps + at + 1, s->gaps + at, sizeof *s->gaps * (size_t)(s->n - at));
    s->gaps[at] = g;
    s->n++;
}

static void remove_gap(space *s, int64_t at)
{
    memmove(s->gaps + at, s->gaps + at + 1, sizeof *s->gaps * (size_t)(s->n - at - 1));
    s->n--;
}

static int64_t take(space *s, int64_t bytes)
{
    int64_t best = -1;
    for (int64_t i = 0; i < s->n; i++) {
        bool fits = s->gaps[i].bytes >= bytes;
        best = fits && (best < 0 || s->gaps[i].bytes < s->gaps[best].bytes) ? i : best;
    }
    int64_t offset = s->gaps[best].offset;
    s->gaps[best].offset += bytes;
    s->gaps[best].bytes -= bytes;
    if (s->gaps[best].bytes == 0) {
        remove_gap(s, best);
    }
    s->top = s->top > offset + bytes ? s->top : offset + bytes;
    return offset;
}

static void give(space *s, int64_t offset, int64_t bytes)
{
    int64_t at = 0;
    while (at < s->n && s->gaps[at].offset < offset) {
        at++;
    }
    insert_gap(s, at, (gap){offset, bytes});
    if (at + 1 < s->n && s->gaps[at].offset + s->gaps[at].bytes == s->gaps[at + 1].offset) {
        s->gaps[at].bytes += s->gaps[at + 1].bytes;
        remove_gap(s, at + 1);
    }
    if (at > 0 && s->gaps[at - 1].offset + s->gaps[at - 1].bytes == s->gaps[at].offset) {
        s->gaps[at - 1].bytes += s->gaps[at].bytes;
        remove_gap(s, at);
    }
}

/* Roots of one short-lived kind, chained by the instruction at which they begin and end. */
typedef struct chains {
    int *first, *next_first; /* [instructions + 1], [buffers] */
    int *last, *next_last;
} chains;

static chains chain(yoke_arena *arena, const yoke_program *program, yoke_buffer_kind kind)
{
    int64_t n = program->n_instructions + 1;
    chains c = {YOKE_ARENA_NEW(arena, int, n), YOKE_ARENA_NEW(arena, int, program->n_buffers),
                YOKE_ARENA_NEW(arena, int, n), YOKE_ARENA_NEW(arena, int, program->n_buffers)};
    for (int64_t i = 0; i < n; i++) {
        c.first[i] = c.last[i] = -1;
    }
    for (int64_t b = program->n_buffers - 1; b >= 0; b--) {
        const yoke_buffer *buffer = &program->buffers[b];
        if (buffer->root == b && buffer->kind == kind && buffer->first >= 0 && buffer->bytes > 0) {
            c.next_first[b] = c.first[buffer->first];
            c.first[buffer->first] = (int)b;
            c.next_last[b] = c.last[buffer->last];
            c.last[buffer->last] = (int)b;
        }
    }
    return c;
}

/* Places all roots of a short-lived kind, offsets from `base`; returns the bytes they need. */
static int64_t place_short(yoke_arena *arena, yoke_program *program, yoke_buffer_kind kind,
                           int64_t base)
{
    chains c = chain(arena, program, kind);
    space s = {.arena = arena};
    insert_gap(&s, 0, (gap){0, INT64_MAX / 2});
    for (int64_t i = 0; i <= program->n_instructions; i++) {
        for (int b = c.first[i]; b >= 0; b = c.next_first[b]) {
            program->buffers[b].offset = base + take(&s, pad(program->buffers[b].bytes));
        }
        for (int b = c.last[i]; b >= 0; b = c.next_last[b]) {
            give(&s, program->buffers[b].offset - base, pad(program->buffers[b].bytes));
        }
    }
    return s.top;
}

static int64_t place_lasting(yoke_program *program, yoke_buffer_kind kind, int64_t base)
{
    int64_t offset = base;
    for (int64_t b = 0; b < program->n_buffers; b++) {
        yoke_buffer *buffer = &program->buffers[b];
        if (buffer->root == b && buffer->kind == kind) {
            buffer->offset = offset;
            offset += pad(buffer->bytes);
        }
    }
    return offset - base;
}

static void place_kind(yoke_arena *arena, yoke_program *program, yoke_buffer_kind kind,
                       int64_t base)
{
    program->kind_offset[kind] = base;
    program->kind_bytes[kind] =
        lasts(kind) ? place_lasting(program, kind, base) : place_short(arena, program, kind, base);
}

static int64_t kernel_scratch(const yoke_graph *graph, const yoke_program *program,
                              const yoke_program_request *request)
{
    int64_t most = 0;
    for (int64_t i = 0; request->scratch && i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        if (instruction->opcode == YOKE_OPCODE_KERNEL) {
            int64_t bytes = request->scratch(graph, program, instruction, request->scratch_user);
            most = bytes > most ? bytes : most;
        }
    }
    return pad(most);
}

/* End of the lasting memory of a rank: what another set beside it must leave alone. */
static int64_t lasting_end(const yoke_program *program)
{
    return program->kind_offset[YOKE_BUFFER_OPTIMIZER] + program->kind_bytes[YOKE_BUFFER_OPTIMIZER];
}

void yoke_plan_memory(yoke_program_set *set, yoke_program *program,
                      const yoke_program_request *request)
{
    find_lives(set->graph, program);
    tell_stash(program);
    int64_t base = 0;
    for (int kind = 0; kind < YOKE_N_BUFFER_KINDS; kind++) {
        if (kind == YOKE_BUFFER_STASH && request->beside) {
            int64_t others = lasting_end(yoke_program_of(request->beside, program->rank));
            base = others > base ? others : base;
        }
        place_kind(set->arena, program, (yoke_buffer_kind)kind, base);
        base += program->kind_bytes[kind];
    }
    YOKE_ASSERT(
        !request->beside ||
        program->kind_bytes[YOKE_BUFFER_PARAMS] ==
            yoke_program_of(request->beside, program->rank)->kind_bytes[YOKE_BUFFER_PARAMS]);
    for (int64_t b = 0; b < program->n_buffers; b++) {
        yoke_buffer *buffer = &program->buffers[b];
        buffer->kind = program->buffers[buffer->root].kind;
        buffer->offset = program->buffers[buffer->root].offset;
    }
    program->kernel_scratch_offset = base;
    program->kernel_scratch_bytes = kernel_scratch(set->graph, program, request);
    program->kind_bytes[YOKE_BUFFER_SCRATCH] += program->kernel_scratch_bytes;
    program->slab_bytes = base + program->kernel_scratch_bytes;
}
