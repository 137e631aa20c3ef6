/*
 * The graph builder refuses what is no model, says what and where, and never goes on to build it. And what a definition
 * says of a node's operands.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

/* Letters, inputs and two parameters, in the block "embed". */
typedef struct start {
    yoke_value tokens, labels, table, x;
} start;

static start begin(yoke_graph *g)
{
    static const char letters[] = "btvdhxf";
    for (const char *c = letters; *c; c++) {
        yoke_letter(g, *c, 2 * (c - letters) + 2);
    }
    start s = {.tokens = yoke_input(g, "tokens", "bt"), .labels = yoke_input(g, "labels", "bt")};
    yoke_block(g, "embed");
    s.table = yoke_weight(g, "table", "vd", 0.02f);
    s.x = yoke_embedding(g, s.table, s.tokens);
    return s;
}

static void finish(yoke_graph *g, const start *s, yoke_value x)
{
    yoke_block(g, "head");
    yoke_cross_entropy(g, yoke_matmul(g, "btd,vd->btv", x, s->table), s->labels);
}

static void letter_twice(yoke_graph *g)
{
    begin(g);
    yoke_letter(g, 'd', 3);
}

static void letter_without_extent(yoke_graph *g)
{
    begin(g);
    yoke_weight(g, "odd", "dz", 0.02f);
}

static void letter_for_two_dims(yoke_graph *g)
{
    start s = begin(g);
    yoke_value square = yoke_weight(g, "square", "dd", 0.02f);
    finish(g, &s, yoke_matmul(g, "btd,dd->btd", s.x, square));
}

static void letter_for_two_dims_of_a_result(yoke_graph *g)
{
    begin(g);
    yoke_embedding(g, yoke_weight(g, "rows", "vt", 0.02f), yoke_input(g, "more", "bt"));
}

static void too_many_elements(yoke_graph *g)
{
    yoke_letter(g, 'b', INT64_C(1) << 21);
    yoke_letter(g, 't', INT64_C(1) << 20);
    yoke_input(g, "tokens", "bt");
}

static void more_elements_than_64_bits_count(yoke_graph *g)
{
    yoke_letter(g, 'b', INT64_C(1) << 40);
    yoke_letter(g, 't', INT64_C(1) << 40);
    yoke_input(g, "tokens", "bt");
}

static void six_dims(yoke_graph *g)
{
    begin(g);
    yoke_weight(g, "deep", "btvdhx", 0.02f);
}

static void name_twice(yoke_graph *g)
{
    begin(g);
    yoke_bias(g, "table", "d");
}

static void no_matrix_product(yoke_graph *g)
{
    start s = begin(g);
    yoke_matmul(g, "btd,vd->bvt", s.x, s.table);
}

static void positions_of_other_dims(yoke_graph *g)
{
    start s = begin(g);
    yoke_value heads = yoke_matmul(g, "btd,dhx->bthx", s.x, yoke_weight(g, "wq", "dhx", 0.02f));
    yoke_rope(g, heads, yoke_input(g, "positions", "t"), 10000);
}

static void positions_of_another_type(yoke_graph *g)
{
    start s = begin(g);
    yoke_value heads = yoke_matmul(g, "btd,dhx->bthx", s.x, yoke_weight(g, "wq", "dhx", 0.02f));
    yoke_rope(g, heads, yoke_bias(g, "positions", "bt"), 10000);
}

static void two_losses(yoke_graph *g)
{
    start s = begin(g);
    finish(g, &s, s.x);
    finish(g, &s, s.x);
}

static void parameter_without_use(yoke_graph *g)
{
    start s = begin(g);
    yoke_bias(g, "idle", "d");
    finish(g, &s, s.x);
}

/* The table is on another stage for something that gives it no gradient there. */
static void result_without_use(yoke_graph *g)
{
    start s = begin(g);
    yoke_block(g, "aside");
    yoke_gelu(g, yoke_embedding(g, s.table, s.tokens));
    finish(g, &s, s.x);
}

static void nothing_to_train(yoke_graph *g)
{
    start s = begin(g);
    yoke_freeze(g, s.table);
    finish(g, &s, s.x);
}

typedef struct refusal {
    const char *name;
    void (*write)(yoke_graph *g);
    const char *message;
} refusal;

#define REFUSAL(write, message)                                                                    \
    {                                                                                              \
#write, (write), (message)                                                                 \
    }

