/*
 * Session: one run, planned, verified, and then executed on all its ranks.
 *
 * create builds graph, layouts, schedule and a program for every rank, verifies them together and
 * knows every byte, before anything is allocated. run executes steps; parameters, gradients and
 * optimizer state stay in the ranks' slabs between runs, where fetch and load reach them as whole
 * tensors. Local; one thread; no call is collective.
 */
#ifndef YOKE_SESSION_H
#define YOKE_SESSION_H

#include "yoke/config.h"
#include "yoke/data.h"
#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_session yoke_session;
struct yoke_program_set; /* src/program/program.h */

/* What a session is made of; borrowed, and must outlive it. */
typedef struct yoke_session_parts {
    const yoke_config *config;      /* checked */
    const yoke_model_config *model; /* checked */
    const yoke_corpus *corpus;      /* NULL: only to plan, or to compute logits */
} yoke_session_parts;

/* Plans and verifies; allocates no tensor. YOKE_BAD_INPUT where config, model, corpus and mesh do
 * not fit together, YOKE_CHECK if the verifier finds a fault. */
yoke_status yoke_session_create(const yoke_session_parts *parts,
                                yoke_session **session) YOKE_MUST_USE;
void yoke_session_destroy(yoke_session *session); /* NULL is fine */

enum { YOKE_MOST_EXPERT_LOADS = 1024 };

/* One optimizer step, as the leading rank saw it. */
typedef struct yoke_step_metrics {
    int64_t step;     /* from 0 */
    bool skipped;     /* no valid label, or a gradient that is not finite: nothing was updated */
    double loss;      /* nats per valid token; NaN if none */
    double grad_norm; /* before clipping */
    double lr;
    double n_valid; /* labels that count, over the whole step */
    double seconds; /* of this step */
    bool evaluated; /* eval_loss was measured after this step */
    double eval_loss;
    int first_bad; /* parameter whose gradient is not finite, or -1 */

    /* Losses beside that one, times their coefficients; NaN if none. Sums over all tokens, divided as
     * the loss is by the labels that count: where few count they weigh more beside it. */
    double aux_loss;

    /* Of the first n_load_layers layers with experts, as many whole ones as there is room for: the
     * share of the step's choices that each of n_experts got, before those beyond its slots are
     * dropped. [n_load_layers, n_experts] */
    int n_load_layers, n_experts;
    float expert_load[YOKE_MOST_EXPERT_LOADS];
} yoke_step_metrics;

typedef struct yoke_run_options {
    int64_t first_step, n_steps;
    bool evaluate_last; /* after the last of them */
    void (*on_step)(void *user,
                    const yoke_step_metrics *metrics); /* in order, none lost; may be NULL */
    bool (*interrupted)(void *user); /* asked about 20 times a second; may be NULL */
    void *user;
} yoke_run_options;

typedef struct yoke_run_result {
    int64_t steps;            /* done */
    double loss, eval_loss;   /* of the last step; eval_loss NaN if not evaluated */
    int64_t step_allocations; /* requests for memory inside the step loop, all ranks: 0 */
    int64_t skipped;
    double seconds; /* wall time of the steps, without set-up and evaluation */

    /* Of these, spent on transfers along each axis while no kernel ran; the mean over the ranks. */
    double exposed_s[YOKE_N_AXES];
} yoke_run_result;

/* Allocates the slabs at the first call (YOKE_NO_MEMORY, with the plan and what is free, if they do
 * not fit), initialises or keeps the parameters, and runs. On failure the status says which rank,
 * what and why; nothing is left running. */
yoke_status yoke_session_run(yoke_session *session, const yoke_run_options *options,
                             yoke_run_result *result) YOKE_MUST_USE;

/* Parameters, in the order of the graph. */
int yoke_session_n_parameters(const yoke_session *session);
const char *yoke_session_parameter_name(const yoke_session *session, int index);
yoke_shape yoke_session_parameter_shape(const yoke_session *session, int index);
/* Elements of all parameters, each once. */
int64_t yoke_session_parameter_count(const yoke_session *session);

typedef enum yoke_fetch { YOKE_FETCH_WEIGHT, YOKE_FETCH_GRADIENT } yoke_fetch;

