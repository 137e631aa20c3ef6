/*
 * yoke verify: the plan of a run, proved and printed before anything is allocated.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/setup.h"
#include "program/program.h"
#include "sim/published.h"

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

static json_t *report_comm(const yoke_plan_measures *measures)
{
    json_t *axes = json_object();
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        double bytes = yoke_plan_moved(measures, (yoke_axis)axis);
        (void)json_object_set_new(axes, yoke_axis_name((yoke_axis)axis),
                                  json_integer((json_int_t)bytes));
    }
    return axes;
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

/* The largest number of each kind over the ranks of a stage. */
static yoke_rank_bytes bytes_of_stage(const yoke_session *session, int stage)
{
    const yoke_mesh *mesh = &yoke_session_programs(session)->mesh;
    yoke_rank_bytes most = {0};
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        if (yoke_mesh_coordinate(mesh, rank, YOKE_AXIS_PP) == stage) {
            yoke_rank_bytes bytes = yoke_session_bytes(session, rank);
#define LARGER(field) (bytes.field > most.field ? bytes.field : most.field)
            most = (yoke_rank_bytes){
                .params = LARGER(params),
                .grads = LARGER(grads),
                .optimizer = LARGER(optimizer),
                .stash = LARGER(stash),
                .gathered = LARGER(gathered),
                .scratch = LARGER(scratch),
                .planned = LARGER(planned),
            };
#undef LARGER
        }
    }
    return most;
}

static void print_stages(const yoke_session *session)
{
    int n_stages = yoke_session_programs(session)->schedule.n_stages;
    (void)printf("%-9s %11s %11s %11s %11s %11s %11s %11s\n", "a rank of", "params", "grads",
                 "optimizer", "stash", "gathered", "scratch", "planned");
    for (int stage = 0; stage < n_stages; stage++) {
        char label[24];
        yoke_rank_bytes bytes = bytes_of_stage(session, stage);
        (void)snprintf(label, sizeof label, "stage %d", stage);
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
    print_row("all ranks", &total);
}

static void print_moved(const yoke_mesh *mesh, const yoke_plan_measures *measures)
{
    char text[32];
    (void)printf("\nreceived in a step, all ranks together\n");
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (mesh->size[axis] > 1) {
            double bytes = yoke_plan_moved(measures, (yoke_axis)axis);
            (void)printf("  along %-4s %11s\n", yoke_axis_name((yoke_axis)axis),
                         yoke_text_bytes(bytes, text, sizeof text));
        }
    }
}

/* --- Beside the published formulas ------------------------------------------------------------ */

/* "stage 0 state", "along tp, layers", "bubble" */
static const char *name_of(const yoke_published *row, char *buffer, int buffer_bytes)
{
    const char *axis = row->axis < 0 ? "" : yoke_axis_name((yoke_axis)row->axis);
    if (row->stage >= 0) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "stage %d %s", row->stage, row->quantity);
    } else if (row->axis >= 0) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "along %s, %s", axis, row->part);
    } else {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%s", row->quantity);
    }
    return buffer;
}

static const char *print_amount(const yoke_published *row, double amount, char *buffer,
                                int buffer_bytes)
{
    if (isnan(amount)) {
        return "";
    }
    if (strcmp(row->quantity, "bubble") == 0) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%.1f %%", 100 * amount);
        return buffer;
    }
    return yoke_text_bytes(amount, buffer, buffer_bytes);
}

static void print_published(const yoke_published_list *list)
{
    (void)printf("\n%-20s %11s %11s %6s  formula (docs/published.md)\n", "beside the published",
                 "plan", "published", "ratio");
    for (int64_t i = 0; i < list->n; i++) {
        const yoke_published *row = &list->row[i];
        char name[48], plan[32], published[32], ratio[32] = "";
        if (row->published > 0) {
            (void)snprintf(ratio, sizeof ratio, "%.3f", row->plan / row->published);
        }
        (void)printf("%-20s %11s %11s %6s  %s%s%s\n", name_of(row, name, sizeof name),
                     print_amount(row, row->plan, plan, sizeof plan),
                     print_amount(row, row->published, published, sizeof published), ratio,
                     row->formula, *row->source ? ", " : "", row->source);
    }
}

