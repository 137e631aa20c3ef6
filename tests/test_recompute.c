/*
 * Recomputation: the same bits as without it, on every kind of mesh and schedule; and of what the forward pass made, the
 * plan keeps what each level says and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "layout/infer.h"
#include "program/stash.h"
#include "session_case.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static const char *const dropping = "n_layer=4 embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1";

/* Keys of the config beside the case. */
static bool sequence_parallel;
static int64_t zero;
static const char *context_parallel = "gather";

static void open_level(scene *s, const session_case *c, const char *level)
{
    scene_open(s, c);
    s->config.recompute = level;
    s->config.sequence_parallel = sequence_parallel;
    s->config.zero = zero;
    s->config.context_parallel = context_parallel;
    assert_ok(yoke_config_check(&s->config), level);
}

static void run_level(const session_case *c, const char *level, outcome *o)
{
    scene s;
    *o = (outcome){0};
    open_level(&s, c, level);
    scene_plan(&s);
    run_steps(&s, 0, s.config.steps, o);
    fetch_all(&s, o);
    scene_close(&s);
}

/* --- Bits --------------------------------------------------------------------------------------------- */

static void assert_same_bits(const session_case *c)
{
    outcome kept;
    run_level(c, "none", &kept);
    for (int level = YOKE_RECOMPUTE_LIGHT; level < YOKE_N_RECOMPUTES; level++) {
        outcome again;
        print_message("%s %s %s %s\n", c->preset ? c->preset : "gpt2-tiny", c->mesh ? c->mesh : "",
                      c->schedule ? c->schedule : "", yoke_recompute_name((yoke_recompute)level));
        run_level(c, yoke_recompute_name((yoke_recompute)level), &again);
        assert_equal_outcomes(&kept, &again);
        outcome_free(&again);
    }
    outcome_free(&kept);
}

static void test_same_bits_on_meshes(void **state)
{
    (void)state;
    static const char *const meshes[] = {"",     "dp=2", "tp=2",      "tp=3",
                                         "pp=3", "dp=3", "dp=2,tp=2", "dp=2,tp=2,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_same_bits(&(session_case){.keys = dropping, .mesh = meshes[i], .microbatches = 2});
        assert_same_bits(
            &(session_case){.preset = "llama-tiny", .mesh = meshes[i], .microbatches = 2});
    }
}

static void test_same_bits_of_every_strategy(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        bool sequence;
        int64_t zero;
        const char *context;
    } cases[] = {{"tp=2", true, 0, "gather"},      {"tp=3,pp=2", true, 0, "gather"},
                 {"dp=2", false, 2, "gather"},     {"fsdp=3", false, 0, "gather"},
                 {"cp=2", false, 0, "gather"},     {"cp=2", false, 0, "heads"},
                 {"cp=3", false, 0, "ring"},       {"fsdp=2,pp=2", false, 0, "gather"},
                 {"cp=2,tp=2", true, 0, "ring"},   {"fsdp=2,tp=2,dp=2", true, 1, "gather"},
                 {"ep=2,tp=2", false, 0, "gather"}};
    for (int i = 0; i < COUNT(cases); i++) {
        sequence_parallel = cases[i].sequence;
        zero = cases[i].zero;
        context_parallel = cases[i].context;
        assert_same_bits(
            &(session_case){.keys = dropping, .mesh = cases[i].mesh, .microbatches = 2});
        assert_same_bits(
            &(session_case){.preset = "llama-tiny", .mesh = cases[i].mesh, .microbatches = 2});
        if (strcmp(cases[i].context, "ring") != 0) {
            assert_same_bits(&(session_case){
                .preset = "mixtral-tiny", .mesh = cases[i].mesh, .microbatches = 2});
        }
    }
    sequence_parallel = false;
    zero = 0;
    context_parallel = "gather";
}

static void test_same_bits_in_schedules(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int i = 0; i < COUNT(schedules); i++) {
        const session_case gpt2 = {.keys = dropping,
                                   .mesh = "pp=2",
                                   .schedule = schedules[i],
                                   .batch = 8,
                                   .microbatches = 4};
        assert_same_bits(&gpt2);
        session_case llama = gpt2;
        llama.preset = "llama-tiny";
        llama.keys = "num_hidden_layers=4";
        llama.mesh = "pp=2,tp=2";
        assert_same_bits(&llama);
    }
}

