/* From config and model to verified programs: what happens before anything is allocated. */
#include <string.h>
#include "base/memory.h"
#include "layout/infer.h"
#include "layout/travel.h"
#include "program/stash.h"
#include "run/budget.h"
#include "run/config_keys.h"
#include "run/session.h"

/* What the backward pass computes again: choice[block], or one level for all blocks. */
typedef struct levels {
    const yoke_recompute *choice;
    yoke_recompute all;
} levels;

static bool is_filled(const char *input)
{
    return strcmp(input, "tokens") == 0 || strcmp(input, "positions") == 0 ||
           strcmp(input, "token_types") == 0;
}

/* Refuses what a model outside the library may get wrong and the run relies on. */
static void check_model(const yoke_session *session, yoke_graph *graph)
{
    int64_t letter = yoke_letter_extent(graph, 'v');
    int64_t vocabulary = session->model.model->vocab_size(&session->model);
    if (graph->logits == YOKE_NO_VALUE) {
        yoke_graph_fail(graph, "the model returns no logits");
    }
    if (letter != vocabulary) {
        yoke_graph_fail(graph, "letter 'v' is %lld, but vocab_size says %lld; make them equal",
                        (long long)letter, (long long)vocabulary);
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        const yoke_value_info *info = &graph->values[v];
        if (info->kind == YOKE_VALUE_INPUT && !is_filled(info->name)) {
            yoke_graph_fail(graph,
                            "nothing fills the input %s; a model has tokens, positions and "
                            "token_types",
                            info->name);
        }
    }
}

static void recompute(yoke_graph *graph, levels wanted)
{
    yoke_recompute *choice = YOKE_ARENA_NEW(graph->arena, yoke_recompute, graph->n_blocks);
    for (int64_t b = 0; b < graph->n_blocks; b++) {
        choice[b] = wanted.choice ? wanted.choice[b] : wanted.all;
    }
    yoke_graph_recompute(graph, choice);
}

static bool is_bf16(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0;
}

/* Bytes that a rank's logits may take. */
static int64_t logits_budget(const yoke_session *session)
{
    int64_t bytes = 0;
    yoke_status checked =
        yoke_number_parse_bytes("logits_budget", session->config.logits_budget, &bytes);
    YOKE_ASSERT(!checked);
    return bytes;
}

/* Joins small gradients, if that is wanted. */
static void join_gradients(const yoke_session *session, yoke_graph *graph)
{
    int64_t bytes = 0;
    yoke_status checked =
        yoke_number_parse_bytes_or_none("bucket_size", session->config.bucket_size, &bytes);
    YOKE_ASSERT(!checked);
    if (bytes > 0) {
        yoke_layout_join_gradients(graph, bytes);
    }
}

/* Where even whole logits are within the budget, the loss and its gradient stay in their passes. */
static bool has_large_logits(const yoke_session *session, const yoke_graph *graph)
{
    const yoke_value_info *logits = &graph->values[graph->logits];
    return yoke_shape_elements(&logits->shape) * yoke_dtype_bytes(logits->dtype) >
           logits_budget(session);
}

static yoke_status build_graph(yoke_session *session, yoke_session_use use, levels wanted,
                               yoke_graph *graph)
{
    const yoke_config *config = &session->config;
    const yoke_model *model = session->model.model;
    yoke_letter(graph, 'b', config->batch_size / config->microbatches);
    yoke_letter(graph, 't', config->seq_len);
    yoke_build build = {
        .training = use == YOKE_USE_TRAIN,
        .tokens = yoke_input(graph, "tokens", "bt"),
        .positions = yoke_input(graph, "positions", "bt"),
    };
    graph->logits = model->logits(graph, &session->model, &build);
    check_model(session, graph);
    if (use == YOKE_USE_LOGITS) {
        yoke_graph_keep(graph, graph->logits);
    } else {
        yoke_cross_entropy(graph, graph->logits, yoke_input(graph, "labels", "bt"));
    }
    YOKE_TRY(yoke_graph_finish(graph));
    if (use == YOKE_USE_TRAIN) {
        yoke_optimizer optimizer = yoke_config_optimizer(config);
        YOKE_TRY(yoke_graph_differentiate(graph));
        YOKE_TRY(yoke_graph_optimize(graph, &optimizer));
        if (has_large_logits(session, graph)) {
            yoke_graph_end_with_loss(graph);
        }
        recompute(graph, wanted);
    }
    if (is_bf16(config->dtype)) {
        yoke_graph_narrow(graph);
    }
    return yoke_graph_verify(graph);
}

/* Every layer exactly once: the graph holds as many parameters as the config's formula says. */
static yoke_status check_parameters(const yoke_session *session, const yoke_graph *graph)
{
    if (!session->model.model->n_parameters) {
        return YOKE_OK;
    }
    int64_t found = 0, wanted = session->model.model->n_parameters(&session->model);
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        found += yoke_shape_elements(&graph->values[graph->parameters[i]].shape);
    }
    if (found != wanted) {
        return YOKE_FAIL(YOKE_CHECK,
                         "model %s: the graph has %lld parameters, its config makes %lld",
                         session->model.model->name, (long long)found, (long long)wanted);
    }
    return YOKE_OK;
}

