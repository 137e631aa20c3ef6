/*
 * Verifier of schedules: complete, in range, and free of circles.
 *
 * Relies on the abstract run of timeline.c. Schedules will also come from files that people wrote,
 * so every message names the stage, the action as the CSV writes it, and what to change.
 */
#include "yoke/schedule.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "pipe/timeline.h"

enum { CELL_BYTES = 40, CIRCLE_BYTES = 600, LONGEST_CIRCLE = 8 };

static const char *print_cell(yoke_action action, char *buffer)
{
    snprintf(buffer, CELL_BYTES, "%d%s%d", action.chunk, yoke_action_letter(action.kind),
             action.microbatch);
    return buffer;
}

static yoke_status check_sizes(const yoke_schedule *schedule)
{
    if (schedule->n_stages < 1 || schedule->n_microbatches < 1 ||
        schedule->n_chunks < schedule->n_stages) {
        return YOKE_FAIL(YOKE_CHECK,
                         "schedule %s: %d stages, %d chunks, %d micro-batches; it needs at least "
                         "1 stage, a chunk for each and 1 micro-batch",
                         schedule->name, schedule->n_stages, schedule->n_chunks,
                         schedule->n_microbatches);
    }
    for (int c = 0; c < schedule->n_chunks; c++) {
        int stage = schedule->stage_of_chunk[c];
        if (stage < 0 || stage >= schedule->n_stages) {
            return YOKE_FAIL(YOKE_CHECK,
                             "schedule %s: chunk %d is on stage %d; the stages are 0 to %d",
                             schedule->name, c, stage, schedule->n_stages - 1);
        }
    }
    return YOKE_OK;
}

static yoke_status check_place(const yoke_schedule *schedule, int stage, int index)
{
    yoke_action action = schedule->stage[stage].action[index];
    char cell[CELL_BYTES];
    if ((int)action.kind < 0 || action.kind >= YOKE_N_ACTION_KINDS) {
        return YOKE_FAIL(YOKE_CHECK, "schedule %s: stage %d, action %d has the unknown kind %d",
                         schedule->name, stage, index, (int)action.kind);
    }
    print_cell(action, cell);
    if (action.chunk < 0 || action.chunk >= schedule->n_chunks || action.microbatch < 0 ||
        action.microbatch >= schedule->n_microbatches) {
        return YOKE_FAIL(YOKE_CHECK,
                         "schedule %s: stage %d, action %d is %s; chunks are 0 to %d and "
                         "micro-batches 0 to %d",
                         schedule->name, stage, index, cell, schedule->n_chunks - 1,
                         schedule->n_microbatches - 1);
    }
    if (schedule->stage_of_chunk[action.chunk] != stage) {
        return YOKE_FAIL(YOKE_CHECK,
                         "schedule %s: stage %d, action %d is %s, but chunk %d is on stage %d",
                         schedule->name, stage, index, cell, action.chunk,
                         schedule->stage_of_chunk[action.chunk]);
    }
    if (schedule->forward_only && action.kind != YOKE_ACTION_F) {
        return YOKE_FAIL(YOKE_CHECK,
                         "schedule %s: stage %d, action %d is %s in a schedule of forwards only",
                         schedule->name, stage, index, cell);
    }
    return YOKE_OK;
}

/* `counts` [n_chunks][n_microbatches] holds a bit for each kind that was seen. */
static yoke_status count_action(const yoke_schedule *schedule, int stage, int index,
                                unsigned char *counts)
{
    yoke_action action = schedule->stage[stage].action[index];
    unsigned char *seen =
        &counts[(int64_t)action.chunk * schedule->n_microbatches + action.microbatch];
    unsigned backward = 1u << YOKE_ACTION_B;
    unsigned split = 1u << YOKE_ACTION_I | 1u << YOKE_ACTION_W;
    unsigned bit = 1u << action.kind;
    unsigned excludes = bit | (bit & backward ? split : 0) | (bit & split ? backward : 0);
    char cell[CELL_BYTES];
    if (*seen & bit) {
        return YOKE_FAIL(YOKE_CHECK, "schedule %s: stage %d does %s twice; drop action %d",
                         schedule->name, stage, print_cell(action, cell), index);
    }
    if (*seen & excludes) {
        return YOKE_FAIL(YOKE_CHECK,
                         "schedule %s: stage %d, action %d is %s beside the other form of the same "
                         "backward; use B, or I and W",
                         schedule->name, stage, index, print_cell(action, cell));
    }
    *seen = (unsigned char)(*seen | bit);
    return YOKE_OK;
}

/* The kind that is missing from what was seen of one chunk and micro-batch, or -1. */
static int missing_kind(const yoke_schedule *schedule, unsigned seen)
{
    if (!(seen & 1u << YOKE_ACTION_F)) {
        return YOKE_ACTION_F;
    }
    if (schedule->forward_only || seen & 1u << YOKE_ACTION_B) {
        return -1;
    }
    bool has_inputs = seen & 1u << YOKE_ACTION_I;
    bool has_weights = seen & 1u << YOKE_ACTION_W;
    if (has_inputs && has_weights) {
        return -1;
    }
    if (has_inputs) {
        return YOKE_ACTION_W;
    }
    return has_weights ? YOKE_ACTION_I : YOKE_ACTION_B;
}

