/*
 * Timeline of a schedule: stages advance in turn for as long as any of them can.
 *
 * The order in which stages are visited does not matter, since the start of an action depends only
 * on ends that are already fixed.
 */
#include "pipe/timeline.h"

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

yoke_action_costs yoke_action_costs_of(double f_cost, double b_cost)
{
    return (yoke_action_costs){.of = {[YOKE_ACTION_F] = f_cost,
                                      [YOKE_ACTION_B] = b_cost,
                                      [YOKE_ACTION_I] = b_cost / 2,
                                      [YOKE_ACTION_W] = b_cost / 2}};
}

int yoke_action_needs(const yoke_schedule *schedule, yoke_action action,
                      yoke_action needs[YOKE_MAX_NEEDS])
{
    int n = 0;
    int chunk = action.chunk;
    int microbatch = action.microbatch;
    switch (action.kind) {
    case YOKE_ACTION_F:
        if (chunk > 0) {
            needs[n++] = (yoke_action){YOKE_ACTION_F, chunk - 1, microbatch};
        }
        break;
    case YOKE_ACTION_B:
    case YOKE_ACTION_I:
        needs[n++] = (yoke_action){YOKE_ACTION_F, chunk, microbatch};
        if (chunk + 1 < schedule->n_chunks) {
            needs[n++] = (yoke_action){YOKE_ACTION_B, chunk + 1, microbatch};
        }
        break;
    case YOKE_ACTION_W:
        needs[n++] = (yoke_action){YOKE_ACTION_B, chunk, microbatch};
        break;
    case YOKE_N_ACTION_KINDS:
        YOKE_ASSERT(false && "a kind of action");
    }
    return n;
}

/* The run so far: when F, and B or I, of each chunk and micro-batch ended, NOT_YET before that. */
typedef struct run {
    const yoke_schedule *schedule;
    yoke_action_costs costs;
    yoke_timeline *timeline;
    double *forward_end, *backward_end; /* [n_chunks][n_microbatches] */
    double *stage_end;                  /* [n_stages] */
} run;

static const double NOT_YET = -1.0;

static double *end_of(const run *r, yoke_action action)
{
    double *ends = action.kind == YOKE_ACTION_F ? r->forward_end : r->backward_end;
    return &ends[(int64_t)action.chunk * r->schedule->n_microbatches + action.microbatch];
}

/* When the next action of `stage` may start, or NOT_YET. */
static double earliest(const run *r, int stage, yoke_action action)
{
    yoke_action needs[YOKE_MAX_NEEDS];
    int n = yoke_action_needs(r->schedule, action, needs);
    double start = r->stage_end[stage];
    for (int i = 0; i < n; i++) {
        double end = *end_of(r, needs[i]);
        if (end < 0) {
            return NOT_YET;
        }
        start = end > start ? end : start;
    }
    return start;
}

/* Runs `stage` as far as it gets; false if that is nowhere. */
static bool advance(run *r, int stage)
{
    yoke_timeline *timeline = r->timeline;
    const yoke_stage_actions *actions = &r->schedule->stage[stage];
    int n_before = timeline->n_done[stage];
    while (timeline->n_done[stage] < actions->n) {
        yoke_action action = actions->action[timeline->n_done[stage]];
        double start = earliest(r, stage, action);
        if (start < 0) {
            break;
        }
        double cost = r->costs.of[action.kind];
        double end = start + cost;
        timeline->start[stage][timeline->n_done[stage]++] = start;
        timeline->busy += cost;
        timeline->span = end > timeline->span ? end : timeline->span;
        r->stage_end[stage] = end;
        if (action.kind != YOKE_ACTION_W) {
            *end_of(r, action) = end;
        }
    }
    return timeline->n_done[stage] > n_before;
}

static void run_all(run *r)
{
    const yoke_schedule *schedule = r->schedule;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int s = 0; s < schedule->n_stages; s++) {
            moved = advance(r, s) || moved;
        }
    }
    r->timeline->is_complete = true;
    for (int s = 0; s < schedule->n_stages; s++) {
        if (r->timeline->n_done[s] < schedule->stage[s].n) {
            r->timeline->is_complete = false;
        }
    }
}

yoke_status yoke_timeline_create(const yoke_schedule *schedule, yoke_action_costs costs,
                                 yoke_timeline *timeline)
{
    size_t n_stages = (size_t)schedule->n_stages;
    size_t n_pairs = (size_t)schedule->n_chunks * (size_t)schedule->n_microbatches;
    size_t n_actions = 0;
    for (size_t s = 0; s < n_stages; s++) {
        n_actions += (size_t)schedule->stage[s].n;
    }
    /* One block: doubles, then pointers, then ints, so that each is aligned. */
    size_t n_doubles = n_actions + 2 * n_pairs + n_stages;
    size_t bytes = n_doubles * sizeof(double) + n_stages * (sizeof(double *) + sizeof(int));
    double *block = yoke_block_alloc(bytes);
    if (!block) {
        return YOKE_FAIL(YOKE_NO_MEMORY,
                         "schedule: %zu bytes for a run of %zu actions; use fewer micro-batches",
                         bytes, n_actions);
    }
    *timeline = (yoke_timeline){.block = block, .start = (double **)(void *)(block + n_doubles)};
    timeline->n_done = (int *)(void *)(timeline->start + n_stages);
    double *at = block;
    for (size_t s = 0; s < n_stages; s++) {
        timeline->start[s] = at;
        at += schedule->stage[s].n;
    }
    run r = {.schedule = schedule,
             .costs = costs,
             .timeline = timeline,
             .forward_end = at,
             .backward_end = at + n_pairs,
             .stage_end = at + 2 * n_pairs};
    for (size_t i = 0; i < 2 * n_pairs; i++) {
        at[i] = NOT_YET;
    }
    run_all(&r);
    return YOKE_OK;
}

void yoke_timeline_destroy(yoke_timeline *timeline)
{
    yoke_block_free(timeline->block);
    *timeline = (yoke_timeline){0};
}
