/*
 * A table that serves twice has one gradient in a step of one micro-batch on one stage, and the bits are
 * those of two that are added.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

static int64_t gradient_bytes(const session_case *c)
{
    scene s;
    scene_open(&s, c);
    scene_plan(&s);
    int64_t bytes = yoke_session_bytes(s.session, 0).grads;
    scene_close(&s);
    return bytes;
}

static void test_one_table(void **state)
{
    (void)state;
    const session_case one = {.microbatches = 1}, two = {.microbatches = 2},
                       untied = {.preset = "llama-tiny", .microbatches = 1},
                       untied_two = {.preset = "llama-tiny", .microbatches = 2};
    /* gpt2-tiny has 257 tokens and a width of 32 with its table tied. */
    int64_t table = VOCABULARY * 32 * (int64_t)sizeof(float);
    int64_t saved = gradient_bytes(&two) - gradient_bytes(&one);
    assert_true(saved >= table && saved < table + 64);
    assert_int_equal(gradient_bytes(&untied), gradient_bytes(&untied_two));
}

/* With the places on two stages there are two sums, and the last adds them. */
static void test_bits_of_two_stages(void **state)
{
    (void)state;
    static const parity_case cases[] = {
        {.base = {.mesh = "pp=2", .seq_len = 32}, .bits = true},
        {.base = {.mesh = "pp=2", .options = "logits_budget=2KiB", .seq_len = 32}, .bits = true},
        {.base = {.preset = "bert-tiny", .mesh = "pp=2", .seq_len = 32}, .bits = true},
        {.base = {.mesh = "pp=3", .options = "dtype=bf16"}, .bits = true},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        assert_parity(&cases[i]);
    }
}

static void test_divided_tables(void **state)
{
    (void)state;
    static const char *const options[] = {"zero=1", "zero=2", "zero=3"};
    for (int i = 0; i < COUNT(options); i++) {
        assert_parity(&(parity_case){.base = {.mesh = "dp=3", .options = options[i]}});
    }
    assert_parity(&(parity_case){.base = {.mesh = "tp=3"}});
    assert_parity(&(parity_case){.base = {.mesh = "fsdp=2,tp=2"}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_table),
        cmocka_unit_test(test_bits_of_two_stages),
        cmocka_unit_test(test_divided_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
