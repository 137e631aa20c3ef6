/*
 * Layout inference: the published layouts and collectives fall out of the policies of dp and tp, for
 * whole models with their backward pass, and a layout that is no legal division is refused.
 *
 * Published: data parallelism reduces each gradient once a step; Megatron (Shoeybi et al. 2019) has
 * two all_reduce of the residual stream a layer in either direction, one behind the embedding and one
 * behind the head's backward, and three of a number a token for the loss (section 3).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "inferred.h"
#include "layout/division.h"

static yoke_value find(const char *name)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        if (strcmp(graph->values[v].name, name) == 0) {
            return (yoke_value)v;
        }
    }
    fail_msg("no tensor is called %s", name);
    return YOKE_NO_VALUE;
}

static int64_t index_of_parameter(const char *name)
{
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        if (strcmp(info(graph->parameters[i])->name, name) == 0) {
            return i;
        }
    }
    fail_msg("no parameter is called %s", name);
    return -1;
}

/* The gradient of a parameter as the backward pass leaves it: before any conversion in the tail. */
static yoke_value raw_gradient(const char *name)
{
    yoke_value value = graph->gradients[index_of_parameter(name)];
    while (graph->nodes[info(value)->producer].op == YOKE_OP_CONVERT) {
        value = graph->nodes[info(value)->producer].in[0];
    }
    return value;
}

static void assert_layout(yoke_value value, const char *want)
{
    char text[64];
    if (strcmp(yoke_layout_print(info(value)->layout, text, sizeof text), want) != 0) {
        fail_msg("%s lies as %s, not as %s", info(value)->name, text, want);
    }
}

static int count_all_reduces(yoke_region region, yoke_axis axis, const char *dims)
{
    return count(&(sort){region, YOKE_CONVERT_ALL_REDUCE, axis, dims});
}

/* --- One rank, and pipelines: nothing to convert -------------------------------------------------------- */

static void test_nothing_to_convert(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "pp=3"};
    for (size_t i = 0; i < 4; i++) {
        graph_case c = i % 2 ? llama_case(3) : gpt2_case(3);
        assert_inferred(&c, meshes[i / 2]);
        for (int64_t v = 0; v < graph->n_values; v++) {
            assert_layout((yoke_value)v, "R");
        }
        for (int region = YOKE_REGION_HEAD; region <= YOKE_REGION_TAIL; region++) {
            assert_int_equal(count_region((yoke_region)region), 0);
        }
        yoke_graph_destroy(graph);
    }
}

/* --- dp --------------------------------------------------------------------------------------------------- */

static void check_dp(const graph_case *c, const char *mesh)
{
    assert_inferred(c, mesh);
    assert_int_equal(count_region(YOKE_REGION_FORWARD), 0);
    assert_int_equal(count_region(YOKE_REGION_BACKWARD), 0);
    /* The number of valid labels, before the first forward pass. */
    assert_int_equal(count_region(YOKE_REGION_HEAD), 1);
    assert_int_equal(count_all_reduces(YOKE_REGION_HEAD, YOKE_AXIS_DP, ""), 1);
    /* Every gradient once, and the loss. */
    assert_int_equal(count_region(YOKE_REGION_TAIL), graph->n_parameters + 1);
    assert_int_equal(count_all_reduces(YOKE_REGION_TAIL, YOKE_AXIS_DP, NULL),
                     graph->n_parameters + 1);
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        assert_layout(graph->parameters[i], "R");
        assert_layout(raw_gradient(info(graph->parameters[i])->name), "dp:P");
        assert_layout(graph->gradients[i], "R");
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        const char *b = strchr(info((yoke_value)v)->dims, 'b');
        if (b) {
            char want[16];
            snprintf(want, sizeof want, "dp:S%d", (int)(b - info((yoke_value)v)->dims));
            assert_layout((yoke_value)v, want);
        }
    }
    yoke_graph_destroy(graph);
}

static void test_dp_reduces_each_gradient_once(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2", "dp=3", "dp=5", "dp=2,pp=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes * 4; i++) {
        graph_case c = i % 2 ? llama_case(3) : gpt2_case(3);
        c.tied = i % 4 < 2;
        check_dp(&c, meshes[i / 4]);
    }
}

