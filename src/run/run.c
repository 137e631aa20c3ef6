/* Running a session: the world of its ranks, the launch, and what the launcher reads meanwhile. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "run/session.h"

/* --- Counters --------------------------------------------------------------------------------- */

uint32_t yoke_run_counter_get(const uint32_t *counter)
{
    return atomic_load_explicit((const _Atomic uint32_t *)counter, memory_order_acquire);
}

void yoke_run_counter_set(uint32_t *counter, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)counter, value, memory_order_release);
}

/* --- World ------------------------------------------------------------------------------------ */

static const yoke_session_plan *const *plans_of(const yoke_session *session,
                                                const yoke_session_plan *plans[4])
{
    plans[0] = &session->train;
    plans[1] = &session->evaluation;
    plans[2] = &session->logits;
    plans[3] = NULL;
    return plans;
}

static int count_groups(const yoke_program_set *set)
{
    int n = 0;
    for (int64_t g = 0; set && g < set->n_groupings; g++) {
        n += yoke_grouping_n_groups(set, &set->groupings[g]);
    }
    return n;
}

/* Groups and instructions of the plans before this one. */
static void offsets_of(const yoke_session *session, const yoke_session_plan *plan, int *groups,
                       int64_t *marks)
{
    const yoke_session_plan *plans[4];
    *groups = 0;
    *marks = 0;
    for (const yoke_session_plan *const *p = plans_of(session, plans); *p && *p != plan; p++) {
        int64_t most = 0;
        for (int c = 0; (*p)->set && c < (*p)->set->n_classes; c++) {
            int64_t n = (*p)->set->classes[c].n_instructions;
            most = n > most ? n : most;
        }
        *groups += count_groups((*p)->set);
        *marks += most;
    }
}

/* The lists of the groups of a set, in the order in which executors number them. */
static void list_groups(yoke_arena *arena, const yoke_program_set *set, int *sizes,
                        const int **ranks)
{
    for (int64_t g = 0; g < set->n_groupings; g++) {
        const yoke_grouping *grouping = &set->groupings[g];
        int n_groups = yoke_grouping_n_groups(set, grouping);
        int size = yoke_grouping_size(set, grouping);
        for (int i = 0; i < n_groups; i++) {
            int *members = YOKE_ARENA_NEW(arena, int, size);
            yoke_grouping_members(set, grouping, i, members);
            *sizes++ = size;
            *ranks++ = members;
        }
    }
}

static yoke_status create_world(const yoke_session *session, size_t user_bytes, yoke_arena *arena,
                                yoke_world **world)
{
    const yoke_session_plan *plans[4];
    int n_groups = 0, depth = 1;
    for (const yoke_session_plan *const *p = plans_of(session, plans); *p; p++) {
        n_groups += count_groups((*p)->set);
        depth = (*p)->set && (*p)->set->depth > depth ? (*p)->set->depth : depth;
    }
    int *sizes = YOKE_ARENA_NEW(arena, int, n_groups);
    const int **ranks = YOKE_ARENA_NEW(arena, const int *, n_groups);
    int n = 0;
    for (const yoke_session_plan *const *p = plans_of(session, plans); *p; p++) {
        if ((*p)->set) {
            list_groups(arena, (*p)->set, sizes + n, ranks + n);
        }
        n += count_groups((*p)->set);
    }
    yoke_world_options options = {
        .n_ranks = session->n_ranks,
        .n_groups = n_groups,
        .group_size = sizes,
        .group_ranks = ranks,
        .depth = depth,
        .timeout_s = session->config.timeout_s,
        .user_bytes = user_bytes,
    };
    return yoke_world_create(&options, world);
}

yoke_status yoke_session_world_create(const yoke_session *session, size_t user_bytes,
                                      yoke_world **world)
{
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    yoke_status status = create_world(session, user_bytes, arena, world);
    yoke_arena_destroy(arena);
    return status;
}

/* An instruction without its number, which the launcher writes itself. */
static const char *name_instruction(const yoke_program_set *set, int rank, int64_t index,
                                    char *buffer, int buffer_bytes)
{
    char text[256];
    (void)yoke_instruction_print(set, rank, index, text, (int)sizeof text);
    const char *space = strchr(text, ' ');
    snprintf(buffer, (size_t)buffer_bytes, "%s", space ? space + 1 : text);
    return buffer;
}

