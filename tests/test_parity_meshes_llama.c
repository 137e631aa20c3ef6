/* labels: slow */
/*
 * Llama on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static const family llama = {
    .preset = "llama-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5",
             [SIX_HEADS] = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24",
             [OTHER_TIE] = "tie_word_embeddings=true"},
};

static void test_each_alone(void **state)
{
    (void)state;
    assert_each_alone(&llama);
}

static void test_all_pairs(void **state)
{
    (void)state;
    assert_all_pairs(&llama);
}

static void test_many_together(void **state)
{
    (void)state;
    assert_many_together(&llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_alone),
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_many_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