/* --- tp --------------------------------------------------------------------------------------------------- */

static void check_tp_inside(int n_layers)
{
    /* Behind the embedding, and two a layer; behind the head, and two a layer. */
    int n_stream = 1 + 2 * n_layers;
    assert_int_equal(count_all_reduces(YOKE_REGION_FORWARD, YOKE_AXIS_TP, "btd"), n_stream);
    assert_int_equal(count_all_reduces(YOKE_REGION_BACKWARD, YOKE_AXIS_TP, "btd"), n_stream);
    /* Maximum, sum of exponentials and label's logit of each row. */
    assert_int_equal(count_all_reduces(YOKE_REGION_FORWARD, YOKE_AXIS_TP, "bt"), 3);
    assert_int_equal(count_region(YOKE_REGION_FORWARD), n_stream + 3);
    assert_int_equal(count_region(YOKE_REGION_BACKWARD), n_stream);
    assert_int_equal(count_region(YOKE_REGION_HEAD), 0);
}

typedef struct expectation {
    const char *parameter, *layout, *gradient;
} expectation;

static void check_parameters(const expectation *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_layout(find(table[i].parameter), table[i].layout);
        assert_layout(raw_gradient(table[i].parameter), table[i].gradient);
        assert_layout(graph->gradients[index_of_parameter(table[i].parameter)], table[i].layout);
    }
}

static void test_tp_is_megatron_for_gpt2(void **state)
{
    (void)state;
    static const expectation table[] = {
        {"wte", "tp:S0", "tp:S0"},
        {"wpe", "R", "R"},
        {"h.1.n1", "R", "R"},
        {"h.1.c1", "R", "R"},
        {"h.1.wq", "tp:S1", "tp:S1"},
        {"h.1.bq", "tp:S0", "tp:S0"},
        {"h.1.wk", "tp:S1", "tp:S1"},
        {"h.1.wv", "tp:S1", "tp:S1"},
        {"h.1.bv", "tp:S0", "tp:S0"},
        {"h.1.wo", "tp:S0", "tp:S0"},
        {"h.1.bo", "R", "R"},
        {"h.1.n2", "R", "R"},
        {"h.1.w1", "tp:S1", "tp:S1"},
        {"h.1.b1", "tp:S0", "tp:S0"},
        {"h.1.w2", "tp:S0", "tp:S0"},
        {"h.1.b2", "R", "R"},
        {"nf", "R", "R"},
    };
    static const char *const meshes[] = {"tp=2", "tp=3", "tp=4", "tp=2,pp=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes * 2; i++) {
        graph_case c = gpt2_case(3);
        c.tied = i % 2;
        assert_inferred(&c, meshes[i / 2]);
        check_tp_inside(3);
        check_parameters(table, sizeof table / sizeof *table);
        yoke_graph_destroy(graph);
    }
}

/* Which products are completed, in order: those of the prototype's list. */
static void test_tp_reduces_what_the_prototype_does(void **state)
{
    (void)state;
    static const yoke_op forward[] = {YOKE_OP_EMBEDDING, YOKE_OP_MATMUL, YOKE_OP_MATMUL};
    static const yoke_op backward[] = {YOKE_OP_MATMUL, YOKE_OP_MATMUL, YOKE_OP_ADD};
    graph_case c = gpt2_case(1);
    assert_inferred(&c, "tp=4");
    int n[2] = {0, 0};
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        bool inside = node->region == YOKE_REGION_FORWARD || node->region == YOKE_REGION_BACKWARD;
        if (!inside || node->op != YOKE_OP_CONVERT || strcmp(info(node->in[0])->dims, "btd") != 0) {
            continue;
        }
        bool back = node->region == YOKE_REGION_BACKWARD;
        assert_true(n[back] < 3);
        yoke_op op = graph->nodes[info(node->in[0])->producer].op;
        assert_int_equal(op, (back ? backward : forward)[n[back]++]);
        assert_layout(node->in[0], "tp:P");
        assert_layout(node->out[0], "R");
    }
    assert_int_equal(n[0], 3);
    assert_int_equal(n[1], 3);
    yoke_graph_destroy(graph);
}

