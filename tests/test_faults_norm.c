/* labels: quick threads */
/*
 * Faults of others, each in the smallest situation that shows it: the norm of the gradients, clipping, steps that must be
 * skipped, and the state of the optimizer. The letters are those of the list of faults that the project keeps.
 *
 * Values that are not finite are put into one rank's part of one gradient by a kernel that stands in front of the real one:
 * ranks are threads, and the address tells whose part it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

static float *buffer_data(const scene *s, int rank, int buffer)
{
    const yoke_program *program = yoke_program_of(s->session->train.set, rank);
    return (float *)(void *)(s->session->slabs[rank] + program->buffers[buffer].offset);
}

/* A rank's piece of a value of the step, or NULL; and its elements. */
static float *piece_of(const scene *s, int rank, yoke_value value, int64_t *n)
{
    const yoke_program *program = yoke_program_of(s->session->train.set, rank);
    int id = yoke_program_find(program, value, YOKE_ONCE_A_STEP);
    if (id == YOKE_NO_BUFFER) {
        return NULL;
    }
    *n = yoke_shape_elements(&program->buffers[id].shape);
    return buffer_data(s, rank, id);
}

/* --- B1, B2, B3, B5: the norm ------------------------------------------------------------------------ */

static double squares(const float *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)a[i];
    }
    return sum;
}

/* Each parameter once, whether it is divided, held by every rank, or on two stages. */
static void assert_norm(session_case c)
{
    char text[256];
    outcome o, single;
    session_case alone = c;
    alone.mesh = "";
    c.steps = alone.steps = 1;
    print_case(&c, text, sizeof text);
    run_case(&c, &o);
    run_case(&alone, &single);
    assert_near(text, o.step[0].grad_norm, sqrt(squares(o.gradient, o.elements)), 1e-6);
    assert_near(text, o.step[0].grad_norm, single.step[0].grad_norm, YOKE_PARITY_GRAD);
    outcome_free(&o);
    outcome_free(&single);
}

static void test_b_each_parameter_once(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "tp=4"},
        {.mesh = "dp=3"},
        {.mesh = "pp=2", .microbatches = 2},
        {.mesh = "dp=2,tp=4,pp=2"},
        {.keys = "n_head=2", .mesh = "tp=3,pp=3"},
        {.preset = "llama-tiny", .mesh = "tp=4"}, /* heads of keys are held by every rank */
        {.preset = "llama-tiny", .keys = "num_attention_heads=8", .mesh = "tp=8"},
        {.preset = "llama-tiny", .keys = "num_key_value_heads=1", .mesh = "dp=2,tp=4"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        assert_norm(cases[i]);
    }
}

/* --- B8: clipping ------------------------------------------------------------------------------------ */

/* On every rank that updates it: first moment = (1 - beta1) * scale * gradient, with the one scale. Returns the elements seen. */
static int64_t check_first_moments(const scene *s, int rank, float scale)
{
    const yoke_graph *graph = s->session->train.graph;
    float rest = (float)(1.0 - s->config.beta1);
    int64_t seen = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        int64_t n = 0, n_gradient = 0, n_control = 0;
        float *moment = node->op == YOKE_OP_ADAMW ? piece_of(s, rank, node->in[1], &n) : NULL;
        if (!moment) {
            continue;
        }
        const float *gradient = piece_of(s, rank, node->in[3], &n_gradient);
        const float *control = piece_of(s, rank, node->in[4], &n_control);
        assert_true(gradient && n == n_gradient && control && n_control == YOKE_N_CONTROLS);
        assert_true(control[YOKE_CONTROL_SCALE] == scale);
        for (int64_t k = 0; k < n; k++) {
            float wanted = rest * (gradient[k] * scale);
            if (!(fabsf(moment[k] - wanted) <= 1e-6f * fabsf(wanted))) {
                fail_msg("rank %d, %s: element %lld is %.9g, not %.9g", rank,
                         graph->values[node->in[1]].name, (long long)k, (double)moment[k],
                         (double)wanted);
            }
        }
        seen += n;
    }
    return seen;
}

static void assert_clipping(const char *mesh, double clip)
{
    const session_case c = {.mesh = mesh, .microbatches = 2, .clip = clip, .steps = 1};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    double norm = o.step[0].grad_norm;
    double scale = norm > clip ? clip / norm : 1.0;
    int64_t seen = 0;
    for (int r = 0; r < s.session->n_ranks; r++) {
        seen += check_first_moments(&s, r, (float)scale);
    }
    assert_true(seen >= 24000);
    scene_close(&s);
}

