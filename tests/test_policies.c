/*
 * What falls out of each row of the policy table: the collectives of a layer as they were published,
 * and the memory of a rank. Nothing but the table knows these strategies, so each of these facts is
 * one about inference.
 *
 * Published: sequence parallelism (Korthikanti et al. 2022) has all_gather and reduce_scatter pairs
 * where tensor parallelism has all_reduce, and gathers what the backward pass reads once more; ZeRO
 * (Rajbhandari et al. 2020) and FSDP (Zhao et al. 2023) move 2P, 2P and 3P; context parallelism
 * gathers keys and values (Llama 3, 2024), divides heads by all_to_all (Jacobs et al. 2023) or
 * passes keys round (Liu et al. 2023).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inferred.h"
#include "session_case.h"

enum { N_LAYERS = 3 };

#define FORWARD  YOKE_REGION_FORWARD
#define BACKWARD YOKE_REGION_BACKWARD
#define GATHER   YOKE_CONVERT_ALL_GATHER
#define SCATTER  YOKE_CONVERT_REDUCE_SCATTER
#define EXCHANGE YOKE_CONVERT_ALL_TO_ALL
#define ROTATE   YOKE_CONVERT_ROTATE

static graph_case layers(bool llama, const char *options)
{
    graph_case c = llama ? llama_case(N_LAYERS) : gpt2_case(N_LAYERS);
    c.options = options;
    return c;
}

static void assert_count(const sort *s, int wanted)
{
    int n = count(s);
    if (n != wanted) {
        fail_msg("%s over %s of [%s] %s: %d, not %d", yoke_conversion_name(s->conversion),
                 yoke_axis_name(s->axis), s->dims ? s->dims : "any", yoke_region_name(s->region), n,
                 wanted);
    }
}

/* Elements that a rank receives in a region, of tensors with these dims. */
static double received(yoke_region region, const char *dims)
{
    double elements = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op == YOKE_OP_CONVERT && node->region == region &&
            strcmp(info(node->in[0])->dims, dims) == 0) {
            elements += yoke_conversion_elements(
                node->conversion, (double)yoke_shape_elements(&info(node->in[0])->shape),
                graph->mesh.size[node->axis]);
        }
    }
    return elements;
}

/* --- Sequence parallelism ----------------------------------------------------------------------- */

/* Two pairs a layer forward; backward two pairs, and two gathers of what the forward pass had
 * gathered. Behind the embedding and before the head, half a pair each. */
static void test_sequence_parallel(void **state)
{
    (void)state;
    static const char *const meshes[] = {"tp=2", "tp=3", "tp=4"};
    for (int i = 0; i < 6; i++) {
        graph_case c = layers(i % 2, "sequence_parallel=true");
        c.n_kv = 0; /* key heads that do not divide would be gathered besides */
        assert_inferred(&c, meshes[i / 2]);
        assert_count(&(sort){FORWARD, GATHER, YOKE_AXIS_TP, "btd"}, 2 * N_LAYERS + 1);
        assert_count(&(sort){FORWARD, SCATTER, YOKE_AXIS_TP, "btd"}, 2 * N_LAYERS + 1);
        assert_count(&(sort){BACKWARD, GATHER, YOKE_AXIS_TP, "btd"}, 4 * N_LAYERS + 2);
        assert_count(&(sort){BACKWARD, SCATTER, YOKE_AXIS_TP, "btd"}, 2 * N_LAYERS + 1);
        assert_count(&(sort){FORWARD, YOKE_CONVERT_ALL_REDUCE, YOKE_AXIS_TP, "bt"}, 3);
        assert_int_equal(count_region(FORWARD), 4 * N_LAYERS + 2 + 3);
        yoke_graph_destroy(graph);
    }
}

/* The pairs move what the all_reduce moved. */
static void test_sequence_parallel_moves_no_more(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case plain = layers(i, ""), sequence = layers(i, "sequence_parallel=true");
        assert_inferred(&plain, "tp=4");
        double wanted = received(FORWARD, "btd");
        yoke_graph_destroy(graph);
        assert_inferred(&sequence, "tp=4");
        assert_true(wanted > 0 && received(FORWARD, "btd") == wanted);
        yoke_graph_destroy(graph);
    }
}

/* Each rank sees other tokens: gradients of what all ranks hold are parts of sums along tp, those of
 * norms and of biases behind row-parallel products, and are summed before the update. */