/* Two key/value heads divide over two ranks; over four, every rank has both, and the part of their
 * gradients that its query heads give. */
static void test_tp_of_grouped_queries(void **state)
{
    (void)state;
    static const expectation divided[] = {
        {"h.0.wq", "tp:S0", "tp:S0"}, {"h.0.wk", "tp:S0", "tp:S0"}, {"h.0.wv", "tp:S0", "tp:S0"},
        {"h.0.wo", "tp:S1", "tp:S1"}, {"h.0.w1", "tp:S0", "tp:S0"}, {"h.0.w3", "tp:S0", "tp:S0"},
        {"h.0.w2", "tp:S1", "tp:S1"}, {"h.0.n1", "R", "R"},         {"head", "tp:S0", "tp:S0"},
    };
    static const expectation whole[] = {
        {"h.0.wq", "tp:S0", "tp:S0"}, {"h.0.wk", "R", "tp:P"},      {"h.0.wv", "R", "tp:P"},
        {"h.0.wo", "tp:S1", "tp:S1"}, {"h.0.w1", "tp:S0", "tp:S0"}, {"h.0.w3", "tp:S0", "tp:S0"},
        {"h.0.w2", "tp:S1", "tp:S1"}, {"h.0.n1", "R", "R"},         {"head", "tp:S0", "tp:S0"},
    };
    graph_case c = llama_case(2);
    assert_inferred(&c, "tp=2");
    check_tp_inside(2);
    check_parameters(divided, sizeof divided / sizeof *divided);
    assert_int_equal(count_all_reduces(YOKE_REGION_TAIL, YOKE_AXIS_TP, "kxd"), 0);
    yoke_graph_destroy(graph);
    assert_inferred(&c, "tp=4");
    check_tp_inside(2);
    check_parameters(whole, sizeof whole / sizeof *whole);
    assert_int_equal(count_all_reduces(YOKE_REGION_TAIL, YOKE_AXIS_TP, "kxd"), 2 * 2);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op == YOKE_OP_ATTENTION) {
            assert_layout(node->in[0], "tp:S2");
            assert_layout(node->in[1], "R");
            assert_layout(node->in[2], "R");
            assert_layout(node->out[0], "tp:S2");
        }
    }
    yoke_graph_destroy(graph);
}

/* Whatever it costs, attention is not divided along key/value heads alone: that is no sum. */
static void test_key_heads_go_with_query_heads(void **state)
{
    (void)state;
    graph_case c = llama_case(1);
    assert_inferred(&c, "tp=2");
    int n_attention = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op != YOKE_OP_ATTENTION && node->op != YOKE_OP_ATTENTION_GRAD) {
            continue;
        }
        yoke_division list[YOKE_MAX_DIVISIONS];
        yoke_policies policies = case_policies();
        yoke_parts parts = {.policy = &policies.axis[YOKE_AXIS_TP], .n = 2};
        int n = yoke_division_list(graph, node, &parts, list);
        assert_int_equal(n, 2);
        assert_true(list[0].letter == 'h' && list[0].companion == 'k' && list[1].letter == 0);
        n_attention++;
    }
    assert_int_equal(n_attention, 2);
    yoke_graph_destroy(graph);
}

/* Two key/value heads divide over either axis, but not over both: along the inner one they are
 * whole, where the query heads that need them are divided once more. */
static void test_key_heads_under_two_axes(void **state)
{
    (void)state;
    graph_case c = llama_case(1);
    c.options = "context_parallel=heads";
    assert_inferred(&c, "cp=2,tp=2");
    int n_attention = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op == YOKE_OP_ATTENTION) {
            assert_layout(node->in[0], "cp:S2 tp:S2");
            assert_layout(node->in[1], "cp:S2");
            assert_layout(node->in[2], "cp:S2");
            n_attention++;
        }
    }
    assert_int_equal(n_attention, 1);
    yoke_graph_destroy(graph);
}

