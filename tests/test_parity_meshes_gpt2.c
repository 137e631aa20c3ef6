/* labels: slow */
/*
 * GPT-2 on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static const family gpt2 = {
    .preset = "gpt2-tiny",
    .keys = {[FIVE_LAYERS] = "n_layer=5",
             [SIX_HEADS] = "n_head=6 n_embd=24 embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1",
             [OTHER_TIE] = "tie_word_embeddings=false"},
};

static void test_each_alone(void **state)
{
    (void)state;
    assert_each_alone(&gpt2);
}

static void test_all_pairs(void **state)
{
    (void)state;
    assert_all_pairs(&gpt2);
}

static void test_many_together(void **state)
{
    (void)state;
    assert_many_together(&gpt2);
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
