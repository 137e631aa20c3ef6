/*
 * Joined neighbours: what is joined in each family of models and what is not, on graphs that stay legal; runs with the
 * same bits as without, and in bf16 close to them; and the sum that a norm makes in bf16 is the sum as it is stored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"
#include "layout/infer.h"
#include "session_case.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* --- What is joined ----------------------------------------------------------------------------------- */

/* Nodes of an operator with so many inputs, clones apart. */
static int count(const yoke_graph *graph, yoke_op op, int n_in, bool recomputed)
{
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        n += node->op == op && node->n_in == n_in && node->recomputed == recomputed;
    }
    return n;
}

typedef struct expected {
    yoke_op op;
    int n_in, n; /* nodes with so many inputs */
} expected;

enum { LAYERS = 2, MOST_EXPECTED = 10 };

static const struct {
    const char *preset;
    expected e[MOST_EXPECTED];
} families[] = {
    {"gpt2-tiny",
     {{YOKE_OP_ADD_BIAS, 2, 3 * LAYERS}, /* of queries, keys and values */
      {YOKE_OP_ADD_BIAS, 3, LAYERS},     /* of the feed-forward half, with the stream */
      {YOKE_OP_LAYER_NORM, 5, LAYERS},   /* with the bias and sum of the attention */
      {YOKE_OP_LAYER_NORM, 3, LAYERS + 1},
      {YOKE_OP_LAYER_NORM_GRAD, 6, 2 * LAYERS},
      {YOKE_OP_LAYER_NORM_GRAD, 5, 1},
      {YOKE_OP_GELU, 2, LAYERS},
      {YOKE_OP_GELU_GRAD, 3, LAYERS},
      {YOKE_OP_ADD, 2, 1}}}, /* embeddings */
    {"llama-tiny",
     {{YOKE_OP_RMS_NORM, 3, LAYERS},
      {YOKE_OP_RMS_NORM, 2, LAYERS + 1},
      {YOKE_OP_RMS_NORM_GRAD, 5, 2 * LAYERS},
      {YOKE_OP_RMS_NORM_GRAD, 4, 1}}},
    {"bert-tiny",
     {{YOKE_OP_LAYER_NORM, 5, 2 * LAYERS},
      {YOKE_OP_LAYER_NORM, 4, 1}, /* of the embeddings */
      {YOKE_OP_LAYER_NORM, 3, 1}, /* of the head */
      {YOKE_OP_GELU_ERF, 2, LAYERS + 1},
      {YOKE_OP_GELU_ERF_GRAD, 3, LAYERS + 1}}},
};

static void test_models(void **state)
{
    (void)state;
    for (int f = 0; f < COUNT(families); f++) {
        scene s;
        scene_open(&s, &(session_case){.preset = families[f].preset});
        scene_plan(&s);
        const yoke_graph *graph = yoke_session_graph(s.session);
        for (int i = 0; i < MOST_EXPECTED && families[f].e[i].n; i++) {
            const expected *e = &families[f].e[i];
            int n = count(graph, e->op, e->n_in, false);
            if (n != e->n) {
                fail_msg("%s: %d nodes %s of %d inputs, not %d", families[f].preset, n,
                         yoke_op_get(e->op)->name, e->n_in, e->n);
            }
        }
        scene_close(&s);
    }
}

/* What is computed again is joined likewise. */
static void test_clones(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, &(session_case){.options = "recompute=full"});
    scene_plan(&s);
    const yoke_graph *graph = yoke_session_graph(s.session);
    assert_int_equal(count(graph, YOKE_OP_LAYER_NORM, 5, true), LAYERS);
    assert_int_equal(count(graph, YOKE_OP_GELU, 2, true), LAYERS);
    assert_int_equal(count(graph, YOKE_OP_ADD, 2, true), 0);
    scene_close(&s);
    scene_open(&s, &(session_case){.options = "recompute=selective"});
    scene_plan(&s);
    graph = yoke_session_graph(s.session);
    assert_int_equal(count(graph, YOKE_OP_LAYER_NORM, 5, true), LAYERS);
    assert_int_equal(count(graph, YOKE_OP_ADD_BIAS, 2, true), 3 * LAYERS);
    assert_int_equal(count(graph, YOKE_OP_GELU, 2, true), LAYERS);
    scene_close(&s);
}