/* The whole tensor, put together from the ranks' pieces: the weight now, or the gradient of the
 * last step before clipping. After a run. `out` [elements]; the gradient of a frozen
 * parameter is 0. All replicas are compared: YOKE_CHECK if two ranks hold different bits. */
yoke_status yoke_session_fetch(yoke_session *session, yoke_fetch what, int index,
                               float *out) YOKE_MUST_USE;
/* Writes a whole tensor into the pieces of all ranks; before or between runs. YOKE_BAD_INPUT for an
 * element that is not finite; YOKE_NO_MEMORY as in a run. */
yoke_status yoke_session_load(yoke_session *session, int index, const float *in) YOKE_MUST_USE;

/* Logits [batch, t, v] of `tokens` [batch, t], without dropout: one forward pass on the session's
 * mesh; batch and t as planned. */
yoke_status yoke_session_logits(yoke_session *session, const int32_t *tokens,
                                float *logits) YOKE_MUST_USE;

/* Memory of one rank, bytes. */
typedef struct yoke_rank_bytes {
    int64_t params, grads, optimizer, stash, gathered, scratch; /* planned, by kind */
    int64_t planned;   /* their sum and alignment: the slab */
    int64_t allocated; /* by the run; 0 before */

    /* Largest resident set, the rank's own slab included, the slabs of its peers not; 0 before. */
    int64_t peak;
} yoke_rank_bytes;

int yoke_session_n_ranks(const yoke_session *session);
yoke_rank_bytes yoke_session_bytes(const yoke_session *session, int rank);

/* Multiply-adds of a step count two; all ranks. */
double yoke_session_step_flops(const yoke_session *session);
/* FLOP/s of plain matrix products on the threads of the run, all ranks at once; half a second. Where
 * activations are bf16, the better of those products and of f32 ones. */
yoke_status yoke_session_matmul_rate(yoke_session *session, double *flops_per_s) YOKE_MUST_USE;

/* Of training; borrowed. The graph has its layouts. */
const struct yoke_program_set *yoke_session_programs(const yoke_session *session);
const yoke_graph *yoke_session_graph(const yoke_session *session);

typedef struct yoke_parity_result {
    /* Maxima over tensors and steps, relative 2-norm. The difference of a tensor of n elements is
     * divided by its 2-norm, or by that of n elements of the least sizes below if it is less. */
    double grad_rel, norm_rel, loss_rel, weights_rel;
    int64_t skipped;            /* steps that neither side applied: they prove little */
    bool bits_equal;            /* every loss, gradient and weight */
    char first_difference[128]; /* first tensor over its bound; "" if none */
    char first_other_bits[128]; /* first with other bits, within its bound or not; "" if none */
    bool ok;                    /* within the bounds below */
} yoke_parity_result;

/* In float32. */
#define YOKE_PARITY_GRAD    1e-5
#define YOKE_PARITY_LOSS    1e-6
#define YOKE_PARITY_WEIGHTS 1e-4

/* Sizes of an element below which no tensor is measured by itself: of gradients, relative to the root
 * mean square over all elements that are trained; of weights, which begin at a scale of about 0.02. */
#define YOKE_PARITY_LEAST_GRAD   1e-3
#define YOKE_PARITY_LEAST_WEIGHT 1e-2

typedef struct yoke_parity_bounds {
    double grad, loss, weights; /* relative; the norm's is that of gradients */
} yoke_parity_bounds;

/* Those of the config's types: a bf16 number has 8 bits, so one rounding is off by up to 2^-9; what is
 * gathered or summed over ranks is rounded where one rank rounds nothing. */
yoke_parity_bounds yoke_parity_bounds_of(const yoke_config *config);

/* Runs the mesh and one rank from the same config for `steps` steps and compares: gradients before
 * clipping, norm and loss after the first step, loss of every step, weights after the last. Threads
 * per rank are equal in both. YOKE_BAD_INPUT unless there are 1 to 10^9 steps; YOKE_CHECK if no step
 * has a loss that is finite on either side, so that there is nothing to compare. */
yoke_status yoke_parity(const yoke_session_parts *parts, int64_t steps,
                        yoke_parity_result *result) YOKE_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