static void test_sequence_parallel_sums_gradients_of_norms(void **state)
{
    (void)state;
    graph_case c = layers(false, "sequence_parallel=true");
    assert_inferred(&c, "tp=2");
    int n_summed = 0, n_whole = 0;
    for (int64_t p = 0; p < graph->n_parameters; p++) {
        bool whole = info(graph->parameters[p])->layout.place[YOKE_AXIS_TP] == YOKE_REPLICATED;
        const yoke_node *node = &graph->nodes[info(graph->gradients[p])->producer];
        n_whole += whole;
        n_summed += whole && node->op == YOKE_OP_CONVERT && node->axis == YOKE_AXIS_TP &&
                    node->conversion == YOKE_CONVERT_ALL_REDUCE;
    }
    /* Two norms and two biases a layer, the last norm, and the table of positions. */
    assert_int_equal(n_whole, 6 * N_LAYERS + 3);
    assert_int_equal(n_summed, n_whole);
    yoke_graph_destroy(graph);
}

/* --- Context parallelism ------------------------------------------------------------------------ */

/* Nothing else moves with the tokens: only keys and values, in each layer. */
static void test_context_by_gathering(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        graph_case c = layers(i % 2, "context_parallel=gather");
        const char *dims = c.llama ? "btkx" : "bthx";
        assert_inferred(&c, i / 2 ? "cp=3" : "cp=2");
        assert_count(&(sort){FORWARD, GATHER, YOKE_AXIS_CP, dims}, 2 * N_LAYERS);
        assert_count(&(sort){BACKWARD, GATHER, YOKE_AXIS_CP, dims}, 2 * N_LAYERS);
        assert_count(&(sort){BACKWARD, SCATTER, YOKE_AXIS_CP, dims}, 2 * N_LAYERS);
        assert_int_equal(count_region(FORWARD), 2 * N_LAYERS);
        assert_int_equal(count_region(BACKWARD), 4 * N_LAYERS);
        yoke_graph_destroy(graph);
    }
}

/* Queries, keys, values and the result; backward the gradients of these. */
static void test_context_by_heads(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case c = layers(i, "context_parallel=heads");
        assert_inferred(&c, "cp=2");
        for (int back = 0; back < 2; back++) {
            yoke_region region = back ? BACKWARD : FORWARD;
            assert_int_equal(count_region(region), 4 * N_LAYERS);
            assert_count(&(sort){region, EXCHANGE, YOKE_AXIS_CP, NULL}, 4 * N_LAYERS);
            assert_count(&(sort){region, EXCHANGE, YOKE_AXIS_CP, "btkx"},
                         c.llama ? 2 * N_LAYERS : 0);
        }
        yoke_graph_destroy(graph);
    }
}

/* Key heads that do not divide are gathered, and the gradients of those that are scattered. */
static void test_context_by_heads_of_few_keys(void **state)
{
    (void)state;
    graph_case c = layers(true, "context_parallel=heads");
    assert_inferred(&c, "cp=4");
    assert_count(&(sort){FORWARD, EXCHANGE, YOKE_AXIS_CP, "bthx"}, 2 * N_LAYERS);
    assert_count(&(sort){FORWARD, GATHER, YOKE_AXIS_CP, "btkx"}, 2 * N_LAYERS);
    assert_count(&(sort){BACKWARD, SCATTER, YOKE_AXIS_CP, "btkx"}, 2 * N_LAYERS);
    yoke_graph_destroy(graph);
}

/* Keys and values go n - 1 steps round; backward again, and their gradients come home in n. */
static void test_context_by_ring(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++) {
        char mesh[16];
        (void)snprintf(mesh, sizeof mesh, "cp=%d", n);
        graph_case c = layers(n % 2, "context_parallel=ring");
        assert_inferred(&c, mesh);
        assert_count(&(sort){FORWARD, ROTATE, YOKE_AXIS_CP, NULL}, 2 * (n - 1) * N_LAYERS);
        assert_count(&(sort){BACKWARD, ROTATE, YOKE_AXIS_CP, NULL},
                     (2 * (n - 1) + 2 * n) * N_LAYERS);
        assert_int_equal(count_region(FORWARD), 2 * (n - 1) * N_LAYERS);
        assert_int_equal(count_region(BACKWARD), (4 * n - 2) * N_LAYERS);
        yoke_graph_destroy(graph);
    }
}

/* --- Parameters in pieces ----------------------------------------------------------------------- */

/* Uses of parameters, one a block: `n` of all, `n_back` of those whose backward nodes read them,
 * which are weights of products and gains. A tied table is a weight of the head. */
