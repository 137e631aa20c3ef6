/* labels: slow */
/*
 * Runs whose gradients are summed over ranks in bf16, and runs in bf16 whose weights are gathered: close to those that move
 * float32, and the same bits where nothing but the way differs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/product.h"
#include "parity_case.h"

static const session_case reducing[] = {
    {.mesh = "dp=2"},
    {.mesh = "dp=3", .microbatches = 2},
    {.mesh = "dp=5"},
    {.mesh = "dp=2", .options = "zero=1", .microbatches = 3},
    {.mesh = "dp=3", .options = "zero=2", .microbatches = 2},
    {.mesh = "fsdp=2", .microbatches = 2},
    {.mesh = "fsdp=3"},
    {.mesh = "dp=2,fsdp=2", .preset = "llama-tiny"},
    {.mesh = "dp=2,tp=2", .options = "sequence_parallel=true"},
    {.mesh = "cp=2,pp=2", .microbatches = 2},
    {.mesh = "fsdp=2", .options = "dtype=bf16"},
};

/* Both runs of a case: sums in f32, and in bf16. */
static void run_both(const session_case *base, int64_t steps, outcome *wide, outcome *narrow)
{
    char text[96];
    session_case c = *base;
    c.batch = c.batch ? c.batch : 30;
    c.seq_len = 32;
    c.steps = steps;
    c.lr = 3e-3;
    run_case(&c, wide);
    (void)snprintf(text, sizeof text, "%s%sreduce_dtype=bf16", base->options ? base->options : "",
                   base->options ? " " : "");
    c.options = text;
    run_case(&c, narrow);
}

static void test_gradients_are_those_of_float32(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(reducing); i++) {
        outcome wide, narrow;
        run_both(&reducing[i], 1, &wide, &narrow);
        assert_rounded_gradients(&reducing[i], &narrow, &wide);
        outcome_free(&wide);
        outcome_free(&narrow);
    }
}

static void test_losses_are_those_of_float32(void **state)
{
    (void)state;
    static const int chosen[] = {0, 2, 4, 6};
    for (int i = 0; i < COUNT(chosen); i++) {
        outcome wide, narrow;
        run_both(&reducing[chosen[i]], 30, &wide, &narrow);
        for (int64_t k = 0; k < wide.n_steps; k++) {
            assert_near(reducing[chosen[i]].mesh, narrow.step[k].loss, wide.step[k].loss, 1e-2);
        }
        outcome_free(&wide);
        outcome_free(&narrow);
    }
}

/* A rounded sum is a number of bf16: what the update reads has no more bits. */
static void test_sums_are_numbers_of_bf16(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=3", .options = "reduce_dtype=bf16", .steps = 1};
    outcome o;
    run_case(&c, &o);
    for (int64_t i = 0; i < o.elements; i++) {
        uint32_t bits;
        memcpy(&bits, &o.gradient[i], sizeof bits);
        assert_int_equal(bits & 0xffffu, 0);
    }
    outcome_free(&o);
}

/* One step on dp=2 in bf16, of a model whose tables have one place each: the gradients of two are added before they are
 * reduced or behind it. */
static void run_in_bf16(const char *preset, const char *options, outcome *o)
{
    char text[96];
    (void)snprintf(text, sizeof text, "dtype=bf16 %s", options);
    const session_case c = {.preset = preset,
                            .keys = "tie_word_embeddings=false",
                            .mesh = "dp=2",
                            .options = text,
                            .steps = 1,
                            .batch = 4};
    run_case(&c, o);
}

static void assert_same_step(const char *preset, const char *a_options, const char *b_options)
{
    outcome a, b;
    run_in_bf16(preset, a_options, &a);
    run_in_bf16(preset, b_options, &b);
    assert_true(a.step[0].loss == b.step[0].loss);
    assert_equal_floats(b_options, a.gradient, b.gradient, a.elements);
    outcome_free(&a);
    outcome_free(&b);
}

/* Weights are rounded by one rule: the same bits, however long they are whole. Where products multiply in bf16 they round
 * weights that are not gathered likewise. */
static void test_gathering_changes_no_bit(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny"};
    for (int i = 0; i < COUNT(presets); i++) {
        assert_same_step(presets[i], "matmul=f32 zero=1", "matmul=f32 zero=2");
        assert_same_step(presets[i], "matmul=f32 zero=1", "matmul=f32 zero=3");
        assert_same_step(presets[i], "kernels=ref zero=1", "kernels=ref zero=3");
        if (!yoke_multiplier_bf16_missing()) {
            assert_same_step(presets[i], "matmul=bf16 zero=0", "matmul=bf16 zero=1");
            assert_same_step(presets[i], "matmul=bf16 zero=0", "matmul=bf16 zero=3");
        }
    }
}

/* Where they multiply in f32, a weight that is gathered has been rounded, and one that is not has not. */
static void test_gathered_weights_are_rounded(void **state)
{
    (void)state;
    outcome whole, gathered;
    run_in_bf16("gpt2-tiny", "matmul=f32 zero=0", &whole);
    run_in_bf16("gpt2-tiny", "matmul=f32 zero=3", &gathered);
    double apart = distance(gathered.gradient, whole.gradient, whole.elements);
    assert_true(apart > 0 && apart < 1e-2);
    assert_near("loss", gathered.step[0].loss, whole.step[0].loss, 1e-3);
    outcome_free(&whole);
    outcome_free(&gathered);
}

static const parity_case meshes[] = {
    {.base = {.mesh = "dp=2", .options = "reduce_dtype=bf16"}},
    {.base = {.mesh = "dp=3", .options = "reduce_dtype=bf16 zero=1", .microbatches = 2}},
    {.base = {.mesh = "fsdp=2,tp=2", .options = "reduce_dtype=bf16", .microbatches = 3}},
    {.base = {.mesh = "dp=2,pp=2", .options = "reduce_dtype=bf16", .microbatches = 2}},
    {.base = {.mesh = "pp=2", .options = "reduce_dtype=bf16", .microbatches = 2}, .bits = true},
    {.base = {.mesh = "dp=2,fsdp=2", .options = "dtype=bf16 reduce_dtype=bf16 zero=3"}},
    {.base = {.mesh = "fsdp=3", .options = "dtype=bf16 matmul=f32"}},
};

static void test_meshes(void **state)
{
    (void)state;
    assert_parity_table("gpt2-tiny", meshes, COUNT(meshes));
    assert_parity_table("llama-tiny", meshes, COUNT(meshes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_those_of_float32),
        cmocka_unit_test(test_losses_are_those_of_float32),
        cmocka_unit_test(test_sums_are_numbers_of_bf16),
        cmocka_unit_test(test_gathering_changes_no_bit),
        cmocka_unit_test(test_gathered_weights_are_rounded),
        cmocka_unit_test(test_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