static void test_b8_one_factor_everywhere(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=2", "tp=3", "pp=2", "dp=2,tp=2,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_clipping(meshes[i], 0.01);
        assert_clipping(meshes[i], 1e6);
    }
}

/* With so large an epsilon an update is proportional to its gradient, so that a wrong factor moves weights. */
static void test_b8_clipped_updates(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=3", "tp=2,pp=2"};
    outcome single = {0};
    for (int i = 0; i < COUNT(meshes); i++) {
        const session_case c = {.mesh = meshes[i], .clip = 0.1, .lr = 0.1};
        scene s;
        outcome start = {0}, o = {0};
        scene_open(&s, &c);
        s.config.epsilon = 0.5;
        s.config.weight_decay = 0;
        scene_plan(&s);
        run_steps(&s, 0, 0, &start);
        fetch_all(&s, &start);
        run_steps(&s, 0, 3, &o);
        fetch_all(&s, &o);
        for (int64_t k = 0; k < o.elements; k++) {
            o.weight[k] -= start.weight[k];
        }
        if (i == 0) {
            single = o;
            assert_true(squares(o.weight, o.elements) > 1e-6);
        } else {
            assert_true(distance(o.weight, single.weight, o.elements) < 1e-4);
            outcome_free(&o);
        }
        outcome_free(&start);
        scene_close(&s);
    }
    outcome_free(&single);
}

/* --- D: values that are not finite ------------------------------------------------------------------- */

typedef struct poison {
    yoke_kernel real;
    const float *at; /* one rank's part of one gradient */
    int64_t first_step, n_steps;
    float value;
} poison;

static poison poisoned;

static void poisoning_matmul(const yoke_kernel_call *call)
{
    poisoned.real(call);
    if (call->out[0].data == poisoned.at && call->step >= poisoned.first_step &&
        call->step < poisoned.first_step + poisoned.n_steps) {
        ((float *)call->out[0].data)[0] = poisoned.value;
    }
}

/* The first gradient that a product makes on this rank; returns its parameter's index. */
static int poison_rank(scene *s, int rank, int64_t first_step, int64_t n_steps, float value)
{
    const yoke_graph *graph = s->session->train.graph;
    for (int i = 0; i < graph->n_parameters; i++) {
        for (int64_t n = 0; n < graph->n_nodes; n++) {
            const yoke_node *node = &graph->nodes[n];
            const yoke_value_info *out = &graph->values[node->out[0]];
            int64_t elements = 0;
            if (node->op != YOKE_OP_MATMUL || out->kind != YOKE_VALUE_ACCUMULATOR ||
                out->gradient_of != graph->parameters[i]) {
                continue;
            }
            const float *at = piece_of(s, rank, node->out[0], &elements);
            if (at && elements > 0) {
                poisoned = (poison){.real = s->session->kernels[YOKE_OP_MATMUL],
                                    .at = at,
                                    .first_step = first_step,
                                    .n_steps = n_steps,
                                    .value = value};
                s->session->kernels[YOKE_OP_MATMUL] = poisoning_matmul;
                return i;
            }
        }
    }
    fail_msg("rank %d makes no gradient", rank);
    return -1;
}

static void heal(scene *s)
{
    s->session->kernels[YOKE_OP_MATMUL] = poisoned.real;
}

/* Parameters, moments and the count of steps of all ranks, one after the other. */
typedef struct lasting {
    char *bytes;
    size_t n;
} lasting;

static lasting copy_lasting(const scene *s)
{
    static const yoke_buffer_kind kinds[] = {YOKE_BUFFER_PARAMS, YOKE_BUFFER_OPTIMIZER};
    lasting copy = {0};
    for (int r = 0; r < s->session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(s->session->train.set, r);
        for (int k = 0; k < COUNT(kinds); k++) {
            size_t bytes = (size_t)program->kind_bytes[kinds[k]];
            copy.bytes = realloc(copy.bytes, copy.n + bytes);
            assert_non_null(copy.bytes);
            memcpy(copy.bytes + copy.n, s->session->slabs[r] + program->kind_offset[kinds[k]],
                   bytes);
            copy.n += bytes;
        }
    }
    return copy;
}

static void assert_equal_lasting(lasting a, lasting b)
{
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
}

static const session_case whole = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 2, .steps = 4};