static void test_graphs_stay_legal(void **state)
{
    (void)state;
    static const char *const meshes[] = {"",          "dp=2,tp=2",       "tp=3", "fsdp=3", "cp=2",
                                         "ep=2,tp=2", "fsdp=2,tp=2,pp=2"};
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny", "mixtral-tiny"};
    for (int i = 0; i < COUNT(meshes) * COUNT(presets) * 2; i++) {
        scene s;
        scene_open(&s, &(session_case){.preset = presets[i % COUNT(presets)],
                                       .mesh = meshes[i / COUNT(presets) % COUNT(meshes)],
                                       .options = i % 2 ? "sequence_parallel=true" : NULL});
        scene_plan(&s);
        const yoke_graph *graph = yoke_session_graph(s.session);
        yoke_policies policies = yoke_policies_choose(&s.config);
        assert_ok(yoke_graph_verify(graph), s.config.mesh);
        assert_ok(yoke_layout_verify(graph, &policies), s.config.mesh);
        scene_close(&s);
    }
}

/* --- What is not joined ------------------------------------------------------------------------------- */

typedef struct small {
    yoke_graph *g;
    yoke_value x, y, bias, gain; /* two activations [b,t,d]; two parameters [d] */
} small;

static small small_open(void)
{
    small s;
    assert_ok(yoke_graph_create(&s.g), "graph");
    static const char letters[] = "btdv";
    for (const char *c = letters; *c; c++) {
        yoke_letter(s.g, *c, 4);
    }
    yoke_value tokens = yoke_input(s.g, "tokens", "bt");
    yoke_block(s.g, "first");
    s.x = yoke_embedding(s.g, yoke_weight(s.g, "x", "vd", 1), tokens);
    s.y = yoke_embedding(s.g, yoke_weight(s.g, "y", "vd", 1), tokens);
    s.bias = yoke_bias(s.g, "bias", "d");
    s.gain = yoke_gain(s.g, "gain", "d");
    return s;
}

/* Nodes that the pass takes out of a graph whose result is `kept`. */
static int64_t small_fuse(const small *s, yoke_value kept)
{
    yoke_mesh mesh;
    yoke_config config = yoke_config_default();
    yoke_policies policies = yoke_policies_choose(&config);
    yoke_graph_keep(s->g, kept);
    assert_ok(yoke_graph_finish(s->g), "model");
    assert_ok(yoke_mesh_parse("", &mesh), "mesh");
    assert_ok(yoke_layout_infer(s->g, &mesh, &policies), "layouts");
    int64_t n = s->g->n_nodes;
    yoke_graph_fuse(s->g);
    assert_ok(yoke_graph_verify(s->g), "fused");
    n -= s->g->n_nodes;
    yoke_graph_destroy(s->g);
    return n;
}

static void test_bias_of_others(void **state)
{
    (void)state;
    small s = small_open();
    assert_int_equal(small_fuse(&s, yoke_gelu(s.g, yoke_add_bias(s.g, s.x, s.bias))), 1);

    s = small_open(); /* another reader */
    yoke_value biased = yoke_add_bias(s.g, s.x, s.bias);
    assert_int_equal(small_fuse(&s, yoke_swiglu(s.g, yoke_gelu(s.g, biased), biased)), 0);

    s = small_open(); /* a reader in another block */
    biased = yoke_add_bias(s.g, s.x, s.bias);
    yoke_value first = yoke_gelu(s.g, biased);
    yoke_block(s.g, "second");
    assert_int_equal(small_fuse(&s, yoke_swiglu(s.g, first, yoke_gelu(s.g, biased))), 0);

    s = small_open(); /* kept */
    biased = yoke_add_bias(s.g, s.x, s.bias);
    yoke_graph_keep(s.g, biased);
    assert_int_equal(small_fuse(&s, yoke_gelu(s.g, biased)), 0);
}

