/*
 * Session, from the inside: shared by the files of this folder that plan, run, fetch and compare.
 */
#ifndef YOKE_RUN_SESSION_H
#define YOKE_RUN_SESSION_H

#include "program/program.h"
#include "run/executor.h"
#include "run/placement.h"
#include "transport/transport.h"
#include "yoke/session.h"

/* One graph and the programs of all ranks for it. */
typedef struct yoke_session_plan {
    yoke_graph *graph;
    yoke_program_set *set;
} yoke_session_plan;

/* Of products whose operands are stored in bf16; the rates are 0 where nothing was measured. */
typedef struct yoke_multiply {
    bool chosen, in_bf16;
    double f32_flops_per_s, bf16_flops_per_s;
} yoke_multiply;

struct yoke_session {
    yoke_config config;
    yoke_model_config model;
    const yoke_corpus *corpus;
    yoke_mesh mesh;
    int n_ranks, n_threads;
    bool threads; /* ranks are threads */
    yoke_kernel kernels[YOKE_N_OPS], narrow_kernels[YOKE_N_OPS];
    yoke_session_plan train, evaluation, logits; /* set NULL where there is none */
    yoke_sampler train_sampler, eval_sampler;
    char **slabs; /* [n_ranks] mappings that all ranks see; NULL before the first run */
    size_t *slab_bytes;
    yoke_rank_bytes *bytes;
    yoke_placement *placement; /* NULL before the slabs are mapped */
    yoke_multiply multiply;
    bool initialised; /* the parameters hold values */
};

int yoke_session_cores(void); /* of the machine */

/* Makes graph and verified programs for training, evaluation or logits. */
typedef enum yoke_session_use {
    YOKE_USE_TRAIN,
    YOKE_USE_EVALUATE,
    YOKE_USE_LOGITS
} yoke_session_use;
yoke_status yoke_session_plan_create(yoke_session *session, yoke_session_use use,
                                     yoke_session_plan *plan) YOKE_MUST_USE;
void yoke_session_plan_destroy(yoke_session_plan *plan);

/* Maps the ranks' slabs and places the ranks on cores, once. */
yoke_status yoke_session_allocate(yoke_session *session) YOKE_MUST_USE;

/* Makes a rank's slab at least so large, mapped or not yet; what it holds stays. Between runs. */
yoke_status yoke_session_enlarge(yoke_session *session, int rank, size_t bytes) YOKE_MUST_USE;

/* --- multiply.c --- */

bool yoke_session_is_narrow(const yoke_session *session); /* activations are stored in bf16 */

/* Chooses, once, in which type products of bf16 operands are multiplied; may take some tens of
 * milliseconds. YOKE_BAD_INPUT if this processor cannot do what the config wants. */
yoke_status yoke_session_multiply_choose(yoke_session *session) YOKE_MUST_USE;
/* The part that measures: the session's kernel against another one for the same products. */
yoke_status yoke_session_multiply_measure(yoke_session *session, yoke_kernel in_bf16) YOKE_MUST_USE;
/* The choice and why: "bf16: measured 421 GFLOP/s in bf16, 207 in f32". After it was made. */
const char *yoke_session_multiply_text(const yoke_session *session, char *text, int text_bytes);

/* The world of the ranks: its groups are those of the session's plans, one after the other. */
yoke_status yoke_session_world_create(const yoke_session *session, size_t user_bytes,
                                      yoke_world **world) YOKE_MUST_USE;

/* What an executor of one of the session's plans needs; the caller adds where inputs come from. */
yoke_executor_request yoke_session_executor_request(const yoke_session *session,
                                                    const yoke_session_plan *plan,
                                                    yoke_endpoint *endpoint);

/* Fills the parameters of a rank with their initial values. */
void yoke_session_initialise(const yoke_session *session, int rank);

/* --- notes.c --- */

typedef struct yoke_note {
    char text[192];
} yoke_note;

enum { YOKE_MOST_NOTES = 16 };

/* What a user may not have meant: options without effect here, ranks without work, choices of experts
 * that must be dropped. Returns how many sentences. */
int yoke_session_notes(const yoke_session *session, yoke_note notes[YOKE_MOST_NOTES]);

/* --- loop.c: what each rank does in a run --- */

enum { YOKE_METRICS_RING = 64 };

/* The two counters of the ring, across ranks. Acquire here pairs with release there. */
uint32_t yoke_run_counter_get(const uint32_t *counter);
void yoke_run_counter_set(uint32_t *counter, uint32_t value);

/* Written by the ranks, read by the launcher. */
typedef struct yoke_run_rank {
    int64_t allocations;
    int64_t peak_bytes;
    double exposed_s[YOKE_N_AXES];
} yoke_run_rank;

typedef struct yoke_run_shared {
    uint32_t published; /* steps written to the ring, by the leading rank alone */
    uint32_t consumed;  /* steps taken out, by the launcher alone */
    yoke_step_metrics ring[YOKE_METRICS_RING];
    double seconds;
    yoke_run_rank ranks[]; /* [n_ranks] */
} yoke_run_shared;

typedef struct yoke_run {
    yoke_session *session;
    const yoke_run_options *options;
    yoke_world *world;
    yoke_run_shared *shared;
    yoke_run_result *result;
} yoke_run;

/* One rank's part of a run; `user` is a yoke_run. */
yoke_status yoke_run_rank_main(yoke_endpoint *endpoint, void *user) YOKE_MUST_USE;

/* Largest resident set of the calling process so far, without the pages of slabs other than
 * `own`. */
int64_t yoke_usage_peak_bytes(const yoke_session *session, int own);

#endif
