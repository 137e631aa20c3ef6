/*
 * yoke train: plan, check, and only then write and run.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "checkpoint/export.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/run_folder.h"
#include "cli/setup.h"
#include "cli/train_log.h"
#include "run/session.h"

typedef struct train_state {
    yoke_setup setup;
    yoke_train_log log;
    yoke_run_folder folder;
    yoke_run_result result;
    double flops_per_s; /* of the machine, in matrix products */
    int64_t skipped_in_row;
    yoke_status failure; /* found by a callback, which cannot return it; the run is being stopped */
} train_state;

/* Keeps the first failure. */
static void fail_later(train_state *training, yoke_status status)
{
    if (training->failure) {
        yoke_status_free(status);
    } else {
        training->failure = status;
    }
}

/* A list of shares for each layer. */
static json_t *list_load(const yoke_step_metrics *metrics)
{
    json_t *layers = json_array();
    for (int layer = 0; layer < metrics->n_load_layers; layer++) {
        const float *load = metrics->expert_load + (ptrdiff_t)layer * metrics->n_experts;
        json_t *shares = json_array();
        for (int i = 0; i < metrics->n_experts; i++) {
            (void)json_array_append_new(shares, yoke_json_real((double)load[i]));
        }
        (void)json_array_append_new(layers, shares);
    }
    return layers;
}

static yoke_status write_metrics(train_state *training, const yoke_step_metrics *metrics)
{
    int64_t tokens = training->setup.run.config.batch_size * training->setup.run.config.seq_len;
    json_t *line = json_object();
    (void)json_object_set_new(line, "step", json_integer(metrics->step + 1));
    (void)json_object_set_new(line, "loss", yoke_json_real(metrics->loss));
    (void)json_object_set_new(line, "lr", yoke_json_real(metrics->lr));
    (void)json_object_set_new(line, "grad_norm", yoke_json_real(metrics->grad_norm));
    (void)json_object_set_new(line, "tokens_per_s",
                              yoke_json_real((double)tokens / metrics->seconds));
    (void)json_object_set_new(line, "seconds", yoke_json_real(metrics->seconds));
    (void)json_object_set_new(line, "n_valid", json_integer((json_int_t)metrics->n_valid));
    (void)json_object_set_new(line, "skipped", json_boolean(metrics->skipped));
    if (isfinite(metrics->aux_loss)) {
        (void)json_object_set_new(line, "aux_loss", yoke_json_real(metrics->aux_loss));
    }
    if (metrics->n_load_layers > 0) {
        (void)json_object_set_new(line, "expert_load", list_load(metrics));
    }
    YOKE_TRY(yoke_run_folder_metrics(&training->folder, line));
    if (metrics->evaluated) {
        json_t *evaluation = json_object();
        (void)json_object_set_new(evaluation, "step", json_integer(metrics->step + 1));
        (void)json_object_set_new(evaluation, "eval_loss", yoke_json_real(metrics->eval_loss));
        YOKE_TRY(yoke_run_folder_metrics(&training->folder, evaluation));
    }
    return YOKE_OK;
}

/* A loss that is not finite never passes: either the step was skipped, and not too many were, or the run ends. */
static yoke_status check_step(train_state *training, const yoke_step_metrics *metrics)
{
    int64_t limit = training->setup.run.config.max_skipped;
    training->skipped_in_row = metrics->skipped ? training->skipped_in_row + 1 : 0;
    if (!metrics->skipped && !isfinite(metrics->loss)) {
        return YOKE_FAIL(YOKE_CHECK,
                         "the loss of step %" PRId64 " is %g; try a smaller lr or a smaller "
                         "grad_clip",
                         metrics->step + 1, metrics->loss);
    }
    if (training->skipped_in_row >= limit) {
        char reason[192];
        yoke_train_skip_reason(training->setup.session, metrics, reason, sizeof reason);
        return YOKE_FAIL(YOKE_CHECK,
                         "%" PRId64
                         " steps in a row were skipped (max_skipped), the last, step %" PRId64
                         ", because %s; try a smaller lr, or look at the data",
                         training->skipped_in_row, metrics->step + 1, reason);
    }
    return YOKE_OK;
}

static void on_step(void *user, const yoke_step_metrics *metrics)
{
    train_state *training = user;
    yoke_train_log_step(&training->log, metrics);
    fail_later(training, write_metrics(training, metrics));
    fail_later(training, check_step(training, metrics));
}