static void test_addend_of_others(void **state)
{
    (void)state;
    small s = small_open();
    assert_int_equal(small_fuse(&s, yoke_add(s.g, s.y, yoke_add_bias(s.g, s.x, s.bias))), 1);

    s = small_open(); /* another reader */
    yoke_value biased = yoke_add_bias(s.g, s.x, s.bias);
    assert_int_equal(small_fuse(&s, yoke_swiglu(s.g, yoke_add(s.g, s.y, biased), biased)), 0);

    s = small_open(); /* twice */
    biased = yoke_add_bias(s.g, s.x, s.bias);
    assert_int_equal(small_fuse(&s, yoke_add(s.g, biased, biased)), 0);

    s = small_open(); /* both: one takes the other */
    biased = yoke_add_bias(s.g, s.x, s.bias);
    assert_int_equal(small_fuse(&s, yoke_add(s.g, biased, yoke_add_bias(s.g, s.y, s.gain))), 1);

    s = small_open(); /* in another block */
    biased = yoke_add_bias(s.g, s.x, s.bias);
    yoke_block(s.g, "second");
    assert_int_equal(small_fuse(&s, yoke_add(s.g, s.y, biased)), 0);
}

static void test_sum_of_others(void **state)
{
    (void)state;
    small s = small_open();
    yoke_value sum = yoke_add(s.g, s.x, s.y);
    yoke_value norm = yoke_rms_norm(s.g, sum, s.gain, 1e-6f);
    assert_int_equal(small_fuse(&s, yoke_add(s.g, sum, norm)), 1);

    s = small_open(); /* with its bias */
    sum = yoke_add(s.g, yoke_add_bias(s.g, s.x, s.bias), s.y);
    assert_int_equal(small_fuse(&s, yoke_layer_norm(s.g, sum, s.gain, s.bias, 1e-6f)), 2);

    s = small_open(); /* a reader before */
    sum = yoke_add(s.g, s.x, s.y);
    yoke_value before = yoke_gelu(s.g, sum);
    norm = yoke_rms_norm(s.g, sum, s.gain, 1e-6f);
    assert_int_equal(small_fuse(&s, yoke_swiglu(s.g, before, norm)), 0);

    s = small_open(); /* kept */
    sum = yoke_add(s.g, s.x, s.y);
    yoke_graph_keep(s.g, sum);
    assert_int_equal(small_fuse(&s, yoke_rms_norm(s.g, sum, s.gain, 1e-6f)), 0);

    s = small_open(); /* in another block */
    sum = yoke_add(s.g, s.x, s.y);
    yoke_block(s.g, "second");
    assert_int_equal(small_fuse(&s, yoke_rms_norm(s.g, sum, s.gain, 1e-6f)), 0);
}

/* --- Runs --------------------------------------------------------------------------------------------- */

static void run_with(session_case c, const char *options, outcome *o)
{
    char all[128];
    (void)snprintf(all, sizeof all, "%s %s", options, c.options ? c.options : "");
    c.options = all;
    run_case(&c, o);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.microbatches = 2},
        {.options = "recompute=selective", .microbatches = 2},
        {.options = "recompute=full kernels=ref", .microbatches = 2},
        {.options = "sequence_parallel=true", .mesh = "tp=2"},
        {.mesh = "fsdp=3", .microbatches = 2},
        {.mesh = "pp=2", .schedule = "zb-h1", .microbatches = 2},
    };
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny", "mixtral-tiny"};
    for (int i = 0; i < COUNT(cases) * COUNT(presets); i++) {
        outcome joined, apart;
        session_case c = cases[i / COUNT(presets)];
        c.preset = presets[i % COUNT(presets)];
        print_message("%s %s %s\n", c.preset, c.mesh ? c.mesh : "", c.options ? c.options : "");
        run_with(c, "fuse=true", &joined);
        run_with(c, "fuse=false", &apart);
        assert_equal_outcomes(&joined, &apart);
        outcome_free(&joined);
        outcome_free(&apart);
    }
}

static void test_bf16_is_near(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny"};
    for (int i = 0; i < COUNT(presets); i++) {
        outcome joined, apart;
        const session_case c = {.preset = presets[i], .options = "dtype=bf16", .steps = 2};
        run_with(c, "fuse=true", &joined);
        run_with(c, "fuse=false", &apart);
        for (int64_t step = 0; step < joined.n_steps; step++) {
            assert_near(c.preset, joined.step[step].loss, apart.step[step].loss, 1e-3);
        }
        double d = distance(joined.gradient, apart.gradient, apart.elements);
        if (!(d <= 1e-2)) {
            fail_msg("%s: gradients are %.3g apart", c.preset, d);
        }
        outcome_free(&joined);
        outcome_free(&apart);
    }
}

