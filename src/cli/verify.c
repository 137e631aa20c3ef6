/*
 * yoke verify: the plan of a run, proved and printed before anything is allocated.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/setup.h"
#include "program/program.h"

static json_t *report_bytes(const yoke_session *session)
{
    json_t *list = json_array();
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        yoke_rank_bytes bytes = yoke_session_bytes(session, rank);
        json_t *row = json_object();
        (void)json_object_set_new(row, "params", json_integer(bytes.params));
        (void)json_object_set_new(row, "grads", json_integer(bytes.grads));
        (void)json_object_set_new(row, "optimizer", json_integer(bytes.optimizer));
        (void)json_object_set_new(row, "stash", json_integer(bytes.stash));
        (void)json_object_set_new(row, "gathered", json_integer(bytes.gathered));
        (void)json_object_set_new(row, "scratch", json_integer(bytes.scratch));
        (void)json_object_set_new(row, "planned", json_integer(bytes.planned));
        (void)json_array_append_new(list, row);
    }
    return list;
}

static json_t *report_comm(const struct yoke_program_set *programs)
{
    json_t *axes = json_object();
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        double bytes = yoke_program_set_comm_bytes(programs, (yoke_axis)axis);
        (void)json_object_set_new(axes, yoke_axis_name((yoke_axis)axis),
                                  json_integer((json_int_t)bytes));
    }
    return axes;
}

static void report(const yoke_session *session, json_t *result)
{
    const struct yoke_program_set *programs = yoke_session_programs(session);
    (void)json_object_set_new(result, "ranks", json_integer(yoke_session_n_ranks(session)));
    (void)json_object_set_new(result, "instructions",
                              json_integer(yoke_program_set_n_instructions(programs)));
    (void)json_object_set_new(result, "bytes", report_bytes(session));
    (void)json_object_set_new(result, "comm_bytes", report_comm(programs));
    (void)json_object_set_new(result, "bubble", yoke_json_real(yoke_program_set_bubble(programs)));
}

static void print_row(const char *label, const yoke_rank_bytes *bytes)
{
    const int64_t kinds[] = {bytes->params,   bytes->grads,   bytes->optimizer, bytes->stash,
                             bytes->gathered, bytes->scratch, bytes->planned};
    (void)printf("%-9s", label);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char text[16];
        (void)printf(" %11s", yoke_text_bytes((double)kinds[i], text, sizeof text));
    }
    (void)putchar('\n');
}

static bool same_bytes(const yoke_rank_bytes *a, const yoke_rank_bytes *b)
{
    return a->params == b->params && a->grads == b->grads && a->optimizer == b->optimizer &&
           a->stash == b->stash && a->gathered == b->gathered && a->scratch == b->scratch &&
           a->planned == b->planned;
}

/* One line for each stretch of ranks that hold the same. */
static void print_ranks(const yoke_session *session)
{
    int n_ranks = yoke_session_n_ranks(session);
    (void)printf("%-9s %11s %11s %11s %11s %11s %11s %11s\n", "rank", "params", "grads",
                 "optimizer", "stash", "gathered", "scratch", "planned");
    for (int first = 0, next; first < n_ranks; first = next) {
        char label[24];
        yoke_rank_bytes bytes = yoke_session_bytes(session, first);
        for (next = first + 1; next < n_ranks; next++) {
            yoke_rank_bytes other = yoke_session_bytes(session, next);
            if (!same_bytes(&bytes, &other)) {
                break;
            }
        }
        (void)snprintf(label, sizeof label, next == first + 1 ? "%d" : "%d-%d", first, next - 1);
        print_row(label, &bytes);
    }
}

static void print_total(const yoke_session *session)
{
    yoke_rank_bytes total = {0};
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        yoke_rank_bytes bytes = yoke_session_bytes(session, rank);
        total.params += bytes.params;
        total.grads += bytes.grads;
        total.optimizer += bytes.optimizer;
        total.stash += bytes.stash;
        total.gathered += bytes.gathered;
        total.scratch += bytes.scratch;
        total.planned += bytes.planned;
    }
    print_row("all", &total);
}

static void print_plan(const yoke_setup *setup)
{
    char text[160];
    const yoke_session *session = setup->session;
    const struct yoke_program_set *programs = yoke_session_programs(session);
    (void)printf("%s\n\n", yoke_setup_print(setup, text, sizeof text));
    print_ranks(session);
    if (yoke_session_n_ranks(session) > 1) {
        print_total(session);
    }
    (void)printf("\nsent in a step, all ranks together\n");
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        double bytes = yoke_program_set_comm_bytes(programs, (yoke_axis)axis);
        (void)printf("  along %-3s %11s\n", yoke_axis_name((yoke_axis)axis),
                     yoke_text_bytes(bytes, text, sizeof text));
    }
    (void)printf("\ninstructions %s in a step, all ranks together\n",
                 yoke_format_count(yoke_program_set_n_instructions(programs), text, sizeof text));
    (void)printf("bubble       %.1f %% of a pipeline stage's time\n",
                 100.0 * yoke_program_set_bubble(programs));
    (void)printf(
        "verified     no fault found: every message is received, no wait can form a circle, "
        "no buffer is misused\n");
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    yoke_setup setup;
    json_t *errors = json_array();
    yoke_status status = yoke_setup_open(&setup, invocation, false);
    if (!status) {
        status = yoke_setup_plan(&setup);
    }
    (void)json_object_set_new(result, "ok", json_boolean(status == YOKE_OK));
    if (status) {
        (void)json_array_append_new(errors, yoke_json_text(yoke_status_message(status)));
    } else {
        print_plan(&setup);
        report(setup.session, result);
    }
    (void)json_object_set_new(result, "errors", errors);
    yoke_setup_close(&setup);
    return status;
}

const yoke_command yoke_command_verify = {
    .name = "verify",
    .summary = "plan a run and prove it: memory, messages, instructions",
    .details =
        "Builds the program of every rank and checks all of them together: every message is "
        "received, no wait can form a "
        "circle, no buffer is misused. Prints bytes per rank and kind, bytes sent along each axis, "
        "and the bubble of the "
        "pipeline. Allocates no tensor and needs no corpus; one that is named is checked too.",
    .usage = "[RUN.yaml] [--KEY VALUE ...]",
    .takes_run = true,
    .run = run,
};