static bool interrupted(void *user)
{
    train_state *training = user;
    if (yoke_interrupt_pending()) {
        yoke_train_log_stopping(&training->log);
        return true;
    }
    return training->failure != NULL;
}

static json_t *list_bytes(const yoke_session *session, bool planned)
{
    json_t *list = json_array();
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        yoke_rank_bytes bytes = yoke_session_bytes(session, rank);
        (void)json_array_append_new(list, json_integer(planned ? bytes.planned : bytes.peak));
    }
    return list;
}

static double tokens_per_s(const train_state *training)
{
    const yoke_config *config = &training->setup.run.config;
    const yoke_run_result *result = &training->result;
    return (double)(config->batch_size * config->seq_len * result->steps) / result->seconds;
}

static double roof_share(const train_state *training)
{
    const yoke_run_result *result = &training->result;
    double flops = yoke_session_step_flops(training->setup.session) * (double)result->steps;
    return flops / result->seconds / training->flops_per_s;
}

static json_t *exposed_seconds(const yoke_run_result *run)
{
    json_t *axes = json_object();
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        (void)json_object_set_new(axes, yoke_axis_name((yoke_axis)axis),
                                  yoke_json_real(run->exposed_s[axis]));
    }
    return axes;
}

/* In which type products are multiplied, and the rates that decided it: null where none were taken. */
static json_t *products(const yoke_session *session)
{
    const yoke_multiply *m = &session->multiply;
    bool measured = m->f32_flops_per_s > 0.0;
    json_t *found = json_object();
    (void)json_object_set_new(found, "type", json_string(m->in_bf16 ? "bf16" : "f32"));
    (void)json_object_set_new(found, "f32_gflops",
                              measured ? yoke_json_real(m->f32_flops_per_s / 1e9) : json_null());
    (void)json_object_set_new(found, "bf16_gflops",
                              measured ? yoke_json_real(m->bf16_flops_per_s / 1e9) : json_null());
    return found;
}

static void report(const train_state *training, json_t *result)
{
    const yoke_session *session = training->setup.session;
    const yoke_run_result *run = &training->result;
    (void)json_object_set_new(result, "steps", json_integer(run->steps));
    (void)json_object_set_new(result, "loss", yoke_json_real(run->loss));
    (void)json_object_set_new(result, "eval_loss", yoke_json_real(run->eval_loss));
    (void)json_object_set_new(result, "skipped", json_integer(run->skipped));
    (void)json_object_set_new(result, "seconds", yoke_json_real(run->seconds));
    (void)json_object_set_new(result, "exposed_s", exposed_seconds(run));
    (void)json_object_set_new(result, "tokens_per_s", yoke_json_real(tokens_per_s(training)));
    (void)json_object_set_new(result, "roof_share", yoke_json_real(roof_share(training)));
    (void)json_object_set_new(result, "parameters",
                              json_integer(yoke_session_parameter_count(session)));
    (void)json_object_set_new(result, "peak_bytes", list_bytes(session, false));
    (void)json_object_set_new(result, "planned_bytes", list_bytes(session, true));
    (void)json_object_set_new(result, "step_allocations", json_integer(run->step_allocations));
    (void)json_object_set_new(result, "matmul", products(session));
    (void)json_object_set_new(result, "run_dir", yoke_json_text(training->folder.path));
}

/* Shares of the time, of the axes of the mesh. */
static void print_exposed(const train_state *training)
{
    const yoke_run_result *run = &training->result;
    const yoke_mesh *mesh = &yoke_session_programs(training->setup.session)->mesh;
    const char *before = "transfers and waiting for other ranks, while no kernel ran: ";
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (mesh->size[axis] > 1) {
            (void)printf("%s%.1f %% along %s", before, 100.0 * run->exposed_s[axis] / run->seconds,
                         yoke_axis_name((yoke_axis)axis));
            before = ", ";
        }
    }
    if (*before == ',') {
        (void)putchar('\n');
    }
}

