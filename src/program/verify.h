/*
 * The verifier's own parts: what one pass over a class of ranks learns, for the pass over all.
 */
#ifndef YOKE_PROGRAM_VERIFY_H
#define YOKE_PROGRAM_VERIFY_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { YOKE_NOT_YET = -1, YOKE_VERIFY_TEXT_BYTES = 256 };

/* What is known of a class. */
typedef struct yoke_verify_class {
    int64_t *start; /* [transfers] the instruction that starts it, or YOKE_NOT_YET */
    int64_t *wait;  /* [transfers] the instruction that waits for it, or YOKE_NOT_YET */
    int *meeting;   /* [transfers] which meeting it is one end of */
} yoke_verify_class;

/* A transfer of a rank's program; in a meeting, of all ranks of its class. */
typedef struct yoke_verify_end {
    int rank, transfer;
} yoke_verify_end;

/* A message or collective, and all that are the same to other ranks of the same classes: taken to
 * be completed by all together. */
typedef struct yoke_verify_meeting {
    yoke_verify_end *ends; /* [n] */
    int n;
    int n_arrived;
} yoke_verify_meeting;

typedef struct yoke_verify {
    const yoke_program_set *set;
    yoke_arena *arena;          /* of the verification alone */
    yoke_verify_class *classes; /* [n_classes] */
    int *next_rank;             /* [n_ranks] the next of the same class, or -1 */
    yoke_verify_meeting *meetings;
    int n_meetings;
} yoke_verify;

const yoke_program_transfer *yoke_verify_transfer(const yoke_verify *verify, yoke_verify_end end);
/* The instruction that starts it. */
int64_t yoke_verify_start(const yoke_verify *verify, yoke_verify_end end);

/* --- The passes, each in its file ------------------------------------------------------------- */

/* Every rank has a class, and what is proved of its first rank holds for it; fills next_rank. */
yoke_status yoke_verify_classes(yoke_verify *verify) YOKE_MUST_USE;

/* Follows the buffers of a class's first rank through its instructions; fills start and wait. */
yoke_status yoke_verify_flow(const yoke_verify *verify, int rank) YOKE_MUST_USE;

/* Finds the partners of every message and collective, of all ranks; fills the meetings. */
yoke_status yoke_verify_match(yoke_verify *verify) YOKE_MUST_USE;

/* Runs all classes against each other. */
yoke_status yoke_verify_run(yoke_verify *verify) YOKE_MUST_USE;

/* --- verify_match.c, for verify_groups.c ------------------------------------------------------ */

/* The transfers of a class between two ranks in one direction, or in one group, in the order of
 * their starts. */
typedef struct yoke_verify_channel {
    int *transfer;
    int64_t n, capacity;
} yoke_verify_channel;

typedef struct yoke_verify_matching {
    yoke_verify *verify;
    int n_channels;                /* of a class: sends to each stage, receives, groupings */
    yoke_verify_channel *channels; /* [classes][n_channels] */
    int64_t *first_end;            /* [classes + 1] number of the class's transfer 0 */
    int *joined;                   /* [ends] another end of the same meeting; itself at the root */
} yoke_verify_matching;

const yoke_verify_channel *yoke_verify_sends(const yoke_verify_matching *m, int rank, int to_stage);
const yoke_verify_channel *yoke_verify_recvs(const yoke_verify_matching *m, int rank,
                                             int from_stage);
const yoke_verify_channel *yoke_verify_collectives(const yoke_verify_matching *m, int rank,
                                                   int grouping);

/* Two ends that ought to be of one transfer are not. */
yoke_status yoke_verify_fail_pair(const yoke_verify *verify, yoke_verify_end a, yoke_verify_end b,
                                  const char *what) YOKE_MUST_USE;

/* The ends are of one meeting. */
void yoke_verify_join(yoke_verify_matching *m, yoke_verify_end a, yoke_verify_end b);

/* Matches the collectives of all groups. */
yoke_status yoke_verify_groups(yoke_verify_matching *m) YOKE_MUST_USE;

/* --- verify_pieces.c -------------------------------------------------------------------------- */

