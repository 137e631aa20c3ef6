/*
 * Lowering and planning where models and meshes are unusual. Whatever the case, the run must be
 * that of one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

/* --- Programs beside each other --------------------------------------------------------------- */

typedef struct answers {
    double eval_loss;
    float *logits;
    int64_t n;
} answers;

/* Three layers so narrow that backward costs of a block are not in proportion to its forward costs:
 * by itself, an evaluation would be cut elsewhere than training is. */
static const session_case narrow = {.keys = "n_layer=3 n_embd=16", .batch = 4, .microbatches = 2};

static float *logits_of(scene *s, int64_t *n)
{
    int64_t n_tokens = s->config.batch_size * s->config.seq_len;
    int32_t *tokens = calloc((size_t)n_tokens, sizeof *tokens);
    float *logits = calloc((size_t)(n_tokens * VOCABULARY), sizeof *logits);
    assert_true(tokens && logits);
    for (int64_t i = 0; i < n_tokens; i++) {
        tokens[i] = (int32_t)(i * 7 % VOCABULARY);
    }
    assert_ok(yoke_session_logits(s->session, tokens, logits), s->config.mesh);
    free(tokens);
    *n = n_tokens * VOCABULARY;
    return logits;
}

static answers ask(const char *mesh)
{
    session_case c = narrow;
    scene s;
    yoke_run_result result;
    c.mesh = mesh;
    scene_open(&s, &c);
    s.config.eval_fraction = 0.5;
    s.config.eval_batches = 2;
    scene_plan(&s);
    yoke_run_options options = {.n_steps = 1, .evaluate_last = true};
    assert_ok(yoke_session_run(s.session, &options, &result), mesh);
    answers a = {.eval_loss = result.eval_loss};
    a.logits = logits_of(&s, &a.n);
    scene_close(&s);
    return a;
}

/* Evaluation and logits read the parameters that training has made. */
static void test_evaluation_finds_the_parameters(void **state)
{
    (void)state;
    answers single = ask(""), piped = ask("pp=3");
    assert_near("evaluation", piped.eval_loss, single.eval_loss, 0);
    assert_equal_floats("logits", piped.logits, single.logits, single.n);
    free(single.logits);
    free(piped.logits);
}

/* --- Models out of the ordinary --------------------------------------------------------------- */

static int64_t vocabulary_of(const yoke_model_config *config)
{
    (void)config;
    return VOCABULARY;
}

static void begin(yoke_graph *g)
{
    yoke_letter(g, 'v', VOCABULARY);
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
}

static yoke_value weight(yoke_graph *g, const char *name, const char *dims)
{
    return yoke_weight(g, name, dims, 0.2f);
}

static yoke_value feed_forward(yoke_graph *g, const char *name, yoke_value x)
{
    char up[32], down[32];
    (void)snprintf(up, sizeof up, "%s.up", name);
    (void)snprintf(down, sizeof down, "%s.down", name);
    yoke_value h = yoke_gelu(g, yoke_matmul(g, "btd,df->btf", x, weight(g, up, "df")));
    return yoke_add(g, x, yoke_matmul(g, "btf,fd->btd", h, weight(g, down, "fd")));
}

typedef yoke_value (*model_function)(yoke_graph *g, const yoke_model_config *config,
                                     const yoke_build *build);

typedef struct strange {
    const char *name;
    model_function logits;
    const char *mesh, *schedule;
    int microbatches, batch, seq_len; /* 0: as session_case has it */
    bool bits;
} strange;

#define CASE(model, ...)                                                                           \
    {                                                                                              \
        .name = #model, .logits = (model), __VA_ARGS__                                             \
    }

static void assert_equals_one_rank(const strange *s)
{
    const yoke_model model = {.name = s->name, .vocab_size = vocabulary_of, .logits = s->logits};
    assert_parity(&(parity_case){.base = {.preset = s->name,
                                          .model = &model,
                                          .mesh = s->mesh,
                                          .schedule = s->schedule,
                                          .microbatches = s->microbatches,
                                          .batch = s->batch,
                                          .seq_len = s->seq_len},
                                 .bits = s->bits});
}

