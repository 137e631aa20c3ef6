/*
 * Tokens in balanced chunks: the order itself, that every rank then attends to as many pairs of query
 * and key as another, what fills inputs, and that N ranks still equal one rank, dropout, jitter, the
 * queues of experts and the logits that a user asks for included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_cases.h"
#include "kernel/kernel.h"
#include "mesh/order.h"
#include "parity_case.h"

enum { N_LAYERS = 2 };

#define BALANCED "balance_context=true"
#define RING     BALANCED " context_parallel=ring"
#define SP       " sequence_parallel=true"
#define DROPPED  "embd_pdrop=0.1 attn_pdrop=0.2 resid_pdrop=0.1"
#define FULL     "capacity_factor=0.5 router_jitter_noise=0.1"

/* --- The order ---------------------------------------------------------------------------------- */

static const yoke_order orders[] = {{9, 0},  {2, 2},  {10, 2},  {4, 4},  {12, 4},
                                    {18, 6}, {24, 8}, {10, 10}, {30, 10}};

/* The position at each index, by the words of the definition: first chunk, last chunk, second, ... */
static void positions_by_the_book(yoke_order order, int64_t *position)
{
    int64_t n = order.n_chunks ? order.n_chunks : 1, length = order.n_tokens / n, index = 0;
    for (int64_t c = 0; c < (n + 1) / 2; c++) {
        for (int64_t i = 0; i < length; i++) {
            position[index++] = c * length + i;
        }
        for (int64_t i = 0; n > 1 && i < length; i++) {
            position[index++] = (n - 1 - c) * length + i;
        }
    }
    assert_int_equal(index, order.n_tokens);
}

static void test_positions_and_indices(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(orders); k++) {
        int64_t position[30];
        positions_by_the_book(orders[k], position);
        for (int64_t i = 0; i < orders[k].n_tokens; i++) {
            assert_int_equal(yoke_order_position(orders[k], i), position[i]);
            assert_int_equal(yoke_order_index(orders[k], position[i]), i);
        }
    }
}

/* The stretches of an interval go through its tokens by position, each once, and as far as they can
 * within a chunk. */
static void assert_interval(yoke_order order, const int64_t *position, int64_t first, int64_t n)
{
    int64_t before = -1;
    for (int64_t j = 0; j < n; j++) {
        yoke_stretch s = yoke_order_find(order, first, n, j);
        assert_true(s.n >= 1 && s.index >= first && s.index + s.n <= first + n);
        assert_true(s.position > before);
        before = s.position;
        for (int64_t i = 0; i < s.n; i++) {
            assert_int_equal(position[s.index + i], s.position + i);
        }
        bool longer = s.index + s.n < first + n && position[s.index + s.n] == s.position + s.n;
        int64_t length = order.n_chunks ? order.n_tokens / order.n_chunks : order.n_tokens;
        assert_true(!longer || (s.position + s.n) % length == 0);
    }
    for (int64_t at = -1; at <= order.n_tokens; at++) {
        int64_t wanted = 0;
        for (int64_t i = first; i < first + n; i++) {
            wanted += position[i] <= at;
        }
        assert_int_equal(yoke_order_count(order, first, n, at), wanted);
    }
}

static void test_every_interval(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(orders); k++) {
        int64_t position[30];
        positions_by_the_book(orders[k], position);
        for (int64_t first = 0; first <= orders[k].n_tokens; first++) {
            for (int64_t n = 0; first + n <= orders[k].n_tokens; n++) {
                assert_interval(orders[k], position, first, n);
            }
        }
    }
}

/* --- The work of a rank ------------------------------------------------------------------------- */

/* Pairs of query and key, of one sequence, that a rank computes in a node of attention. */
static int64_t count_pairs(const yoke_graph *g, const yoke_node *node, int rank)
{
    const yoke_value_info *q = &g->values[node->in[0]], *k = &g->values[node->in[1]];
    yoke_shard queries = yoke_layout_shard(&g->mesh, q->layout, &q->shape, rank);
    yoke_shard keys = yoke_layout_shard(&g->mesh, k->layout, &k->shape, rank);
    yoke_order order = node->attributes.order;
    int64_t n = 0;
    for (int64_t i = 0; i < queries.extent[1]; i++) {
        int64_t position = yoke_order_position(order, queries.offset[1] + i);
        n += yoke_order_count(order, keys.offset[1], keys.extent[1], position);
    }
    return n;
}

