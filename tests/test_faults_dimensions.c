/* labels: quick */
/*
 * Faults of others that belong to a dimension of parallelism, each in the smallest situation that
 * shows it. The letters are those of the list of faults that the project keeps; dp, tp and pp alone
 * are in the files beside this one, routers (A15, A16) in test_moe_runs.c.
 *
 * A3 (1) asks for label smoothing, which yoke does not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

#define ALL_DROPPED "embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1"

static void assert_all(const session_case *cases, int n)
{
    for (int i = 0; i < n; i++) {
        assert_parity(&(parity_case){.base = cases[i]});
    }
}

/* --- A1, A2: tied tables ------------------------------------------------------------------------ */

/* Two copies on two stages, each in pieces: gradients are summed whole, and after each of many steps
 * both have the same bits, which fetching checks. */
static void test_a2_tied_tables_in_pieces(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "pp=2,dp=2", .options = "zero=1"},
        {.mesh = "pp=2,dp=2", .options = "zero=2", .microbatches = 2},
        {.mesh = "pp=2,dp=2", .options = "zero=3"},
        {.mesh = "pp=2,fsdp=3", .microbatches = 3},
        {.mesh = "pp=2,dp=3,tp=2", .options = "zero=1 sequence_parallel=true"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        session_case c = cases[i];
        c.steps = 20;
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        scene_plan(&s);
        for (int64_t step = 0; step < 20; step++) {
            run_steps(&s, step, 1, &o);
            fetch_all(&s, &o);
        }
        outcome_free(&o);
        scene_close(&s);
        assert_parity(&(parity_case){.base = c});
    }
}

/* --- A3: meaning at joins ----------------------------------------------------------------------- */

/* (4) What is computed again is computed by the same ranks: recomputation changes no bit. */
static void test_a3_recomputed_by_the_same_group(void **state)
{
    (void)state;
    static const char *const meshes[] = {"tp=2", "dp=2,tp=2", "cp=2,tp=2", "fsdp=2,tp=3"};
    for (int i = 0; i < 2 * COUNT(meshes); i++) {
        session_case kept = {.keys = ALL_DROPPED, .mesh = meshes[i / 2], .microbatches = 2};
        session_case again = kept;
        outcome a, b;
        kept.options = i % 2 ? "sequence_parallel=true" : "";
        again.options = i % 2 ? "sequence_parallel=true recompute=full" : "recompute=full";
        run_case(&kept, &a);
        run_case(&again, &b);
        assert_equal_outcomes(&a, &b);
        outcome_free(&a);
        outcome_free(&b);
    }
}

/* (3), (10) Unequal counts of labels on the ranks that divide tokens, some with none. */
static void test_a3_unequal_counts_by_tokens(void **state)
{
    (void)state;
#define UNEQUAL .microbatches = 2, .masked = true, .valid = { 29, 0 }
    static const session_case cases[] = {
        {.mesh = "tp=2", .options = "sequence_parallel=true", UNEQUAL},
        {.mesh = "cp=3", UNEQUAL},
        {.mesh = "cp=2,tp=2", .options = "context_parallel=heads sequence_parallel=true", UNEQUAL},
        {.mesh = "cp=4", .options = "context_parallel=ring", UNEQUAL},
        {.mesh = "ep=2", UNEQUAL},
        {.mesh = "fsdp=3", UNEQUAL},
        {.preset = "mixtral-tiny",
         .mesh = "ep=2,tp=2",
         .options = "sequence_parallel=true",
         UNEQUAL},
    };
    assert_all(cases, COUNT(cases));
}

/* --- A9, A10, A11: pieces of a sequence --------------------------------------------------------- */

