/* labels: slow */
/*
 * N ranks equal one rank: both families on every kind of mesh, and at the edges of what divides.
 *
 * Each case is compared with one rank by yoke_parity, whose bounds are the product's promise. It relies on session_case.h;
 * that the promise itself can fail is seen in test_parity_quick.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

#define DROPPED   "embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1"
#define UNEQUAL   .masked = true, .valid = {10, 32, 3, 27, 1}
#define ONE_EMPTY .masked = true, .valid = {17, 0, 32, 5, 9}

/* What holds for both families. Those that cut by pipeline alone must give equal bits. */
static const parity_case meshes[] = {
    {.base = {.mesh = "dp=2"}},
    {.base = {.mesh = "dp=3", .microbatches = 2}},
    {.base = {.mesh = "tp=2"}},
    {.base = {.mesh = "tp=4"}},
    {.base = {.mesh = "pp=2", .microbatches = 3}, .bits = true},
    {.base = {.mesh = "dp=2,tp=2", .microbatches = 2}},
    {.base = {.mesh = "dp=2,pp=2", .microbatches = 2}},
    {.base = {.mesh = "tp=2,pp=2", .microbatches = 3}},
    {.base = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 2}},
    {.base = {.mesh = "dp=2,tp=4,pp=2", .microbatches = 2, .batch = 8, .ranks = "processes"}},
    {.base = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 5, .batch = 10, UNEQUAL}},
    {.base = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 5, .batch = 10, ONE_EMPTY}},
    {.base = {.mesh = "dp=4,pp=2", .microbatches = 3, .batch = 9, ONE_EMPTY}},
};

static void test_gpt2(void **state)
{
    (void)state;
    assert_parity_table("gpt2-tiny", meshes, COUNT(meshes));
}

static void test_llama(void **state)
{
    (void)state;
    assert_parity_table("llama-tiny", meshes, COUNT(meshes));
}

/* Five layers over three stages, with every number of micro-batches and both schedules. */
static void test_pipelines(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b"};
    static const int64_t counts[] = {1, 2, 3, 5};
    for (int i = 0; i < 8; i++) {
        int64_t n = counts[i / 2];
        parity_case p = {.base = {.keys = "n_layer=5",
                                  .mesh = "pp=3",
                                  .schedule = schedules[i % 2],
                                  .batch = 2 * n,
                                  .microbatches = n},
                         .bits = true};
        assert_parity_table("gpt2-tiny", &p, 1);
        p.base.keys = "num_hidden_layers=5";
        assert_parity_table("llama-tiny", &p, 1);
    }
}

/* Several chunks a stage, and a backward in two halves: still the bits of one rank. */
static void test_schedules(void **state)
{
    (void)state;
    static const char *const schedules[] = {"interleaved", "zb-h1", "zb-v"};
    for (int i = 0; i < 3; i++) {
        const parity_case cases[] = {
            {.base = {.mesh = "pp=2", .microbatches = 4, .batch = 4}, .bits = true},
            {.base = {.keys = "n_layer=5 " DROPPED, .mesh = "pp=3", .microbatches = 6, .batch = 6},
             .bits = true},
            {.base = {.keys = "n_layer=6", .mesh = "pp=4", .microbatches = 4, .batch = 4},
             .bits = true},
            {.base = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 4, .batch = 8}},
        };
        for (int k = 0; k < COUNT(cases); k++) {
            parity_case p = cases[k];
            p.base.schedule = schedules[i];
            assert_parity_table("gpt2-tiny", &p, 1);
        }
    }
}

static const parity_case gpt2_edges[] = {
    {.base = {.keys = "n_head=6 n_embd=24", .mesh = "tp=4"}},
    {.base = {.keys = "n_head=6 n_embd=24", .mesh = "dp=2,tp=4", .microbatches = 3}},
    {.base = {.keys = "n_head=3 n_embd=24 n_inner=50", .mesh = "tp=4,pp=2"}},
    {.base = {.keys = "tie_word_embeddings=false", .mesh = "tp=3,pp=2"}},
    {.base = {.keys = "tie_word_embeddings=false", .mesh = "dp=2,tp=2"}},
    {.base = {.keys = DROPPED, .mesh = "dp=2", .microbatches = 3}},
    {.base = {.keys = DROPPED, .mesh = "dp=3"}},
    {.base = {.keys = DROPPED, .mesh = "tp=2"}},
    {.base = {.keys = DROPPED, .mesh = "tp=4", .microbatches = 2}},
    {.base = {.keys = DROPPED, .mesh = "pp=2", .microbatches = 2}, .bits = true},
    {.base = {.keys = DROPPED " n_layer=5", .mesh = "pp=3", .microbatches = 5, .batch = 5},
     .bits = true},
    {.base = {.keys = DROPPED, .mesh = "dp=2,tp=2,pp=2", .microbatches = 3}},
    {.base = {.keys = DROPPED, .mesh = "dp=2,tp=4,pp=2", .microbatches = 2, UNEQUAL}},
    {.base = {.keys = DROPPED " n_head=3 n_embd=24", .mesh = "dp=2,tp=2,pp=2", ONE_EMPTY}},
    {.base = {.mesh = "dp=4", .batch = 6}},
    {.base = {.mesh = "dp=5", .batch = 3, .seq_len = 17}},
    {.base = {.mesh = "dp=4,pp=2", .batch = 6, .microbatches = 2, .seq_len = 30}},
};

static void test_gpt2_edges(void **state)
{
    (void)state;
    assert_parity_table("gpt2-tiny", gpt2_edges, COUNT(gpt2_edges));
}

static const parity_case llama_edges[] = {
    {.base = {.mesh = "tp=4"}}, /* two heads of keys */
    {.base = {.keys = "num_attention_heads=8", .mesh = "tp=8"}},
    {.base = {.keys = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24",
              .mesh = "tp=4"}},
    {.base = {.keys = "num_attention_heads=6 num_key_value_heads=2 hidden_size=24",
              .mesh = "tp=4"}},
    {.base = {.keys = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24",
              .mesh = "dp=2,tp=3"}},
    {.base = {.keys = "num_key_value_heads=1", .mesh = "tp=2,pp=2", .microbatches = 2}},
    {.base = {.keys = "tie_word_embeddings=true",
              .mesh = "dp=2,tp=2,pp=2",
              .microbatches = 3,
              .steps = 20}},
    {.base = {.keys = "tie_word_embeddings=true num_hidden_layers=5",
              .mesh = "pp=3",
              .microbatches = 3},
     .bits = true},
    {.base = {.keys = "intermediate_size=37", .mesh = "tp=4", .seq_len = 19, .batch = 5}},
};

static void test_llama_edges(void **state)
{
    (void)state;
    assert_parity_table("llama-tiny", llama_edges, COUNT(llama_edges));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),       cmocka_unit_test(test_llama),
        cmocka_unit_test(test_pipelines),  cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_gpt2_edges), cmocka_unit_test(test_llama_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
