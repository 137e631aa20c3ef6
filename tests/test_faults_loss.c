/* labels: quick threads */
/*
 * Faults of others, each in the smallest situation that shows it: the loss, its divisor, and micro-batches.
 *
 * The letters are those of the list of faults that the project keeps. Where a fault lives in one part alone, its test is
 * there: E1, E2, E4, E10, E11 and E12 in test_transport*.c and test_launch.c, E9 and the order of data in test_data.c,
 * A12 in test_model.c, A24's formula in test_rate.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

/* --- A3: a loss over a divided vocabulary ------------------------------------------------------------ */

enum { FOUR = 4 };

static int64_t four(const yoke_model_config *config)
{
    (void)config;
    return FOUR;
}

/* logits = 1 * head, whatever the token */
static yoke_value fixed_logits(yoke_graph *g, const yoke_model_config *config,
                               const yoke_build *build)
{
    yoke_letter(g, 'v', four(config));
    yoke_letter(g, 'd', 1);
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_gain(g, "table", "vd"), build->tokens);
    yoke_block(g, "head");
    return yoke_matmul(g, "btd,vd->btv", x, yoke_weight(g, "head", "vd", 0.02f));
}

/* Every rank that holds the loss holds `loss`, to the bit. */
static int n_holders_of_loss(const scene *s, double loss)
{
    int n = 0;
    yoke_value value = s->session->train.graph->loss;
    for (int r = 0; r < s->session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(s->session->train.set, r);
        int id = yoke_program_find(program, value, YOKE_ONCE_A_STEP);
        if (id != YOKE_NO_BUFFER) {
            float held;
            memcpy(&held, s->session->slabs[r] + program->buffers[id].offset, sizeof held);
            assert_true((double)held == loss);
            n++;
        }
    }
    return n;
}

static void assert_known_loss(const yoke_model *model, const char *mesh, int n_holders)
{
    const session_case c = {.model = model, .mesh = mesh, .steps = 1, .token = 3};
    static const float logits[FOUR] = {0.0f, 1.0f, 2.0f, 3.0f};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    assert_string_equal(yoke_session_parameter_name(s.session, 1), "head");
    assert_ok(yoke_session_load(s.session, 1, logits), "load");
    run_steps(&s, 0, 1, &o);
    assert_near(mesh, o.step[0].loss, 0.4401896985611953, 1e-6);
    assert_int_equal(n_holders_of_loss(&s, o.step[0].loss), n_holders);
    scene_close(&s);
}

/* Logits 0, 1, 2, 3 and label 3 over two ranks are 0.44019, not log(2) more; and each rank's loss is the loss. */
static void test_a3_loss_of_a_divided_vocabulary(void **state)
{
    (void)state;
    static const yoke_model model = {.name = "fixed", .vocab_size = four, .logits = fixed_logits};
    assert_known_loss(&model, "", 1);
    assert_known_loss(&model, "tp=2", 2);
    assert_known_loss(&model, "tp=3", 3);
    assert_known_loss(&model, "tp=5", 5);
    assert_known_loss(&model, "dp=2,tp=2", 4);
    assert_known_loss(&model, "tp=2,pp=2", 2);
}

/* A14: a vocabulary that does not divide has no padded columns to go wrong. */
static void test_a14_odd_vocabulary(void **state)
{
    (void)state;
    static const parity_case cases[] = {
        {.base = {.mesh = "tp=2"}},
        {.base = {.mesh = "tp=3"}},
        {.base = {.keys = "tie_word_embeddings=false vocab_size=257", .mesh = "tp=4"}},
    };
    assert_parity_table("gpt2-tiny", cases, COUNT(cases));
}

/* --- A4: the gradient is the gradient of the loss that is printed ------------------------------------ */

static void load_all(scene *s, const float *weights)
{
    for (int i = 0; i < yoke_session_n_parameters(s->session); i++) {
        assert_ok(yoke_session_load(s->session, i, weights), "load");
        weights += parameter_elements(s->session, i);
    }
}

/* Loss of step 0 at w + h g / |g| */
static double loss_along(scene *s, const outcome *start, const float *weight, double h)
{
    double norm = 0;
    outcome o = {0};
    float *moved = malloc((size_t)start->elements * sizeof *moved);
    assert_non_null(moved);
    for (int64_t i = 0; i < start->elements; i++) {
        norm += (double)start->gradient[i] * (double)start->gradient[i];
    }
    for (int64_t i = 0; i < start->elements; i++) {
        moved[i] = (float)((double)weight[i] + h * (double)start->gradient[i] / sqrt(norm));
    }
    load_all(s, moved);
    run_steps(s, 0, 1, &o);
    free(moved);
    return o.step[0].loss;
}

static void assert_slope(const char *mesh)
{
    const session_case c = {
        .mesh = mesh, .microbatches = 3, .clip = 1e30, .masked = true, .valid = {30, 5, 11}};
    const double h = 0.005;
    scene s;
    outcome start = {0}, first = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 0, &start);
    fetch_all(&s, &start);
    run_steps(&s, 0, 1, &first);
    fetch_all(&s, &first);
    memcpy(start.gradient, first.gradient, (size_t)start.elements * sizeof(float));
    double rise =
        loss_along(&s, &start, start.weight, h) - loss_along(&s, &start, start.weight, -h);
    assert_near(mesh, rise / (2 * h), first.step[0].grad_norm, 5e-3);
    outcome_free(&start);
    outcome_free(&first);
    scene_close(&s);
}

