/*
 * yoke parity: does the mesh compute what one rank would have?
 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/format.h"
#include "cli/setup.h"

static void print_row(const char *what, double difference, double bound)
{
    (void)printf("%-10s %-30.3g %-8.0e %s\n", what, difference, bound,
                 difference <= bound ? "ok" : "DIFFERS");
}

static void print_result(const yoke_parity_result *parity, const yoke_parity_bounds *bounds,
                         int64_t steps)
{
    (void)printf("%-10s %-30s %-8s %s\n", "what", "largest relative difference", "bound",
                 "verdict");
    print_row("gradients", parity->grad_rel, bounds->grad);
    print_row("norm", parity->norm_rel, bounds->grad);
    print_row("loss", parity->loss_rel, bounds->loss);
    print_row("weights", parity->weights_rel, bounds->weights);
    if (parity->bits_equal) {
        (void)printf("bits       equal in every loss, gradient and weight\n");
    } else {
        (void)printf("bits       differ, first in %s\n", parity->first_other_bits);
    }
    if (parity->skipped > 0) {
        (void)printf("skipped    %lld of %lld steps were skipped on both sides\n",
                     (long long)parity->skipped, (long long)steps);
    }
}

static void report(const yoke_parity_result *parity, json_t *result)
{
    const char *first = parity->first_difference;
    (void)json_object_set_new(result, "grad_rel", yoke_json_real(parity->grad_rel));
    (void)json_object_set_new(result, "norm_rel", yoke_json_real(parity->norm_rel));
    (void)json_object_set_new(result, "loss_rel", yoke_json_real(parity->loss_rel));
    (void)json_object_set_new(result, "weights_rel", yoke_json_real(parity->weights_rel));
    (void)json_object_set_new(result, "skipped", json_integer(parity->skipped));
    (void)json_object_set_new(result, "bits_equal", json_boolean(parity->bits_equal));
    (void)json_object_set_new(result, "first_difference",
                              *first ? yoke_json_text(first) : json_null());
    (void)json_object_set_new(result, "ok", json_boolean(parity->ok));
}

static yoke_status compare(yoke_setup *setup, int64_t steps, json_t *result)
{
    yoke_parity_result parity = {0};
    (void)printf("%s on %s against one rank, %lld steps\n", setup->run.model_name,
                 *setup->run.config.mesh ? setup->run.config.mesh : "one rank", (long long)steps);
    if (*setup->run.config.weights) {
        (void)printf("weights are not read: both start from the same random ones\n");
    }
    YOKE_TRY(yoke_setup_plan(setup));
    yoke_setup_print_notes(setup);
    (void)fflush(stdout);
    YOKE_TRY(yoke_parity(&setup->parts, steps, &parity));
    yoke_parity_bounds bounds = yoke_parity_bounds_of(&setup->run.config);
    print_result(&parity, &bounds, steps);
    report(&parity, result);
    if (!parity.ok) {
        return YOKE_FAIL(YOKE_CHECK,
                         "the mesh does not compute what one rank does; the first tensor is %s",
                         *parity.first_difference ? parity.first_difference : "unknown");
    }
    return YOKE_OK;
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    yoke_setup setup;
    int64_t steps = yoke_invocation_int(invocation, "steps");
    if (steps < 1) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--steps is %lld; compare at least 1 step",
                         (long long)steps);
    }
    yoke_status status = yoke_setup_open(&setup, invocation, true);
    if (!status) {
        status = compare(&setup, steps, result);
    }
    yoke_setup_close(&setup);
    return status;
}

static const yoke_option options[] = {
    {.name = "steps",
     .kind = YOKE_OPTION_INT,
     .fallback = "20",
     .unit = "steps",
     .help =
         "steps to compare; the learning rate still follows the run's own steps (--set steps=N)"},
};

const yoke_command yoke_command_parity = {
    .name = "parity",
    .summary = "compare a mesh with one rank: gradients, norm, loss and weights",
    .details =
        "Runs the same config on the mesh and on one rank and compares the gradients before "
        "clipping, their norm and the "
        "loss after the first step, every loss, and the weights after the last step. Names "
        "the first tensor that differs. "
        "Both start from random weights, also where `weights` names some. "
        "Exit code 1 if a difference is over its bound, or if no step has a loss to compare.",
    .usage = "[RUN.yaml] [--KEY VALUE ...]",
    .takes_run = true,
    .options = options,
    .n_options = 1,
    .run = run,
};