static void assert_all_equal_one_rank(const strange *table, int n)
{
    for (int i = 0; i < n; i++) {
        assert_equals_one_rank(&table[i]);
    }
}

/* --- One parameter in three places ------------------------------------------------------------ */

/* Table, embedding again in block `again` of 4, and head are one. */
static yoke_value shared_thrice(yoke_graph *g, const yoke_build *build, int again)
{
    begin(g);
    yoke_block(g, "embed");
    yoke_value table = weight(g, "table", "vd");
    yoke_value x = yoke_embedding(g, table, build->tokens);
    for (int i = 0; i < 4; i++) {
        char name[] = {'h', (char)('0' + i), 0};
        yoke_block(g, "%s", name);
        x = feed_forward(g, name, x);
        x = i == again ? yoke_add(g, x, yoke_embedding(g, table, build->tokens)) : x;
    }
    yoke_block(g, "head");
    return yoke_matmul(g, "btd,vd->btv", x, table);
}

static yoke_value shared_early(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    return shared_thrice(g, build, 0);
}

static yoke_value shared_late(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    return shared_thrice(g, build, 3);
}

/* Two of the three on one stage, first or last, or each on its own. */
static void test_parameter_in_three_places(void **state)
{
    (void)state;
    static const strange cases[] = {
        CASE(shared_early, .mesh = "pp=2", .microbatches = 3),
        CASE(shared_late, .mesh = "pp=2", .microbatches = 3),
        CASE(shared_early, .mesh = "pp=3", .microbatches = 2),
        CASE(shared_late, .mesh = "pp=5", .microbatches = 2),
        CASE(shared_early, .mesh = "dp=2,tp=3,pp=2"),
        CASE(shared_late, .mesh = "dp=3,pp=2", .microbatches = 2),
    };
    assert_all_equal_one_rank(cases, COUNT(cases));
}

/* --- Frozen parameters ------------------------------------------------------------------------ */

enum { TABLE, GAIN, BIAS, N_FREEZABLE };

/* The bits of `frozen` say which parameters are. */
static yoke_value partly_frozen(yoke_graph *g, const yoke_build *build, unsigned frozen)
{
    begin(g);
    yoke_block(g, "embed");
    const yoke_value freezable[N_FREEZABLE] = {weight(g, "table", "vd"), yoke_gain(g, "gain", "d"),
                                               yoke_bias(g, "bias", "d")};
    for (int i = 0; i < N_FREEZABLE; i++) {
        if (frozen >> i & 1u) {
            yoke_freeze(g, freezable[i]);
        }
    }
    yoke_value x = yoke_embedding(g, freezable[TABLE], build->tokens);
    yoke_block(g, "norm");
    x = yoke_layer_norm(g, x, freezable[GAIN], freezable[BIAS], 1e-5f);
    yoke_block(g, "head");
    return yoke_matmul(g, "btd,vd->btv", feed_forward(g, "h", x), weight(g, "head", "vd"));
}

#define FROZEN_MODEL(name, frozen)                                                                 \
    static yoke_value name(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)     \
    {                                                                                              \
        (void)c;                                                                                   \
        return partly_frozen(g, build, frozen);                                                    \
    }

FROZEN_MODEL(none_frozen, 0)
FROZEN_MODEL(frozen_gain, 1u << GAIN)
FROZEN_MODEL(frozen_bias, 1u << BIAS)
FROZEN_MODEL(frozen_table, 1u << TABLE)

static void gradients_of(model_function logits, outcome *o)
{
    const yoke_model model = {.name = "frozen", .vocab_size = vocabulary_of, .logits = logits};
    run_case(&(session_case){.model = &model, .microbatches = 3, .steps = 1}, o);
}

/* What freezing one parameter leaves of the gradients of the others, which come out of one kernel
 * with its own. */
