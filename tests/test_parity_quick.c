/*
 * Equal results, in short: a mesh against one rank, threads against processes, a run against itself, and a difference that
 * must be found. The long table is in test_parity.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

#define DROPPED "embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1"

static void test_meshes(void **state)
{
    (void)state;
    static const parity_case gpt2[] = {
        {.base = {.mesh = "dp=3", .microbatches = 2}},
        {.base = {.keys = DROPPED, .mesh = "tp=2", .microbatches = 2}},
        {.base = {.keys = "n_layer=5", .mesh = "pp=3", .microbatches = 3}, .bits = true},
    };
    static const parity_case llama[] = {
        {.base = {.mesh = "tp=4"}},
        {.base = {.mesh = "dp=2,tp=2,pp=2",
                  .batch = 9,
                  .microbatches = 3,
                  .masked = true,
                  .valid = {11, 0, 37}}},
    };
    assert_parity_table("gpt2-tiny", gpt2, COUNT(gpt2));
    assert_parity_table("llama-tiny", llama, COUNT(llama));
}

static const session_case whole = {.keys = DROPPED,
                                   .mesh = "dp=2,tp=2,pp=2",
                                   .microbatches = 3,
                                   .masked = true,
                                   .valid = {20, 7, 32}};

static void assert_repeats(const session_case *a, const session_case *b)
{
    outcome first, second;
    run_case(a, &first);
    run_case(b, &second);
    assert_true(first.n_steps == 3 && isfinite(first.step[2].loss));
    assert_equal_outcomes(&first, &second);
    outcome_free(&first);
    outcome_free(&second);
}

static void test_threads_equal_processes(void **state)
{
    (void)state;
    session_case processes = whole;
    processes.ranks = "processes";
    assert_repeats(&whole, &processes);
}

static void test_same_run_twice(void **state)
{
    (void)state;
    session_case single = whole;
    single.mesh = "";
    assert_repeats(&whole, &whole);
    assert_repeats(&single, &single);
}

/* Schedules order the work; they do not change it. */
static void test_schedules_are_equal(void **state)
{
    (void)state;
    session_case gpipe = whole;
    gpipe.schedule = "gpipe";
    assert_repeats(&whole, &gpipe);
}

/* --- Evaluation ------------------------------------------------------------------------------------- */

static double evaluation_loss(const char *mesh)
{
    const session_case c = {.mesh = mesh, .microbatches = 2, .masked = true, .valid = {40, 9}};
    scene s;
    yoke_run_result result;
    scene_open(&s, &c);
    s.config.eval_fraction = 0.5;
    s.config.eval_batches = 2;
    s.config.ignore_token = 3;
    scene_plan(&s);
    yoke_run_options options = {.n_steps = 1, .evaluate_last = true};
    assert_ok(yoke_session_run(s.session, &options, &result), mesh);
    scene_close(&s);
    return result.eval_loss;
}

static void test_evaluation_on_any_mesh(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2", "tp=4", "pp=2", "dp=3,tp=2", "dp=2,tp=2,pp=2"};
    double single = evaluation_loss("");
    assert_true(single > 5.0 && single < 6.0); /* log(257) is 5.55 */
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_near(meshes[i], evaluation_loss(meshes[i]), single, YOKE_PARITY_LOSS);
    }
}

/* --- A difference ------------------------------------------------------------------------------------ */

static int n_builds;
static float drift; /* added to the deviation of one weight at each further build */

static int64_t vocabulary_of(const yoke_model_config *config)
{
    (void)config;
    return VOCABULARY;
}

/* A model that is not the same the second time: first for the mesh, then for the single rank. */
static yoke_value drifting(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    float deviation = 0.02f + drift * (float)n_builds++;
    yoke_letter(g, 'v', vocabulary_of(config));
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "table", "vd", 0.02f), build->tokens);
    yoke_block(g, "layer");
    x = yoke_matmul(g, "btd,df->btf", x, yoke_weight(g, "wide", "df", deviation));
    yoke_block(g, "head");
    return yoke_matmul(g, "btf,vf->btv", x, yoke_weight(g, "head", "vf", 0.02f));
}

static void compare_builds(yoke_value (*logits)(yoke_graph *, const yoke_model_config *,
                                                const yoke_build *),
                           yoke_parity_result *result)
{
    const yoke_model model = {.name = "other", .vocab_size = vocabulary_of, .logits = logits};
    const session_case c = {.model = &model, .mesh = "pp=2"};
    scene s;
    n_builds = 0;
    scene_open(&s, &c);
    yoke_session_parts parts = scene_parts(&s);
    assert_ok(yoke_parity(&parts, 2, result), "another model");
    scene_close(&s);
}

static void compare_drifting(float by, yoke_parity_result *result)
{
    drift = by;
    compare_builds(drifting, result);
}

/* The table is the first parameter, and its gradient comes through the weight that is another one. */
static void test_a_difference_is_named(void **state)
{
    (void)state;
    yoke_parity_result result;
    compare_drifting(0.01f, &result);
    assert_false(result.ok);
    assert_false(result.bits_equal);
    assert_true(result.grad_rel > YOKE_PARITY_GRAD && result.weights_rel > YOKE_PARITY_WEIGHTS);
    assert_string_equal(result.first_difference, "gradient of table");
}