static void count_uses(int *n, int *n_back)
{
    bool tied = true;
    *n = *n_back = 0;
    for (int64_t p = 0; p < graph->n_parameters; p++) {
        const yoke_value_info *parameter = info(graph->parameters[p]);
        bool table = strcmp(parameter->name, "wte") == 0 || strcmp(parameter->name, "wpe") == 0;
        tied = tied && strcmp(parameter->name, "head") != 0;
        *n += 1;
        *n_back += !table && (parameter->deviation > 0 || parameter->fill > 0);
    }
    *n += tied;
    *n_back += tied;
}

/* Each is gathered once forward and once backward in its block, whole, and its gradient scattered
 * once. */
static void check_gathered_for_use(const char *mesh, yoke_axis axis, const graph_case *c)
{
    int n = 0, n_back = 0;
    assert_inferred(c, mesh);
    count_uses(&n, &n_back);
    assert_count(&(sort){FORWARD, GATHER, axis, NULL}, n);
    assert_count(&(sort){BACKWARD, GATHER, axis, NULL}, n_back);
    assert_count(&(sort){BACKWARD, SCATTER, axis, NULL}, n);
    assert_int_equal(count_region(FORWARD), n);
    assert_int_equal(count_region(BACKWARD), n_back + n);
    /* The count of labels; the loss and the norms. */
    assert_int_equal(count_region(YOKE_REGION_HEAD), 1);
    assert_int_equal(count_region(YOKE_REGION_TAIL), 2);
    yoke_graph_destroy(graph);
}

static void test_gathered_for_use(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_case c = layers(i, "zero=3");
        check_gathered_for_use("fsdp=2", YOKE_AXIS_FSDP, &c);
        check_gathered_for_use("fsdp=5", YOKE_AXIS_FSDP, &c);
        check_gathered_for_use("dp=3", YOKE_AXIS_DP, &c);
    }
}

/* Optimizer's state in pieces: once a step each parameter is gathered and each gradient scattered.
 * With gradients in pieces they are scattered in each micro-batch, once a use. */
static void test_gathered_for_step(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool early = i / 2;
        graph_case c = layers(i % 2, early ? "zero=2" : "zero=1");
        int n = 0, n_back = 0;
        assert_inferred(&c, "dp=3");
        count_uses(&n, &n_back);
        int n_parameters = (int)graph->n_parameters;
        assert_count(&(sort){YOKE_REGION_HEAD, GATHER, YOKE_AXIS_DP, NULL}, n_parameters);
        assert_count(&(sort){YOKE_REGION_TAIL, SCATTER, YOKE_AXIS_DP, NULL},
                     early ? 0 : n_parameters);
        assert_count(&(sort){BACKWARD, SCATTER, YOKE_AXIS_DP, NULL}, early ? n : 0);
        assert_int_equal(count_region(FORWARD), 0);
        assert_int_equal(count_region(BACKWARD), early ? n : 0);
        assert_int_equal(count_region(YOKE_REGION_HEAD), n_parameters + 1);
        assert_int_equal(count_region(YOKE_REGION_TAIL), (early ? 0 : n_parameters) + 2);
        yoke_graph_destroy(graph);
    }
}

/* --- Programs: how often a step -------------------------------------------------------------- */

/* Collectives of one kind in the program of the first rank. */
static int count_transfers(const scene *s, yoke_conversion conversion)
{
    const yoke_program *program = yoke_program_of(s->session->train.set, 0);
    int n = 0;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        n += instruction->opcode == YOKE_OPCODE_COLLECTIVE &&
             program->transfers[instruction->transfer].conversion == conversion;
    }
    return n;
}

/* ZeRO-1 moves as much with many micro-batches as with one; ZeRO-2 scatters in each of them. */
static void test_collectives_of_a_step(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 5};
    for (int i = 0; i < 9; i++) {
        int zero = 1 + i / 3, m = (int)counts[i % 3];
        char options[16];
        (void)snprintf(options, sizeof options, "zero=%d", zero);
        const session_case c = {.preset = "llama-tiny",
                                .mesh = "dp=2",
                                .options = options,
                                .batch = 10,
                                .microbatches = m};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        int n = yoke_session_n_parameters(s.session);
        assert_int_equal(count_transfers(&s, SCATTER), zero == 1 ? n : n * m);
        /* The table of the embedding is not read backward. */
        assert_int_equal(count_transfers(&s, GATHER), zero < 3 ? n : (n + n - 1) * m);
        scene_close(&s);
    }
}

/* --- Memory ----------------------------------------------------------------------------------- */