/* Extents of each rank's piece along the dim that tp cuts. */
static void assert_pieces(const char *name, int dim, const int64_t *extents)
{
    const yoke_value_info *i = info(find(name));
    assert_int_equal(i->layout.place[YOKE_AXIS_TP], dim);
    for (int rank = 0; rank < graph->mesh.size[YOKE_AXIS_TP]; rank++) {
        yoke_shard shard = yoke_layout_shard(&graph->mesh, i->layout, &i->shape, rank);
        assert_int_equal(shard.extent[dim], extents[rank]);
    }
}

static void test_uneven_division(void **state)
{
    (void)state;
    graph_case c = gpt2_case(2);
    c.vocabulary = 257;
    c.n_heads = 5;
    c.feed_forward = 3;
    assert_inferred(&c, "tp=4");
    check_tp_inside(2);
    assert_pieces("wte", 0, (const int64_t[]){65, 64, 64, 64});
    assert_pieces("h.1.wq", 1, (const int64_t[]){2, 1, 1, 1});
    assert_pieces("h.1.wo", 0, (const int64_t[]){2, 1, 1, 1});
    assert_pieces("h.1.b1", 0, (const int64_t[]){1, 1, 1, 0});
    yoke_graph_destroy(graph);
}

/* --- Both --------------------------------------------------------------------------------------------------- */

static const char *const all_meshes[] = {"",          "dp=2",     "dp=3",      "tp=2",
                                         "tp=3",      "tp=4",     "dp=2,tp=2", "dp=3,tp=2,pp=2",
                                         "dp=2,tp=4", "dp=5,tp=3"};
enum { N_MESHES = sizeof all_meshes / sizeof *all_meshes };

static graph_case case_number(size_t i)
{
    graph_case c = i % 2 ? llama_case(2) : gpt2_case(2);
    c.tied = i / 2 % 2;
    return c;
}

static void test_results_are_whole_on_every_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESHES * 4; i++) {
        graph_case c = case_number(i);
        assert_inferred(&c, all_meshes[i / 4]);
        const yoke_value results[] = {graph->loss, graph->n_valid, graph->norms, graph->control};
        for (size_t k = 0; k < sizeof results / sizeof *results; k++) {
            assert_layout(results[k], "R");
            assert_true(info(results[k])->output);
        }
        for (int64_t p = 0; p < graph->n_parameters; p++) {
            assert_true(yoke_layout_equal(info(graph->parameters[p])->layout,
                                          info(graph->gradients[p])->layout));
        }
        yoke_graph_destroy(graph);
    }
}

/* Equal conversions of one value are done once in a block and region. */
static void test_no_conversion_is_done_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MESHES * 4; i++) {
        graph_case c = case_number(i);
        assert_inferred(&c, all_meshes[i / 4]);
        for (int64_t a = 0; a < graph->n_nodes; a++) {
            const yoke_node *x = &graph->nodes[a];
            for (int64_t b = 0; x->op == YOKE_OP_CONVERT && b < a; b++) {
                const yoke_node *y = &graph->nodes[b];
                bool twice = y->op == YOKE_OP_CONVERT && x->in[0] == y->in[0] &&
                             x->axis == y->axis && x->conversion == y->conversion &&
                             x->block == y->block && x->region == y->region;
                assert_false(twice);
            }
        }
        yoke_graph_destroy(graph);
    }
}

/* --- Verification -------------------------------------------------------------------------------------------- */

/* A value that some node reads: its producer and its readers leave it one place only. */
static bool is_bound(yoke_value value)
{
    if (info(value)->producer == YOKE_NO_NODE) {
        return false;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_in; k++) {
            bool unread = k < 32 && (yoke_op_get(node->op)->unread >> k & 1u);
            if (node->in[k] == value && !unread) {
                return true;
            }
        }
    }
    return false;
}