/* A bias of zeros that the second build adds twice: forward the same, its gradient twice as large.
 * The weight before it makes that gradient small beside the others. */
static yoke_value biased(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    yoke_letter(g, 'v', vocabulary_of(config));
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "table", "vd", 1.0f), build->tokens);
    yoke_block(g, "layer");
    yoke_value bias = yoke_bias(g, "small", "d");
    for (int i = 0; i <= n_builds; i++) {
        x = yoke_add_bias(g, x, bias);
    }
    n_builds++;
    x = yoke_matmul(g, "btd,df->btf", x, yoke_weight(g, "narrow", "df", 0.02f));
    yoke_block(g, "head");
    return yoke_matmul(g, "btf,vf->btv", x, yoke_weight(g, "head", "vf", 0.02f));
}

/* Floors do not hide it: they are for what is rounding noise. */
static void test_a_small_wrong_gradient_is_named(void **state)
{
    (void)state;
    yoke_parity_result result;
    compare_builds(biased, &result);
    assert_false(result.ok);
    assert_true(result.loss_rel <= YOKE_PARITY_LOSS);
    assert_true(result.grad_rel > 1e3 * YOKE_PARITY_GRAD);
    assert_string_equal(result.first_difference, "gradient of small");
}

/* Gradients that cancel to nothing, as of queries that have one key, and biases of two steps. */
static void test_noise_is_no_difference(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "dp=2", .batch = 4, .seq_len = 1, .steps = 2},
        {.mesh = "tp=2", .batch = 4, .seq_len = 1, .steps = 2},
        {.preset = "llama-tiny",
         .options = "warmup_steps=20",
         .mesh = "tp=2",
         .batch = 4,
         .seq_len = 1,
         .steps = 2},
        {.keys = "n_layer=3", .mesh = "tp=2", .batch = 2, .seq_len = 7, .steps = 2},
        {.preset = "bert-tiny",
         .keys = "num_hidden_layers=7",
         .options = "warmup_steps=20",
         .mesh = "dp=3",
         .batch = 9,
         .microbatches = 3,
         .steps = 2},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        assert_parity(&(parity_case){.base = cases[i]});
    }
}

static void test_other_bits_are_named(void **state)
{
    (void)state;
    yoke_parity_result result;
    compare_drifting(1e-9f, &result);
    assert_true(result.ok);
    assert_false(result.bits_equal);
    assert_string_equal(result.first_difference, "");
    assert_string_equal(result.first_other_bits, "gradient of table");
    compare_drifting(0.0f, &result);
    assert_true(result.ok && result.bits_equal);
    assert_string_equal(result.first_other_bits, "");
}

/* --- Nothing to compare -------------------------------------------------------------------------------- */

static yoke_status compare_case(const session_case *c, yoke_parity_result *result)
{
    scene s;
    scene_open(&s, c);
    yoke_session_parts parts = scene_parts(&s);
    yoke_status status = yoke_parity(&parts, s.config.steps, result);
    scene_close(&s);
    return status;
}

static void test_no_label_is_no_parity(void **state)
{
    (void)state;
    yoke_parity_result result;
    const session_case none = {.mesh = "dp=2", .masked = true, .valid = {0}};
    assert_status_says(
        compare_case(&none, &result), YOKE_CHECK,
        SAYS("nothing to compare", "not one of 3 steps has a label that counts", "ignore_token"));
    const session_case encoder = {
        .preset = "bert-tiny", .mesh = "dp=2,cp=2", .options = "mask_rate=1e-9", .batch = 4};
    assert_status_says(compare_case(&encoder, &result), YOKE_CHECK,
                       SAYS("not one of 3 steps has a label that counts", "raise mask_rate"));
}

static void test_skipped_steps_are_counted(void **state)
{
    (void)state;
    yoke_parity_result result;
    const session_case once = {.mesh = "dp=2", .empty_step = 2};
    assert_ok(compare_case(&once, &result), "one empty step");
    assert_true(result.ok);
    assert_int_equal(result.skipped, 1);
    const session_case wild = {.mesh = "pp=2", .lr = 1e6, .steps = 6};
    assert_ok(compare_case(&wild, &result), "lr 1e6");
    assert_true(result.skipped >= 3);
    const session_case tame = {.mesh = "pp=2"};
    assert_ok(compare_case(&tame, &result), "none skipped");
    assert_int_equal(result.skipped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_threads_equal_processes),
        cmocka_unit_test(test_same_run_twice),
        cmocka_unit_test(test_schedules_are_equal),
        cmocka_unit_test(test_evaluation_on_any_mesh),
        cmocka_unit_test(test_a_difference_is_named),
        cmocka_unit_test(test_a_small_wrong_gradient_is_named),
        cmocka_unit_test(test_noise_is_no_difference),
        cmocka_unit_test(test_other_bits_are_named),
        cmocka_unit_test(test_no_label_is_no_parity),
        cmocka_unit_test(test_skipped_steps_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