/* An all_gather, all_to_all or reduce_scatter in one group. */
typedef struct yoke_verify_redistribution {
    yoke_verify_end end; /* a member's; in a group of the same classes, if not in this one */
    yoke_value source;   /* what is redistributed */
    const int *members;  /* [n] */
    yoke_shard *pieces;  /* [n] scratch */
    int n;
} yoke_verify_redistribution;

/* What every member wants can be made of what all have: copied from one member, or summed over
 * all. */
yoke_status yoke_verify_pieces(const yoke_verify *verify,
                               const yoke_verify_redistribution *redistribution) YOKE_MUST_USE;

/* --- verify_hold.c: what the buffers of a rank hold ------------------------------------------- */

typedef enum yoke_hold_state {
    YOKE_HOLD_NOTHING, /* not yet written in this step */
    YOKE_HOLD_VALUE,   /* written, and has all its bytes */
    YOKE_HOLD_COMING,  /* a started transfer writes it */
    YOKE_HOLD_LOST     /* another buffer was written over it */
} yoke_hold_state;

typedef struct yoke_hold {
    yoke_hold_state state;
    int64_t since;      /* the instruction that brought it there; YOKE_NOT_YET: the step before */
    int by;             /* LOST: to this buffer */
    int n_writes;       /* by kernels, copies and loads */
    int n_senders;      /* started transfers that read it */
    int64_t sender;     /* the start of one of them */
    int64_t updated;    /* the instruction that updated it in place, or YOKE_NOT_YET */
    int64_t first_read; /* or YOKE_NOT_YET */
} yoke_hold;

typedef struct yoke_flow {
    const yoke_verify *verify;
    const yoke_program *program;
    int rank;        /* the first of its class */
    int64_t at;      /* instruction at hand */
    yoke_hold *hold; /* [buffers] */
    int *holders;    /* buffers that have bytes, by offset */
    int64_t n_holders;
} yoke_flow;

/* At the beginning of a step only what lives between steps holds a value. */
yoke_status yoke_flow_init(yoke_flow *flow, const yoke_verify *verify, int rank) YOKE_MUST_USE;

/* The instruction at hand reads, writes, or updates in place; `state` is what comes of a write. */
yoke_status yoke_flow_read(yoke_flow *flow, int buffer) YOKE_MUST_USE;
yoke_status yoke_flow_write(yoke_flow *flow, int buffer, yoke_hold_state state) YOKE_MUST_USE;
yoke_status yoke_flow_update(yoke_flow *flow, int buffer) YOKE_MUST_USE;

/* --- verify_shape.c: single instructions ------------------------------------------------------ */

/* Every index in the instruction at hand is one, and its operands are the right tensors. */
yoke_status yoke_verify_shape(const yoke_flow *flow, const yoke_instruction *at) YOKE_MUST_USE;

/* True if `made` is computed from `source`, and perhaps others, in one node. */
bool yoke_value_stems_from(const yoke_graph *graph, yoke_value made, yoke_value source);

/* The buffer that has the first byte of `buffer`, or YOKE_NO_BUFFER. */
int yoke_flow_holder(const yoke_flow *flow, int buffer);

bool yoke_buffers_overlap(const yoke_buffer *a, const yoke_buffer *b);

/* --- verify.c: words -------------------------------------------------------------------------- */

typedef struct yoke_verify_text {
    char at[YOKE_VERIFY_TEXT_BYTES];
} yoke_verify_text;

/* "rank 3 #41 matmul h.1: <text>"; the instruction is left out if `index` is YOKE_NOT_YET. */
yoke_status yoke_verify_fail(const yoke_verify *verify, int rank, int64_t index, const char *format,
                             ...) YOKE_FORMAT(4, 5) YOKE_MUST_USE;

/* Each writes to `text` and returns it: "h.1.gelu.30 (micro-batch 2)", and an instruction. */
const char *yoke_verify_tensor(const yoke_verify *verify, int rank, int buffer,
                               yoke_verify_text *text);
const char *yoke_verify_instruction(const yoke_verify *verify, int rank, int64_t index,
                                    yoke_verify_text *text);

#ifdef __cplusplus
}
#endif
#endif