static yoke_status check_counts(const yoke_schedule *schedule, unsigned char *counts)
{
    for (int s = 0; s < schedule->n_stages; s++) {
        for (int i = 0; i < schedule->stage[s].n; i++) {
            YOKE_TRY(check_place(schedule, s, i));
            YOKE_TRY(count_action(schedule, s, i, counts));
        }
    }
    for (int c = 0; c < schedule->n_chunks; c++) {
        for (int m = 0; m < schedule->n_microbatches; m++) {
            int kind = missing_kind(schedule, counts[(int64_t)c * schedule->n_microbatches + m]);
            char cell[CELL_BYTES];
            if (kind >= 0) {
                yoke_action action = {(yoke_action_kind)kind, c, m};
                return YOKE_FAIL(YOKE_CHECK, "schedule %s: stage %d never does %s; add it",
                                 schedule->name, schedule->stage_of_chunk[c],
                                 print_cell(action, cell));
            }
        }
    }
    return YOKE_OK;
}

/* Where `need` is in the list of its stage; the counts are right, so it is there. */
static int index_of_need(const yoke_stage_actions *actions, yoke_action need)
{
    for (int i = 0; i < actions->n; i++) {
        yoke_action action = actions->action[i];
        bool is_backward = action.kind == YOKE_ACTION_B || action.kind == YOKE_ACTION_I;
        bool same_kind = need.kind == YOKE_ACTION_B ? is_backward : action.kind == need.kind;
        if (same_kind && action.chunk == need.chunk && action.microbatch == need.microbatch) {
            return i;
        }
    }
    YOKE_ASSERT(false && "a need that is nowhere");
    return -1;
}

/* What a stalled stage waits for: an action that its own stage has not done yet. */
static yoke_action blocking_action(const yoke_schedule *schedule, const yoke_timeline *timeline,
                                   int stage)
{
    yoke_action needs[YOKE_MAX_NEEDS];
    yoke_action head = schedule->stage[stage].action[timeline->n_done[stage]];
    int n = yoke_action_needs(schedule, head, needs);
    for (int i = 0; i < n; i++) {
        int owner = schedule->stage_of_chunk[needs[i].chunk];
        int index = index_of_need(&schedule->stage[owner], needs[i]);
        if (index >= timeline->n_done[owner]) {
            return schedule->stage[owner].action[index];
        }
    }
    YOKE_ASSERT(false && "a stage that stalls for nothing");
    return head;
}

/* Every stalled stage waits for another that is stalled, so following them must come round. */
static yoke_status tell_circle(const yoke_schedule *schedule, const yoke_timeline *timeline)
{
    int stage = 0;
    while (timeline->n_done[stage] == schedule->stage[stage].n) {
        stage++;
    }
    for (int i = 0; i < schedule->n_stages; i++) {
        stage = schedule->stage_of_chunk[blocking_action(schedule, timeline, stage).chunk];
    }
    char text[CIRCLE_BYTES];
    int used = 0;
    int first = stage;
    int n = 0;
    do {
        char head[CELL_BYTES];
        char need[CELL_BYTES];
        yoke_action blocking = blocking_action(schedule, timeline, stage);
        int index = timeline->n_done[stage];
        if (n++ < LONGEST_CIRCLE) {
            print_cell(schedule->stage[stage].action[index], head);
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "%sstage %d, at action %d, needs %s for %s", n > 1 ? "; " : "", stage,
                             index, print_cell(blocking, need), head);
            used = used < CIRCLE_BYTES ? used : CIRCLE_BYTES - 1;
        }
        stage = schedule->stage_of_chunk[blocking.chunk];
    } while (stage != first);
    return YOKE_FAIL(YOKE_CHECK,
                     "schedule %s stalls: %s%s. %s; do one of the needed actions earlier",
                     schedule->name, text, n > LONGEST_CIRCLE ? "; and so on" : "",
                     n > 1 ? "They wait in a circle" : "It waits for itself");
}

static yoke_status check_run(const yoke_schedule *schedule)
{
    yoke_timeline timeline;
    YOKE_TRY(yoke_timeline_create(schedule, yoke_action_costs_of(1, 2), &timeline));
    yoke_status status = timeline.is_complete ? YOKE_OK : tell_circle(schedule, &timeline);
    yoke_timeline_destroy(&timeline);
    return status;
}

yoke_status yoke_schedule_verify(const yoke_schedule *schedule)
{
    YOKE_TRY(check_sizes(schedule));
    size_t n_pairs = (size_t)schedule->n_chunks * (size_t)schedule->n_microbatches;
    unsigned char *counts = yoke_block_alloc(n_pairs);
    if (!counts) {
        return YOKE_FAIL(YOKE_NO_MEMORY,
                         "schedule %s: %zu bytes to check it; use fewer micro-batches",
                         schedule->name, n_pairs);
    }
    yoke_status status = check_counts(schedule, counts);
    yoke_block_free(counts);
    YOKE_TRY(status);
    return check_run(schedule);
}