/* Evaluation and logits work on the parameters of training: all must have the same, in the same
 * blocks. */
static yoke_status check_alike(const yoke_session *session, const yoke_graph *graph)
{
    const yoke_graph *train = session->train.graph;
    bool alike = graph->n_blocks == train->n_blocks && graph->n_parameters == train->n_parameters;
    for (int64_t i = 0; alike && i < graph->n_parameters; i++) {
        const yoke_value_info *a = &graph->values[graph->parameters[i]];
        const yoke_value_info *b = &train->values[train->parameters[i]];
        alike = strcmp(a->name, b->name) == 0 && strcmp(a->dims, b->dims) == 0;
    }
    return alike ? YOKE_OK
                 : YOKE_FAIL(YOKE_BAD_INPUT,
                             "model %s: without training it has other blocks or parameters (%lld "
                             "and %lld, in training %lld and %lld); only dropout may differ",
                             session->model.model->name, (long long)graph->n_blocks,
                             (long long)graph->n_parameters, (long long)train->n_blocks,
                             (long long)train->n_parameters);
}

/* What weights and gradients are stored in while they travel. */
static yoke_status choose_travel(const yoke_config *config, const yoke_policies *policies,
                                 yoke_graph *graph)
{
    if (is_bf16(config->dtype)) {
        yoke_travel_weights(graph);
    }
    if (is_bf16(config->reduce_dtype)) {
        yoke_travel_gradients(graph);
    }
    return yoke_layout_verify(graph, policies);
}

/* True if every micro-batch of the step runs on one stage, and is the only one. */
static bool has_one_place(const yoke_session *session)
{
    return session->config.microbatches == 1 && session->mesh.size[YOKE_AXIS_PP] == 1;
}

static yoke_status build_programs(yoke_session *session, yoke_session_use use, levels wanted,
                                  yoke_session_plan *plan)
{
    const yoke_schedule_def *schedule;
    YOKE_TRY(yoke_schedule_find(session->config.schedule, &schedule));
    YOKE_TRY(build_graph(session, use, wanted, plan->graph));
    YOKE_TRY(check_parameters(session, plan->graph));
    YOKE_TRY(use == YOKE_USE_TRAIN ? YOKE_OK : check_alike(session, plan->graph));
    yoke_config config = session->config;
    /* Who asks for logits gives tokens, and reads them, in their own order. */
    config.balance_context = config.balance_context && use != YOKE_USE_LOGITS;
    yoke_policies policies = yoke_policies_choose(&config);
    YOKE_TRY(yoke_layout_infer(plan->graph, &session->mesh, &policies));
    if (use != YOKE_USE_LOGITS) {
        yoke_layout_cut_logits(plan->graph, logits_budget(session));
    }
    if (use == YOKE_USE_TRAIN && has_one_place(session)) {
        yoke_layout_share_sums(plan->graph);
    }
    if (use == YOKE_USE_TRAIN) {
        join_gradients(session, plan->graph);
    }
    YOKE_TRY(choose_travel(&config, &policies, plan->graph));
    if (config.fuse) {
        yoke_graph_fuse(plan->graph);
    }
    YOKE_TRY(yoke_graph_verify(plan->graph));
    yoke_program_request request = {
        .graph = plan->graph,
        .schedule = schedule,
        .schedule_file = session->config.schedule,
        .chunks_per_stage = (int)session->config.chunks_per_stage,
        .microbatches = (int)session->config.microbatches,
        .forward_only = use != YOKE_USE_TRAIN,
        .beside = use == YOKE_USE_TRAIN ? NULL : session->train.set,
        .scratch = yoke_executor_scratch_bytes,
        .scratch_user = &session->n_threads,
    };
    return yoke_program_set_create(&request, &plan->set);
}

static yoke_status build_plan(yoke_session *session, yoke_session_use use, levels wanted,
                              yoke_session_plan *plan)
{
    yoke_session_plan_destroy(plan);
    YOKE_TRY(yoke_graph_create(&plan->graph));
    return build_programs(session, use, wanted, plan);
}

/* --- Recomputation within a budget ------------------------------------------------------------ */

/* Plans of one level for all blocks, and what is chosen between them. */
typedef struct budgeting {
    yoke_session *session;
    yoke_session_plan uniform[YOKE_N_RECOMPUTES];
    const yoke_program_set *sets[YOKE_N_RECOMPUTES];
    int64_t budget;
    int64_t *kept; /* [stages] bytes that the choice comes to, -1 at the highest levels */
    yoke_recompute *choice;
} budgeting;

