/* labels: slow */
/*
 * BERT on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static const family bert = {
    .preset = "bert-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5",
             [SIX_HEADS] = "num_attention_heads=6 hidden_size=24 hidden_dropout_prob=0.1 "
                           "attention_probs_dropout_prob=0.1",
             [OTHER_TIE] = "tie_word_embeddings=false"},
};

static void test_each_alone(void **state)
{
    (void)state;
    assert_each_alone(&bert);
}

static void test_all_pairs(void **state)
{
    (void)state;
    assert_all_pairs(&bert);
}

static void test_many_together(void **state)
{
    (void)state;
    assert_many_together(&bert);
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