static bool is_attention(const yoke_node *node)
{
    return node->op == YOKE_OP_ATTENTION || node->op == YOKE_OP_ATTENTION_GRAD;
}

/* Nodes of attention in which some rank has more to do than another; of `n_nodes` such. */
static int count_unequal(const char *mesh, const char *options, int *n_nodes)
{
    yoke_graph *g = NULL;
    graph_case c = gpt2_case(N_LAYERS);
    c.tokens = 48;
    c.options = options;
    assert_ok(case_build(&c, mesh, true, &g), mesh);
    int n_unequal = 0;
    *n_nodes = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const yoke_node *node = &g->nodes[i];
        bool unequal = false;
        for (int r = 1; is_attention(node) && r < yoke_mesh_n_ranks(&g->mesh); r++) {
            unequal = unequal || count_pairs(g, node, r) != count_pairs(g, node, 0);
        }
        n_unequal += unequal;
        *n_nodes += is_attention(node);
    }
    yoke_graph_destroy(g);
    return n_unequal;
}

/* In a ring at every turn: nobody waits for the one who has most to do. */
static void test_ranks_attend_to_equally_many_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        int n;
    } meshes[] = {{"cp=2", 2}, {"cp=3", 3}, {"cp=4", 4}, {"cp=6,tp=2", 6}, {"fsdp=2,cp=4,tp=2", 4}};
    for (int i = 0; i < COUNT(meshes); i++) {
        int n_nodes, n_turns = meshes[i].n;
        assert_int_equal(count_unequal(meshes[i].mesh, BALANCED, &n_nodes), 0);
        assert_int_equal(n_nodes, 2 * N_LAYERS);
        assert_int_equal(count_unequal(meshes[i].mesh, RING, &n_nodes), 0);
        assert_int_equal(n_nodes, 2 * N_LAYERS * n_turns);
        /* In plain order only those turns are equal in which each has its own keys. */
        assert_int_equal(count_unequal(meshes[i].mesh, "", &n_nodes), 2 * N_LAYERS);
        assert_int_equal(count_unequal(meshes[i].mesh, "context_parallel=ring", &n_nodes),
                         2 * N_LAYERS * (n_turns - 1));
    }
}

/* --- What is refused ---------------------------------------------------------------------------- */

static void assert_plan_refused(const session_case *c, const char *const *parts)
{
    scene s;
    scene_open(&s, c);
    yoke_session_parts made = scene_parts(&s);
    assert_status_says(yoke_session_create(&made, &s.session), YOKE_BAD_INPUT, parts);
    scene_close(&s);
}

static void test_lengths_are_refused(void **state)
{
    (void)state;
    session_case c = {.mesh = "cp=4", .seq_len = 30, .options = "balance_context=true"};
    assert_plan_refused(&c, SAYS("30 tokens", "2 x 4 balanced chunks of cp=4", "multiple of 8",
                                 "such as 32", "balance_context=false"));
    c.mesh = "cp=3,tp=2";
    c.options = "balance_context=true context_parallel=ring";
    c.seq_len = 15;
    assert_plan_refused(&c, SAYS("15 tokens", "cp=3", "multiple of 6", "such as 18"));
}

static void test_no_effect_is_refused(void **state)
{
    (void)state;
    yoke_config config = yoke_config_default();
    config.balance_context = true;
    config.context_parallel = "heads";
    assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT,
                       SAYS("balance_context", "heads", "balance_context=false", "gather or ring"));
}

static int64_t vocabulary_of(const yoke_model_config *config)
{
    (void)config;
    return VOCABULARY;
}

/* A model whose dropout has tokens in its last dim. */
static yoke_value turned(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    yoke_letter(g, 'v', vocabulary_of(config));
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
    yoke_block(g, "all");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "table", "vd", 0.02f), build->tokens);
    x = yoke_matmul(g, "df,btd->fbt", yoke_weight(g, "wide", "df", 0.02f), x);
    x = yoke_dropout(g, "drop", x, 0.1f);
    return yoke_matmul(g, "fbt,vf->btv", x, yoke_weight(g, "head", "vf", 0.02f));
}

static void test_tokens_in_the_last_dim_are_refused(void **state)
{
    (void)state;
    static const yoke_model model = {
        .name = "turned", .vocab_size = vocabulary_of, .logits = turned};
    session_case c = {.model = &model, .mesh = "cp=2", .options = "balance_context=true"};
    assert_plan_refused(&c, SAYS("dropout of [fbt]", "balance_context=false"));
}

