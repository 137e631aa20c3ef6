/*
 * Program: everything one rank does in a step, as a flat list of instructions over planned buffers.
 *
 * Offsets, no pointers; no branches; nothing depends on the values of tensors, so one program
 * serves every step. The programs of all ranks stand side by side in a set, because only together
 * can they be verified: see yoke_program_verify.
 *
 * Most ranks of a large mesh do the same on pieces of the same extents: they are of one *class* and
 * share a program. What tells them apart is no part of it but follows from the mesh: where a piece
 * begins, who is at the other end of a message, who is in a group. Those are the questions at the
 * end, each for one rank.
 */
#ifndef YOKE_PROGRAM_PROGRAM_H
#define YOKE_PROGRAM_PROGRAM_H

#include <stdio.h>
#include "graph/graph.h"
#include "yoke/schedule.h"

/* X(enumerator, name, starts a transfer, ends one). Inputs are read and outputs written; an operand
 * of a started transfer belongs to it until its wait. */
#define YOKE_OPCODE_LIST(X)                                                                        \
    X(LOAD, load, false, false)                                                                    \
    X(KERNEL, kernel, false, false)                                                                \
    X(COPY, copy, false, false)                                                                    \
    X(SEND, send, true, false)                                                                     \
    X(RECV, recv, true, false)                                                                     \
    X(COLLECTIVE, collective, true, false)                                                         \
    X(WAIT, wait, false, true)

typedef enum yoke_opcode {
#define YOKE_OPCODE_ENUM(upper, lower, starts, ends) YOKE_OPCODE_##upper,
    YOKE_OPCODE_LIST(YOKE_OPCODE_ENUM)
#undef YOKE_OPCODE_ENUM
        YOKE_N_OPCODES
} yoke_opcode;

typedef struct yoke_opcode_def {
    const char *name;
    bool starts, ends;
} yoke_opcode_def;

const yoke_opcode_def *yoke_opcode_get(yoke_opcode opcode);

/* X(enumerator, name, help): what a rank's memory is for. The first three live between steps. */
#define YOKE_BUFFER_KIND_LIST(X)                                                                   \
    X(PARAMS, params, "parameters")                                                                \
    X(GRADS, grads, "gradients, summed over the micro-batches")                                    \
    X(OPTIMIZER, optimizer, "moments of the optimizer")                                            \
    X(STASH, stash, "activations kept from forward to backward")                                   \
    X(GATHERED, gathered, "parameters gathered for use, of those stored in pieces")                \
    X(SCRATCH, scratch, "everything shorter")

typedef enum yoke_buffer_kind {
#define YOKE_BUFFER_KIND_ENUM(upper, lower, help) YOKE_BUFFER_##upper,
    YOKE_BUFFER_KIND_LIST(YOKE_BUFFER_KIND_ENUM)
#undef YOKE_BUFFER_KIND_ENUM
        YOKE_N_BUFFER_KINDS
} yoke_buffer_kind;

enum { YOKE_NO_BUFFER = -1, YOKE_NO_TRANSFER = -1, YOKE_ONCE_A_STEP = -1, YOKE_ALIGNMENT = 64 };

/* A rank's piece of a value, for one micro-batch or for the step. */
typedef struct yoke_buffer {
    yoke_value value;
    int microbatch; /* or YOKE_ONCE_A_STEP */
    yoke_buffer_kind kind;
    yoke_shape shape; /* of the piece; where that begins says yoke_program_shard */
    int64_t bytes;    /* unpadded */
    int64_t offset;   /* in the slab, a multiple of YOKE_ALIGNMENT */
    int root;         /* the buffer whose storage it takes over; itself if none */

    /* Instructions between which the storage is in use; of roots, aliases included. */
    int first, last;
} yoke_buffer;

typedef enum yoke_exchange {
    YOKE_EXCHANGE_SEND,
    YOKE_EXCHANGE_RECV,
    YOKE_EXCHANGE_ALL_REDUCE_SUM, /* in place */
    YOKE_EXCHANGE_ALL_REDUCE_MAX, /* in place */
    YOKE_EXCHANGE_COPY,           /* all_gather, all_to_all: pieces are copied */
    YOKE_EXCHANGE_SUM             /* reduce_scatter: pieces are summed */
} yoke_exchange;

/* The groups along one axis: each is the ranks that differ along it alone, and along pp only those
 * of some stages. */
typedef struct yoke_grouping {
    yoke_axis axis;
    uint64_t stages; /* along pp: one bit each; along other axes UINT64_MAX */
} yoke_grouping;

/* A rank's end of a message or collective. */
typedef struct yoke_program_transfer {
    yoke_exchange kind;
    yoke_conversion conversion; /* collectives: the row of the table that it is */
    yoke_axis axis;
    yoke_value value;
    int microbatch;
    int grouping; /* collectives: in the set's list */
    int stage;    /* send, recv: that of the other end */
    int tag;      /* the same at both ends, another for each value and micro-batch */
    int64_t elements;
    int in, out; /* buffers; YOKE_NO_BUFFER where there is none */
} yoke_program_transfer;

typedef struct yoke_instruction {
    yoke_opcode opcode;
    yoke_region region;
    int block;
    int microbatch;
    int node; /* kernel: of the graph, else YOKE_NO_NODE */

    /* First of the operands in the program's list: n_in inputs, then n_out outputs; YOKE_NO_BUFFER
     * for one that is not read or not here. */
    int operands;
    int n_in, n_out;

    int transfer;    /* start, wait: which */
    bool accumulate; /* kernel: adds to its outputs */
} yoke_instruction;