static void check_wrong_places(yoke_value value, yoke_axis axis)
{
    yoke_value_info *i = &graph->values[value];
    int8_t right = i->layout.place[axis];
    for (int place = YOKE_PARTIAL_MAX; place < i->shape.n_dims; place++) {
        if (place == right) {
            continue;
        }
        i->layout.place[axis] = (int8_t)place;
        yoke_policies policies = case_policies();
        yoke_status status = yoke_layout_verify(graph, &policies);
        if (!status) {
            fail_msg("%s passes with place %d instead of %d along %s", i->name, place, right,
                     yoke_axis_name(axis));
        }
        assert_int_equal(yoke_status_code(status), YOKE_CHECK);
        assert_non_null(strstr(yoke_status_message(status), yoke_axis_name(axis)));
        yoke_status_free(status);
    }
    i->layout.place[axis] = right;
}

static void test_wrong_layouts_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        graph_case c = case_number(i);
        assert_inferred(&c, "dp=2,tp=4");
        for (int64_t v = 0; v < graph->n_values; v++) {
            if (is_bound((yoke_value)v)) {
                check_wrong_places((yoke_value)v, YOKE_AXIS_DP);
                check_wrong_places((yoke_value)v, YOKE_AXIS_TP);
            }
        }
        yoke_policies policies = case_policies();
        yoke_status status = yoke_layout_verify(graph, &policies);
        assert_null(status);
        yoke_graph_destroy(graph);
    }
}

static void test_wrong_conversions_are_refused(void **state)
{
    (void)state;
    graph_case c = gpt2_case(1);
    assert_inferred(&c, "dp=2,tp=2");
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        yoke_node *node = &graph->nodes[i];
        if (node->op != YOKE_OP_CONVERT) {
            continue;
        }
        yoke_node right = *node;
        node->conversion = YOKE_CONVERT_ALL_GATHER;
        yoke_policies policies = case_policies();
        yoke_status status = yoke_layout_verify(graph, &policies);
        assert_non_null(status);
        yoke_status_free(status);
        *node = right;
        node->axis = right.axis == YOKE_AXIS_DP ? YOKE_AXIS_TP : YOKE_AXIS_DP;
        status = yoke_layout_verify(graph, &policies);
        assert_non_null(status);
        yoke_status_free(status);
        *node = right;
        n++;
    }
    assert_true(n > 10);
    yoke_graph_destroy(graph);
}

/* A norm over a dim on which its gain is divided has no legal division. */
static void test_impossible_division(void **state)
{
    (void)state;
    yoke_mesh mesh;
    yoke_status status = yoke_mesh_parse("tp=3", &mesh);
    assert_null(status);
    status = yoke_graph_create(&graph);
    assert_null(status);
    graph_case c = gpt2_case(1);
    case_letters(graph, &c);
    yoke_value tokens = yoke_input(graph, "tokens", "bt");
    yoke_block(graph, "only");
    yoke_value x = yoke_embedding(graph, yoke_weight(graph, "table", "vd", 1), tokens);
    x = yoke_matmul(graph, "btd,df->btf", x, yoke_weight(graph, "w", "df", 1));
    yoke_rms_norm(graph, x, yoke_gain(graph, "gain", "f"), 1e-5f);
    status = yoke_graph_finish(graph);
    assert_null(status);
    yoke_policies policies = case_policies();
    status = yoke_layout_infer(graph, &mesh, &policies);
    assert_non_null(status);
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_non_null(
        strstr(yoke_status_message(status), "tp=3: operator rms_norm cannot be divided"));
    assert_non_null(strstr(yoke_status_message(status), "or use tp=1"));
    yoke_status_free(status);
    yoke_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_to_convert),
        cmocka_unit_test(test_dp_reduces_each_gradient_once),
        cmocka_unit_test(test_tp_is_megatron_for_gpt2),
        cmocka_unit_test(test_tp_reduces_what_the_prototype_does),
        cmocka_unit_test(test_tp_of_grouped_queries),
        cmocka_unit_test(test_key_heads_go_with_query_heads),
        cmocka_unit_test(test_key_heads_under_two_axes),
        cmocka_unit_test(test_uneven_division),
        cmocka_unit_test(test_results_are_whole_on_every_rank),
        cmocka_unit_test(test_no_conversion_is_done_twice),
        cmocka_unit_test(test_wrong_layouts_are_refused),
        cmocka_unit_test(test_wrong_conversions_are_refused),
        cmocka_unit_test(test_impossible_division),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