/* --- Inputs ------------------------------------------------------------------------------------- */

static void test_inputs_stand_in_the_order(void **state)
{
    (void)state;
    static const char *const names[] = {"tokens", "labels", "positions", "token_types"};
    const yoke_order order = {.n_tokens = 24, .n_chunks = 6};
    const session_case c = {.seq_len = 24};
    scene s;
    scene_open(&s, &c);
    yoke_sampler sampler = {.corpus = s.corpus,
                            .n_tokens = yoke_corpus_n_tokens(s.corpus),
                            .seq_len = 24,
                            .batch_size = 6,
                            .microbatches = 2,
                            .ignore_token = -1,
                            .seed = 3,
                            .shuffled = true};
    for (int i = 0; i < 2 * COUNT(names); i++) {
        int32_t plain[3 * 24], piece[2 * 7];
        const char *name = names[i / 2];
        const yoke_shard all = {.n_dims = 2, .extent = {3, 24}};
        const yoke_shard part = {.n_dims = 2, .offset = {1, 6}, .extent = {2, 7}};
        sampler.masking = (yoke_masking){.rate = i % 2 ? 0.4 : 0.0, .vocab_size = 9, .token = 8};
        sampler.n_chunks = 0;
        assert_true(yoke_sampler_fill(&sampler, name, 1, 1, &all, plain));
        sampler.n_chunks = order.n_chunks;
        assert_true(yoke_sampler_fill(&sampler, name, 1, 1, &part, piece));
        for (int64_t e = 0; e < 2 * 7; e++) {
            int64_t position = yoke_order_position(order, 6 + e % 7);
            assert_int_equal(piece[e], plain[(1 + e / 7) * 24 + position]);
        }
    }
    scene_close(&s);
}

/* --- N ranks equal one rank --------------------------------------------------------------------- */

static void assert_table(const char *preset, const session_case *table, int n)
{
    int n_failed = 0;
    for (int i = 0; i < n; i++) {
        parity_case p = {.base = table[i]};
        p.base.preset = preset;
        p.base.steps = 3;
        p.base.epsilon = 1e-6;
        n_failed += !has_parity(&p);
    }
    assert_int_equal(n_failed, 0);
}

static void test_parity_of_gpt2(void **state)
{
    (void)state;
    static const session_case table[] = {
        {.mesh = "cp=2", .options = BALANCED, .keys = DROPPED, .seq_len = 16},
        {.mesh = "cp=3", .options = BALANCED, .keys = DROPPED, .seq_len = 24, .microbatches = 2},
        {.mesh = "cp=4", .options = BALANCED " recompute=full", .keys = DROPPED, .seq_len = 48},
        {.mesh = "cp=2", .options = RING, .keys = DROPPED, .seq_len = 24},
        {.mesh = "cp=3", .options = RING " recompute=full", .keys = DROPPED, .seq_len = 54},
        {.mesh = "cp=4", .options = RING, .keys = DROPPED, .seq_len = 48, .microbatches = 3},
        {.mesh = "cp=3", .options = RING " kernels=ref", .keys = DROPPED, .seq_len = 30},
        {.mesh = "cp=2", .options = BALANCED " kernels=ref", .keys = DROPPED, .seq_len = 12},
        {.mesh = "cp=2,tp=2", .options = BALANCED SP, .keys = DROPPED, .seq_len = 24},
        {.mesh = "cp=2,tp=3",
         .options = RING SP,
         .keys = DROPPED " n_embd=36 n_head=6",
         .seq_len = 20},
        {.mesh = "fsdp=2,cp=2", .options = RING, .keys = DROPPED, .seq_len = 24},
        {.mesh = "pp=2,cp=2",
         .options = BALANCED,
         .keys = DROPPED,
         .seq_len = 24,
         .microbatches = 2,
         .schedule = "zb-h1"},
        {.mesh = "dp=2,cp=3",
         .options = RING " zero=2",
         .keys = DROPPED,
         .seq_len = 24,
         .microbatches = 3,
         .masked = true,
         .valid = {13, 0, 40}},
    };
    assert_table("gpt2-tiny", table, COUNT(table));
}

