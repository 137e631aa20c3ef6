/* labels: slow */
/*
 * Mixtral on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static const family mixtral = {
    .preset = "mixtral-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5 capacity_factor=0.6 router_jitter_noise=0.1",
             [SIX_HEADS] = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24 "
                           "num_local_experts=5 capacity_factor=1",
             [OTHER_TIE] = "tie_word_embeddings=true num_experts_per_tok=1"},
};

static void test_each_alone(void **state)
{
    (void)state;
    assert_each_alone(&mixtral);
}

static void test_all_pairs(void **state)
{
    (void)state;
    assert_all_pairs(&mixtral);
}

static void test_many_together(void **state)
{
    (void)state;
    assert_many_together(&mixtral);
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