/* At every level the same bits, also where sums are rounded: a clone is joined as its original is. */
static void test_levels_of_bf16(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny"};
    for (int i = 0; i < COUNT(presets); i++) {
        outcome kept, again;
        const session_case c = {.preset = presets[i], .options = "dtype=bf16 matmul=f32"};
        run_with(c, "recompute=none", &kept);
        for (int level = 0; level < 2; level++) {
            run_with(c, level ? "recompute=full" : "recompute=selective", &again);
            assert_equal_outcomes(&again, &kept);
            outcome_free(&again);
        }
        outcome_free(&kept);
    }
}

/* Joined neighbours keep no more, and need no more at the peak but for what is said below. */
static void test_memory(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny"};
    static const char *const levels[] = {"recompute=none", "recompute=selective", "recompute=full"};
    for (int i = 0; i < COUNT(presets) * COUNT(levels); i++) {
        int64_t stash[2], planned[2];
        for (int fuse = 0; fuse < 2; fuse++) {
            char options[64];
            (void)snprintf(options, sizeof options, "%s fuse=%s", levels[i / COUNT(presets)],
                           fuse ? "true" : "false");
            scene s;
            scene_open(&s,
                       &(session_case){.preset = presets[i % COUNT(presets)], .options = options});
            scene_plan(&s);
            stash[fuse] = yoke_session_bytes(s.session, 0).stash;
            planned[fuse] = yoke_session_bytes(s.session, 0).planned;
            scene_close(&s);
        }
        /* A sum that a norm makes takes nobody's storage: one more tensor of a micro-batch at most. */
        if (stash[1] > stash[0] || (double)planned[1] > 1.02 * (double)planned[0]) {
            fail_msg("%s %s: stash %lld, planned %lld, apart %lld and %lld",
                     presets[i % COUNT(presets)], levels[i / COUNT(presets)], (long long)stash[1],
                     (long long)planned[1], (long long)stash[0], (long long)planned[0]);
        }
    }
}

/* --- The sum of a norm in bf16 ------------------------------------------------------------------------ */

static const case_sizes sizes = {"rows", {{'b', 2, 0}, {'t', 3, 0}, {'d', 37, 0}}, 1, 1};
static const op_case joint = {
    .op = YOKE_OP_RMS_NORM, .in = {"btd", "d", "btd"}, .out = {"btd", "bt", "btd"}, .fill = "nnn"};

/* Of the twin, add and norm are apart. */
static void test_norm_is_of_the_stored_sum(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NAME(name) #name,
        YOKE_KERNEL_SET_LIST(NAME)
#undef NAME
    };
    for (int i = 0; i < COUNT(names); i++) {
        const yoke_kernel_set *set = yoke_kernel_set_find(names[i]);
        bool runs = !set->supported || set->supported();
        if (!runs || !set->run_narrow[YOKE_OP_RMS_NORM]) {
            continue;
        }
        kernel_case *c = case_create(&joint, &sizes, 5), *twin = case_create(&joint, &sizes, 5);
        case_store(c, joint.op, STORED_NARROW);
        case_store(twin, joint.op, STORED_NARROW);
        set->run_narrow[YOKE_OP_RMS_NORM](&c->call);
        const yoke_tensor parts[] = {twin->in[0], twin->in[2]};
        yoke_kernel_call add = {.in = parts, .out = &twin->out[2], .n_in = 2, .n_out = 1};
        add.attributes = &twin->attributes;
        set->run_narrow[YOKE_OP_ADD](&add);
        const yoke_tensor in[] = {twin->out[2], twin->in[1]};
        yoke_kernel_call norm = {.in = in, .out = twin->out, .n_in = 2, .n_out = 2};
        norm.attributes = &twin->attributes;
        set->run_narrow[YOKE_OP_RMS_NORM](&norm);
        for (int k = 0; k < 3; k++) {
            assert_memory_equal(c->out[k].data, twin->out[k].data, piece_bytes(&c->out[k]));
        }
        case_destroy(c);
        case_destroy(twin);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_clones),
        cmocka_unit_test(test_graphs_stay_legal),
        cmocka_unit_test(test_bias_of_others),
        cmocka_unit_test(test_addend_of_others),
        cmocka_unit_test(test_sum_of_others),
        cmocka_unit_test(test_norm_is_of_the_stored_sum),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_bf16_is_near),
        cmocka_unit_test(test_levels_of_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