/* Fault A20: what is computed again drew other dropout masks, so the gradient was that of another sample. */
static void test_same_losses_with_dropout(void **state)
{
    (void)state;
    const session_case c = {.keys = dropping, .steps = 10, .microbatches = 2, .lr = 1e-2};
    outcome kept, again;
    run_level(&c, "none", &kept);
    run_level(&c, "full", &again);
    assert_int_equal(kept.n_steps, 10);
    for (int i = 0; i < 10; i++) {
        assert_memory_equal(&kept.step[i].loss, &again.step[i].loss, sizeof kept.step[i].loss);
    }
    assert_true(kept.step[9].loss < kept.step[0].loss || kept.step[9].loss > kept.step[0].loss);
    assert_equal_outcomes(&kept, &again);
    outcome_free(&kept);
    outcome_free(&again);
}

/* --- What is kept ------------------------------------------------------------------------------------- */

enum { LAYERS = 6, BATCH = 8, MICROBATCHES = 4, TOKENS = 16, WIDTH = 32 };

static void plan_layers(scene *s, const char *mesh, const char *schedule, const char *level)
{
    open_level(s,
               &(session_case){.keys = "n_layer=6 embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1",
                               .mesh = mesh,
                               .schedule = schedule,
                               .batch = BATCH,
                               .microbatches = MICROBATCHES},
               level);
    scene_plan(s);
}

static bool is_layer(const yoke_graph *graph, int block)
{
    return block >= 0 && strncmp(graph->blocks[block], "h.", 2) == 0;
}

/* The block whose backward pass reads a buffer, or -1. */
static int reader_of(const yoke_program *program, int64_t buffer)
{
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        bool reads = instruction->opcode == YOKE_OPCODE_KERNEL &&
                     instruction->region == YOKE_REGION_BACKWARD;
        for (int k = 0; reads && k < instruction->n_in; k++) {
            int operand = program->operands[instruction->operands + k];
            if (operand >= 0 && program->buffers[operand].root == buffer) {
                return instruction->block;
            }
        }
    }
    return -1;
}

/* Not only what the plan calls stash: an input that arrives early, in a backward pass, is scratch to it. */
static bool is_from_forward(const yoke_program_set *set, const yoke_buffer *buffer)
{
    int producer = set->graph->values[buffer->value].producer;
    return producer >= 0 && set->graph->nodes[producer].region == YOKE_REGION_FORWARD;
}

/* Of every layer and micro-batch, the full level keeps the layer's input and nothing else. */
static void assert_inputs_alone(const scene *s, int rank)
{
    const yoke_program_set *set = yoke_session_programs(s->session);
    const yoke_program *program = yoke_program_of(set, rank);
    int kept[LAYERS + 2][MICROBATCHES] = {{0}}, n = 0;
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_buffer *buffer = &program->buffers[b];
        int reader = reader_of(program, b);
        if (buffer->root != b || !is_layer(set->graph, reader) || !is_from_forward(set, buffer)) {
            continue;
        }
        const yoke_value_info *info = &set->graph->values[buffer->value];
        assert_int_equal(set->graph->nodes[info->producer].block, reader - 1);
        assert_int_equal(buffer->bytes, BATCH / MICROBATCHES * TOKENS * WIDTH * 4);
        assert_int_equal(kept[reader][buffer->microbatch]++, 0);
        n++;
    }
    int n_layers = 0;
    for (int c = 0; c < set->schedule.n_chunks; c++) {
        bool here = set->schedule.stage_of_chunk[c] == rank;
        for (int b = set->first_block[c]; here && b < set->first_block[c + 1]; b++) {
            n_layers += is_layer(set->graph, b);
        }
    }
    assert_true(n_layers > 0);
    assert_int_equal(n, n_layers * MICROBATCHES);
}

static void test_full_keeps_inputs(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int i = 0; i < COUNT(schedules); i++) {
        scene s;
        plan_layers(&s, "pp=2", schedules[i], "full");
        assert_inputs_alone(&s, 0);
        assert_inputs_alone(&s, 1);
        scene_close(&s);
    }
}