/* A bad gradient on one rank: all skip that step, nothing moves, and what follows is as if it had not been. */
static void assert_all_skip(int rank, float value, const lasting *wanted)
{
    scene s;
    outcome o = {0};
    scene_open(&s, &whole);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    lasting before = copy_lasting(&s);
    int parameter = poison_rank(&s, rank, 1, 1, value);
    run_steps(&s, 1, 1, &o);
    assert_true(o.step[1].skipped);
    assert_int_equal(o.step[1].first_bad, parameter);
    assert_true(isfinite(o.step[1].loss) && !isfinite(o.step[1].grad_norm));
    lasting after = copy_lasting(&s);
    assert_equal_lasting(after, before);
    run_steps(&s, 2, 2, &o);
    heal(&s);
    assert_false(o.step[2].skipped || o.step[3].skipped);
    lasting end = copy_lasting(&s);
    assert_int_equal(end.n, wanted->n);
    assert_memory_equal(end.bytes, wanted->bytes, end.n);
    free(end.bytes);
    scene_close(&s);
}

static void test_d2_all_ranks_skip_together(void **state)
{
    (void)state;
    scene s;
    outcome o = {0};
    scene_open(&s, &whole);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    run_steps(&s, 2, 2, &o);
    lasting wanted = copy_lasting(&s);
    for (int rank = 0; rank < s.session->n_ranks; rank++) {
        assert_all_skip(rank, rank % 2 ? (float)INFINITY : (float)NAN, &wanted);
    }
    free(wanted.bytes);
    scene_close(&s);
}

/* Moments and count are there, and zero, before the first step that counts: a start with skipped steps is a fresh start. */
static void test_d3_state_exists_from_the_start(void **state)
{
    (void)state;
    scene s;
    outcome o = {0};
    scene_open(&s, &whole);
    scene_plan(&s);
    run_steps(&s, 0, 0, &o);
    lasting fresh = copy_lasting(&s);
    (void)poison_rank(&s, 3, 0, 2, (float)INFINITY);
    run_steps(&s, 0, 2, &o);
    assert_true(o.step[0].skipped && o.step[1].skipped);
    lasting skipped = copy_lasting(&s);
    assert_equal_lasting(skipped, fresh);
    run_steps(&s, 2, 2, &o);
    heal(&s);
    lasting late = copy_lasting(&s);
    yoke_session_destroy(s.session);
    scene_plan(&s);
    run_steps(&s, 2, 2, &o);
    lasting wanted = copy_lasting(&s);
    assert_true(o.step[2].lr == o.step[4].lr);
    assert_equal_lasting(late, wanted);
    scene_close(&s);
}

/* No end without a word: after max_skipped steps in a row the run says which parameter of which step. */
static void test_d1_skipping_for_ever_is_told(void **state)
{
    (void)state;
    session_case c = whole;
    c.steps = 20;
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    s.config.max_skipped = 5;
    scene_plan(&s);
    run_steps(&s, 0, 0, &o);
    int parameter = poison_rank(&s, 5, 3, 20, (float)NAN);
    const char *name = yoke_session_parameter_name(s.session, parameter);
    assert_status_says(try_steps(&s, 0, 20, &o), YOKE_CHECK,
                       SAYS("5 steps in a row", "not finite", "step 7", name, "lr"));
    assert_int_equal(o.n_steps, 8);
    assert_true(!o.step[2].skipped && o.step[3].skipped && o.step[7].skipped);
    heal(&s);
    scene_close(&s);
}

/* The same without any hand in the works: so high a rate makes the loss overflow, on every mesh alike. */
static void test_d1_divergence_is_told(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=2", "tp=2", "pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        const session_case c = {.mesh = meshes[i], .steps = 12, .lr = 1e6, .clip = 1e30};
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        s.config.max_skipped = 3;
        s.config.lr_schedule = "constant";
        s.config.warmup_steps = 0;
        scene_plan(&s);
        yoke_status status = try_steps(&s, 0, 12, &o);
        assert_status_says(status, YOKE_CHECK, SAYS("3 steps in a row", "not finite"));
        assert_true(o.n_steps > 3 && !o.step[o.n_steps - 4].skipped);
        for (int64_t k = 0; k < o.n_steps; k++) {
            assert_true(o.step[k].skipped == (k >= o.n_steps - 3));
            assert_true(o.step[k].skipped || isfinite(o.step[k].loss));
        }
        fetch_all(&s, &o);
        for (int64_t k = 0; k < o.elements; k++) {
            assert_true(isfinite(o.weight[k]));
        }
        outcome_free(&o);
        scene_close(&s);
    }
}

