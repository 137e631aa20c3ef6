/*
 * yoke show: the stages of the way from model to program, printed.
 */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/setup.h"
#include "layout/infer.h"
#include "program/program.h"
#include "yoke/schedule.h"

enum { N_SUBJECTS = 4 };
static const char *const subjects[N_SUBJECTS] = {"graph", "layout", "schedule", "program"};

static void show_graph(const yoke_setup *setup)
{
    yoke_graph_print(yoke_session_graph(setup->session), stdout);
}

static void show_layout(const yoke_setup *setup)
{
    yoke_layout_table_print(yoke_session_graph(setup->session), stdout);
}

/* Needs stages and micro-batches only: neither model nor programs are made. */
static yoke_status show_schedule(const yoke_setup *setup, const yoke_invocation *invocation)
{
    const yoke_config *config = &setup->run.config;
    yoke_mesh mesh;
    const yoke_schedule_def *def;
    yoke_schedule schedule;
    YOKE_TRY(yoke_mesh_parse(config->mesh, &mesh));
    YOKE_TRY(yoke_schedule_find(config->schedule, &def));
    yoke_schedule_request request = {.n_stages = mesh.size[YOKE_AXIS_PP],
                                     .n_microbatches = (int)config->microbatches,
                                     .chunks_per_stage = (int)config->chunks_per_stage,
                                     .file = config->schedule};
    YOKE_TRY(yoke_schedule_build(def, &request, invocation->arena, &schedule));
    if (yoke_invocation_switch(invocation, "svg")) {
        yoke_schedule_svg(stdout, &schedule);
    } else if (yoke_invocation_switch(invocation, "csv")) {
        yoke_schedule_print(stdout, &schedule);
    } else {
        yoke_schedule_draw(stdout, &schedule);
    }
    return YOKE_OK;
}

static void show_program(const yoke_setup *setup, int64_t rank)
{
    const struct yoke_program_set *programs = yoke_session_programs(setup->session);
    int n_ranks = yoke_session_n_ranks(setup->session);
    for (int i = 0; i < n_ranks; i++) {
        if (rank < 0 || rank == i) {
            yoke_program_print(programs, i, stdout);
        }
    }
}

static yoke_status show(const yoke_setup *setup, const char *subject, int64_t rank)
{
    int n_ranks = yoke_session_n_ranks(setup->session);
    if (rank < -1 || rank >= n_ranks) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "--rank is %lld, but the mesh has %d ranks; use 0 to %d, or -1 for all",
                         (long long)rank, n_ranks, n_ranks - 1);
    }
    if (strcmp(subject, "graph") == 0) {
        show_graph(setup);
    } else if (strcmp(subject, "layout") == 0) {
        show_layout(setup);
    } else {
        show_program(setup, rank);
    }
    return YOKE_OK;
}

static yoke_status check_switches(const yoke_invocation *invocation)
{
    bool svg = yoke_invocation_switch(invocation, "svg");
    bool csv = yoke_invocation_switch(invocation, "csv");
    if (svg && csv) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--svg and --csv are two forms; choose one");
    }
    if ((svg || csv) && strcmp(invocation->subject, "schedule") != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--%s is a form of the schedule: yoke show schedule --%s",
                         svg ? "svg" : "csv", svg ? "svg" : "csv");
    }
    return YOKE_OK;
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    yoke_setup setup;
    (void)result;
    YOKE_TRY(check_switches(invocation));
    yoke_status status = yoke_setup_open(&setup, invocation, false);
    bool is_schedule = strcmp(invocation->subject, "schedule") == 0;
    if (!status) {
        status = is_schedule ? show_schedule(&setup, invocation) : yoke_setup_plan(&setup);
    }
    if (!status && !is_schedule) {
        status = show(&setup, invocation->subject, yoke_invocation_int(invocation, "rank"));
    }
    yoke_setup_close(&setup);
    return status;
}

static const yoke_option options[] = {
    {.name = "rank",
     .kind = YOKE_OPTION_INT,
     .fallback = "-1",
     .unit = "",
     .help = "program: of this rank only; -1: of all"},
    {.name = "svg",
     .kind = YOKE_OPTION_SWITCH,
     .help = "schedule: as an SVG picture, time on x and stages on y"},
    {.name = "csv",
     .kind = YOKE_OPTION_SWITCH,
     .help = "schedule: as a CSV file, which --schedule FILE.csv reads back"},
};

const yoke_command yoke_command_show = {
    .name = "show",
    .summary = "print a stage of the plan: graph, layout, schedule or program",
    .details = "graph: the operators of a step. layout: how each tensor lies on the mesh, and the "
               "conversions. schedule: the "
               "pipeline's timing diagram, of any schedule and mesh. program: the instructions of "
               "each rank. Allocates no tensor.",
    .usage = "graph|layout|schedule|program [RUN.yaml] [--KEY VALUE ...]",
    .subjects = subjects,
    .n_subjects = N_SUBJECTS,
    .takes_run = true,
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