static void print_end(const train_state *training)
{
    char seconds[32];
    char tokens[32];
    const yoke_run_result *run = &training->result;
    yoke_format_duration(run->seconds, seconds, sizeof seconds);
    yoke_format_count(llround(tokens_per_s(training)), tokens, sizeof tokens);
    (void)printf("\n%" PRId64 " step%s in %s, %s tokens/s, %.0f %% of the machine's matmul rate\n",
                 run->steps, run->steps == 1 ? "" : "s", seconds, tokens,
                 100.0 * roof_share(training));
    print_exposed(training);
    if (run->skipped > 0) {
        (void)printf("%" PRId64 " of them were skipped\n", run->skipped);
    }
    if (isfinite(run->loss)) {
        (void)printf("loss %.4f", run->loss);
    } else {
        (void)printf("loss none, as the last step was skipped");
    }
    if (isfinite(run->eval_loss)) {
        (void)printf(", on held-out text %.4f", run->eval_loss);
    }
    (void)printf("\nrun folder %s\n", training->folder.path);
}

/* The steps, and what stopped them if they did not all run. */
static yoke_status run_steps(train_state *training)
{
    const yoke_config *config = &training->setup.run.config;
    yoke_run_options options = {
        .n_steps = config->steps,
        .evaluate_last = config->eval_fraction > 0.0,
        .on_step = on_step,
        .interrupted = interrupted,
        .user = training,
    };
    training->result = (yoke_run_result){.loss = (double)NAN, .eval_loss = (double)NAN};
    yoke_status status = yoke_session_run(training->setup.session, &options, &training->result);
    yoke_train_log_end(&training->log);
    if (training->failure) {
        yoke_status_free(status);
        status = training->failure;
        training->failure = YOKE_OK;
    }
    if (yoke_status_code(status) == YOKE_INTERRUPTED) {
        status = yoke_status_prefix(status,
                                    "interrupted after %" PRId64 " of %" PRId64
                                    " steps; the metrics are in %s, the weights are lost",
                                    training->result.steps, config->steps, training->folder.path);
    }
    return status;
}

static yoke_status run_in_folder(train_state *training, yoke_arena *arena, json_t *result)
{
    yoke_status status = run_steps(training);
    yoke_code code = yoke_status_code(status);
    report(training, result);
    if (!status) {
        status = yoke_export_model(training->setup.session, &training->setup.run.model,
                                   training->folder.path);
        code = yoke_status_code(status);
    }
    json_t *summary = json_copy(result);
    const char *end = code == YOKE_INTERRUPTED ? "interrupted" : status ? "failed" : "finished";
    (void)json_object_set_new(summary, "ended", json_string(end));
    if (status) {
        (void)json_object_set_new(summary, "error", yoke_json_text(yoke_status_message(status)));
    }
    yoke_status written = yoke_run_folder_summary(&training->folder, summary, arena);
    json_decref(summary);
    if (status) {
        yoke_status_free(written);
        return status;
    }
    if (!written) {
        print_end(training);
    }
    return written;
}

static yoke_status prepare(train_state *training, const yoke_invocation *invocation)
{
    yoke_setup *setup = &training->setup;
    YOKE_TRY(yoke_setup_open(setup, invocation, true));
    YOKE_TRY(yoke_run_folder_check(setup->run.config.run_dir));
    YOKE_TRY(yoke_setup_plan(setup));
    /* Whether the plan fits into the machine is known before anything is written. */
    YOKE_TRY(yoke_session_allocate(setup->session));
    if (*setup->run.config.weights) {
        YOKE_TRY(yoke_import_weights(setup->session, &setup->run.model, setup->run.config.weights));
    }
    return yoke_session_matmul_rate(setup->session, &training->flops_per_s);
}

static yoke_status train(train_state *training, const yoke_invocation *invocation, json_t *result)
{
    YOKE_TRY(prepare(training, invocation));
    yoke_interrupt_catch();
    YOKE_TRY(yoke_run_folder_create(&training->folder, &training->setup.run, invocation->arena));
    yoke_train_log_start(&training->log, &training->setup, training->flops_per_s);
    yoke_status status = run_in_folder(training, invocation->arena, result);
    yoke_run_folder_close(&training->folder);
    return status;
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    train_state training = {0};
    yoke_status status = train(&training, invocation, result);
    yoke_setup_close(&training.setup);
    return status;
}

const yoke_command yoke_command_train = {
    .name = "train",
    .summary = "train a model on a mesh of ranks",
    .details =
        "Plans and verifies the run, then trains. The run folder holds config.yaml (which repeats "
        "the run), metrics.jsonl, "
        "summary.json, and the weights as model.safetensors with config.json. Nothing is written "
        "before everything has "
        "been checked. Ctrl-C stops the run and keeps its metrics; a second one ends at once.",
    .usage = "[RUN.yaml] [--KEY VALUE ...]",
    .takes_run = true,
    .run = run,
};