static void assert_freezing_changes_nothing_else(model_function logits, int frozen)
{
    static const int64_t extent[N_FREEZABLE] = {VOCABULARY * 8, 8, 8};
    outcome some, all;
    gradients_of(logits, &some);
    gradients_of(none_frozen, &all);
    int64_t at = 0;
    for (int i = 0; i < N_FREEZABLE; at += extent[i], i++) {
        for (int64_t k = at; i == frozen && k < at + extent[i]; k++) {
            assert_true(all.gradient[k] != 0 && some.gradient[k] == 0);
        }
        if (i != frozen) {
            assert_equal_floats("gradient", some.gradient + at, all.gradient + at, extent[i]);
        }
    }
    outcome_free(&some);
    outcome_free(&all);
}

static void test_frozen_beside_trained(void **state)
{
    (void)state;
    static const strange cases[] = {
        CASE(frozen_gain, .mesh = "pp=2", .microbatches = 3, .bits = true),
        CASE(frozen_bias, .mesh = "pp=3", .microbatches = 2, .bits = true),
        CASE(frozen_bias, .mesh = "dp=2,tp=2", .microbatches = 2),
    };
    assert_freezing_changes_nothing_else(frozen_gain, GAIN);
    assert_freezing_changes_nothing_else(frozen_bias, BIAS);
    assert_all_equal_one_rank(cases, COUNT(cases));
}

/* --- Stages without parameters ---------------------------------------------------------------- */

/* The block in the middle has none, that at the end has the loss alone. */
static yoke_value bare_blocks(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    begin(g);
    yoke_block(g, "empty");
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, weight(g, "table", "vd"), build->tokens);
    yoke_block(g, "bare");
    x = yoke_gelu(g, x);
    yoke_block(g, "head");
    x = yoke_matmul(g, "btd,vd->btv", x, weight(g, "head", "vd"));
    yoke_block(g, "loss");
    return x;
}

/* Each rank learns whether the step was applied, also one that trains nothing. */
static void test_stages_that_train_nothing(void **state)
{
    (void)state;
    static const strange cases[] = {
        CASE(bare_blocks, .mesh = "pp=5", .microbatches = 3, .bits = true),
        CASE(bare_blocks, .mesh = "dp=2,pp=3", .microbatches = 2),
        CASE(frozen_table, .mesh = "pp=2", .microbatches = 3, .bits = true),
        CASE(frozen_table, .mesh = "tp=2,pp=3"),
    };
    assert_all_equal_one_rank(cases, COUNT(cases));
}

/* --- Values that skip stages ------------------------------------------------------------------ */

/* The embedding is read in later blocks, by operators that keep it for the backward pass and by
 * some that do not; its gradient comes from all of them. */
static yoke_value skipping(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    begin(g);
    yoke_block(g, "embed");
    yoke_value first = yoke_embedding(g, weight(g, "table", "vd"), build->tokens), x = first;
    for (int i = 0; i < 6; i++) {
        char name[] = {'h', (char)('0' + i), 0};
        yoke_block(g, "%s", name);
        x = feed_forward(g, name, x);
        x = i == 1 ? yoke_add(g, x, yoke_gelu(g, first)) : x;
        x = i == 2 || i == 5 ? yoke_add(g, x, first) : x;
    }
    yoke_block(g, "head");
    x = yoke_add(g, x, feed_forward(g, "last", first));
    return yoke_matmul(g, "btd,vd->btv", x, weight(g, "head", "vd"));
}

static void test_values_that_skip_stages(void **state)
{
    (void)state;
    static const strange cases[] = {
        CASE(skipping, .mesh = "pp=8", .microbatches = 6, .bits = true),
        CASE(skipping, .mesh = "pp=3", .microbatches = 1, .bits = true),
        CASE(skipping, .mesh = "pp=4", .schedule = "gpipe", .microbatches = 3, .bits = true),
        CASE(skipping, .mesh = "pp=5", .schedule = "zb-h1", .microbatches = 6, .bits = true),
        CASE(skipping, .mesh = "pp=2", .schedule = "zb-v", .microbatches = 3, .bits = true),
        CASE(skipping, .mesh = "pp=4", .schedule = "zb-v", .microbatches = 6, .bits = true),
        CASE(skipping, .mesh = "pp=2", .schedule = "interleaved", .microbatches = 6, .bits = true),
        CASE(skipping, .mesh = "pp=4", .schedule = "interleaved", .microbatches = 4, .batch = 4,
             .bits = true),
        CASE(skipping, .mesh = "dp=2,tp=2,pp=3", .microbatches = 2),
    };
    assert_all_equal_one_rank(cases, COUNT(cases));
}

