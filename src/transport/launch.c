/*
 * Launching: starts all ranks, looks after them until the last has ended, and says what happened.
 *
 * Relies on crew.h for what differs between processes and threads. The launcher does no work of the
 * ranks: it sleeps until one ends, or until it is time for the callbacks.
 */
#include "transport/crew.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "transport/rank.h"
#include "transport/wait.h"

/* The callbacks' rhythm, and how long ranks may take to end by themselves after an abort. */
static const double poll_s = 0.05;
static const double grace_s = 3.0;
/* Between a rank's report and its exit. */
static const double leaving_s = 0.001;
/* The launcher may have been stopped, with all ranks, for longer than it seems. */
static const double most_elapsed_s = 0.5;

static size_t round_up(size_t bytes)
{
    return (bytes + YOKE_CACHE_LINE - 1) / YOKE_CACHE_LINE * YOKE_CACHE_LINE;
}

static void fill_endpoint(yoke_crew *crew, int rank)
{
    yoke_world *world = crew->world;
    size_t n_lanes = (size_t)world->n_groups + 2 * (size_t)world->n_ranks;
    char *start = (char *)crew->endpoints + (size_t)rank * crew->endpoint_bytes;
    yoke_endpoint *endpoint = (yoke_endpoint *)(void *)start;
    start += round_up(sizeof *endpoint);
    *endpoint = (yoke_endpoint){.world = world,
                                .launch = crew->launch,
                                .self = &world->states[rank],
                                .rank = rank,
                                .spins = world->n_ranks <= world->n_cores,
                                .lanes = (yoke_lane *)(void *)start};
    start += n_lanes * sizeof(yoke_lane);
    endpoint->member = (int *)(void *)start;
    for (int g = 0; g < world->n_groups; g++) {
        endpoint->member[g] = -1;
        for (int m = 0; m < world->groups[g].n; m++) {
            if (world->groups[g].rank[m] == rank) {
                endpoint->member[g] = m;
            }
        }
    }
    crew->hands[rank] = (yoke_hand){.endpoint = endpoint, .waiter = -1, .last_waiter = -1};
}

static yoke_status crew_init(yoke_crew *crew, yoke_world *world, const yoke_launch *launch)
{
    size_t n_ranks = (size_t)world->n_ranks;
    size_t n_lanes = (size_t)world->n_groups + 2 * n_ranks;
    *crew = (yoke_crew){.world = world, .launch = launch};
    crew->endpoint_bytes =
        round_up(sizeof(yoke_endpoint)) +
        round_up(n_lanes * sizeof(yoke_lane) + (size_t)world->n_groups * sizeof(int));
    crew->hands = yoke_block_alloc(n_ranks * sizeof(yoke_hand));
    if (!crew->hands) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no %zu bytes to launch %d ranks",
                         n_ranks * sizeof(yoke_hand), world->n_ranks);
    }
    YOKE_TRY(yoke_mapping_create(&crew->endpoints, n_ranks * crew->endpoint_bytes, false));
    YOKE_TRY(yoke_world_map(world));
    for (int r = 0; r < world->n_ranks; r++) {
        fill_endpoint(crew, r);
    }
    return YOKE_OK;
}

static void crew_fini(yoke_crew *crew)
{
    yoke_world_unmap(crew->world);
    yoke_mapping_destroy(crew->endpoints, (size_t)crew->world->n_ranks * crew->endpoint_bytes);
    yoke_block_free(crew->hands);
}

static void force_all(yoke_crew *crew, const yoke_crew_kind *kind)
{
    for (int r = 0; r < crew->n_started; r++) {
        if (!crew->hands[r].gone) {
            kind->force(crew, r);
        }
    }
}

static void start_all(yoke_crew *crew, const yoke_crew_kind *kind)
{
    for (int r = 0; r < crew->world->n_ranks; r++) {
        yoke_status status = kind->start(crew, r);
        if (status) {
            yoke_cause cause = {.kind = YOKE_CAUSE_NOT_STARTED, .rank = -1};
            (void)snprintf(cause.text, sizeof cause.text, "%s", yoke_status_message(status));
            yoke_status_free(status);
            yoke_job_abort(crew->world, &cause);
            force_all(crew, kind);
            return;
        }
        crew->n_started++;
    }
}