/* In bytes of the plan, by the formula: micro-batches in flight * layers * b t d, on a stage of layers alone. */
static void test_full_stash_follows_formula(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int in_flight; /* on the second of three stages */
    } cases[] = {{"gpipe", MICROBATCHES}, {"1f1b", 2}};
    for (int i = 0; i < COUNT(cases); i++) {
        scene s;
        plan_layers(&s, "pp=3", cases[i].schedule, "full");
        const yoke_program_set *set = yoke_session_programs(s.session);
        int first = set->first_block[1], last = set->first_block[2] - 1;
        assert_true(is_layer(set->graph, first) && is_layer(set->graph, last));
        int64_t layers = last - first + 1, input = BATCH / MICROBATCHES * TOKENS * WIDTH * 4;
        assert_int_equal(yoke_session_bytes(s.session, 1).stash,
                         cases[i].in_flight * layers * input);
        /* The first stage has the ids of tokens and positions besides. */
        int64_t ids = 2 * BATCH / MICROBATCHES * TOKENS * 4, in_flight = cases[i].in_flight;
        in_flight += strcmp(cases[i].schedule, "1f1b") == 0;
        assert_int_equal(yoke_session_bytes(s.session, 0).stash,
                         in_flight * ((set->first_block[1] - 1) * input + ids));
        scene_close(&s);
    }
}

/* The selective level keeps products, and what comes from other blocks. */
static void test_selective_keeps_products(void **state)
{
    (void)state;
    scene s;
    plan_layers(&s, "tp=2,pp=2", "1f1b", "selective");
    const yoke_program_set *set = yoke_session_programs(s.session);
    const yoke_graph *graph = set->graph;
    int n_products = 0;
    for (int64_t b = 0; b < yoke_program_of(set, 0)->n_buffers; b++) {
        const yoke_buffer *buffer = &yoke_program_of(set, 0)->buffers[b];
        int reader = reader_of(yoke_program_of(set, 0), b);
        if (buffer->kind != YOKE_BUFFER_STASH || buffer->root != b || !is_layer(graph, reader)) {
            continue;
        }
        const yoke_node *maker = &graph->nodes[graph->values[buffer->value].producer];
        bool product = maker->op == YOKE_OP_MATMUL || maker->op == YOKE_OP_CONVERT;
        if (maker->block == reader && !product) {
            fail_msg("%s is kept", graph->values[buffer->value].name);
        }
        n_products += maker->block == reader && buffer->microbatch == 0;
    }
    /* q, k, v, the output of attention, the wide half: the narrow one nobody reads. */
    assert_int_equal(n_products, 5 * (set->first_block[1] - 1));
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        assert_false(graph->nodes[i].recomputed && graph->nodes[i].op == YOKE_OP_MATMUL);
    }
    scene_close(&s);
}

/* Every level keeps less than the one before, and counts the same work for a step. */
static void test_levels_descend(void **state)
{
    (void)state;
    double flops[YOKE_N_RECOMPUTES], twice[YOKE_N_RECOMPUTES] = {0};
    int64_t stash[YOKE_N_RECOMPUTES];
    for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
        scene s;
        plan_layers(&s, "pp=2", "1f1b", yoke_recompute_name((yoke_recompute)level));
        const yoke_graph *graph = yoke_session_graph(s.session);
        flops[level] = yoke_session_step_flops(s.session);
        stash[level] = yoke_session_bytes(s.session, 0).stash;
        for (int b = 0; b < graph->n_blocks; b++) {
            double work = yoke_graph_recompute_flops(graph, b);
            twice[level] += work;
            assert_true(level == 0 || (work > 0) == is_layer(graph, b));
        }
        scene_close(&s);
    }
    assert_true(stash[0] > stash[1] && stash[1] > stash[2]);
    assert_true(twice[0] <= 0 && twice[0] < twice[1] && twice[1] < twice[2]);
    for (int level = 1; level < YOKE_N_RECOMPUTES; level++) {
        assert_true(flops[level] >= flops[0] && flops[level] <= flops[0]);
    }
}

/* The cut is the same at all levels: else what a stage keeps could not be foreseen. */
static void test_levels_are_cut_alike(void **state)
{
    (void)state;
    static const char *const meshes[] = {"pp=2", "pp=3", "pp=4", "pp=5"};
    for (int i = 0; i < COUNT(meshes); i++) {
        int cut[LAYERS + 3] = {0};
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            scene s;
            plan_layers(&s, meshes[i], "1f1b", yoke_recompute_name((yoke_recompute)level));
            const yoke_program_set *set = yoke_session_programs(s.session);
            for (int c = 0; c <= set->schedule.n_chunks; c++) {
                assert_true(level == 0 || set->first_block[c] == cut[c]);
                cut[c] = set->first_block[c];
            }
            scene_close(&s);
        }
    }
}