static const refusal refusals[] = {
    REFUSAL(letter_twice, "embed: letter 'd' with extent 3: wants a letter a..z, set once"),
    REFUSAL(letter_without_extent, "embed: odd [dz]: letter 'z' has no extent"),
    REFUSAL(letter_for_two_dims, "embed: square [dd]: letter 'd' stands for two dims"),
    REFUSAL(letter_for_two_dims_of_a_result, "[btt]: letter 't' stands for two dims"),
    REFUSAL(too_many_elements, "model: tokens [bt]: more than 2^40 elements"),
    REFUSAL(more_elements_than_64_bits_count, "model: tokens [bt]: more than 2^40 elements"),
    REFUSAL(six_dims, "embed: deep [btvdhx]: at most 5 dims"),
    REFUSAL(name_twice, "embed: the name table is declared twice"),
    REFUSAL(no_matrix_product, "embed: matmul \"btd,vd->bvt\" is not one matrix product"),
    REFUSAL(positions_of_other_dims, "embed: rope of [bthx] at positions [t]: wants int32"),
    REFUSAL(positions_of_another_type, "positions [bt]: wants int32 positions [bt]"),
    REFUSAL(two_losses, "head: a graph has one loss; this is the second"),
    REFUSAL(parameter_without_use, "the loss does not depend on parameter idle; remove it"),
    REFUSAL(result_without_use, "aside: the loss does not depend on aside.gelu."),
    REFUSAL(nothing_to_train, "all 1 parameters are frozen; leave one to train"),
};

/* As a session does it. */
static yoke_status build(const refusal *r, yoke_graph *g)
{
    static const yoke_optimizer optimizer = {.lr = 1e-3, .total_steps = 10, .epsilon = 1e-8};
    r->write(g);
    YOKE_TRY(yoke_graph_finish(g));
    YOKE_TRY(yoke_graph_differentiate(g));
    return yoke_graph_optimize(g, &optimizer);
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        yoke_graph *g = NULL;
        assert_null(yoke_graph_create(&g));
        yoke_status status = build(&refusals[i], g);
        if (!status || !strstr(yoke_status_message(status), refusals[i].message)) {
            fail_msg("%s: '%s' is not in: %s", refusals[i].name, refusals[i].message,
                     yoke_status_message(status));
        }
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        yoke_status_free(status);
        yoke_graph_destroy(g);
    }
}

/* What stands before the first block is one of its own. */
static void test_model_without_blocks(void **state)
{
    (void)state;
    yoke_graph *g = NULL;
    assert_null(yoke_graph_create(&g));
    yoke_letter(g, 'b', 2);
    yoke_letter(g, 't', 3);
    yoke_letter(g, 'v', 5);
    yoke_letter(g, 'd', 4);
    yoke_value table = yoke_weight(g, "table", "vd", 0.02f);
    yoke_value x = yoke_embedding(g, table, yoke_input(g, "tokens", "bt"));
    yoke_block(g, "head");
    yoke_value y = yoke_matmul(g, "btd,vd->btv", x, table);
    assert_null(yoke_graph_finish(g));
    assert_int_equal(g->n_blocks, 2);
    assert_string_equal(g->blocks[0], "model");
    assert_int_equal(g->nodes[g->values[x].producer].block, 0);
    assert_int_equal(g->nodes[g->values[y].producer].block, 1);
    yoke_graph_destroy(g);
}

static void test_masks(void **state)
{
    (void)state;
    assert_true(yoke_mask_has(1u << 31 | 2, 31) && yoke_mask_has(1u << 31 | 2, 1));
    assert_false(yoke_mask_has(1u << 31 | 2, 0));
    for (int i = 31; i < 100; i++) {
        assert_true(yoke_mask_has((unsigned)YOKE_ALL_INPUTS, i));
        assert_int_equal(yoke_mask_has(~1u, i), i == 31);
        assert_false(yoke_mask_has(0, i));
    }
    const yoke_node add = {.op = YOKE_OP_ADD, .n_in = 40}, loss = {.op = YOKE_OP_CROSS_ENTROPY};
    assert_true(yoke_node_reads(&add, 39) && yoke_node_reads(&loss, 1));
    assert_false(yoke_node_reads(&loss, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_model_without_blocks),
        cmocka_unit_test(test_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