/* Gradients of queries, keys and values behind attention in pieces, by way of their weights. */
static void test_a9_ring_attention_backward(void **state)
{
    (void)state;
#define A9 .preset = "llama-tiny", .keys = "hidden_size=64 num_hidden_layers=1", .seq_len = 32
    static const session_case cases[] = {
        {A9, .mesh = "cp=2", .options = "context_parallel=ring"},
        {A9, .mesh = "cp=4", .options = "context_parallel=ring"},
        {A9, .mesh = "cp=4", .options = "context_parallel=gather"},
        {A9, .mesh = "cp=4", .options = "context_parallel=heads"},
    };
    assert_all(cases, COUNT(cases));
}

/* Lengths that the ranks do not divide lose no token: every label counts, the last one too. */
static void test_a10_a11_lengths_that_do_not_divide(void **state)
{
    (void)state;
    static const char *const dims[][2] = {
        {"cp=2", "context_parallel=gather"}, {"cp=2", "context_parallel=heads"},
        {"cp=2", "context_parallel=ring"},   {"cp=4", "context_parallel=ring"},
        {"tp=4", "sequence_parallel=true"},
    };
    static const int64_t lengths[] = {3, 7, 30};
    for (int i = 0; i < COUNT(dims) * 3; i++) {
        const session_case c = {.mesh = dims[i / 3][0],
                                .options = dims[i / 3][1],
                                .seq_len = lengths[i % 3],
                                .epsilon = 1e-6};
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        scene_plan(&s);
        run_steps(&s, 0, 1, &o);
        assert_true(o.step[0].n_valid == (double)(6 * lengths[i % 3]));
        scene_close(&s);
        assert_parity(&(parity_case){.base = c});
    }
}

/* --- A18: experts over one axis or another ------------------------------------------------------ */

static void test_a18_experts_on_any_axis(void **state)
{
    (void)state;
#define EXPERTS .preset = "mixtral-tiny", .microbatches = 2, .batch = 8
    static const session_case cases[] = {
        {EXPERTS, .mesh = "ep=4"},      {EXPERTS, .mesh = "tp=4"},
        {EXPERTS, .mesh = "ep=2,tp=2"}, {EXPERTS, .mesh = "dp=2,ep=2", .options = "zero=1"},
        {EXPERTS, .mesh = "ep=1,dp=4"}, {EXPERTS, .mesh = "fsdp=2,ep=2"},
    };
    assert_all(cases, COUNT(cases));
}

/* --- A21: initial weights ----------------------------------------------------------------------- */

static void initial(const char *mesh, const char *options, outcome *o)
{
    const session_case c = {.preset = "mixtral-tiny", .mesh = mesh, .options = options};
    scene s;
    *o = (outcome){0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 0, o);
    fetch_all(&s, o);
    scene_close(&s);
}

static void test_a21_hybrid_replicas_start_equal(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2,fsdp=2", "dp=2,fsdp=3", "dp=2,fsdp=2,tp=2",
                                         "dp=2,ep=2",   "cp=2,fsdp=2", "dp=3"};
    outcome single, o;
    initial("", "", &single);
    for (int i = 0; i < 2 * COUNT(meshes); i++) {
        initial(meshes[i / 2], i % 2 ? "zero=3" : "zero=1", &o);
        assert_equal_floats(meshes[i / 2], o.weight, single.weight, single.elements);
        outcome_free(&o);
    }
    outcome_free(&single);
}

/* --- B: the norm and clipping ------------------------------------------------------------------- */

/* Each parameter once, by whatever ranks hold or divide it; small ones stay whole beside large ones
 * in pieces where 3 or 5 ranks divide. */
static void assert_norm(const session_case *c)
{
    char text[256];
    double squares = 0;
    outcome o, single;
    session_case alone = *c;
    alone.mesh = "";
    print_case(c, text, sizeof text);
    run_case(c, &o);
    run_case(&alone, &single);
    for (int64_t i = 0; i < o.elements; i++) {
        squares += (double)o.gradient[i] * (double)o.gradient[i];
    }
    assert_near(text, o.step[0].grad_norm, sqrt(squares), 1e-6);
    assert_near(text, o.step[0].grad_norm, single.step[0].grad_norm, YOKE_PARITY_GRAD);
    outcome_free(&o);
    outcome_free(&single);
}