/* The first stage whose stash is planned beyond the budget, or -1. */
static int find_excess(const yoke_program_set *set, int64_t budget)
{
    for (int stage = 0; stage < set->schedule.n_stages; stage++) {
        if (yoke_stash_planned(set, stage) > budget) {
            return stage;
        }
    }
    return -1;
}

static yoke_status choose_levels(budgeting *b, int stage, int64_t limit)
{
    yoke_budget_request request = {.sets = b->sets, .stage = stage, .limit = limit};
    return yoke_budget_choose(&request, b->choice, &b->kept[stage]);
}

/* Chooses for every stage; then, since gaps may be left between what is kept, again with less where
 * the plan is beyond the budget. */
static yoke_status plan_choice(budgeting *b, yoke_session_plan *plan)
{
    int n_stages = b->sets[0]->schedule.n_stages;
    for (int stage = 0; stage < n_stages; stage++) {
        YOKE_TRY(choose_levels(b, stage, b->budget));
    }
    for (;;) {
        YOKE_TRY(build_plan(b->session, YOKE_USE_TRAIN, (levels){.choice = b->choice}, plan));
        int stage = find_excess(plan->set, b->budget);
        if (stage < 0) {
            return YOKE_OK;
        }
        if (b->kept[stage] < 0) {
            return yoke_budget_refuse(plan->set, stage, b->budget,
                                      yoke_stash_planned(plan->set, stage));
        }
        YOKE_TRY(choose_levels(b, stage, b->kept[stage] - 1));
    }
}

static yoke_status plan_uniform(budgeting *b, yoke_session_plan *plan)
{
    for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
        YOKE_TRY(build_plan(b->session, YOKE_USE_TRAIN, (levels){.all = (yoke_recompute)level},
                            &b->uniform[level]));
        b->sets[level] = b->uniform[level].set;
    }
    const yoke_graph *graph = b->uniform[0].graph;
    b->choice = YOKE_ARENA_NEW(graph->arena, yoke_recompute, graph->n_blocks);
    b->kept = YOKE_ARENA_NEW(graph->arena, int64_t, b->sets[0]->schedule.n_stages);
    return plan_choice(b, plan);
}

static yoke_status plan_training(yoke_session *session, yoke_session_plan *plan)
{
    yoke_recompute_wish wish;
    YOKE_TRY(yoke_recompute_parse(session->config.recompute, &wish));
    if (wish.budget_bytes == 0) {
        return build_plan(session, YOKE_USE_TRAIN, (levels){.all = wish.level}, plan);
    }
    budgeting b = {.session = session, .budget = wish.budget_bytes};
    yoke_status status = plan_uniform(&b, plan);
    for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
        yoke_session_plan_destroy(&b.uniform[level]);
    }
    return status;
}

/* --- What the transport can do ---------------------------------------------------------------- */

/* The options that make a plan deep, with a way out for each. */
static void ways_out(const yoke_session *session, const yoke_schedule *schedule, char *text,
                     size_t text_bytes)
{
    const yoke_config *config = &session->config;
    text[0] = 0;
    if (schedule->n_chunks > schedule->n_stages) {
        (void)snprintf(text, text_bytes, "fewer chunks (chunks_per_stage is %lld), ",
                       (long long)(schedule->n_chunks / schedule->n_stages));
    }
    size_t used = strlen(text);
    (void)snprintf(text + used, text_bytes - used, "fewer microbatches (%lld)",
                   (long long)config->microbatches);
    used = strlen(text);
    if (schedule->n_stages > 1 && strcmp(config->schedule, "1f1b") != 0) {
        (void)snprintf(text + used, text_bytes - used, ", or schedule=1f1b");
    }
}

/* More ranks than run here are only planned. */
static yoke_status check_depth(const yoke_session *session, const yoke_program_set *set)
{
    if (set->depth <= YOKE_MAX_DEPTH || session->n_ranks > YOKE_MAX_WORLD_RANKS) {
        return YOKE_OK;
    }
    char text[128];
    ways_out(session, &set->schedule, text, sizeof text);
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule %.80s on mesh %s: a rank has %d messages under way to one other at "
                     "a time, and at most %d can be: use %s",
                     session->config.schedule, session->config.mesh, set->depth, YOKE_MAX_DEPTH,
                     text);
}

/* --- Plans ------------------------------------------------------------------------------------ */

yoke_status yoke_session_plan_create(yoke_session *session, yoke_session_use use,
                                     yoke_session_plan *plan)
{
    *plan = (yoke_session_plan){0};
    yoke_status status = use == YOKE_USE_TRAIN ? plan_training(session, plan)
                                               : build_plan(session, use, (levels){0}, plan);
    if (!status) {
        status = yoke_program_verify(plan->set);
    }
    if (!status) {
        status = check_depth(session, plan->set);
    }
    if (status) {
        yoke_session_plan_destroy(plan);
    }
    return status;
}

void yoke_session_plan_destroy(yoke_session_plan *plan)
{
    yoke_program_set_destroy(plan->set);
    yoke_graph_destroy(plan->graph);
    *plan = (yoke_session_plan){0};
}
