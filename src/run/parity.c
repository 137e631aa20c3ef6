/*
 * Parity: the promise that N ranks equal one, made executable. Two sessions from one config, one on
 * the mesh and one on a single rank, take the same steps; then their tensors are compared one by
 * one.
 */
#include <math.h>
#include <string.h>
#include "run/session.h"

enum { MOST_STEPS = 1000000000 }; /* sizes in bytes stay within 64 bits */

typedef struct side {
    yoke_config config;
    yoke_session *session;
    double *loss, *norm; /* [steps] */
    bool *skipped;       /* [steps] */
    int64_t n;
    double n_valid; /* labels that count, over all steps */
} side;

typedef struct comparison {
    side mesh, single;
    float *a, *b; /* room for the largest tensor, twice */
    int64_t steps;
    yoke_parity_bounds bounds;
    yoke_parity_result *result;
} comparison;

yoke_parity_bounds yoke_parity_bounds_of(const yoke_config *config)
{
    if (strcmp(config->dtype, "bf16") == 0 || strcmp(config->reduce_dtype, "bf16") == 0) {
        return (yoke_parity_bounds){.grad = 2e-2, .loss = 1e-3, .weights = 4e-2};
    }
    return (yoke_parity_bounds){
        .grad = YOKE_PARITY_GRAD, .loss = YOKE_PARITY_LOSS, .weights = YOKE_PARITY_WEIGHTS};
}

/* --- Running ---------------------------------------------------------------------------------- */

static void keep_step(void *user, const yoke_step_metrics *metrics)
{
    side *s = user;
    s->loss[s->n] = metrics->loss;
    s->norm[s->n] = metrics->grad_norm;
    s->skipped[s->n++] = metrics->skipped;
    s->n_valid += metrics->n_valid;
}

static yoke_status run_side(side *s, int64_t first, int64_t n)
{
    yoke_run_options options = {.first_step = first, .n_steps = n, .on_step = keep_step, .user = s};
    yoke_run_result ignored;
    return n > 0 ? yoke_session_run(s->session, &options, &ignored) : YOKE_OK;
}

static yoke_config config_on_mesh(const yoke_config *wanted)
{
    yoke_config config = *wanted;
    config.eval_fraction = 0;
    config.eval_interval = 0;
    return config;
}

/* One stage has nothing to schedule, and a schedule from a file is for the mesh alone. */
static yoke_config config_on_one_rank(const yoke_config *wanted, int n_threads)
{
    yoke_config config = config_on_mesh(wanted);
    config.mesh = "";
    config.schedule = "1f1b";
    config.chunks_per_stage = 0;
    config.threads = n_threads;
    return config;
}

static yoke_status open_side(const yoke_session_parts *parts, yoke_config config, int64_t steps,
                             side *s)
{
    s->config = config;
    s->loss = yoke_block_alloc(sizeof(double) * (size_t)steps);
    s->norm = yoke_block_alloc(sizeof(double) * (size_t)steps);
    s->skipped = yoke_block_alloc(sizeof(bool) * (size_t)steps);
    if (!s->loss || !s->norm || !s->skipped) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the losses of %lld steps",
                         (long long)steps);
    }
    yoke_session_parts own = *parts;
    own.config = &s->config;
    return yoke_session_create(&own, &s->session);
}

static void close_side(side *s)
{
    yoke_session_destroy(s->session);
    yoke_block_free(s->loss);
    yoke_block_free(s->norm);
    yoke_block_free(s->skipped);
}

/* --- Comparing -------------------------------------------------------------------------------- */

static void keep_first(char kept[128], const char *name)
{
    if (kept[0] == 0) {
        snprintf(kept, 128, "%s", name);
    }
}

static void compare_bits(comparison *c, const void *a, const void *b, size_t bytes,
                         const char *name)
{
    if (memcmp(a, b, bytes) != 0) {
        c->result->bits_equal = false;
        keep_first(c->result->first_other_bits, name);
    }
}

/* 2-norm of the difference, relative to that of b or to `least` if that is more; NaN counts as
 * infinite. */
static double relative(const float *a, const float *b, int64_t n, double least)
{
    double difference = 0, reference = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        reference += (double)b[i] * (double)b[i];
    }
    double scale = fmax(sqrt(reference), least);
    double distance = sqrt(difference) / (scale > 0 ? scale : 1.0);
    return distance >= 0 ? distance : (double)INFINITY;
}

/* Root mean square over the elements that are trained, of the one rank's first gradient; 0 where it
 * is no number. */
static double gradient_per_element(const comparison *c)
{
    const yoke_graph *graph = c->single.session->train.graph;
    double norm = c->single.norm[0];
    int64_t n = 0;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        bool trained = graph->gradients[i] != YOKE_NO_VALUE;
        n += trained ? yoke_shape_elements(&graph->values[graph->parameters[i]].shape) : 0;
    }
    return n > 0 && isfinite(norm) ? norm / sqrt((double)n) : 0.0;
}

/* One kind of number: its largest distance so far, and the bound. */
static void compare_numbers(comparison *c, double distance, double bound, double *largest,
                            const char *name)
{
    *largest = distance > *largest ? distance : *largest;
    if (!(distance <= bound)) {
        c->result->ok = false;
        keep_first(c->result->first_difference, name);
    }
}

/* A tensor far below the others is measured by them: a gradient that cancels to nothing is rounding
 * noise, which differs by its own size, and AdamW divides it by itself, so that a bias which began
 * at zero a few steps ago is noise too. */
