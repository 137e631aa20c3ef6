/*
 * What each rank does in a run: bind, initialise, and step after step run the program; evaluate
 * when it is due. One rank, the first that holds the loss, tells the launcher about each step
 * through a ring in shared memory.
 */
#include <math.h>
#include "base/clock.h"
#include "run/session.h"

typedef struct loop {
    const yoke_run *run;
    yoke_session *session;
    yoke_endpoint *endpoint;
    int rank;
    yoke_executor *train, *evaluation; /* evaluation: NULL if there is none */
    const float *loss, *n_valid;       /* of training; NULL on ranks that do not hold them */
    const float *eval_loss, *eval_n_valid;
    const float *control, *norms;
    const float *auxiliary_loss, *expert_load; /* NULL where the model has none */
    yoke_step_metrics last;                    /* of the latest step */
    int64_t skipped_in_row;
} loop;

/* --- Set-up ----------------------------------------------------------------------------------- */

static bool load_from_sampler(void *user, const char *name, int64_t step, int microbatch,
                              const yoke_shard *shard, int32_t *out)
{
    return yoke_sampler_fill(user, name, step, microbatch, shard, out);
}

static yoke_executor *bind(loop *l, yoke_arena *arena, const yoke_session_plan *plan,
                           yoke_sampler *sampler)
{
    yoke_executor_request request = yoke_session_executor_request(l->session, plan, l->endpoint);
    request.load = load_from_sampler;
    request.load_user = sampler;
    return yoke_executor_create(arena, &request);
}

static const float *find_kept(const yoke_executor *executor, yoke_value value)
{
    return value == YOKE_NO_VALUE ? NULL : yoke_executor_find(executor, value);
}

static void bind_all(loop *l, yoke_arena *arena)
{
    yoke_session *session = l->session;
    const yoke_graph *graph = session->train.graph;
    l->train = bind(l, arena, &session->train, &session->train_sampler);
    l->loss = yoke_executor_find(l->train, graph->loss);
    l->n_valid = yoke_executor_find(l->train, graph->n_valid);
    l->control = yoke_executor_find(l->train, graph->control);
    l->norms = yoke_executor_find(l->train, graph->norms);
    l->auxiliary_loss = find_kept(l->train, graph->auxiliary_loss);
    l->expert_load = find_kept(l->train, graph->expert_load);
    if (session->evaluation.set) {
        const yoke_graph *evaluation = session->evaluation.graph;
        l->evaluation = bind(l, arena, &session->evaluation, &session->eval_sampler);
        l->eval_loss = yoke_executor_find(l->evaluation, evaluation->loss);
        l->eval_n_valid = yoke_executor_find(l->evaluation, evaluation->n_valid);
    }
}

/* The first rank that holds the loss. */
static bool leads(const loop *l)
{
    const yoke_session *session = l->session;
    for (int r = 0; r < session->n_ranks; r++) {
        int buffer = yoke_program_find(yoke_program_of(session->train.set, r),
                                       session->train.graph->loss, YOKE_ONCE_A_STEP);
        if (buffer != YOKE_NO_BUFFER) {
            return r == l->rank;
        }
    }
    return false;
}

/* --- A step ----------------------------------------------------------------------------------- */

static int first_bad_parameter(const loop *l)
{
    const yoke_graph *graph = l->session->train.graph;
    for (int64_t i = 0, trained = 0; i < graph->n_parameters; i++) {
        if (graph->gradients[i] != YOKE_NO_VALUE && !isfinite(l->norms[trained++])) {
            return (int)i;
        }
    }
    return -1;
}

static void read_load(const loop *l, yoke_step_metrics *metrics)
{
    const yoke_graph *graph = l->session->train.graph;
    if (!l->expert_load) {
        return;
    }
    const yoke_shape *shape = &graph->values[graph->expert_load].shape; /* [layers, experts] */
    int64_t room = YOKE_MOST_EXPERT_LOADS / shape->extent[1];
    metrics->n_experts = (int)shape->extent[1];
    metrics->n_load_layers = (int)(shape->extent[0] < room ? shape->extent[0] : room);
    for (int i = 0; i < metrics->n_load_layers * metrics->n_experts; i++) {
        metrics->expert_load[i] = l->expert_load[i];
    }
}

static yoke_step_metrics read_metrics(const loop *l, int64_t step)
{
    bool applied = l->control[YOKE_CONTROL_APPLY] != 0;
    bool counts = l->n_valid[0] > 0;
    yoke_step_metrics metrics = {
        .step = step,
        .skipped = !applied,
        .loss = l->loss && counts ? (double)l->loss[0] : (double)NAN,
        .aux_loss = l->auxiliary_loss && counts ? (double)l->auxiliary_loss[0] : (double)NAN,
        .grad_norm = (double)l->control[YOKE_CONTROL_NORM],
        .lr = (double)l->control[YOKE_CONTROL_LR],
        .n_valid = (double)l->n_valid[0],
        .eval_loss = (double)NAN,
        .first_bad = applied ? -1 : first_bad_parameter(l),
    };
    read_load(l, &metrics);
    return metrics;
}