/* The name of a marked instruction. */
static const char *describe(void *user, int rank, int64_t mark, char *buffer, int buffer_bytes)
{
    const yoke_run *run = user;
    const yoke_session *session = run->session;
    const yoke_session_plan *plans[4];
    for (const yoke_session_plan *const *p = plans_of(session, plans); *p; p++) {
        int groups;
        int64_t first;
        offsets_of(session, *p, &groups, &first);
        if ((*p)->set && mark >= first &&
            mark - first < yoke_program_of((*p)->set, rank)->n_instructions) {
            return name_instruction((*p)->set, rank, mark - first, buffer, buffer_bytes);
        }
    }
    snprintf(buffer, (size_t)buffer_bytes, "set-up");
    return buffer;
}

yoke_executor_request yoke_session_executor_request(const yoke_session *session,
                                                    const yoke_session_plan *plan,
                                                    yoke_endpoint *endpoint)
{
    yoke_executor_request request = {
        .set = plan->set,
        .rank = yoke_endpoint_rank(endpoint),
        .slab = session->slabs[yoke_endpoint_rank(endpoint)],
        .endpoint = endpoint,
        .kernels = session->kernels,
        .narrow_kernels = session->narrow_kernels,
        .seed = (uint64_t)session->config.seed,
    };
    offsets_of(session, plan, &request.first_group, &request.first_mark);
    return request;
}

/* --- Launching -------------------------------------------------------------------------------- */

static void take_metrics(void *user)
{
    const yoke_run *run = user;
    yoke_run_shared *shared = run->shared;
    uint32_t consumed = yoke_run_counter_get(&shared->consumed);
    while (consumed != yoke_run_counter_get(&shared->published)) {
        yoke_step_metrics metrics = shared->ring[consumed % YOKE_METRICS_RING];
        yoke_run_counter_set(&shared->consumed, ++consumed);
        yoke_world_wake(run->world, &shared->consumed);
        run->result->steps++;
        run->result->loss = metrics.loss;
        run->result->eval_loss = metrics.evaluated ? metrics.eval_loss : run->result->eval_loss;
        run->result->skipped += metrics.skipped;
        if (run->options->on_step) {
            run->options->on_step(run->options->user, &metrics);
        }
    }
}

static bool ask_interrupted(void *user)
{
    const yoke_run *run = user;
    return run->options->interrupted && run->options->interrupted(run->options->user);
}

static void collect(yoke_run *run)
{
    yoke_session *session = run->session;
    take_metrics(run);
    run->result->seconds = run->shared->seconds;
    for (int r = 0; r < session->n_ranks; r++) {
        const yoke_run_rank *rank = &run->shared->ranks[r];
        run->result->step_allocations += rank->allocations;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            run->result->exposed_s[axis] += rank->exposed_s[axis] / session->n_ranks;
        }
        session->bytes[r].peak =
            rank->peak_bytes > session->bytes[r].peak ? rank->peak_bytes : session->bytes[r].peak;
    }
}

static yoke_status launch(yoke_run *run)
{
    yoke_session *session = run->session;
    yoke_rank_report *reports = yoke_block_alloc(sizeof *reports * (size_t)session->n_ranks);
    if (!reports) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the reports of %d ranks", session->n_ranks);
    }
    yoke_launch how = {
        .threads = session->threads,
        .run = yoke_run_rank_main,
        .poll = take_metrics,
        .interrupted = ask_interrupted,
        .describe = describe,
        .user = run,
    };
    yoke_status status = yoke_world_launch(run->world, &how, reports);
    collect(run);
    yoke_block_free(reports);
    return status;
}

yoke_status yoke_session_run(yoke_session *session, const yoke_run_options *options,
                             yoke_run_result *result)
{
    if (!session->corpus) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "a session without a corpus cannot train: give it data");
    }
    *result = (yoke_run_result){.loss = (double)NAN, .eval_loss = (double)NAN};
    YOKE_TRY(yoke_session_allocate(session));
    yoke_run run = {.session = session, .options = options, .result = result};
    size_t shared_bytes =
        sizeof(yoke_run_shared) + sizeof(yoke_run_rank) * (size_t)session->n_ranks;
    YOKE_TRY(yoke_session_world_create(session, shared_bytes, &run.world));
    run.shared = yoke_world_user(run.world);
    yoke_status status = launch(&run);
    yoke_world_destroy(run.world);
    session->initialised = session->initialised || !status;
    return status;
}
