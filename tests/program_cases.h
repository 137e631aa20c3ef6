/*
 * Programs to be spoiled: made for a small model on a mesh, looked into, changed, and refused.
 *
 * Included by one test program each, after cmocka.h; state is one program at a time.
 */
#ifndef PROGRAM_CASES_H
#define PROGRAM_CASES_H

#include <stdlib.h>

#include "graph_cases.h"
#include "program/program.h"

/* --- Programs --------------------------------------------------------------------------------------- */

typedef struct plan {
    const char *mesh, *schedule;
    int microbatches;
    bool forward_only;
    bool shared; /* ranks of a class share a program; else each has its own, to be spoiled alone */
} plan;

static yoke_graph *graph;
static yoke_program_set *set;

static inline void assert_good(yoke_status status, const plan *p)
{
    if (status) {
        fail_msg("mesh '%s', %s, %d micro-batches: %s", p->mesh, p->schedule, p->microbatches,
                 yoke_status_message(status));
    }
}

static inline void make_program(const plan *p)
{
    const yoke_schedule_def *schedule = NULL;
    assert_good(yoke_schedule_find(p->schedule, &schedule), p);
    yoke_program_request request = {.graph = graph,
                                    .schedule = schedule,
                                    .microbatches = p->microbatches,
                                    .forward_only = p->forward_only,
                                    .apart = !p->shared};
    assert_good(yoke_program_set_create(&request, &set), p);
}

static inline void make(const graph_case *c, const plan *p)
{
    assert_good(case_build(c, p->mesh, !p->forward_only, &graph), p);
    make_program(p);
}

static inline void unmake(void)
{
    yoke_program_set_destroy(set);
    yoke_graph_destroy(graph);
}

/* --- Spoiling ---------------------------------------------------------------------------------------- */

/* What the message must name. */
typedef struct blame {
    int rank;
    int64_t instruction; /* -1: none is to blame */
    const char *tensor;  /* NULL: none is */
} blame;

static inline yoke_program *program(int rank)
{
    return &set->classes[set->class_of[rank]];
}

static inline yoke_instruction *at(int rank, int64_t index)
{
    return &program(rank)->instructions[index];
}

static inline yoke_program_transfer *transfer_at(int rank, int64_t index)
{
    return &program(rank)->transfers[at(rank, index)->transfer];
}

static inline int *operands(int rank, int64_t index)
{
    return program(rank)->operands + at(rank, index)->operands;
}

static inline const char *name_of(yoke_value value)
{
    return graph->values[value].name;
}

static inline yoke_buffer *output(int rank, int64_t index)
{
    return &program(rank)->buffers[operands(rank, index)[at(rank, index)->n_in]];
}

/* The `nth` instruction with this opcode, from 0; counted from the end if negative, from -1. */
static inline int64_t find(int rank, yoke_opcode opcode, int nth)
{
    int64_t n = program(rank)->n_instructions;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = nth < 0 ? n - 1 - i : i;
        if (at(rank, index)->opcode == opcode && (nth < 0 ? ++nth == 0 : nth-- == 0)) {
            return index;
        }
    }
    fail_msg("no such instruction");
    return -1;
}

static inline int64_t find_kernel(int rank, yoke_op op, int nth)
{
    for (int64_t i = 0; i < program(rank)->n_instructions; i++) {
        const yoke_instruction *instruction = at(rank, i);
        if (instruction->opcode == YOKE_OPCODE_KERNEL && graph->nodes[instruction->node].op == op &&
            nth-- == 0) {
            return i;
        }
    }
    fail_msg("no such kernel");
    return -1;
}

/* The first instruction from `from` on that reads the buffer. */
static inline int64_t find_reader(int rank, int buffer, int64_t from)
{
    for (int64_t i = from; i < program(rank)->n_instructions; i++) {
        for (int k = 0; k < at(rank, i)->n_in; k++) {
            if (operands(rank, i)[k] == buffer) {
                return i;
            }
        }
    }
    fail_msg("nobody reads it");
    return -1;
}