/* Of a class of ranks. */
typedef struct yoke_program {
    int rank;    /* the first of them */
    int n_ranks; /* how many */
    yoke_instruction *instructions;
    int64_t n_instructions, instructions_capacity;
    int *operands;
    int64_t n_operands, operands_capacity;
    yoke_buffer *buffers;
    int64_t n_buffers, buffers_capacity;
    yoke_program_transfer *transfers;
    int64_t n_transfers, transfers_capacity;
    int64_t kind_offset[YOKE_N_BUFFER_KINDS]; /* where each kind begins in the slab */
    int64_t kind_bytes[YOKE_N_BUFFER_KINDS];
    int64_t kernel_scratch_offset, kernel_scratch_bytes; /* part of scratch */
    int64_t slab_bytes;
} yoke_program;

typedef struct yoke_program_set {
    yoke_arena *arena;
    const yoke_graph *graph;
    yoke_mesh mesh;
    yoke_schedule schedule;
    const int *first_block; /* [chunks + 1] */
    const uint64_t *stages; /* [values] stages that hold the value, one bit each */
    int n_ranks;
    int n_classes;
    yoke_program *classes; /* [n_classes] */
    int *class_of;         /* [n_ranks] */
    yoke_grouping *groupings;
    int64_t n_groupings, groupings_capacity;
    int depth; /* most transfers outstanding between two ranks or in one group */
} yoke_program_set;

/* Scratch that the kernel of an instruction wants, bytes; programs are built before kernels are
 * known. */
typedef int64_t (*yoke_scratch_function)(const yoke_graph *graph, const yoke_program *program,
                                         const yoke_instruction *instruction, void *user);

typedef struct yoke_program_request {
    const yoke_graph *graph; /* with layouts */
    const yoke_schedule_def *schedule;
    const char *schedule_file; /* of a schedule from a CSV file */
    int chunks_per_stage;      /* 0: the schedule's own number */
    int microbatches;
    bool forward_only;
    bool apart; /* every rank is a class by itself; makes nothing but work */
    /* A set for the same model and mesh, or NULL: the new one finds the parameters where this one
     * has them and leaves its lasting memory alone. */
    const yoke_program_set *beside;
    yoke_scratch_function scratch; /* NULL: kernels want none */
    void *scratch_user;
} yoke_program_request;

/* Cuts, schedules, lowers and plans; not yet verified. */
yoke_status yoke_program_set_create(const yoke_program_request *request,
                                    yoke_program_set **set) YOKE_MUST_USE;
void yoke_program_set_destroy(yoke_program_set *set); /* NULL is fine */

/*
 * Proves, for every rank and over all of them together:
 *   - every send has its receive, with equal bytes and tag, in an order that both ends agree on;
 *   - members of a group issue the same collectives in the same order;
 *   - no wait can be part of a circle, though a transfer completes only once all its ranks have
 *     started it;
 *   - every transfer is started once and waited for once, after its start;
 *   - nothing reads or writes a buffer that a pending transfer writes, nor writes one that it
 *     reads;
 *   - nothing reads what was never written, or what has since been overwritten by another buffer of
 *     the plan;
 *   - buffers lie inside their kind's part of the slab, aligned, and lasting ones do not overlap;
 *   - every parameter on every rank is updated exactly once a step;
 *   - a class is right for each of its ranks.
 * YOKE_CHECK with rank, instruction, tensor and reason; the rank is the first of its class.
 */
yoke_status yoke_program_verify(const yoke_program_set *set) YOKE_MUST_USE;

int64_t yoke_program_set_n_instructions(const yoke_program_set *set);
/* What one end of a transfer receives, with the bandwidth-optimal algorithm. */
double yoke_program_received_bytes(const yoke_program_set *set,
                                   const yoke_program_transfer *transfer);
/* Received along an axis in a step, by all ranks. */
double yoke_program_set_comm_bytes(const yoke_program_set *set, yoke_axis axis);
/* Share of the stages' time; F costs 1, B 2, messages nothing. */
double yoke_program_set_bubble(const yoke_program_set *set);

/* --- Questions about one rank ----------------------------------------------------------------- */

const yoke_program *yoke_program_of(const yoke_program_set *set, int rank);

/* The rank's piece of a value that its stage holds. */
yoke_shard yoke_program_shard(const yoke_program_set *set, int rank, yoke_value value);

/* The other end of a message. */
int yoke_program_peer(const yoke_program_set *set, int rank, const yoke_program_transfer *transfer);

/* False for a kernel that replaces the rank's value by zeros, because another rank's counts: a
 * convert to a partial sum. */
bool yoke_program_keeps(const yoke_program_set *set, int rank, const yoke_node *node);

/* --- Groups ----------------------------------------------------------------------------------- */

int yoke_grouping_size(const yoke_program_set *set, const yoke_grouping *grouping);
int yoke_grouping_n_groups(const yoke_program_set *set, const yoke_grouping *grouping);

/* Which of the grouping's groups is that of the rank. */
int yoke_grouping_find(const yoke_program_set *set, const yoke_grouping *grouping, int rank);

/* Writes the members [yoke_grouping_size] of one group, ascending. */
void yoke_grouping_members(const yoke_program_set *set, const yoke_grouping *grouping, int group,
                           int *members);

/* Buffer of a value on a rank, or YOKE_NO_BUFFER. */
int yoke_program_find(const yoke_program *program, yoke_value value, int microbatch);

/* "#41 matmul h.1.attn[...]": one instruction in words. */
const char *yoke_instruction_print(const yoke_program_set *set, int rank, int64_t index,
                                   char *buffer, int buffer_bytes);
void yoke_program_print(const yoke_program_set *set, int rank, FILE *file);

#endif
