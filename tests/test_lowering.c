/*
 * Lowering and planning where models and meshes are unusual. Whatever the case, the run must be that of one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

/* --- Programs beside each other ------------------------------------------------------------------ */

typedef struct answers {
    double eval_loss;
    float *logits;
    int64_t n;
} answers;

/* Three layers so narrow that backward costs of a block are not in proportion to its forward costs: by itself, an
 * evaluation would be cut elsewhere than training is. */
static const session_case narrow = {.keys = "n_layer=3 n_embd=16", .batch = 4, .microbatches = 2};

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
    int64_t n_tokens = s.config.batch_size * s.config.seq_len;
    answers a = {.eval_loss = result.eval_loss, .n = n_tokens * VOCABULARY};
    int32_t *tokens = calloc((size_t)n_tokens, sizeof *tokens);
    a.logits = calloc((size_t)a.n, sizeof *a.logits);
    assert_true(tokens && a.logits);
    for (int64_t i = 0; i < n_tokens; i++) {
        tokens[i] = (int32_t)(i * 7 % VOCABULARY);
    }
    assert_ok(yoke_session_logits(s.session, tokens, a.logits), mesh);
    free(tokens);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation_finds_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
