/*
 * Schedules as text: a timing diagram for people, and CSV.
 *
 * The diagram shows what timeline.c finds for F 1 unit long, B 2, I and W 1. It writes to the
 * stream that it is given and leaves the stream's errors to whoever opened it.
 */
#include "yoke/schedule.h"

#include <stdio.h>
#include <string.h>

#include "pipe/timeline.h"

enum { COLUMNS = 100, LABEL_BYTES = 40, TICK_UNITS = 5, MOST_LISTED = 16 };

static const double F_UNITS = 1;
static const double B_UNITS = 2;

typedef struct diagram {
    const yoke_schedule *schedule;
    yoke_action_costs costs;
    yoke_timeline timeline;
    int stage_digits;
    int margin;     /* columns before the first unit */
    int unit_width; /* columns of one unit */
    int n_units, n_shown;
    bool has_gap; /* a column stays free between neighbours */
} diagram;

static int digits(int number)
{
    char text[16];
    return snprintf(text, sizeof text, "%d", number);
}

/* The chunk is told only where a stage has several. */
static int print_label(const yoke_schedule *schedule, yoke_action action, char *label)
{
    const char *letter = yoke_action_letter(action.kind);
    if (schedule->n_chunks > schedule->n_stages) {
        return snprintf(label, LABEL_BYTES, "%d%s%d", action.chunk, letter, action.microbatch);
    }
    return snprintf(label, LABEL_BYTES, "%s%d", letter, action.microbatch);
}

static diagram measure(const yoke_schedule *schedule, yoke_timeline timeline)
{
    char label[LABEL_BYTES];
    yoke_action longest = {YOKE_ACTION_F, schedule->n_chunks - 1, schedule->n_microbatches - 1};
    int label_width = print_label(schedule, longest, label);
    diagram d = {.schedule = schedule,
                 .costs = yoke_action_costs_of(F_UNITS, B_UNITS),
                 .timeline = timeline,
                 .stage_digits = digits(schedule->n_stages - 1),
                 .n_units = (int)(timeline.span + 0.5)};
    d.margin = (int)strlen("stage ") + d.stage_digits + (int)strlen(" |");
    int room = COLUMNS - d.margin - 1;
    d.has_gap = d.n_units <= room / (label_width + 1);
    d.unit_width = d.has_gap ? label_width + 1 : label_width;
    int n_fit = room / d.unit_width;
    d.n_shown = d.n_units < n_fit ? d.n_units : n_fit;
    return d;
}

/* Puts `text` at a column, as far as the diagram is shown. */
static void put(const diagram *d, char *line, int column, const char *text)
{
    int end = d->n_shown * d->unit_width;
    for (int i = 0; text[i] && column + i < end; i++) {
        line[column + i] = text[i];
    }
}

static void draw_ruler(FILE *out, const diagram *d)
{
    char tick[LABEL_BYTES];
    int at = 0;
    fprintf(out, "%*s", d->margin, "");
    for (int unit = 0; unit < d->n_shown; unit += TICK_UNITS) {
        int gap = unit * d->unit_width - at;
        int used = snprintf(tick, sizeof tick, "%d", unit);
        if (unit * d->unit_width + used <= d->n_shown * d->unit_width) {
            fprintf(out, "%*s%s", gap, "", tick);
            at += gap + used;
        }
    }
    fputc('\n', out);
}

static void draw_action(const diagram *d, char *line, yoke_action action, double start)
{
    char label[LABEL_BYTES];
    int first = (int)start * d->unit_width;
    int width = (int)d->costs.of[action.kind] * d->unit_width;
    const char *fill = d->costs.of[action.kind] > 1 ? "-" : " ";
    for (int i = 0; i < width; i++) {
        put(d, line, first + i, d->has_gap && i == width - 1 ? " " : fill);
    }
    print_label(d->schedule, action, label);
    put(d, line, first, label);
}

static void draw_stage(FILE *out, const diagram *d, int stage)
{
    char line[COLUMNS + 1] = "";
    memset(line, ' ', (size_t)d->n_shown * (size_t)d->unit_width);
    for (int unit = 0; unit < d->n_shown; unit++) {
        put(d, line, unit * d->unit_width, ".");
    }
    const yoke_stage_actions *actions = &d->schedule->stage[stage];
    for (int i = 0; i < actions->n; i++) {
        draw_action(d, line, actions->action[i], d->timeline.start[stage][i]);
    }
    fprintf(out, "stage %*d |%s|\n", d->stage_digits, stage, line);
}

/* By stage, unless there are too many for a line. */
static void draw_held(FILE *out, const yoke_schedule *schedule)
{
    int most = 0;
    for (int s = 0; s < schedule->n_stages; s++) {
        int held = yoke_schedule_in_flight(schedule, s);
        most = held > most ? held : most;
    }
    bool has_chunks = schedule->n_chunks > schedule->n_stages;
    fprintf(out, "%s held at once: at most %d",
            has_chunks ? "micro-batches of a chunk" : "micro-batches", most);
    for (int s = 0; s < schedule->n_stages && schedule->n_stages <= MOST_LISTED; s++) {
        fprintf(out, "%s%d", s ? " " : "; by stage ", yoke_schedule_in_flight(schedule, s));
    }
    fputc('\n', out);
}

static bool is_split(const yoke_schedule *schedule)
{
    bool found = false;
    for (int s = 0; s < schedule->n_stages; s++) {
        for (int i = 0; i < schedule->stage[s].n; i++) {
            found = found || schedule->stage[s].action[i].kind == YOKE_ACTION_W;
        }
    }
    return found;
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

void yoke_schedule_draw(FILE *out, const yoke_schedule *schedule)
{
    yoke_timeline timeline;
    yoke_status status =
        yoke_timeline_create(schedule, yoke_action_costs_of(F_UNITS, B_UNITS), &timeline);
    YOKE_ASSERT(!status && timeline.is_complete);
    diagram d = measure(schedule, timeline);
    fprintf(out, "%s, %d stage%s, %d micro-batch%s; F is 1 unit long, B 2%s\n", schedule->name,
            schedule->n_stages, plural(schedule->n_stages), schedule->n_microbatches,
            schedule->n_microbatches == 1 ? "" : "es", is_split(schedule) ? ", I and W 1" : "");
    draw_ruler(out, &d);
    for (int s = 0; s < schedule->n_stages; s++) {
        draw_stage(out, &d, s);
    }
    if (d.n_shown < d.n_units) {
        fprintf(out, "clipped to %d columns: units 0 to %d of %d are shown\n", COLUMNS,
                d.n_shown - 1, d.n_units);
    }
    double available = timeline.span * schedule->n_stages;
    fprintf(out, "bubble %.1f %%: %.0f of %.0f units idle\n",
            100 * yoke_schedule_bubble(schedule, F_UNITS, B_UNITS), available - timeline.busy,
            available);
    draw_held(out, schedule);
    yoke_timeline_destroy(&timeline);
}

void yoke_schedule_print(FILE *out, const yoke_schedule *schedule)
{
    for (int s = 0; s < schedule->n_stages; s++) {
        const yoke_stage_actions *actions = &schedule->stage[s];
        for (int i = 0; i < actions->n; i++) {
            yoke_action action = actions->action[i];
            fprintf(out, "%s%d%s%d", i ? "," : "", action.chunk, yoke_action_letter(action.kind),
                    action.microbatch);
        }
        fputc('\n', out);
    }
}
