/*
 * Small gradients joined for their reduction: which, how many collectives are left, when a bucket leaves,
 * and that no bit of a run changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

/* --- Which are joined --------------------------------------------------------------------------- */

typedef struct counts {
    int n_reductions; /* of gradients, a step */
    int n_buckets, n_members;
    int64_t n_elements;   /* of the largest bucket */
    int64_t bucket_bytes; /* of all, as they are laid out */
} counts;

static counts count(const yoke_graph *graph)
{
    counts c = {0};
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->region != YOKE_REGION_TAIL || node->n_out == 0) {
            continue;
        }
        const yoke_value_info *out = &graph->values[node->out[0]];
        c.n_reductions += node->op == YOKE_OP_CONVERT &&
                          node->conversion == YOKE_CONVERT_ALL_REDUCE &&
                          yoke_value_is_gradient(graph, node->out[0]);
        if (node->op == YOKE_OP_JOIN && out->bucket) {
            int64_t n = yoke_shape_elements(&out->shape);
            c.n_buckets++;
            c.n_members += node->n_in;
            c.n_elements = n > c.n_elements ? n : c.n_elements;
            c.bucket_bytes += (n * (int64_t)sizeof(float) + 63) / 64 * 64;
        }
    }
    return c;
}

static counts count_case(const session_case *c)
{
    scene s;
    scene_open(&s, c);
    scene_plan(&s);
    counts found = count(yoke_session_graph(s.session));
    scene_close(&s);
    return found;
}

/* A layer of GPT-2 trains 9 biases and gains of together 1536 bytes, at a width of 32, and 6 matrices;
 * beside the layers there are 2 tables, a gain and a bias. */
static void test_which_are_joined(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int n_reductions, n_buckets, n_members;
        int64_t n_elements;
    } cases[] = {
        {"bucket_size=0", 12 * 15 + 4, 0, 0, 0},
        {"bucket_size=2KiB", 12 * 7 + 3, 13, 12 * 9 + 2, 384},
        /* The bias of 4 x 32 finds no room among 7 others, the last does. */
        {"bucket_size=1KiB", 12 * 8 + 3, 13, 12 * 8 + 2, 256},
        /* All but the table, which is summed over its places in the tail, and the one beside it. */
        {"bucket_size=1MiB", 12 + 3, 13, 12 * 15 + 2, 12 * 32 * 32 + 384},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        const session_case c = {
            .keys = "n_layer=12", .mesh = "dp=2", .options = cases[i].options, .microbatches = 2};
        counts found = count_case(&c);
        assert_int_equal(found.n_reductions, cases[i].n_reductions);
        assert_int_equal(found.n_buckets, cases[i].n_buckets);
        assert_int_equal(found.n_members, cases[i].n_members);
        assert_int_equal(found.n_elements, cases[i].n_elements);
    }
}

static int64_t n_nodes(const session_case *c)
{
    scene s;
    scene_open(&s, c);
    scene_plan(&s);
    int64_t n = yoke_session_graph(s.session)->n_nodes;
    scene_close(&s);
    return n;
}

/* Nothing is joined where nothing is reduced, or every gradient is reduced to pieces. */
static void test_which_are_not_joined(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = NULL},
        {.mesh = "pp=2"},
        {.mesh = "tp=2"},
        {.mesh = "fsdp=2"},
        {.mesh = "dp=2", .options = "zero=2"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        char text[64];
        session_case c = cases[i];
        (void)snprintf(text, sizeof text, "%s bucket_size=0", c.options ? c.options : "");
        int64_t with = n_nodes(&c);
        c.options = text;
        assert_int_equal(n_nodes(&c), with);
    }
}

/* What an axis divides travels alone: of a layer the biases of queries, values and the first product. */
static void test_divided_gradients_travel_alone(void **state)
{
    (void)state;
    const session_case c = {
        .keys = "n_layer=3", .mesh = "dp=2,tp=2", .options = "bucket_size=2KiB"};
    counts found = count_case(&c);
    assert_int_equal(found.n_members, 3 * 6 + 2);
    assert_int_equal(found.n_buckets, 4);
}

/* --- When a bucket leaves ----------------------------------------------------------------------- */

static bool is_kernel(const yoke_graph *graph, const yoke_instruction *at, yoke_op op)
{
    return at->opcode == YOKE_OPCODE_KERNEL && graph->nodes[at->node].op == op;
}

/* True if a kernel writes what the joining at `join` reads. */
static bool contributes(const yoke_program *program, int64_t index, int64_t join)
{
    const yoke_instruction *at = &program->instructions[index];
    const yoke_instruction *reader = &program->instructions[join];
    for (int k = 0; at->opcode == YOKE_OPCODE_KERNEL && k < at->n_out; k++) {
        int out = program->operands[at->operands + at->n_in + k];
        for (int i = 0; i < reader->n_in; i++) {
            int in = program->operands[reader->operands + i];
            if (program->buffers[in].root == program->buffers[out].root) {
                return true;
            }
        }
    }
    return false;
}

/* Between the last contribution and the start of its bucket stand only kernels that join or round. */
static void assert_leaves_at_once(const yoke_graph *graph, const yoke_program *program,
                                  int64_t start)
{
    int64_t join = start;
    while (!is_kernel(graph, &program->instructions[join], YOKE_OP_JOIN)) {
        join--;
        assert_true(join > 0);
    }
    int64_t last = join;
    while (!contributes(program, last, join)) {
        const yoke_instruction *at = &program->instructions[last--];
        bool only_prepares =
            is_kernel(graph, at, YOKE_OP_JOIN) || is_kernel(graph, at, YOKE_OP_CAST);
        assert_true(last > 0 && (at->opcode != YOKE_OPCODE_KERNEL || only_prepares));
    }
    assert_int_equal(program->instructions[last].region, YOKE_REGION_BACKWARD);
    for (int64_t i = join; i < start; i++) {
        const yoke_instruction *at = &program->instructions[i];
        assert_true(at->opcode != YOKE_OPCODE_KERNEL || at->region == YOKE_REGION_TAIL);
    }
}