static yoke_status compare_tensors(comparison *c, yoke_fetch what, double bound, double *largest)
{
    double least = what == YOKE_FETCH_GRADIENT ? YOKE_PARITY_LEAST_GRAD * gradient_per_element(c)
                                               : YOKE_PARITY_LEAST_WEIGHT;
    for (int i = 0; i < yoke_session_n_parameters(c->single.session); i++) {
        yoke_shape shape = yoke_session_parameter_shape(c->single.session, i);
        int64_t n = yoke_shape_elements(&shape);
        char name[128];
        snprintf(name, sizeof name, "%s%s", what == YOKE_FETCH_GRADIENT ? "gradient of " : "",
                 yoke_session_parameter_name(c->single.session, i));
        YOKE_TRY(yoke_session_fetch(c->mesh.session, what, i, c->a));
        YOKE_TRY(yoke_session_fetch(c->single.session, what, i, c->b));
        compare_bits(c, c->a, c->b, sizeof(float) * (size_t)n, name);
        compare_numbers(c, relative(c->a, c->b, n, least * sqrt((double)n)), bound, largest, name);
    }
    return YOKE_OK;
}

static double relative_scalar(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) {
        return 0; /* a step without a valid label has no loss on either side */
    }
    double distance = fabs(a - b) / (fabs(b) > 0 ? fabs(b) : 1.0);
    return distance >= 0 ? distance : (double)INFINITY;
}

static void compare_losses(comparison *c)
{
    yoke_parity_result *result = c->result;
    for (int64_t i = 0; i < c->steps; i++) {
        double distance = relative_scalar(c->mesh.loss[i], c->single.loss[i]);
        compare_numbers(c, distance, c->bounds.loss, &result->loss_rel, "loss");
        compare_bits(c, &c->mesh.loss[i], &c->single.loss[i], sizeof(double), "loss");
        compare_numbers(c, c->mesh.skipped[i] == c->single.skipped[i] ? 0 : (double)INFINITY, 0,
                        &result->loss_rel, "skipped steps");
        result->skipped += c->mesh.skipped[i] && c->single.skipped[i];
    }
    compare_numbers(c, relative_scalar(c->mesh.norm[0], c->single.norm[0]), c->bounds.grad,
                    &result->norm_rel, "gradient norm");
}

/* Numbers that are none on both sides are equal, and prove nothing. */
static yoke_status check_compared(const comparison *c)
{
    for (int64_t i = 0; i < c->steps; i++) {
        if (isfinite(c->mesh.loss[i]) || isfinite(c->single.loss[i])) {
            return YOKE_OK;
        }
    }
    if (c->mesh.n_valid > 0 || c->single.n_valid > 0) {
        return YOKE_FAIL(YOKE_CHECK,
                         "nothing to compare: not one of %lld steps has a loss that is finite, on "
                         "the mesh or on one rank; lower lr, or raise warmup_steps",
                         (long long)c->steps);
    }
    return YOKE_FAIL(YOKE_CHECK,
                     "nothing to compare: not one of %lld steps has a label that counts: check "
                     "ignore_token and the corpus%s",
                     (long long)c->steps,
                     c->mesh.session->train_sampler.masking.rate > 0.0 ? ", and raise mask_rate"
                                                                       : "");
}

static yoke_status make_room(comparison *c)
{
    int64_t most = 0;
    for (int i = 0; i < yoke_session_n_parameters(c->single.session); i++) {
        yoke_shape shape = yoke_session_parameter_shape(c->single.session, i);
        int64_t n = yoke_shape_elements(&shape);
        most = n > most ? n : most;
    }
    c->a = yoke_block_alloc(sizeof(float) * (size_t)most);
    c->b = yoke_block_alloc(sizeof(float) * (size_t)most);
    return c->a && c->b ? YOKE_OK
                        : YOKE_FAIL(YOKE_NO_MEMORY, "no memory to compare tensors of %lld elements",
                                    (long long)most);
}

static yoke_status compare(comparison *c, const yoke_session_parts *parts)
{
    YOKE_TRY(open_side(parts, config_on_mesh(parts->config), c->steps, &c->mesh));
    yoke_config alone = config_on_one_rank(parts->config, c->mesh.session->n_threads);
    YOKE_TRY(open_side(parts, alone, c->steps, &c->single));
    YOKE_TRY(make_room(c));
    YOKE_TRY(yoke_status_prefix(run_side(&c->mesh, 0, 1), "on the mesh"));
    YOKE_TRY(yoke_status_prefix(run_side(&c->single, 0, 1), "on one rank"));
    YOKE_TRY(compare_tensors(c, YOKE_FETCH_GRADIENT, c->bounds.grad, &c->result->grad_rel));
    YOKE_TRY(yoke_status_prefix(run_side(&c->mesh, 1, c->steps - 1), "on the mesh"));
    YOKE_TRY(yoke_status_prefix(run_side(&c->single, 1, c->steps - 1), "on one rank"));
    YOKE_TRY(check_compared(c));
    compare_losses(c);
    return compare_tensors(c, YOKE_FETCH_WEIGHT, c->bounds.weights, &c->result->weights_rel);
}

yoke_status yoke_parity(const yoke_session_parts *parts, int64_t steps, yoke_parity_result *result)
{
    if (steps < 1 || steps > MOST_STEPS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "parity over %lld steps: wants 1 to %d", (long long)steps,
                         MOST_STEPS);
    }
    *result = (yoke_parity_result){.bits_equal = true, .ok = true};
    comparison c = {
        .steps = steps, .bounds = yoke_parity_bounds_of(parts->config), .result = result};
    yoke_status status = compare(&c, parts);
    close_side(&c.mesh);
    close_side(&c.single);
    yoke_block_free(c.a);
    yoke_block_free(c.b);
    return status;
}