/* --- A24: the rate goes by steps that count ---------------------------------------------------------- */

static void test_a24_rate_by_step(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=3,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        const session_case c = {.mesh = meshes[i], .steps = 10, .lr = 0.01, .empty_step = 4};
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        s.config.lr_schedule = "wsd";
        s.config.decay_steps = 4;
        scene_plan(&s);
        run_steps(&s, 0, 5, &o); /* in two runs, as after a break */
        run_steps(&s, 5, 5, &o);
        yoke_optimizer optimizer = yoke_config_optimizer(&s.config);
        for (int64_t k = 0, applied = 0; k < 10; k++) {
            float wanted = (float)yoke_optimizer_lr(&optimizer, applied);
            assert_true(o.step[k].skipped == (k == 3));
            assert_true(o.step[k].skipped || o.step[k].lr == (double)wanted);
            applied += !o.step[k].skipped;
        }
        assert_true(o.step[1].lr == (double)0.01f && o.step[9].lr < 0.004);
        scene_close(&s);
    }
}

/* --- C3: precision ------------------------------------------------------------------------------------ */

/* Nine of ten elements of each trained tensor moved, and none by more than three steps can: rounding would do either. */
static void assert_small_moves(const scene *s, const outcome *before, const outcome *after)
{
    const yoke_graph *graph = s->session->train.graph;
    for (int64_t i = 0, at = 0; i < graph->n_parameters; i++) {
        int64_t n = parameter_elements(s->session, (int)i), moved = 0;
        for (int64_t k = at; k < at + n; k++) {
            double move = fabs((double)after->weight[k] - (double)before->weight[k]);
            assert_true(move <= 2 * 3 * s->config.lr);
            moved += move > 0;
        }
        if (graph->gradients[i] != YOKE_NO_VALUE && moved * 10 < n * 9) {
            fail_msg("%s: %lld of %lld elements moved",
                     yoke_session_parameter_name(s->session, (int)i), (long long)moved,
                     (long long)n);
        }
        at += n;
    }
}

/* Moments and weights are float32: the plan says so, and steps of 1e-5 are not rounded away. */
static void test_c3_small_steps_arrive(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=2,tp=2,pp=2", .lr = 1e-5};
    scene s;
    outcome start = {0}, o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    for (int r = 0; r < 8; r++) {
        const yoke_program *program = yoke_program_of(s.session->train.set, r);
        int64_t moments = 0, trained = 0;
        for (int64_t b = 0; b < program->n_buffers; b++) {
            const yoke_value_info *info =
                &s.session->train.graph->values[program->buffers[b].value];
            bool moment = info->kind == YOKE_VALUE_STATE && info->shape.n_dims > 0;
            moments += moment ? program->buffers[b].bytes : 0;
            trained += info->kind == YOKE_VALUE_PARAMETER && !info->frozen
                           ? 4 * yoke_shape_elements(&program->buffers[b].shape)
                           : 0;
        }
        assert_true(trained > 0);
        assert_int_equal(moments, 2 * trained);
    }
    run_steps(&s, 0, 0, &start);
    fetch_all(&s, &start);
    run_steps(&s, 0, 3, &o);
    fetch_all(&s, &o);
    assert_small_moves(&s, &start, &o);
    outcome_free(&start);
    outcome_free(&o);
    scene_close(&s);
}

/* B7: there is one norm, the 2-norm. A key that asks for another is not taken in silence. (A maximum
 * over ranks, where one is needed, is a reduction of its own: test_transport.c, and the loss over tp.) */
static void test_b7_no_norm_but_the_2_norm(void **state)
{
    (void)state;
    static const char *const keys[] = {"norm_type", "grad_norm_type", "grad_clip_norm", "norm"};
    for (int i = 0; i < COUNT(keys); i++) {
        assert_null(yoke_config_key_find(keys[i]));
    }
    assert_non_null(yoke_config_key_find("grad_clip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b_each_parameter_once),
        cmocka_unit_test(test_b7_no_norm_but_the_2_norm),
        cmocka_unit_test(test_b8_one_factor_everywhere),
        cmocka_unit_test(test_b8_clipped_updates),
        cmocka_unit_test(test_d2_all_ranks_skip_together),
        cmocka_unit_test(test_d3_state_exists_from_the_start),
        cmocka_unit_test(test_d1_skipping_for_ever_is_told),
        cmocka_unit_test(test_d1_divergence_is_told),
        cmocka_unit_test(test_a24_rate_by_step),
        cmocka_unit_test(test_c3_small_steps_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