static json_t *report_published(const yoke_published_list *list)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < list->n; i++) {
        const yoke_published *row = &list->row[i];
        json_t *entry = json_object();
        (void)json_object_set_new(entry, "quantity", json_string(row->quantity));
        if (row->stage >= 0) {
            (void)json_object_set_new(entry, "stage", json_integer(row->stage));
        }
        if (row->axis >= 0) {
            (void)json_object_set_new(entry, "axis",
                                      json_string(yoke_axis_name((yoke_axis)row->axis)));
        }
        (void)json_object_set_new(entry, "part", json_string(row->part));
        (void)json_object_set_new(entry, "plan", yoke_json_real(row->plan));
        (void)json_object_set_new(entry, "published", yoke_json_real(row->published));
        (void)json_object_set_new(entry, "ratio", yoke_json_real(row->plan / row->published));
        (void)json_object_set_new(entry, "formula", json_string(row->formula));
        (void)json_object_set_new(entry, "source", json_string(row->source));
        (void)json_array_append_new(rows, entry);
    }
    return rows;
}

static void report(const yoke_session *session, const yoke_published_list *published,
                   json_t *result)
{
    const struct yoke_program_set *programs = yoke_session_programs(session);
    (void)json_object_set_new(result, "ranks", json_integer(yoke_session_n_ranks(session)));
    (void)json_object_set_new(result, "instructions",
                              json_integer(yoke_program_set_n_instructions(programs)));
    (void)json_object_set_new(result, "bytes", report_bytes(session));
    (void)json_object_set_new(result, "comm_bytes", report_comm(&published->measures));
    char levels[2048];
    (void)json_object_set_new(result, "recompute",
                              yoke_json_text(yoke_graph_recompute_print(yoke_session_graph(session),
                                                                        levels, sizeof levels)));
    (void)json_object_set_new(result, "bubble", yoke_json_real(yoke_program_set_bubble(programs)));
    (void)json_object_set_new(result, "published", report_published(published));
}

/* How tokens stand, where it is not as they come. */
static void print_order(const yoke_graph *graph)
{
    if (graph->ordered) {
        (void)printf("tokens       in %lld balanced chunks, an early and a late one on each rank: "
                     "causal attention costs all the same\n",
                     (long long)graph->order.n_chunks);
    }
}

static void print_plan(const yoke_setup *setup, const yoke_published_list *published)
{
    char text[160];
    const yoke_session *session = setup->session;
    const struct yoke_program_set *programs = yoke_session_programs(session);
    (void)printf("%s\n", yoke_setup_print(setup, text, sizeof text));
    yoke_setup_print_notes(setup);
    (void)putchar('\n');
    print_stages(session);
    if (yoke_session_n_ranks(session) > 1) {
        print_total(session);
        print_moved(&programs->mesh, &published->measures);
    }
    print_published(published);
    char levels[2048];
    (void)printf("\nrecompute    %s\n",
                 yoke_graph_recompute_print(yoke_session_graph(session), levels, sizeof levels));
    print_order(yoke_session_graph(session));
    (void)printf("instructions %s in a step, all ranks together\n",
                 yoke_format_count(yoke_program_set_n_instructions(programs), text, sizeof text));
    (void)printf(
        "verified     no fault found: every message is received, no wait can form a circle, "
        "no buffer is misused\n");
}

static yoke_published_list compare(const yoke_setup *setup, yoke_arena *arena)
{
    yoke_policies policies = yoke_policies_choose(&setup->run.config);
    return yoke_published_build(&(yoke_published_request){
        .set = yoke_session_programs(setup->session),
        .policies = &policies,
        .recompute = setup->run.config.recompute,
        .dtype = setup->run.config.dtype,
        .reduce_dtype = setup->run.config.reduce_dtype,
        .arena = arena,
    });
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
        yoke_published_list published = compare(&setup, invocation->arena);
        print_plan(&setup, &published);
        report(setup.session, &published, result);
    }
    (void)json_object_set_new(result, "errors", errors);
    yoke_setup_close(&setup);
    return status;
}

const yoke_command yoke_command_verify = {
    .name = "verify",
    .summary = "plan a run and prove it: memory, messages, instructions",
    .details = "Builds the program of every rank and checks all of them together: every message is "
               "received, no wait can form a "
               "circle, no buffer is misused. Prints bytes by pipeline stage and kind, bytes "
               "received along "
               "each axis, and the bubble of the pipeline, beside the published formulas for them. "
               "Allocates no tensor and needs no corpus; one that is named is checked too.",
    .usage = "[RUN.yaml] [--KEY VALUE ...]",
    .takes_run = true,
    .run = run,
};