/* A clone is divided as its original was, whatever would have been cheapest in its place. */
static void test_clones_lie_as_originals(void **state)
{
    (void)state;
    scene s;
    plan_layers(&s, "dp=2,tp=2", "1f1b", "full");
    const yoke_graph *graph = yoke_session_graph(s.session);
    int n_clones = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->recomputed) {
            const yoke_value_info *clone = &graph->values[node->out[0]];
            const yoke_value_info *original = &graph->values[node->repeats];
            assert_true(yoke_layout_equal(clone->layout, original->layout));
            assert_int_equal(graph->nodes[original->producer].op, node->op);
            assert_int_equal(graph->nodes[original->producer].region, YOKE_REGION_FORWARD);
            assert_int_equal(node->region, YOKE_REGION_BACKWARD);
            n_clones++;
        }
    }
    assert_true(n_clones > 10 * LAYERS);
    scene_close(&s);
}

/* In one layer, dropout works on parts of sums, while the sum itself is there for the activation: a clone of the dropout
 * could take the sum for nothing, and would round otherwise. */
static void build_tempting(yoke_graph *g)
{
    yoke_letter(g, 'b', 4);
    yoke_letter(g, 't', 6);
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
    yoke_letter(g, 'v', 10);
    yoke_value tokens = yoke_input(g, "tokens", "bt"), labels = yoke_input(g, "labels", "bt");
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "table", "vd", 1), tokens);
    yoke_block(g, "h.0");
    yoke_value y = yoke_matmul(g, "btd,df->btf", x, yoke_weight(g, "w1", "df", 1));
    y = yoke_matmul(g, "btf,fd->btd", y, yoke_weight(g, "w2", "fd", 1));
    x = yoke_add(g, x, yoke_dropout(g, "drop", y, 0.1f));
    yoke_value n = yoke_rms_norm(g, x, yoke_gain(g, "gain", "d"), 1e-6f);
    x = yoke_add(g, yoke_add(g, x, yoke_gelu(g, y)), n);
    yoke_block(g, "head");
    yoke_cross_entropy(g, yoke_matmul(g, "btd,vd->btv", x, yoke_weight(g, "head", "vd", 1)),
                       labels);
}

static void test_clones_are_not_tempted(void **state)
{
    (void)state;
    yoke_mesh mesh;
    yoke_graph *g;
    yoke_config config = yoke_config_default();
    yoke_policies policies = yoke_policies_choose(&config);
    const yoke_recompute choice[] = {YOKE_RECOMPUTE_SELECTIVE, YOKE_RECOMPUTE_SELECTIVE,
                                     YOKE_RECOMPUTE_SELECTIVE};
    assert_ok(yoke_mesh_parse("tp=2", &mesh), "mesh");
    assert_ok(yoke_graph_create(&g), "graph");
    build_tempting(g);
    assert_ok(yoke_graph_finish(g), "model");
    assert_ok(yoke_graph_differentiate(g), "gradients");
    yoke_graph_recompute(g, choice);
    assert_ok(yoke_layout_infer(g, &mesh, &policies), "layouts");
    int n_parts = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const yoke_node *node = &g->nodes[i];
        if (node->recomputed) {
            yoke_layout layout = g->values[node->out[0]].layout;
            assert_true(yoke_layout_equal(layout, g->values[node->repeats].layout));
            n_parts +=
                node->op == YOKE_OP_DROPOUT && layout.place[YOKE_AXIS_TP] == YOKE_PARTIAL_SUM;
        }
    }
    assert_int_equal(n_parts, 1);
    yoke_graph_destroy(g);
}

static void test_print(void **state)
{
    (void)state;
    static const struct {
        const char *level, *text;
    } cases[] = {{"none", "nothing"}, {"full", "h.0 to h.5 full"}};
    for (int i = 0; i < COUNT(cases); i++) {
        char text[128];
        scene s;
        plan_layers(&s, "", "1f1b", cases[i].level);
        yoke_graph_recompute_print(yoke_session_graph(s.session), text, sizeof text);
        assert_string_equal(text, cases[i].text);
        scene_close(&s);
    }
}

/* --- Budgets as a user gives them ---------------------------------------------------------------------- */

