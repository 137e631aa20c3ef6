/*
 * Schedule: in which order each pipeline stage works on its micro-batches.
 *
 * A schedule is a table made by a pure function: for every stage (coordinate along pp) a list of
 * actions, each on one chunk of the layers and one micro-batch. Messages are no part of it;
 * lowering adds them. Chunks are numbered along the model, so the forward of chunk c needs that of
 * chunk c - 1, and its backward that of chunk c + 1.
 *
 * All of this is local, free of state, and reads nothing but its arguments.
 */
#ifndef YOKE_SCHEDULE_H
#define YOKE_SCHEDULE_H

#include <stdbool.h>
#include <stdio.h>
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct yoke_arena;

/* X(enumerator, letter, help) */
#define YOKE_ACTION_LIST(X)                                                                        \
    X(F, "F", "forward")                                                                           \
    X(B, "B", "backward, of inputs and weights")                                                   \
    X(I, "I", "backward of the inputs only, which the chunk before waits for")                     \
    X(W, "W", "backward of the weights only, any time after I")

typedef enum yoke_action_kind {
#define YOKE_ACTION_ENUM(upper, letter, help) YOKE_ACTION_##upper,
    YOKE_ACTION_LIST(YOKE_ACTION_ENUM)
#undef YOKE_ACTION_ENUM
        YOKE_N_ACTION_KINDS
} yoke_action_kind;

typedef struct yoke_action {
    yoke_action_kind kind;
    int chunk;
    int microbatch;
} yoke_action;

typedef struct yoke_stage_actions {
    const yoke_action *action; /* [n] */
    int n;
} yoke_stage_actions;

/* Lives in the arena that it was built in. */
typedef struct yoke_schedule {
    const char *name;
    int n_stages, n_chunks, n_microbatches;
    bool forward_only;               /* evaluation: F alone */
    const int *stage_of_chunk;       /* [n_chunks] */
    const yoke_stage_actions *stage; /* [n_stages] */
} yoke_schedule;

typedef struct yoke_schedule_request {
    int n_stages;         /* at least 1 */
    int n_microbatches;   /* at least 1 */
    int chunks_per_stage; /* 0: as many as the schedule has by itself */
    bool forward_only;
    const char *file; /* of a schedule from a CSV file; the others do not look at it */
} yoke_schedule_request;

/* What one file of src/pipe defines. */
typedef struct yoke_schedule_def {
    const char *name;
    const char *help;
    int default_chunks; /* a stage; 0: 1 */
    bool takes_chunks;  /* any other number of them too; false: they are refused before `build` */
    /* Sees the default where the request had 0. May leave forward_only aside: what is no F is
     * dropped afterwards. */
    yoke_status (*build)(const yoke_schedule_request *request, struct yoke_arena *arena,
                         yoke_schedule *out);
} yoke_schedule_def;

/* X(id): yoke_schedule_<id> is defined in src/pipe/schedule_<id>.c. */
#define YOKE_SCHEDULE_LIST(X)                                                                      \
    X(gpipe)                                                                                       \
    X(1f1b)                                                                                        \
    X(interleaved)                                                                                 \
    X(zb_h1)                                                                                       \
    X(zb_v)

#define YOKE_SCHEDULE_DECLARE(id) extern const yoke_schedule_def yoke_schedule_##id;
YOKE_SCHEDULE_LIST(YOKE_SCHEDULE_DECLARE)
#undef YOKE_SCHEDULE_DECLARE

const char *yoke_action_letter(yoke_action_kind kind); /* "F" */

int yoke_schedule_count(void);
const yoke_schedule_def *yoke_schedule_get(int index); /* index in [0, yoke_schedule_count()) */

/* A name that ends in ".csv" is a schedule from that file, which is no part of the list and is read
 * only when it is built, from `file` of the request. YOKE_BAD_INPUT for an unknown name; the
 * message has the known ones and the nearest. */
yoke_status yoke_schedule_find(const char *name, const yoke_schedule_def **def) YOKE_MUST_USE;

/*
 * Builds and verifies. YOKE_BAD_INPUT for sizes below 1, for so many chunks or micro-batches that
 * the schedule does not have them, and for a CSV file that is not a schedule of these sizes; there
 * the message names row and column, both from 1.
 *
 * In a CSV file a row is a stage. A cell is empty, and says nothing, or holds chunk, action and
 * micro-batch, such as 2F0: what PyTorch's pipelining writes and reads. Chunks live where their
 * cells are. Backwards in another order than that of the micro-batches are taken as they stand;
 * they sum gradients in another order than one rank does.
 */
yoke_status yoke_schedule_build(const yoke_schedule_def *def, const yoke_schedule_request *request,
                                struct yoke_arena *arena, yoke_schedule *out) YOKE_MUST_USE;

/*
 * YOKE_CHECK unless
 * - every action is on the stage of its chunk;
 * - every chunk and micro-batch has F once, and B once or else I and W once each (none of the three
 *   if forward_only);
 * - an abstract run over all stages comes to its end: F needs F of the chunk before, B and I need B
 *   or I of the chunk after and F of their own, W needs I of its own. Where it does not, the
 *   message tells the circle of stages that wait for each other.
 */
yoke_status yoke_schedule_verify(const yoke_schedule *schedule) YOKE_MUST_USE;

/* Share of the stages' time spent waiting, in [0, 1), if F takes `f_cost`, B `b_cost`, I and W half
 * of that each, and messages nothing. Asserts that the schedule comes to its end. Each file of a
 * schedule has the formula for its own; for GPipe and 1F1B it is (p - 1) / (m + p - 1), with p
 * stages and m micro-batches. */
double yoke_schedule_bubble(const yoke_schedule *schedule, double f_cost, double b_cost);

/* Most pairs of chunk and micro-batch whose activations `stage` holds at once: after F and up to
 * the end of B or W. 1 if forward_only, since then they are freed at once. */
int yoke_schedule_in_flight(const yoke_schedule *schedule, int stage);

/* Timing diagram, at most 100 columns: a row a stage, F 1 unit long, B 2, I and W 1. */
void yoke_schedule_draw(FILE *out, const yoke_schedule *schedule);

/* The same as an SVG picture for a light or a dark page: time on x, stages on y, colours for kinds
 * of action, shades for the chunks of a stage, micro-batches as numbers, the bubble in the caption.
 * Shows at most 2000 units. */
void yoke_schedule_svg(FILE *out, const yoke_schedule *schedule);

/* CSV, as yoke_schedule_build reads it, without empty cells. */
void yoke_schedule_print(FILE *out, const yoke_schedule *schedule);

#ifdef __cplusplus
}
#endif
#endif