/* --- Readers in other chunks ------------------------------------------------------------------ */

/* With two chunks a stage, "embed" and "late" are on one, and the gradient that "late" makes of the
 * residual stream goes to "embed" as it is. What flows into `v` comes from "late" alone, so it is
 * summed there, though autodiff gets to it last; and the sum would like the gradient's storage. */
static yoke_value one_gradient_for_two(yoke_graph *g, const yoke_model_config *c,
                                       const yoke_build *build)
{
    (void)c;
    begin(g);
    yoke_block(g, "embed");
    yoke_value v = yoke_embedding(g, weight(g, "aside", "vd"), build->tokens);
    yoke_value x = yoke_embedding(g, weight(g, "table", "vd"), build->tokens);
    yoke_block(g, "empty");
    yoke_block(g, "late");
    yoke_value bent = yoke_gelu(g, v);
    x = yoke_gelu(g, yoke_add(g, yoke_add(g, x, v), bent));
    yoke_block(g, "head");
    return yoke_matmul(g, "btd,vd->btv", x, weight(g, "head", "vd"));
}

static void test_readers_in_other_chunks(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "interleaved", "zb-h1", "zb-v"};
    for (int i = 0; i < COUNT(schedules); i++) {
        const strange cases[] = {
            CASE(one_gradient_for_two, .schedule = schedules[i], .microbatches = 2, .bits = true),
            CASE(one_gradient_for_two, .mesh = "pp=2", .schedule = schedules[i], .microbatches = 2,
                 .bits = true),
        };
        assert_all_equal_one_rank(cases, COUNT(cases));
    }
}

/* --- One token -------------------------------------------------------------------------------- */

/* Where all the labels are one, it is cheaper to give it to every rank than to add up the counts: a
 * conversion in the head, for each micro-batch. */
static void test_one_token_on_many_ranks(void **state)
{
    (void)state;
#define ONE_TOKEN(axes, n)                                                                         \
    {                                                                                              \
        .base = {.mesh = (axes), .microbatches = (n), .batch = (n), .seq_len = 1}, .bits = true    \
    }
    static const parity_case cases[] = {
        ONE_TOKEN("dp=3", 1),
        ONE_TOKEN("dp=3", 2),
        ONE_TOKEN("dp=2,pp=2", 3),
        ONE_TOKEN("pp=3", 2),
    };
    assert_parity_table("gpt2-tiny", cases, COUNT(cases));
}

/* --- Logits ----------------------------------------------------------------------------------- */

/* The last weight is divided along what the product sums over: over tp the logits are partial
 * sums. */
static yoke_value partial_logits(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    begin(g);
    yoke_block(g, "model");
    yoke_value x = yoke_embedding(g, weight(g, "table", "vd"), build->tokens);
    x = yoke_gelu(g, yoke_matmul(g, "btd,df->btf", x, weight(g, "up", "df")));
    return yoke_matmul(g, "btf,fv->btv", x, weight(g, "head", "fv"));
}

static float *fresh_logits(const char *mesh, int64_t *n)
{
    const yoke_model model = {
        .name = "partial", .vocab_size = vocabulary_of, .logits = partial_logits};
    const session_case c = {.model = &model, .mesh = mesh, .microbatches = 2};
    scene s;
    scene_open(&s, &c);
    scene_plan(&s);
    float *logits = logits_of(&s, n);
    scene_close(&s);
    return logits;
}