static void test_b_each_parameter_once(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.preset = "mixtral-tiny", .mesh = "ep=2"},
        {.preset = "mixtral-tiny", .mesh = "ep=4,tp=2", .options = "sequence_parallel=true"},
        {.preset = "mixtral-tiny", .mesh = "ep=3,fsdp=2"},
        {.mesh = "tp=4", .options = "sequence_parallel=true"},
        {.preset = "llama-tiny", .mesh = "tp=4", .options = "sequence_parallel=true"},
        {.mesh = "dp=2", .options = "zero=0"},
        {.mesh = "dp=2", .options = "zero=1"},
        {.mesh = "dp=3", .options = "zero=2"},
        {.mesh = "dp=5", .options = "zero=3"},
        {.mesh = "fsdp=3,pp=2", .microbatches = 2},
        {.mesh = "dp=2,fsdp=2,cp=2"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        session_case c = cases[i];
        c.steps = 1;
        assert_norm(&c);
    }
}

/* With so large an epsilon an update goes with its gradient: another factor on another rank would
 * scale its pieces of a matrix otherwise. */
static void test_b8_clipped_updates(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "dp=2", .options = "zero=1"},        {.mesh = "dp=2", .options = "zero=3"},
        {.mesh = "dp=3", .options = "zero=2"},        {.mesh = "fsdp=2,tp=2"},
        {.preset = "mixtral-tiny", .mesh = "ep=2"},   {.mesh = "cp=2,pp=2", .microbatches = 2},
        {.mesh = "dp=2,fsdp=2", .options = "zero=1"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        session_case c = cases[i];
        outcome o, single;
        c.clip = 0.1;
        c.lr = 1;
        c.epsilon = 0.5;
        run_case(&c, &o);
        c.mesh = "";
        run_case(&c, &single);
        assert_true(single.step[0].grad_norm > 2 * c.clip);
        assert_near(cases[i].mesh, distance(o.weight, single.weight, o.elements), 0, 1e-6);
        outcome_free(&o);
        outcome_free(&single);
    }
}

/* --- C1: micro-batches and pieces --------------------------------------------------------------- */

/* Every form of ZeRO, 1, 2 and 5 micro-batches of which one has no label, two and three ranks: the
 * same gradients to 1e-6, and those of one rank. */
static void test_c1_every_microbatch_counts(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        static const int64_t counts[] = {1, 2, 5};
        session_case c = {.mesh = i / 3 ? "dp=3" : "dp=2",
                          .batch = 30,
                          .microbatches = counts[i % 3],
                          .masked = true,
                          .valid = {41, 37, 0, 19, 1},
                          .steps = 1};
        session_case alone = c;
        outcome single;
        alone.mesh = "";
        run_case(&alone, &single);
        for (int zero = 0; zero <= 3; zero++) {
            char options[16], text[256];
            outcome o;
            (void)snprintf(options, sizeof options, "zero=%d", zero);
            c.options = options;
            print_case(&c, text, sizeof text);
            run_case(&c, &o);
            assert_near(text, distance(o.gradient, single.gradient, o.elements), 0, 1e-6);
            assert_near(text, o.step[0].loss, single.step[0].loss, YOKE_PARITY_LOSS);
            outcome_free(&o);
        }
        outcome_free(&single);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a2_tied_tables_in_pieces),
        cmocka_unit_test(test_a3_recomputed_by_the_same_group),
        cmocka_unit_test(test_a3_unequal_counts_by_tokens),
        cmocka_unit_test(test_a9_ring_attention_backward),
        cmocka_unit_test(test_a10_a11_lengths_that_do_not_divide),
        cmocka_unit_test(test_a18_experts_on_any_axis),
        cmocka_unit_test(test_a21_hybrid_replicas_start_equal),
        cmocka_unit_test(test_b_each_parameter_once),
        cmocka_unit_test(test_b8_clipped_updates),
        cmocka_unit_test(test_c1_every_microbatch_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