static void test_a4_slope_of_the_printed_loss(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "pp=2", "dp=2", "tp=2", "dp=2,tp=2,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_slope(meshes[i]);
    }
}

/* Without clipping, with and without stages: the same bits. */
static void test_a4_stages_divide_once(void **state)
{
    (void)state;
    const session_case c = {.microbatches = 3, .clip = 1e30, .masked = true, .valid = {30, 5, 11}};
    session_case staged = c;
    outcome a, b;
    staged.mesh = "pp=2";
    run_case(&c, &a);
    run_case(&staged, &b);
    assert_equal_outcomes(&a, &b);
    outcome_free(&a);
    outcome_free(&b);
}

/* --- A6 and C1: micro-batches ------------------------------------------------------------------------ */

/* The corpus of the case in one piece, on one rank. */
static void run_undivided(const session_case *c, outcome *o)
{
    scene s;
    *o = (outcome){0};
    scene_open(&s, c);
    s.config.mesh = "";
    s.config.microbatches = 1;
    scene_plan(&s);
    run_steps(&s, 0, 1, o);
    fetch_all(&s, o);
    scene_close(&s);
}

/* Loss and every gradient of the first step are those of the undivided batch. */
static void assert_undivided(const session_case *c, double n_valid)
{
    char text[256];
    outcome whole, o = {0};
    scene s;
    print_case(c, text, sizeof text);
    run_undivided(c, &whole);
    scene_open(&s, c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    fetch_all(&s, &o);
    assert_true(o.step[0].n_valid == n_valid);
    assert_true(whole.step[0].n_valid == n_valid);
    assert_near(text, o.step[0].loss, whole.step[0].loss, YOKE_PARITY_LOSS);
    assert_near(text, o.step[0].grad_norm, whole.step[0].grad_norm, YOKE_PARITY_GRAD);
    for (int64_t i = 0, at = 0; i < o.n; i++) {
        int64_t n = parameter_elements(s.session, (int)i);
        if (!(distance(o.gradient + at, whole.gradient + at, n) <= YOKE_PARITY_GRAD)) {
            fail_msg("%s: gradient of %s", text, yoke_session_parameter_name(s.session, (int)i));
        }
        at += n;
    }
    scene_close(&s);
    outcome_free(&o);
    outcome_free(&whole);
}

static void test_a6_unequal_valid_labels(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=2", "pp=2", "tp=2", "dp=2,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        session_case c = {.mesh = meshes[i],
                          .batch = 16,
                          .seq_len = 32,
                          .microbatches = 4,
                          .masked = true,
                          .valid = {10, 100, 3, 57}};
        assert_undivided(&c, 170);
        c.valid[1] = 0;
        assert_undivided(&c, 70);
    }
}

/* Nothing of a micro-batch is lost or counted again, with 1, 2 and 5 of them; some of their labels do not count. */
static void test_c1_every_microbatch_counts(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2", "dp=3", "dp=3,pp=2"};
    static const int64_t counts[] = {1, 2, 5};
    for (int i = 0; i < 9; i++) {
        session_case c = {.mesh = meshes[i / 3],
                          .batch = 30,
                          .microbatches = counts[i % 3],
                          .masked = true,
                          .valid = {41, 37, 0, 19, 1}};
        assert_undivided(&c, counts[i % 3] == 1 ? 41 : counts[i % 3] == 2 ? 78 : 98);
    }
}

/* A step without labels is skipped and leaves everything as it is: what follows is as if it had not been. */
static void assert_empty_step(const char *mesh)
{
    const session_case c = {.mesh = mesh, .microbatches = 2, .empty_step = 2};
    scene s;
    outcome before = {0}, after = {0}, without = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &before);
    fetch_all(&s, &before);
    run_steps(&s, 1, 1, &after);
    fetch_all(&s, &after);
    assert_true(after.step[0].skipped && after.step[0].n_valid == 0);
    assert_true(isnan(after.step[0].loss) && after.step[0].grad_norm == 0);
    assert_int_equal(after.result.skipped, 1);
    assert_equal_floats(mesh, after.weight, before.weight, before.elements);
    run_steps(&s, 2, 1, &after);
    fetch_all(&s, &after);
    assert_false(after.step[1].skipped);
    yoke_session_destroy(s.session);
    scene_plan(&s);
    run_steps(&s, 0, 1, &without);
    run_steps(&s, 2, 1, &without);
    fetch_all(&s, &without);
    assert_true(without.step[1].lr == after.step[1].lr);
    assert_equal_floats(mesh, after.weight, without.weight, without.elements);
    scene_close(&s);
    outcome_free(&before);
    outcome_free(&after);
    outcome_free(&without);
}

static void test_a6_a_step_without_labels(void **state)
{
    (void)state;
    assert_empty_step("");
    assert_empty_step("dp=3");
    assert_empty_step("dp=2,tp=2,pp=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a3_loss_of_a_divided_vocabulary),
        cmocka_unit_test(test_a14_odd_vocabulary),
        cmocka_unit_test(test_a4_slope_of_the_printed_loss),
        cmocka_unit_test(test_a4_stages_divide_once),
        cmocka_unit_test(test_a6_unequal_valid_labels),
        cmocka_unit_test(test_c1_every_microbatch_counts),
        cmocka_unit_test(test_a6_a_step_without_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