static void test_parity_of_llama(void **state)
{
    (void)state;
    static const session_case table[] = {
        {.mesh = "cp=3", .options = BALANCED, .seq_len = 24},
        {.mesh = "cp=4", .options = RING, .seq_len = 24},
        {.mesh = "cp=2,tp=4", .options = RING SP, .seq_len = 24},
        {.mesh = "fsdp=2,cp=2,tp=2", .options = BALANCED SP, .seq_len = 24},
        {.mesh = "pp=2,fsdp=2,cp=2,tp=2", .options = RING SP, .seq_len = 24, .microbatches = 2},
    };
    assert_table("llama-tiny", table, COUNT(table));
}

/* Experts are full, so that who comes first in the sequence decides. */
static void test_parity_of_mixtral(void **state)
{
    (void)state;
    static const session_case table[] = {
        {.mesh = "cp=2", .options = BALANCED, .keys = FULL, .seq_len = 24},
        {.mesh = "cp=3", .options = RING, .keys = FULL, .seq_len = 24, .microbatches = 2},
        {.mesh = "cp=2,ep=2", .options = RING " kernels=ref", .keys = FULL, .seq_len = 16},
        {.mesh = "ep=2,cp=2,tp=2", .options = BALANCED SP, .keys = FULL, .seq_len = 24},
    };
    assert_table("mixtral-tiny", table, COUNT(table));
}

static void test_parity_of_bert(void **state)
{
    (void)state;
    static const session_case table[] = {
        {.mesh = "cp=3", .options = BALANCED, .seq_len = 24},
        {.mesh = "cp=2,pp=2", .options = RING, .seq_len = 24, .microbatches = 2},
    };
    assert_table("bert-tiny", table, COUNT(table));
}

/* --- Evaluation and logits ---------------------------------------------------------------------- */

static double evaluation_loss(const char *mesh, const char *options)
{
    const session_case c = {.mesh = mesh, .options = options, .microbatches = 2, .seq_len = 24};
    scene s;
    yoke_run_result result;
    scene_open(&s, &c);
    s.config.eval_fraction = 0.5;
    s.config.eval_batches = 2;
    scene_plan(&s);
    yoke_run_options run = {.n_steps = 1, .evaluate_last = true};
    assert_ok(yoke_session_run(s.session, &run, &result), mesh);
    scene_close(&s);
    return result.eval_loss;
}

static void test_evaluation(void **state)
{
    (void)state;
    double single = evaluation_loss("", "");
    assert_true(single > 5.0 && single < 6.0);
    assert_near("gather", evaluation_loss("cp=3", BALANCED), single, YOKE_PARITY_LOSS);
    assert_near("ring", evaluation_loss("cp=2", RING), single, YOKE_PARITY_LOSS);
}

enum { LOGITS_T = 24, LOGITS_B = 2, N_LOGITS = LOGITS_B * LOGITS_T * VOCABULARY };

/* After a step, for which sequences stood in balanced chunks. */
static void ask_logits(const char *mesh, const char *options, float *logits)
{
    const session_case c = {
        .mesh = mesh, .options = options, .batch = LOGITS_B, .seq_len = LOGITS_T};
    scene s;
    int32_t tokens[LOGITS_B * LOGITS_T];
    for (int i = 0; i < LOGITS_B * LOGITS_T; i++) {
        tokens[i] = i * i * 7 % IGNORED;
    }
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    assert_ok(yoke_session_logits(s.session, tokens, logits), mesh);
    scene_close(&s);
}

/* Whoever asks gives and gets tokens at their positions. */
static void test_logits_stand_at_their_positions(void **state)
{
    (void)state;
    static float alone[N_LOGITS], balanced[N_LOGITS];
    ask_logits("", "", alone);
    ask_logits("cp=3", RING, balanced);
    assert_true(distance(balanced, alone, N_LOGITS) < 1e-5);
    ask_logits("cp=2", BALANCED, balanced);
    assert_true(distance(balanced, alone, N_LOGITS) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions_and_indices),
        cmocka_unit_test(test_every_interval),
        cmocka_unit_test(test_ranks_attend_to_equally_many_pairs),
        cmocka_unit_test(test_lengths_are_refused),
        cmocka_unit_test(test_no_effect_is_refused),
        cmocka_unit_test(test_tokens_in_the_last_dim_are_refused),
        cmocka_unit_test(test_inputs_stand_in_the_order),
        cmocka_unit_test(test_parity_of_gpt2),
        cmocka_unit_test(test_parity_of_llama),
        cmocka_unit_test(test_parity_of_mixtral),
        cmocka_unit_test(test_parity_of_bert),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_logits_stand_at_their_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