static void interrupt(yoke_crew *crew)
{
    yoke_cause cause = {
        .kind = YOKE_CAUSE_INTERRUPTED, .rank = -1, .text = "the user asked to stop"};
    yoke_job_abort(crew->world, &cause);
}

static void ask_interrupted(yoke_crew *crew)
{
    const yoke_launch *launch = crew->launch;
    if (launch->interrupted && launch->interrupted(launch->user)) {
        interrupt(crew);
    }
}

/* Callback and watchdog, if it is time. */
static void look_after(yoke_crew *crew, double now_s)
{
    const yoke_launch *launch = crew->launch;
    double elapsed_s = now_s - crew->polled_s;
    if (elapsed_s < poll_s) {
        return;
    }
    crew->polled_s = now_s;
    if (launch->poll) {
        launch->poll(launch->user);
    }
    yoke_crew_watch(crew, elapsed_s < most_elapsed_s ? elapsed_s : most_elapsed_s);
}

/* Once the job is aborted: ranks that show no life are ended at once, others after a grace. */
static void press(yoke_crew *crew, const yoke_crew_kind *kind, double now_s)
{
    if (!yoke_job_is_aborted(crew->world)) {
        return;
    }
    if (crew->aborted_s <= 0) {
        crew->aborted_s = now_s;
    }
    bool patient = now_s - crew->aborted_s < grace_s;
    for (int r = 0; r < crew->n_started; r++) {
        yoke_hand *hand = &crew->hands[r];
        if (!hand->gone && (!patient || hand->end == YOKE_RANK_HUNG)) {
            kind->force(crew, r);
        }
    }
}

/* True if a rank has written its report and is not gone yet. */
static bool collect_all(yoke_crew *crew, const yoke_crew_kind *kind)
{
    bool leaving = false;
    for (int r = 0; r < crew->n_started; r++) {
        if (crew->hands[r].gone) {
            continue;
        }
        kind->collect(crew, r);
        /* Only asks whether to look again soon; nothing is read because of it. */
        leaving =
            leaving || (!crew->hands[r].gone &&
                        atomic_load_explicit(&crew->world->states[r].ended, memory_order_relaxed));
    }
    return leaving;
}

static void run_to_end(yoke_crew *crew, const yoke_crew_kind *kind)
{
    yoke_gate *n_ended = &crew->world->control->n_ended;
    crew->polled_s = yoke_clock_s();
    start_all(crew, kind);
    for (;;) {
        /* Read before collecting: a rank that ends after that wakes the launcher again. */
        uint32_t seen = atomic_load_explicit(&n_ended->word, memory_order_acquire);
        /* Before collecting: a signal to the whole job is the user's wish, not a lost rank. */
        ask_interrupted(crew);
        bool leaving = collect_all(crew, kind);
        if (crew->n_gone == crew->n_started) {
            break;
        }
        double now_s = yoke_clock_s();
        look_after(crew, now_s);
        press(crew, kind, now_s);
        (void)yoke_gate_sleep(n_ended, seen, leaving ? leaving_s : poll_s, NULL);
    }
    if (crew->launch->poll) {
        crew->launch->poll(crew->launch->user);
    }
}

yoke_status yoke_world_launch(yoke_world *world, const yoke_launch *launch,
                              yoke_rank_report *reports)
{
    YOKE_ASSERT(launch->run && !world->shared);
    yoke_crew crew;
    yoke_status status = crew_init(&crew, world, launch);
    if (!status) {
        run_to_end(&crew, launch->threads ? yoke_crew_of_threads() : yoke_crew_of_processes());
        yoke_crew_report(&crew, reports);
        status = yoke_crew_status(&crew, reports);
    } else {
        for (int r = 0; r < world->n_ranks; r++) {
            reports[r] = (yoke_rank_report){.end = YOKE_RANK_ABORTED,
                                            .instruction = -1,
                                            .waits_for = -1,
                                            .code = yoke_status_code(status)};
        }
    }
    crew_fini(&crew);
    return status;
}