static void test_buckets_leave_behind_their_last_contribution(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "dp=2", .options = "bucket_size=2KiB", .microbatches = 2},
        {.mesh = "dp=2", .options = "bucket_size=2KiB reduce_dtype=bf16"},
        {.mesh = "dp=3", .options = "bucket_size=1KiB dtype=bf16 reduce_dtype=bf16"},
        /* A table in two stages would hold all starts back until it is summed over them. */
        {.preset = "llama-tiny",
         .mesh = "dp=2,pp=2",
         .options = "bucket_size=2KiB",
         .microbatches = 3},
        {.preset = "llama-tiny",
         .mesh = "dp=2,pp=2",
         .options = "bucket_size=2KiB",
         .schedule = "zb-h1",
         .microbatches = 3},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        scene s;
        session_case c = cases[i];
        c.keys = c.preset ? "num_hidden_layers=5" : "n_layer=5";
        scene_open(&s, &c);
        scene_plan(&s);
        const yoke_graph *graph = yoke_session_graph(s.session);
        const yoke_program *program = yoke_program_of(yoke_session_programs(s.session), 0);
        int n = 0;
        for (int64_t at = 0; at < program->n_instructions; at++) {
            const yoke_instruction *start = &program->instructions[at];
            if (start->opcode == YOKE_OPCODE_COLLECTIVE &&
                graph->values[program->transfers[start->transfer].value].bucket) {
                assert_leaves_at_once(graph, program, at);
                n++;
            }
        }
        assert_true(n >= 2);
        scene_close(&s);
    }
}

/* --- What it costs, and what it does not change -------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    scene s[2];
    const session_case cases[] = {
        {.mesh = "dp=2", .options = "bucket_size=0", .microbatches = 2},
        {.mesh = "dp=2", .options = "bucket_size=2KiB", .microbatches = 2},
    };
    for (int i = 0; i < 2; i++) {
        scene_open(&s[i], &cases[i]);
        scene_plan(&s[i]);
    }
    yoke_rank_bytes alone = yoke_session_bytes(s[0].session, 0),
                    joined = yoke_session_bytes(s[1].session, 0);
    int64_t most = count(yoke_session_graph(s[1].session)).bucket_bytes;
    assert_true(most > 0);
    assert_int_equal(joined.grads, alone.grads);
    assert_in_range(joined.scratch, alone.scratch, alone.scratch + most);
    for (int i = 0; i < 2; i++) {
        scene_close(&s[i]);
    }
}

static const session_case equal[] = {
    {.mesh = "dp=2"},
    {.mesh = "dp=3", .microbatches = 2},
    {.mesh = "dp=5", .batch = 10, .options = "reduce_dtype=bf16"},
    {.mesh = "dp=2", .options = "zero=1"},
    {.mesh = "dp=2,tp=2"},
    {.mesh = "dp=2,tp=2", .options = "sequence_parallel=true"},
    {.mesh = "dp=2,tp=2", .options = "sequence_parallel=true reduce_dtype=bf16"},
    {.mesh = "dp=2,pp=2", .microbatches = 3},
    {.mesh = "dp=2,pp=2", .schedule = "zb-h1", .microbatches = 3},
    {.mesh = "dp=2,fsdp=2", .batch = 8},
    {.mesh = "fsdp=2"},
    {.mesh = "cp=2"},
    {.mesh = "cp=3,dp=2", .options = "context_parallel=ring"},
    {.mesh = "dp=2", .options = "dtype=bf16 reduce_dtype=bf16"},
    {.mesh = "dp=2", .preset = "llama-tiny", .microbatches = 3},
    {.mesh = "dp=3", .preset = "bert-tiny"},
    {.mesh = "dp=2,ep=2", .preset = "mixtral-tiny", .batch = 8},
};

static void run_with(const session_case *base, const char *bucket_size, outcome *o)
{
    char text[96];
    session_case c = *base;
    (void)snprintf(text, sizeof text, "%s bucket_size=%s", base->options ? base->options : "",
                   bucket_size);
    c.options = text;
    run_case(&c, o);
}

static void test_no_bit_changes(void **state)
{
    (void)state;
    static const char *const sizes[] = {"1KiB", "1MiB"};
    for (int i = 0; i < COUNT(equal); i++) {
        outcome alone, joined;
        run_with(&equal[i], "0", &alone);
        for (int k = 0; k < COUNT(sizes); k++) {
            run_with(&equal[i], sizes[k], &joined);
            assert_equal_outcomes(&joined, &alone);
            outcome_free(&joined);
        }
        outcome_free(&alone);
    }
}

static void test_sizes_that_are_none(void **state)
{
    (void)state;
    static const char *const sizes[] = {"", "12", "-1", "1KB", "00", "0.5KiB"};
    for (int i = 0; i < COUNT(sizes); i++) {
        yoke_config config = yoke_config_default();
        config.bucket_size = sizes[i];
        assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT,
                           SAYS("bucket_size", sizes[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_are_joined),
        cmocka_unit_test(test_which_are_not_joined),
        cmocka_unit_test(test_divided_gradients_travel_alone),
        cmocka_unit_test(test_buckets_leave_behind_their_last_contribution),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_bit_changes),
        cmocka_unit_test(test_sizes_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