static void test_budget_is_met(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *schedule, *budget;
        int64_t bytes;
    } cases[] = {{"pp=2", "1f1b", "150KiB", 150 << 10},
                 {"pp=2", "1f1b", "0.25MiB", 256 << 10},
                 {"pp=2,tp=2", "gpipe", "300KiB", 300 << 10},
                 {"pp=2,dp=2", "zb-v", "130KiB", 130 << 10},
                 {"pp=2", "interleaved", "200KiB", 200 << 10}};
    for (int i = 0; i < COUNT(cases); i++) {
        scene none, s;
        plan_layers(&none, cases[i].mesh, cases[i].schedule, "none");
        plan_layers(&s, cases[i].mesh, cases[i].schedule, cases[i].budget);
        int n_above = 0;
        for (int r = 0; r < yoke_session_n_ranks(s.session); r++) {
            assert_true(yoke_session_bytes(s.session, r).stash <= cases[i].bytes);
            n_above += yoke_session_bytes(none.session, r).stash > cases[i].bytes;
        }
        assert_true(n_above > 0);
        scene_close(&none);
        scene_close(&s);
    }
}

static void test_budget_keeps_bits(void **state)
{
    (void)state;
    const session_case c = {
        .keys = dropping, .mesh = "pp=2", .schedule = "zb-h1", .batch = 8, .microbatches = 4};
    outcome kept, within;
    run_level(&c, "none", &kept);
    run_level(&c, "120KiB", &within);
    assert_equal_outcomes(&kept, &within);
    outcome_free(&kept);
    outcome_free(&within);
}

static void test_refusals(void **state)
{
    (void)state;
    scene s;
    plan_layers(&s, "pp=2", "1f1b", "full");
    int64_t least = yoke_session_bytes(s.session, 1).stash;
    assert_true(least > yoke_session_bytes(s.session, 0).stash);
    scene_close(&s);

    char budget[48], way_out[48];
    (void)snprintf(budget, sizeof budget, "%lldKiB", (long long)(least / 1024 - 1));
    (void)snprintf(way_out, sizeof way_out, "recompute=%lldKiB or more",
                   (long long)((least + 1023) / 1024));
    open_level(&s,
               &(session_case){.keys = "n_layer=6 embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1",
                               .mesh = "pp=2",
                               .batch = BATCH,
                               .microbatches = MICROBATCHES},
               budget);
    yoke_session_parts parts = scene_parts(&s);
    assert_status_says(yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT,
                       SAYS("recompute: stage 1 keeps", "every block but that of the loss", way_out,
                            "or more, more microbatches"));
    s.session = NULL;
    s.config.schedule = "gpipe";
    assert_status_says(
        yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT,
        SAYS("recompute: stage 1 keeps", "or more, schedule=1f1b, more microbatches"));
    s.session = NULL;
    s.config.schedule = "1f1b";

    /* What the message says is taken. */
    (void)snprintf(budget, sizeof budget, "%lldKiB", (long long)((least + 1023) / 1024));
    assert_ok(yoke_session_create(&parts, &s.session), budget);
    assert_true(yoke_session_bytes(s.session, 1).stash <= (least + 1023) / 1024 * 1024);

    static const char *const wrong[] = {"", "all", "2", "2GB", "GiB", "1.2.3MiB", "-1MiB", "2 GiB"};
    for (int i = 0; i < COUNT(wrong); i++) {
        s.config.recompute = wrong[i];
        assert_status_says(yoke_config_check(&s.config), YOKE_BAD_INPUT, SAYS("recompute"));
    }
    s.config.recompute = "fulll";
    assert_status_says(
        yoke_config_check(&s.config), YOKE_BAD_INPUT,
        SAYS("did you mean 'full'", "none, light, selective, full", "600MiB or 2GiB"));
    s.config.recompute = "0MiB";
    assert_status_says(yoke_config_check(&s.config), YOKE_BAD_INPUT, SAYS("0MiB", "at least 1KiB"));
    s.config.recompute = "0.99KiB";
    assert_status_says(yoke_config_check(&s.config), YOKE_BAD_INPUT, SAYS("at least 1KiB"));
    s.config.recompute = "1KiB";
    assert_ok(yoke_config_check(&s.config), "1KiB");
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_on_meshes),
        cmocka_unit_test(test_same_bits_of_every_strategy),
        cmocka_unit_test(test_same_bits_in_schedules),
        cmocka_unit_test(test_same_losses_with_dropout),
        cmocka_unit_test(test_full_keeps_inputs),
        cmocka_unit_test(test_full_stash_follows_formula),
        cmocka_unit_test(test_selective_keeps_products),
        cmocka_unit_test(test_levels_descend),
        cmocka_unit_test(test_levels_are_cut_alike),
        cmocka_unit_test(test_clones_lie_as_originals),
        cmocka_unit_test(test_clones_are_not_tempted),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_budget_is_met),
        cmocka_unit_test(test_budget_keeps_bits),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
