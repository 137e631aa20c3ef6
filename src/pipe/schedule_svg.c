/*
 * Schedules as an SVG picture: time on x, stages on y.
 *
 * Shows what timeline.c finds, as the diagram in text does. Cells have colours of their own with
 * dark numbers on them; the sheet below them is light or dark as the reader's scheme has it. It
 * writes to the stream that it is given and leaves the stream's errors to whoever opened it.
 */
#include "yoke/schedule.h"

#include <stdio.h>

#include "pipe/timeline.h"

enum {
    LEFT = 70, /* pixels from here on, up to the last of them */
    TOP = 12,
    PITCH = 30, /* from one stage to the next */
    CELL_HEIGHT = 26,
    BELOW = 106, /* ruler, legend and caption */
    RIGHT = 14,
    LEAST_WIDTH = 600, /* the caption fits */
    MOST_UNITS = 2000,
    N_SHADES = 4,
    TICK_UNITS = 5
};

static const double F_UNITS = 1;
static const double B_UNITS = 2;

/* Per kind, from the first chunk of a stage on; the fourth serves all later ones. */
static const char *const fills[YOKE_N_ACTION_KINDS][N_SHADES] = {
    [YOKE_ACTION_F] = {"#6cb0f5", "#a9d1fb", "#cfe5fd", "#e6f2fe"},
    [YOKE_ACTION_B] = {"#6fc276", "#a8dcac", "#cdecd0", "#e5f6e6"},
    [YOKE_ACTION_I] = {"#4fc4c0", "#97dedb", "#c5eeec", "#e2f7f6"},
    [YOKE_ACTION_W] = {"#e0a94a", "#f0cd8f", "#f8e4c0", "#fcf2e0"},
};

typedef struct picture {
    FILE *out;
    const yoke_schedule *schedule;
    yoke_action_costs costs;
    yoke_timeline timeline;
    int unit_width; /* pixels */
    int n_units, n_shown;
    int width, height;
    bool has_kind[YOKE_N_ACTION_KINDS];
    int n_shades;
} picture;

/* Which chunk of its stage it is, as far as shades go. */
static int shade_of_chunk(const yoke_schedule *schedule, int chunk)
{
    int shade = 0;
    for (int c = 0; c < chunk && shade < N_SHADES - 1; c++) {
        shade += schedule->stage_of_chunk[c] == schedule->stage_of_chunk[chunk] ? 1 : 0;
    }
    return shade;
}

static void look_around(picture *p)
{
    const yoke_schedule *schedule = p->schedule;
    for (int s = 0; s < schedule->n_stages; s++) {
        for (int i = 0; i < schedule->stage[s].n; i++) {
            p->has_kind[schedule->stage[s].action[i].kind] = true;
        }
    }
    for (int c = 0; c < schedule->n_chunks; c++) {
        int shade = shade_of_chunk(schedule, c);
        p->n_shades = shade >= p->n_shades ? shade + 1 : p->n_shades;
    }
}

static picture measure(FILE *out, const yoke_schedule *schedule, yoke_timeline timeline)
{
    char last[16];
    int digits = snprintf(last, sizeof last, "%d", schedule->n_microbatches - 1);
    picture p = {.out = out,
                 .schedule = schedule,
                 .costs = yoke_action_costs_of(F_UNITS, B_UNITS),
                 .timeline = timeline,
                 .unit_width = 10 + 8 * digits,
                 .n_units = (int)(timeline.span + 0.5)};
    p.n_shown = p.n_units < MOST_UNITS ? p.n_units : MOST_UNITS;
    int needed = LEFT + p.n_shown * p.unit_width + RIGHT;
    p.width = needed > LEAST_WIDTH ? needed : LEAST_WIDTH;
    p.height = TOP + schedule->n_stages * PITCH + BELOW;
    look_around(&p);
    return p;
}

/* A name may be a path, and a path may hold anything. */
static void write_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        default:
            fputc((unsigned char)*text < ' ' ? '?' : *text, out);
        }
    }
}

static void write_counts(const picture *p)
{
    const yoke_schedule *schedule = p->schedule;
    write_escaped(p->out, schedule->name);
    fprintf(p->out, ": %d stage%s, ", schedule->n_stages, schedule->n_stages == 1 ? "" : "s");
    if (schedule->n_chunks > schedule->n_stages) {
        fprintf(p->out, "%d chunks, ", schedule->n_chunks);
    }
    fprintf(p->out, "%d micro-batch%s", schedule->n_microbatches,
            schedule->n_microbatches == 1 ? "" : "es");
}

static void write_head(const picture *p)
{
    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "role=\"img\" aria-labelledby=\"title\" font-family=\"system-ui, sans-serif\" "
            "font-size=\"13\">\n  <title id=\"title\">",
            p->width, p->height, p->width);
    write_counts(p);
    fputs("</title>\n  <style>\n"
          "    .sheet { fill: #ffffff; }\n"
          "    .idle { fill: #8b949e; fill-opacity: 0.15; }\n"
          "    .tick { stroke: #8b949e; }\n"
          "    .name { fill: #1f2328; }\n"
          "    .note { fill: #424a53; }\n"
          "    .number { fill: #0d1117; text-anchor: middle; }\n"
          "    .middle { text-anchor: middle; }\n",
          p->out);
    for (int k = 0; k < YOKE_N_ACTION_KINDS; k++) {
        for (int shade = 0; shade < p->n_shades && p->has_kind[k]; shade++) {
            fprintf(p->out, "    .%s%d { fill: %s; stroke: #57606a; stroke-width: 0.6; }\n",
                    yoke_action_letter((yoke_action_kind)k), shade, fills[k][shade]);
        }
    }
    fputs("    @media (prefers-color-scheme: dark) {\n"
          "      .sheet { fill: #0d1117; }\n"
          "      .name { fill: #e6edf3; }\n"
          "      .note { fill: #b1bac4; }\n"
          "    }\n  </style>\n",
          p->out);
    fprintf(p->out, "  <rect class=\"sheet\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", p->width,
            p->height);
}

