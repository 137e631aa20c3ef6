/*
 * Schedules: the list of them, and what is the same for all.
 *
 * The check is in schedule_verify.c, time in timeline.c, pictures in schedule_draw.c.
 */
#include "yoke/schedule.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "pipe/schedule_build.h"
#include "pipe/timeline.h"

static const yoke_schedule_def *const schedules[] = {
#define SCHEDULE_ENTRY(id) &yoke_schedule_##id,
    YOKE_SCHEDULE_LIST(SCHEDULE_ENTRY)
#undef SCHEDULE_ENTRY
};

enum { N_SCHEDULES = sizeof schedules / sizeof schedules[0], KNOWN_BYTES = 256 };

/* Of 12 bytes each; the most that a run may ask for, 65536 micro-batches on 64 stages of 2 chunks,
 * are a third of it. */
static const double MOST_ACTIONS = 1 << 26;

const char *yoke_action_letter(yoke_action_kind kind)
{
    static const char *const letters[YOKE_N_ACTION_KINDS] = {
#define ACTION_LETTER(upper, letter, help) letter,
        YOKE_ACTION_LIST(ACTION_LETTER)
#undef ACTION_LETTER
    };
    YOKE_ASSERT((int)kind >= 0 && kind < YOKE_N_ACTION_KINDS);
    return letters[kind];
}

int yoke_schedule_count(void)
{
    return N_SCHEDULES;
}

const yoke_schedule_def *yoke_schedule_get(int index)
{
    YOKE_ASSERT(index >= 0 && index < N_SCHEDULES);
    return schedules[index];
}

static yoke_status fail_unknown(const char *name)
{
    const char *names[N_SCHEDULES];
    char known[KNOWN_BYTES] = "";
    for (int i = 0; i < N_SCHEDULES; i++) {
        names[i] = schedules[i]->name;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = yoke_text_nearest(name, names, N_SCHEDULES);
    if (!nearest) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "unknown schedule '%.80s'; there are %s, and CSV files by a name that ends in .csv",
            name, known);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "unknown schedule '%.80s'; there are %s, and CSV files by a name that ends in "
                     ".csv; did you mean %s?",
                     name, known, nearest);
}

static bool is_csv(const char *name)
{
    static const char ending[] = ".csv";
    size_t length = strlen(name);
    size_t n = sizeof ending - 1;
    return length > n && strcmp(name + length - n, ending) == 0;
}

yoke_status yoke_schedule_find(const char *name, const yoke_schedule_def **def)
{
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcmp(name, schedules[i]->name) == 0) {
            *def = schedules[i];
            return YOKE_OK;
        }
    }
    if (is_csv(name)) {
        *def = &yoke_schedule_csv;
        return YOKE_OK;
    }
    return fail_unknown(name);
}

/* A schedule that takes any number of chunks, for a message. */
static const char *name_for_chunks(void)
{
    int i = 0;
    while (!schedules[i]->takes_chunks) {
        i++;
    }
    return schedules[i]->name;
}

/* Puts the schedule's own number of chunks where the request leaves it open. */
static yoke_status settle_chunks(const yoke_schedule_def *def, yoke_schedule_request *request)
{
    int asked = request->chunks_per_stage;
    int own = def->default_chunks ? def->default_chunks : 1;
    if (asked < 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d chunks a stage; use 0 for the schedule's own number, or "
                         "at least 1",
                         def->name, asked);
    }
    if (asked > 0 && asked != own && !def->takes_chunks) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d chunks a stage, but it has %d; use chunks_per_stage=%d, "
                         "or the schedule %s",
                         def->name, asked, own, own, name_for_chunks());
    }
    request->chunks_per_stage = asked ? asked : def->default_chunks;
    return YOKE_OK;
}

static yoke_status check_size(const yoke_schedule_def *def, const yoke_schedule_request *request)
{
    int chunks = request->chunks_per_stage ? request->chunks_per_stage : 1;
    double n = 3.0 * request->n_stages * chunks * request->n_microbatches;
    if (n > MOST_ACTIONS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d stages, %d chunks a stage and %d micro-batches make %.0f "
                         "actions; there may be %.0f: use fewer chunks or micro-batches",
                         def->name, request->n_stages, chunks, request->n_microbatches, n,
                         MOST_ACTIONS);
    }
    return YOKE_OK;
}

