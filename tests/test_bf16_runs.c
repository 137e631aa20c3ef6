/* labels: slow */
/*
 * Runs whose activations are in bf16: close to those in float32, the same on any mesh within bf16's
 * rounding, and smaller.
 *
 * Of models with experts only losses are compared: a token near the border between two of them goes
 * the other way for the last bit of its logits, and then all that it adds to a gradient is different.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "bert-tiny", "mixtral-tiny"};

enum { N_WITHOUT_EXPERTS = 3 };

/* One step from the same weights: each tensor's gradient. A key bias that does not matter has none. */
static void test_gradients_are_those_of_float32(void **state)
{
    (void)state;
    for (int f = 0; f < N_WITHOUT_EXPERTS; f++) {
        session_case c = {.preset = families[f], .steps = 1, .batch = 8, .seq_len = 32};
        outcome wide, narrow;
        run_case(&c, &wide);
        c.options = "dtype=bf16";
        run_case(&c, &narrow);
        assert_rounded_gradients(&c, &narrow, &wide);
        outcome_free(&wide);
        outcome_free(&narrow);
    }
}

static void test_losses_are_those_of_float32(void **state)
{
    (void)state;
    for (int f = 0; f < COUNT(families); f++) {
        session_case c = {
            .preset = families[f], .steps = 60, .batch = 8, .seq_len = 32, .lr = 3e-3};
        outcome wide, narrow;
        run_case(&c, &wide);
        c.options = "dtype=bf16";
        run_case(&c, &narrow);
        for (int64_t i = 0; i < wide.n_steps; i++) {
            assert_near(families[f], narrow.step[i].loss, wide.step[i].loss, 1e-2);
        }
        outcome_free(&wide);
        outcome_free(&narrow);
    }
}

static const parity_case meshes[] = {
    {.base = {.mesh = "dp=2", .options = "dtype=bf16"}},
    {.base = {.mesh = "dp=3", .options = "dtype=bf16 zero=1", .microbatches = 2}},
    {.base = {.mesh = "dp=2", .options = "dtype=bf16 zero=2", .microbatches = 3}},
    {.base = {.mesh = "fsdp=4", .options = "dtype=bf16"}},
    {.base = {.mesh = "tp=2", .options = "dtype=bf16"}},
    {.base = {.mesh = "tp=3", .options = "dtype=bf16 sequence_parallel=true"}},
    {.base = {.mesh = "cp=2", .options = "dtype=bf16"}},
    {.base = {.mesh = "cp=2", .options = "dtype=bf16 context_parallel=heads"}},
    {.base = {.mesh = "cp=3", .options = "dtype=bf16 context_parallel=ring"}},
    {.base = {.mesh = "pp=2", .options = "dtype=bf16", .microbatches = 2}, .bits = true},
    {.base = {.mesh = "pp=2", .options = "dtype=bf16 recompute=full", .microbatches = 3},
     .bits = true},
    {.base = {.mesh = "fsdp=2,tp=2,pp=2", .options = "dtype=bf16", .microbatches = 2}},
    {.base = {.mesh = "dp=2,cp=2,tp=2", .options = "dtype=bf16 sequence_parallel=true zero=2"}},
};

static void test_meshes(void **state)
{
    (void)state;
    for (int f = 0; f < N_WITHOUT_EXPERTS; f++) {
        assert_parity_table(families[f], meshes, COUNT(meshes));
    }
}

/* What is kept from the forward to the backward pass takes half, but for inputs and statistics. */
static void test_activations_take_half(void **state)
{
    (void)state;
    int64_t stash[2];
    for (int i = 0; i < 2; i++) {
        const session_case c = {
            .preset = "llama-tiny", .options = i ? "dtype=bf16" : NULL, .batch = 4, .seq_len = 64};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        yoke_rank_bytes bytes = yoke_session_bytes(s.session, 0);
        stash[i] = bytes.stash;
        scene_close(&s);
    }
    assert_true((double)stash[1] < 0.6 * (double)stash[0]);
    assert_true(2 * stash[1] >= stash[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_those_of_float32),
        cmocka_unit_test(test_losses_are_those_of_float32),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_activations_take_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