static bool skips_too_much(const loop *l)
{
    return l->skipped_in_row >= l->session->config.max_skipped;
}

static yoke_status skip_failure(const loop *l)
{
    if (l->last.n_valid <= 0) {
        return YOKE_FAIL(YOKE_CHECK,
                         "%lld steps in a row had no label that counts, the last was step %lld: "
                         "check ignore_token and the corpus%s",
                         (long long)l->skipped_in_row, (long long)l->last.step,
                         l->session->train_sampler.masking.rate > 0.0 ? ", and raise mask_rate"
                                                                      : "");
    }
    const char *name = l->last.first_bad >= 0
                           ? yoke_session_parameter_name(l->session, l->last.first_bad)
                           : "the norm";
    return YOKE_FAIL(
        YOKE_CHECK,
        "%lld steps in a row had gradients that are not finite, the last was step %lld; the first "
        "parameter is %s: lower lr, or raise warmup_steps",
        (long long)l->skipped_in_row, (long long)l->last.step, name);
}

/* Mean loss over the valid labels of eval_batches batches of the held-out part; the same batches
 * each time. */
static yoke_status evaluate(loop *l, double *mean)
{
    double sum = 0, n = 0;
    for (int64_t i = 0; i < l->session->config.eval_batches; i++) {
        YOKE_TRY(yoke_executor_step(l->evaluation, i));
        if (l->eval_loss) {
            sum += (double)l->eval_loss[0] * (double)l->eval_n_valid[0];
            n += (double)l->eval_n_valid[0];
        }
    }
    *mean = n > 0 ? sum / n : (double)NAN;
    return YOKE_OK;
}

static bool evaluation_due(const loop *l, int64_t step)
{
    const yoke_run_options *options = l->run->options;
    int64_t interval = l->session->config.eval_interval;
    bool last = step == options->first_step + options->n_steps - 1;
    return l->evaluation &&
           ((interval > 0 && (step + 1) % interval == 0) || (last && options->evaluate_last));
}

/* Puts the metrics into the ring; waits while it is full. */
static yoke_status publish(loop *l, const yoke_step_metrics *metrics)
{
    yoke_run_shared *shared = l->run->shared;
    uint32_t next = shared->published; /* this rank alone writes it */
    uint32_t consumed = yoke_run_counter_get(&shared->consumed);
    while (next - consumed >= YOKE_METRICS_RING) {
        YOKE_TRY(yoke_endpoint_sleep(l->endpoint, &shared->consumed, consumed, 1.0));
        consumed = yoke_run_counter_get(&shared->consumed);
    }
    shared->ring[next % YOKE_METRICS_RING] = *metrics;
    yoke_run_counter_set(&shared->published, next + 1);
    return YOKE_OK;
}

static yoke_status step_once(loop *l, int64_t step, bool lead)
{
    double start = yoke_clock_s();
    YOKE_TRY(yoke_executor_step(l->train, step));
    l->last = read_metrics(l, step);
    l->last.seconds = yoke_clock_s() - start;
    l->skipped_in_row = l->last.skipped ? l->skipped_in_row + 1 : 0;
    if (evaluation_due(l, step)) {
        l->last.evaluated = true;
        YOKE_TRY(evaluate(l, &l->last.eval_loss));
    }
    if (lead) {
        l->run->shared->seconds += l->last.seconds;
        YOKE_TRY(publish(l, &l->last));
    }
    return YOKE_OK;
}

static yoke_status run_steps(loop *l)
{
    const yoke_run_options *options = l->run->options;
    bool lead = leads(l);
    int64_t before = yoke_memory_requests();
    for (int64_t i = 0; i < options->n_steps && !skips_too_much(l); i++) {
        YOKE_TRY(step_once(l, options->first_step + i, lead));
    }
    yoke_run_rank *books = &l->run->shared->ranks[l->rank];
    books->allocations = yoke_memory_requests() - before;
    books->peak_bytes = yoke_usage_peak_bytes(l->session, l->rank);
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        books->exposed_s[axis] = yoke_executor_exposed_s(l->train, (yoke_axis)axis);
    }
    /* Every rank sees the same control numbers, so all end after the same step. The leading one
     * alone says why: a failure ends the whole job at once, and must not come before that step's
     * metrics. */
    return lead && skips_too_much(l) ? skip_failure(l) : YOKE_OK;
}

yoke_status yoke_run_rank_main(yoke_endpoint *endpoint, void *user)
{
    const yoke_run *run = user;
    loop l = {.run = run,
              .session = run->session,
              .endpoint = endpoint,
              .rank = yoke_endpoint_rank(endpoint)};
    yoke_placement_bind(run->session->placement, l.rank);
    yoke_kernel_threads_set(run->session->n_threads);
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    bind_all(&l, arena);
    if (!run->session->initialised) {
        yoke_session_initialise(run->session, l.rank);
    }
    yoke_status status = run_steps(&l);
    yoke_arena_destroy(arena);
    return status;
}