static void test_logits_are_whole(void **state)
{
    (void)state;
    static const char *const meshes[] = {"tp=2", "dp=2,tp=3", "dp=5"};
    int64_t n = 0;
    float *single = fresh_logits("", &n);
    for (int i = 0; i < COUNT(meshes); i++) {
        float *divided = fresh_logits(meshes[i], &n);
        assert_near(meshes[i], distance(divided, single, n), 0, 1e-6);
        free(divided);
    }
    free(single);
}

/* --- Models that do not fit a run ------------------------------------------------------------- */

static yoke_value unknown_input(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)build;
    return none_frozen(g, c, &(yoke_build){.tokens = yoke_input(g, "bytes", "bt")});
}

static yoke_value no_logits(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)none_frozen(g, c, build);
    return YOKE_NO_VALUE;
}

static yoke_value small_vocabulary(yoke_graph *g, const yoke_model_config *c,
                                   const yoke_build *build)
{
    (void)c;
    yoke_letter(g, 'v', VOCABULARY - 1);
    yoke_letter(g, 'd', 8);
    yoke_value table = weight(g, "table", "vd");
    return yoke_matmul(g, "btd,vd->btv", yoke_embedding(g, table, build->tokens), table);
}

static yoke_value other_in_evaluation(yoke_graph *g, const yoke_model_config *c,
                                      const yoke_build *build)
{
    (void)c;
    begin(g);
    yoke_value table = weight(g, "table", "vd");
    yoke_value x = yoke_embedding(g, table, build->tokens);
    x = build->training ? feed_forward(g, "h", x) : x;
    return yoke_matmul(g, "btd,vd->btv", x, table);
}

static void test_models_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        model_function logits;
        const char *message;
    } cases[] = {
        {unknown_input, "nothing fills the input bytes"},
        {no_logits, "returns no logits"},
        {small_vocabulary, "letter 'v' is 256, but vocab_size says 257"},
        {other_in_evaluation, "other blocks or parameters (1 and 1, in training 1 and 3)"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        const yoke_model model = {
            .name = "misfit", .vocab_size = vocabulary_of, .logits = cases[i].logits};
        const session_case c = {.model = &model};
        scene s;
        scene_open(&s, &c);
        s.config.eval_fraction = 0.5;
        yoke_session_parts parts = scene_parts(&s);
        assert_status_says(yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT,
                           SAYS(cases[i].message));
        scene_close(&s);
    }
}

/* --- More than can be planned ----------------------------------------------------------------- */

static void assert_plan_refused(const char *mesh, int64_t microbatches, const char *const *parts)
{
    const session_case c = {.mesh = mesh, .batch = 4, .steps = 1};
    scene s;
    scene_open(&s, &c);
    s.config.batch_size = s.config.microbatches = microbatches;
    yoke_session_parts session = {.config = &s.config, .model = &s.model};
    assert_status_says(yoke_session_create(&session, &s.session), YOKE_BAD_INPUT, parts);
    scene_close(&s);
}

/* A plan too large to hold is refused before it is begun. */
static void test_programs_too_large(void **state)
{
    (void)state;
    assert_plan_refused("dp=2", 65536,
                        SAYS("microbatches=65536 on 2 ranks", "8000000", "use at most"));
    assert_plan_refused("dp=512,pp=2", 65536,
                        SAYS("1024 ranks, of which 4 differ", "use at most", "divide evenly"));
    assert_plan_refused("pp=65", 1, SAYS("pp=65: at most 64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation_finds_the_parameters),
        cmocka_unit_test(test_parameter_in_three_places),
        cmocka_unit_test(test_frozen_beside_trained),
        cmocka_unit_test(test_stages_that_train_nothing),
        cmocka_unit_test(test_values_that_skip_stages),
        cmocka_unit_test(test_readers_in_other_chunks),
        cmocka_unit_test(test_one_token_on_many_ranks),
        cmocka_unit_test(test_logits_are_whole),
        cmocka_unit_test(test_models_that_do_not_fit),
        cmocka_unit_test(test_programs_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