static void write_cell(const picture *p, int stage, int index)
{
    yoke_action action = p->schedule->stage[stage].action[index];
    int start = (int)(p->timeline.start[stage][index] + 0.5);
    int units = (int)(p->costs.of[action.kind] + 0.5);
    if (start + units > p->n_shown) {
        return;
    }
    int x = LEFT + start * p->unit_width;
    int y = TOP + stage * PITCH;
    int width = units * p->unit_width;
    fprintf(p->out,
            "  <rect class=\"%s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
            "<text class=\"number\" x=\"%g\" y=\"%d\">%d</text>\n",
            yoke_action_letter(action.kind), shade_of_chunk(p->schedule, action.chunk), x, y, width,
            CELL_HEIGHT, x + width / 2.0, y + 18, action.microbatch);
}

static void write_stage(const picture *p, int stage)
{
    int y = TOP + stage * PITCH;
    fprintf(p->out,
            "  <text class=\"name\" x=\"8\" y=\"%d\">stage %d</text>\n"
            "  <rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
            y + 18, stage, LEFT, y, p->n_shown * p->unit_width, CELL_HEIGHT);
    for (int i = 0; i < p->schedule->stage[stage].n; i++) {
        write_cell(p, stage, i);
    }
}

static void write_ruler(const picture *p)
{
    int y = TOP + p->schedule->n_stages * PITCH;
    fprintf(p->out, "  <text class=\"note\" x=\"8\" y=\"%d\">time</text>\n", y + 18);
    for (int unit = 0; unit <= p->n_shown; unit += TICK_UNITS) {
        int x = LEFT + unit * p->unit_width;
        fprintf(p->out,
                "  <path class=\"tick\" d=\"M%d %dv5\"/>"
                "<text class=\"note middle\" x=\"%d\" y=\"%d\">%d</text>\n",
                x, y, x, y + 18, unit);
    }
}

/* Kinds in their shades, each with its letter. */
static void write_legend(const picture *p)
{
    static const char *const meaning[YOKE_N_ACTION_KINDS] = {
        [YOKE_ACTION_F] = "F forward",
        [YOKE_ACTION_B] = "B backward",
        [YOKE_ACTION_I] = "I backward of inputs",
        [YOKE_ACTION_W] = "W of weights",
    };
    int x = LEFT;
    int y = TOP + p->schedule->n_stages * PITCH + 32;
    for (int k = 0; k < YOKE_N_ACTION_KINDS; k++) {
        for (int shade = 0; shade < p->n_shades && p->has_kind[k]; shade++) {
            fprintf(p->out,
                    "  <rect class=\"%s%d\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\"/>\n",
                    yoke_action_letter((yoke_action_kind)k), shade, x, y);
            x += 16;
        }
        if (p->has_kind[k]) {
            fprintf(p->out, "  <text class=\"note\" x=\"%d\" y=\"%d\">%s</text>\n", x + 4, y + 12,
                    meaning[k]);
            x += k == YOKE_ACTION_I ? 150 : 100;
        }
    }
    if (p->n_shades > 1) {
        fprintf(p->out, "  <text class=\"note\" x=\"%d\" y=\"%d\">lighter: later chunks</text>\n",
                x, y + 12);
    }
}

static void write_caption(const picture *p)
{
    int y = TOP + p->schedule->n_stages * PITCH + 68;
    bool is_split = p->has_kind[YOKE_ACTION_I] || p->has_kind[YOKE_ACTION_W];
    double available = p->timeline.span * p->schedule->n_stages;
    fprintf(p->out, "  <text class=\"name\" x=\"%d\" y=\"%d\">", LEFT, y);
    write_counts(p);
    fprintf(p->out, "</text>\n  <text class=\"name\" x=\"%d\" y=\"%d\">bubble %.1f %%: ", LEFT,
            y + 20, 100 * yoke_schedule_bubble(p->schedule, F_UNITS, B_UNITS));
    fprintf(p->out, "%.0f of %.0f units idle; %s", available - p->timeline.busy, available,
            is_split ? "F, I and W are 1 unit long" : "F is 1 unit long");
    fputs(p->has_kind[YOKE_ACTION_B] ? ", B 2" : "", p->out);
    if (p->n_shown < p->n_units) {
        fprintf(p->out, "; units 0 to %d of %d are shown", p->n_shown - 1, p->n_units);
    }
    fputs("</text>\n", p->out);
}

void yoke_schedule_svg(FILE *out, const yoke_schedule *schedule)
{
    yoke_timeline timeline;
    yoke_status status =
        yoke_timeline_create(schedule, yoke_action_costs_of(F_UNITS, B_UNITS), &timeline);
    YOKE_ASSERT(!status && timeline.is_complete);
    picture p = measure(out, schedule, timeline);
    write_head(&p);
    for (int s = 0; s < schedule->n_stages; s++) {
        write_stage(&p, s);
    }
    write_ruler(&p);
    write_legend(&p);
    write_caption(&p);
    fputs("</svg>\n", out);
    yoke_timeline_destroy(&timeline);
}