static inline int64_t find_wait(int rank, int transfer)
{
    for (int64_t i = 0; i < program(rank)->n_instructions; i++) {
        if (at(rank, i)->opcode == YOKE_OPCODE_WAIT && at(rank, i)->transfer == transfer) {
            return i;
        }
    }
    fail_msg("nobody waits");
    return -1;
}

static inline void move(int rank, int64_t from, int64_t to)
{
    yoke_instruction moved = *at(rank, from);
    if (from < to) {
        memmove(at(rank, from), at(rank, from + 1), sizeof moved * (size_t)(to - from));
    } else {
        memmove(at(rank, to + 1), at(rank, to), sizeof moved * (size_t)(from - to));
    }
    *at(rank, to) = moved;
}

static inline void drop(int rank, int64_t index)
{
    move(rank, index, program(rank)->n_instructions - 1);
    program(rank)->n_instructions--;
}

static inline void insert_copy(int rank, int64_t index)
{
    yoke_program *p = program(rank);
    p->instructions = yoke_arena_grow(set->arena, p->instructions, p->n_instructions,
                                      &p->instructions_capacity, sizeof *p->instructions);
    p->instructions[p->n_instructions++] = *at(rank, index);
    move(rank, p->n_instructions - 1, index + 1);
}

/* The transfer, its start and its wait, as if they had never been. */
static inline void drop_transfer(int rank, int transfer)
{
    yoke_program *p = program(rank);
    for (int64_t i = p->n_instructions - 1; i >= 0; i--) {
        if (at(rank, i)->transfer == transfer) {
            drop(rank, i);
        } else if (at(rank, i)->transfer > transfer) {
            at(rank, i)->transfer--;
        }
    }
    memmove(p->transfers + transfer, p->transfers + transfer + 1,
            sizeof *p->transfers * (size_t)(p->n_transfers - transfer - 1));
    p->n_transfers--;
}

/* Another transfer like that of the instruction; returns it. */
static inline int repeat_transfer(int rank, int64_t index)
{
    yoke_program *p = program(rank);
    p->transfers = yoke_arena_grow(set->arena, p->transfers, p->n_transfers, &p->transfers_capacity,
                                   sizeof *p->transfers);
    p->transfers[p->n_transfers] = p->transfers[at(rank, index)->transfer];
    return (int)p->n_transfers++;
}

/* Puts a buffer, and all that share its storage, elsewhere. */
static inline void place(int rank, int buffer, int64_t offset)
{
    int root = program(rank)->buffers[buffer].root;
    for (int64_t b = 0; b < program(rank)->n_buffers; b++) {
        if (program(rank)->buffers[b].root == root) {
            program(rank)->buffers[b].offset = offset;
        }
    }
}

static inline blame blame_transfer(int rank, int64_t index)
{
    return (blame){rank, index, name_of(transfer_at(rank, index)->value)};
}

static inline blame blame_output(int rank, int64_t index)
{
    return (blame){rank, index, name_of(output(rank, index)->value)};
}

/* --- One way of spoiling ---------------------------------------------------------------------------- */

typedef struct mutation {
    const char *name;
    const plan *plan;
    blame (*spoil)(void);
    const char *reason;
} mutation;

static inline void assert_says(const mutation *m, const char *message, const char *part)
{
    if (!strstr(message, part)) {
        fail_msg("%s: '%s' is not in: %s", m->name, part, message);
    }
}

/* A good program, which `set` holds, then spoiled, then refused with rank, instruction, tensor and
 * reason. Ends the program. */
static inline void assert_refused(const mutation *m)
{
    assert_good(yoke_program_verify(set), m->plan);
    blame who = m->spoil();
    yoke_status status = yoke_program_verify(set);
    if (!status) {
        fail_msg("%s: passes", m->name);
    }
    char where[64];
    const char *message = yoke_status_message(status);
    snprintf(where, sizeof where, who.instruction < 0 ? "rank %d" : "rank %d #%lld ", who.rank,
             (long long)who.instruction);
    assert_int_equal(yoke_status_code(status), YOKE_CHECK);
    assert_int_equal(strncmp(message, "rank ", 5), 0);
    assert_says(m, message, where);
    assert_says(m, message, who.tensor ? who.tensor : "");
    assert_says(m, message, m->reason);
    yoke_status_free(status);
    unmake();
}

#endif