/* The order of the forwards stays, and with fewer actions there is less to wait for. */
static void keep_forwards(yoke_schedule *schedule, yoke_arena *arena)
{
    yoke_stage_actions *stages = YOKE_ARENA_NEW(arena, yoke_stage_actions, schedule->n_stages);
    for (int s = 0; s < schedule->n_stages; s++) {
        const yoke_stage_actions *all = &schedule->stage[s];
        yoke_action_list list = yoke_action_list_build(arena, all->n);
        for (int i = 0; i < all->n; i++) {
            yoke_action a = all->action[i];
            if (a.kind == YOKE_ACTION_F) {
                yoke_action_list_add(&list, a.kind, a.chunk, a.microbatch);
            }
        }
        stages[s] = (yoke_stage_actions){.action = list.action, .n = list.n};
    }
    schedule->stage = stages;
    schedule->forward_only = true;
}

yoke_status yoke_schedule_build(const yoke_schedule_def *def, const yoke_schedule_request *request,
                                struct yoke_arena *arena, yoke_schedule *out)
{
    if (request->n_stages < 1 || request->n_microbatches < 1) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d stages and %d micro-batches; use at least 1 of each",
                         def->name, request->n_stages, request->n_microbatches);
    }
    yoke_schedule_request settled = *request;
    YOKE_TRY(settle_chunks(def, &settled));
    YOKE_TRY(check_size(def, &settled));
    *out = (yoke_schedule){.name = def->name};
    YOKE_TRY(def->build(&settled, arena, out));
    if (request->forward_only) {
        keep_forwards(out, arena);
    }
    return yoke_schedule_verify(out);
}

yoke_stage_actions *yoke_schedule_place_chunks(const yoke_schedule_request *request,
                                               const int *stage_of_chunk, int n_chunks,
                                               yoke_arena *arena, yoke_schedule *out)
{
    yoke_stage_actions *stages = YOKE_ARENA_NEW(arena, yoke_stage_actions, request->n_stages);
    out->n_stages = request->n_stages;
    out->n_chunks = n_chunks;
    out->n_microbatches = request->n_microbatches;
    out->stage_of_chunk = stage_of_chunk;
    out->stage = stages;
    return stages;
}

yoke_stage_actions *yoke_schedule_one_chunk_a_stage(const yoke_schedule_request *request,
                                                    yoke_arena *arena, yoke_schedule *out)
{
    int n = request->n_stages;
    int *stage_of_chunk = YOKE_ARENA_NEW(arena, int, n);
    for (int c = 0; c < n; c++) {
        stage_of_chunk[c] = c;
    }
    return yoke_schedule_place_chunks(request, stage_of_chunk, n, arena, out);
}

yoke_action_list yoke_action_list_build(yoke_arena *arena, int capacity)
{
    return (yoke_action_list){.action = YOKE_ARENA_NEW(arena, yoke_action, capacity),
                              .capacity = capacity};
}

void yoke_action_list_add(yoke_action_list *list, yoke_action_kind kind, int chunk, int microbatch)
{
    YOKE_ASSERT(list->n < list->capacity);
    list->action[list->n++] = (yoke_action){.kind = kind, .chunk = chunk, .microbatch = microbatch};
}

int yoke_schedule_in_flight(const yoke_schedule *schedule, int stage)
{
    YOKE_ASSERT(stage >= 0 && stage < schedule->n_stages);
    const yoke_stage_actions *actions = &schedule->stage[stage];
    if (schedule->forward_only) {
        return actions->n > 0 ? 1 : 0;
    }
    int now = 0;
    int most = 0;
    for (int i = 0; i < actions->n; i++) {
        yoke_action_kind kind = actions->action[i].kind;
        now += kind == YOKE_ACTION_F ? 1 : 0;
        most = now > most ? now : most;
        now -= kind == YOKE_ACTION_B || kind == YOKE_ACTION_W ? 1 : 0;
    }
    return most;
}

double yoke_schedule_bubble(const yoke_schedule *schedule, double f_cost, double b_cost)
{
    yoke_timeline timeline;
    yoke_status status =
        yoke_timeline_create(schedule, yoke_action_costs_of(f_cost, b_cost), &timeline);
    YOKE_ASSERT(!status && timeline.is_complete);
    double available = timeline.span * schedule->n_stages;
    double bubble = available > 0 ? 1.0 - timeline.busy / available : 0.0;
    yoke_timeline_destroy(&timeline);
    return bubble;
}