static int64_t padded(int64_t elements)
{
    int64_t bytes = elements * (int64_t)sizeof(float);
    return (bytes + YOKE_ALIGNMENT - 1) / YOKE_ALIGNMENT * YOKE_ALIGNMENT;
}

/* Bytes of all parameters, each cut in `n` equal pieces. */
static int64_t bytes_in_pieces(const scene *s, int n)
{
    int64_t bytes = 0;
    for (int i = 0; i < yoke_session_n_parameters(s->session); i++) {
        int64_t elements = parameter_elements(s->session, i);
        assert_int_equal(elements % n, 0);
        bytes += padded(elements / n);
    }
    return bytes;
}

typedef struct share {
    const char *mesh, *options;
    int params, optimizer; /* in so many pieces */
    int whole_grads, piece_grads;
    bool gathers_all;
} share;

/* What each form of ZeRO divides among its four ranks. A gradient that is scattered once a step is
 * there whole until then. */
static const share shares[] = {
    {"dp=4", "zero=0", 1, 1, 1, 0, false}, {"dp=4", "zero=1", 4, 4, 1, 1, true},
    {"dp=4", "zero=2", 4, 4, 0, 1, true},  {"dp=4", "zero=3", 4, 4, 0, 1, false},
    {"fsdp=4", "", 4, 4, 0, 1, false},     {"ep=4", "", 1, 1, 1, 0, false},
    {"cp=4", "", 1, 1, 1, 0, false},
};

static void test_shares_of_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const share *w = &shares[i];
        const session_case c = {.preset = "llama-tiny", .mesh = w->mesh, .options = w->options};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        int64_t whole = bytes_in_pieces(&s, 1), piece = bytes_in_pieces(&s, 4);
        for (int r = 0; r < yoke_session_n_ranks(s.session); r++) {
            yoke_rank_bytes bytes = yoke_session_bytes(s.session, r);
            assert_int_equal(bytes.params, bytes_in_pieces(&s, w->params));
            assert_int_equal(bytes.grads, w->whole_grads * whole + w->piece_grads * piece);
            /* Two moments of each, and the count of steps. */
            assert_int_equal(bytes.optimizer,
                             2 * bytes_in_pieces(&s, w->optimizer) + YOKE_ALIGNMENT);
            assert_true(!w->gathers_all || bytes.gathered == whole);
            assert_true(w->gathers_all || bytes.gathered < whole);
        }
        scene_close(&s);
    }
}

/* What was planned is what is there, kind by kind, on every rank. */
static void test_plan_is_allocated(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.mesh = "dp=3", .options = "zero=1"},
        {.mesh = "dp=3", .options = "zero=2", .microbatches = 2},
        {.mesh = "dp=2,tp=2", .options = "zero=3 sequence_parallel=true"},
        {.mesh = "fsdp=3,pp=2", .microbatches = 3},
        {.mesh = "cp=3", .options = "context_parallel=ring"},
        {.mesh = "cp=2,tp=2", .options = "context_parallel=heads"},
        {.mesh = "ep=2,fsdp=2", .seq_len = 17},
        {.mesh = "pp=2,fsdp=2,tp=2", .schedule = "zb-v", .microbatches = 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scene s;
        outcome o = {0};
        scene_open(&s, &cases[i]);
        scene_plan(&s);
        run_steps(&s, 0, 1, &o);
        for (int r = 0; r < yoke_session_n_ranks(s.session); r++) {
            yoke_rank_bytes b = yoke_session_bytes(s.session, r);
            assert_int_equal(b.allocated, b.planned);
            assert_int_equal(b.planned, yoke_program_of(s.session->train.set, r)->slab_bytes);
            assert_int_equal(b.planned,
                             b.params + b.grads + b.optimizer + b.stash + b.gathered + b.scratch);
        }
        assert_int_equal(o.result.step_allocations, 0);
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence_parallel),
        cmocka_unit_test(test_sequence_parallel_moves_no_more),
        cmocka_unit_test(test_sequence_parallel_sums_gradients_of_norms),
        cmocka_unit_test(test_context_by_gathering),
        cmocka_unit_test(test_context_by_heads),
        cmocka_unit_test(test_context_by_heads_of_few_keys),
        cmocka_unit_test(test_context_by_ring),
        cmocka_unit_test(test_gathered_for_use),
        cmocka_unit_test(test_gathered_for_step),
        cmocka_unit_test(test_collectives_of_a_step),
        cmocka_unit_test(test_shares_of_memory),
        cmocka_unit_test(test_plan_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
