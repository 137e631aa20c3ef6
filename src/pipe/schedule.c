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
        return YOKE_FAIL(YOKE_BAD_INPUT, "unknown schedule '%.80s'; there are %s", name, known);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "unknown schedule '%.80s'; there are %s; did you mean %s?",
                     name, known, nearest);
}

yoke_status yoke_schedule_find(const char *name, const yoke_schedule_def **def)
{
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcmp(name, schedules[i]->name) == 0) {
            *def = schedules[i];
            return YOKE_OK;
        }
    }
    return fail_unknown(name);
}

yoke_status yoke_schedule_build(const yoke_schedule_def *def, const yoke_schedule_request *request,
                                struct yoke_arena *arena, yoke_schedule *out)
{
    if (request->n_stages < 1 || request->n_microbatches < 1) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d stages and %d micro-batches; use at least 1 of each",
                         def->name, request->n_stages, request->n_microbatches);
    }
    *out = (yoke_schedule){.name = def->name};
    YOKE_TRY(def->build(request, arena, out));
    return yoke_schedule_verify(out);
}

yoke_stage_actions *yoke_schedule_one_chunk_a_stage(const yoke_schedule_request *request,
                                                    yoke_arena *arena, yoke_schedule *out)
{
    int n = request->n_stages;
    int *stage_of_chunk = YOKE_ARENA_NEW(arena, int, n);
    for (int c = 0; c < n; c++) {
        stage_of_chunk[c] = c;
    }
    yoke_stage_actions *stages = YOKE_ARENA_NEW(arena, yoke_stage_actions, n);
    out->n_stages = n;
    out->n_chunks = n;
    out->n_microbatches = request->n_microbatches;
    out->forward_only = request->forward_only;
    out->stage_of_chunk = stage_of_chunk;
    out->stage = stages;
    return stages;
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
