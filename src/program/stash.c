/*
 * Reads the stash of a stage off its plan. Relies on the lives that the plan has found, and on
 * lowering, which emits the nodes of one action after the other.
 */
#include "program/stash.h"

/* Where the forward pass of each chunk and micro-batch ends. */
typedef struct moments {
    const yoke_program_set *set;
    const yoke_program *program;
    int *of;     /* [n_chunks][n_microbatches] index of the moment */
    int *chunk;  /* [n_blocks] */
    int64_t *at; /* [n] instruction, ascending */
    int64_t n;
} moments;

static int *moment_of(const moments *m, int chunk, int microbatch)
{
    return &m->of[(int64_t)chunk * m->set->schedule.n_microbatches + microbatch];
}

static void number_moments(moments *m, int stage)
{
    const yoke_stage_actions *actions = &m->set->schedule.stage[stage];
    for (int i = 0; i < actions->n; i++) {
        if (actions->action[i].kind == YOKE_ACTION_F) {
            *moment_of(m, actions->action[i].chunk, actions->action[i].microbatch) = (int)m->n++;
        }
    }
}

static void find_moments(moments *m, int stage, yoke_arena *arena)
{
    const yoke_schedule *schedule = &m->set->schedule;
    m->of = YOKE_ARENA_NEW(arena, int, (int64_t)schedule->n_chunks * schedule->n_microbatches);
    m->chunk = YOKE_ARENA_NEW(arena, int, m->set->graph->n_blocks);
    for (int c = 0; c < schedule->n_chunks; c++) {
        for (int b = m->set->first_block[c]; b < m->set->first_block[c + 1]; b++) {
            m->chunk[b] = c;
        }
    }
    number_moments(m, stage);
    m->at = YOKE_ARENA_NEW(arena, int64_t, m->n + 1);
    for (int64_t i = 0; i < m->program->n_instructions; i++) {
        const yoke_instruction *instruction = &m->program->instructions[i];
        bool made = instruction->opcode == YOKE_OPCODE_KERNEL ||
                    instruction->opcode == YOKE_OPCODE_COLLECTIVE;
        if (made && instruction->region == YOKE_REGION_FORWARD) {
            m->at[*moment_of(m, m->chunk[instruction->block], instruction->microbatch)] = i;
        }
    }
}

/* The first moment not before the instruction. */
static int64_t moment_after(const moments *m, int64_t instruction)
{
    int64_t low = 0, high = m->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (m->at[middle] >= instruction) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* For each buffer the block whose backward pass reads it last, or n_blocks. */
static int *find_readers(const yoke_program_set *set, const yoke_program *program,
                         yoke_arena *arena)
{
    int n_blocks = (int)set->graph->n_blocks;
    int *reader = YOKE_ARENA_NEW(arena, int, program->n_buffers);
    for (int64_t b = 0; b < program->n_buffers; b++) {
        reader[b] = n_blocks;
    }
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        bool reads = instruction->region == YOKE_REGION_BACKWARD && instruction->block >= 0;
        for (int k = 0; reads && k < instruction->n_in; k++) {
            int buffer = program->operands[instruction->operands + k];
            if (buffer != YOKE_NO_BUFFER) {
                reader[program->buffers[buffer].root] = instruction->block;
            }
        }
    }
    return reader;
}

void yoke_stash_read(const yoke_program_set *set, int stage, yoke_arena *arena, yoke_stash *stash)
{
    int rank = yoke_mesh_neighbour(&set->mesh, 0, YOKE_AXIS_PP, stage);
    const yoke_program *program = yoke_program_of(set, rank);
    moments m = {.set = set, .program = program};
    find_moments(&m, stage, arena);
    const int *reader = find_readers(set, program, arena);
    int64_t n_blocks = set->graph->n_blocks, width = m.n + 1;
    stash->n_moments = m.n;
    stash->bytes = YOKE_ARENA_NEW(arena, int64_t, (n_blocks + 1) * width);
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_buffer *buffer = &program->buffers[b];
        if (buffer->root != b || buffer->kind != YOKE_BUFFER_STASH) {
            continue;
        }
        bool shared = set->graph->values[buffer->value].kind == YOKE_VALUE_INPUT;
        int64_t *row = stash->bytes + (shared ? n_blocks : reader[b]) * width;
        int64_t bytes = (buffer->bytes + YOKE_ALIGNMENT - 1) / YOKE_ALIGNMENT * YOKE_ALIGNMENT;
        row[moment_after(&m, buffer->first)] += bytes;
        row[moment_after(&m, buffer->last)] -= bytes;
    }
    for (int64_t i = 0; i < n_blocks + 1; i++) {
        for (int64_t k = 1; k < width; k++) {
            stash->bytes[i * width + k] += stash->bytes[i * width + k - 1];
        }
    }
}

int64_t yoke_stash_planned(const yoke_program_set *set, int stage)
{
    int64_t most = 0;
    for (int rank = 0; rank < set->n_ranks; rank++) {
        int64_t bytes = yoke_program_of(set, rank)->kind_bytes[YOKE_BUFFER_STASH];
        bool here = yoke_mesh_coordinate(&set->mesh, rank, YOKE_AXIS_PP) == stage;
        most = here && bytes > most ? bytes : most;
    }
    return most;
}
