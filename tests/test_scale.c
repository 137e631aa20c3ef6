/*
 * Plans for many ranks: ranks that do the same share a program, and that changes nothing; thousands
 * of ranks are planned and proved on one machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "program_cases.h"
#include "run/session.h"
#include "session_case.h"
#include "sim/measure.h"

/* --- Shared against apart --------------------------------------------------------------------- */

static void assert_same_instructions(const yoke_program *a, const yoke_program *b)
{
    assert_int_equal(a->n_instructions, b->n_instructions);
    assert_int_equal(a->n_operands, b->n_operands);
    assert_memory_equal(a->operands, b->operands, sizeof *a->operands * (size_t)a->n_operands);
    for (int64_t i = 0; i < a->n_instructions; i++) {
        const yoke_instruction *x = &a->instructions[i], *y = &b->instructions[i];
        assert_int_equal(x->opcode, y->opcode);
        assert_int_equal(x->region, y->region);
        assert_int_equal(x->block, y->block);
        assert_int_equal(x->microbatch, y->microbatch);
        assert_int_equal(x->node, y->node);
        assert_int_equal(x->operands, y->operands);
        assert_int_equal(x->n_in, y->n_in);
        assert_int_equal(x->n_out, y->n_out);
        assert_int_equal(x->transfer, y->transfer);
        assert_int_equal(x->accumulate, y->accumulate);
    }
}

/* What each takes of the slab, and that it is the rank's own piece. */
static void assert_same_buffers(const yoke_program *a, const yoke_program *b, int rank)
{
    assert_int_equal(a->n_buffers, b->n_buffers);
    assert_int_equal(a->slab_bytes, b->slab_bytes);
    for (int64_t i = 0; i < a->n_buffers; i++) {
        const yoke_buffer *x = &a->buffers[i], *y = &b->buffers[i];
        yoke_shard piece = yoke_program_shard(set, rank, x->value);
        assert_int_equal(x->value, y->value);
        assert_int_equal(x->microbatch, y->microbatch);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->offset, y->offset);
        assert_int_equal(x->root, y->root);
        assert_int_equal(x->first, y->first);
        assert_int_equal(x->last, y->last);
        assert_int_equal(x->shape.n_dims, piece.n_dims);
        for (int d = 0; d < piece.n_dims; d++) {
            assert_int_equal(x->shape.extent[d], piece.extent[d]);
            assert_int_equal(y->shape.extent[d], piece.extent[d]);
        }
    }
}

static void assert_same_transfers(const yoke_program_set *other, int rank)
{
    const yoke_program *a = yoke_program_of(set, rank), *b = yoke_program_of(other, rank);
    assert_int_equal(a->n_transfers, b->n_transfers);
    for (int64_t i = 0; i < a->n_transfers; i++) {
        const yoke_program_transfer *x = &a->transfers[i], *y = &b->transfers[i];
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->conversion, y->conversion);
        assert_int_equal(x->axis, y->axis);
        assert_int_equal(x->value, y->value);
        assert_int_equal(x->microbatch, y->microbatch);
        assert_int_equal(x->tag, y->tag);
        assert_int_equal(x->elements, y->elements);
        assert_int_equal(x->in, y->in);
        assert_int_equal(x->out, y->out);
        if (x->kind == YOKE_EXCHANGE_SEND || x->kind == YOKE_EXCHANGE_RECV) {
            assert_int_equal(yoke_program_peer(set, rank, x), yoke_program_peer(other, rank, y));
        } else {
            const yoke_grouping *g = &set->groupings[x->grouping];
            assert_int_equal(g->axis, other->groupings[y->grouping].axis);
            assert_true(g->stages == other->groupings[y->grouping].stages);
        }
    }
}

/* A group is those ranks, ascending, that differ along the axis alone, of the stages that take part;
 * each of its members finds it. */
static void assert_groups(const yoke_grouping *grouping)
{
    int members[64], wanted[64];
    int size = yoke_grouping_size(set, grouping);
    assert_in_range(size, 1, 64);
    for (int rank = 0; rank < set->n_ranks; rank++) {
        int group = yoke_grouping_find(set, grouping, rank), n = 0;
        int n_all = yoke_mesh_group(&set->mesh, rank, 1u << grouping->axis, wanted);
        for (int i = 0; i < n_all; i++) {
            int stage = yoke_mesh_coordinate(&set->mesh, wanted[i], YOKE_AXIS_PP);
            if (grouping->axis != YOKE_AXIS_PP || (grouping->stages >> stage & 1)) {
                wanted[n++] = wanted[i];
            }
        }
        assert_in_range(group, 0, yoke_grouping_n_groups(set, grouping) - 1);
        yoke_grouping_members(set, grouping, group, members);
        assert_int_equal(n, size);
        assert_memory_equal(members, wanted, sizeof *members * (size_t)n);
    }
}

typedef struct share {
    plan plan;
    const char *options; /* of the run */
    bool llama;
    int n_classes;
} share;

/* Six samples, 5 tokens, 33 words, 4 heads (Llama: over 2 of keys), 20 features. */
static void assert_shares(const share *s)
{
    graph_case c = s->llama ? llama_case(4) : gpt2_case(4);
    plan shared = s->plan;
    shared.shared = true;
    c.options = s->options;
    make(&c, &s->plan);
    yoke_program_set *apart = set;
    make_program(&shared);
    assert_good(yoke_program_verify(set), &s->plan);
    assert_good(yoke_program_verify(apart), &s->plan);
    if (set->n_classes != s->n_classes) {
        fail_msg("mesh '%s': %d classes, not %d", s->plan.mesh, set->n_classes, s->n_classes);
    }
    assert_int_equal(apart->n_classes, set->n_ranks);
    assert_int_equal(apart->depth, set->depth);
    for (int rank = 0; rank < set->n_ranks; rank++) {
        const yoke_program *a = yoke_program_of(set, rank), *b = yoke_program_of(apart, rank);
        assert_same_instructions(a, b);
        assert_same_buffers(a, b, rank);
        assert_same_transfers(apart, rank);
    }
    for (int64_t g = 0; g < set->n_groupings; g++) {
        assert_groups(&set->groupings[g]);
    }
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        double bytes = yoke_program_set_comm_bytes(apart, (yoke_axis)axis);
        assert_true(fabs(yoke_program_set_comm_bytes(set, (yoke_axis)axis) - bytes) <=
                    1e-12 * bytes);
    }
    yoke_program_set_destroy(apart);
    unmake();
}

#define ON(mesh_, schedule_, n)                                                                    \
    {                                                                                              \
        .mesh = (mesh_), .schedule = (schedule_), .microbatches = (n)                              \
    }

static void test_shared_programs_are_those_of_each_rank(void **state)
{
    (void)state;
    static const share table[] = {
        {.plan = ON("", "gpipe", 2), .n_classes = 1},
        {.plan = ON("dp=2,pp=4", "1f1b", 3), .n_classes = 4},
        {.plan = ON("dp=4", "gpipe", 2), .n_classes = 2},
        /* The words divide unevenly, and the stage between has none. */
        {.plan = ON("tp=2,pp=3", "1f1b", 3), .n_classes = 5},
        {.plan = ON("dp=5,tp=3", "1f1b", 2), .n_classes = 6},
        {.plan = ON("dp=3,tp=4,pp=2", "interleaved", 4), .llama = true, .n_classes = 4},
        {.plan = ON("fsdp=3,tp=2,pp=2", "zb-h1", 3), .n_classes = 4},
        {.plan = ON("cp=2,dp=3", "1f1b", 2), .options = "context_parallel=ring", .n_classes = 2},
        {.plan = ON("dp=4,tp=2", "gpipe", 2),
         .options = "zero=1 sequence_parallel=true",
         .llama = true,
         .n_classes = 4},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_shares(&table[i]);
    }
}

/* --- Classes that are wrong ------------------------------------------------------------------- */

/* Six samples over 4 ranks: two each for ranks 0 and 1, one each for 2 and 3. */
static blame stranger_in_a_class(void)
{
    assert_int_equal(set->class_of[3], 1);
    set->class_of[3] = 0;
    set->classes[0].n_ranks++;
    set->classes[1].n_ranks--;
    return (blame){3, -1, NULL};
}

static blame unknown_class(void)
{
    set->class_of[3] = set->n_classes;
    return (blame){3, -1, NULL};
}

static blame wrong_first(void)
{
    set->classes[1].rank = 3;
    return (blame){2, -1, NULL};
}

/* What all ranks of a class share is spoiled for all: the first of them is named. */
static blame shared_and_spoiled(void)
{
    int64_t first = find(3, YOKE_OPCODE_COLLECTIVE, 0);
    transfer_at(3, first)->tag++;
    return blame_transfer(2, first);
}

static blame stranger_from_another_stage(void)
{
    set->class_of[1] = 0;
    set->classes[0].n_ranks = 2;
    set->n_classes = 1;
    return (blame){1, -1, NULL};
}

static blame shared_send_dropped(void)
{
    drop_transfer(0, at(0, find(0, YOKE_OPCODE_SEND, -1))->transfer);
    return blame_transfer(3, find(3, YOKE_OPCODE_RECV, -1));
}

static void assert_class_refused(const mutation *m)
{
    graph_case c = gpt2_case(2);
    make(&c, m->plan);
    assert_refused(m);
}

static void test_spoiled_classes(void **state)
{
    (void)state;
    static const plan uneven = {
        .mesh = "dp=4", .schedule = "gpipe", .microbatches = 2, .shared = true};
    static const plan piped = {
        .mesh = "pp=2", .schedule = "gpipe", .microbatches = 2, .shared = true};
    static const plan wide = {
        .mesh = "dp=3,pp=2", .schedule = "1f1b", .microbatches = 3, .shared = true};
    static const mutation table[] = {
        {"stranger in a class", &uneven, stranger_in_a_class, "is of the class of rank 0, but its"},
        {"unknown class", &uneven, unknown_class, "is of class 2 of 2"},
        {"wrong first", &uneven, wrong_first, "which says rank 3"},
        {"shared and spoiled", &uneven, shared_and_spoiled, "which differs in tag"},
        {"stranger from another stage", &piped, stranger_from_another_stage,
         "but on stage 1 instead of 0"},
        {"shared send dropped", &wide, shared_send_dropped, "is never sent"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_class_refused(&table[i]);
    }
}

static void test_layout_that_cuts_along_stages(void **state)
{
    (void)state;
    static const plan piped = {.mesh = "pp=2", .schedule = "gpipe", .microbatches = 1};
    graph_case c = gpt2_case(2);
    make(&c, &piped);
    graph->values[0].layout.place[YOKE_AXIS_PP] = 0;
    yoke_status status = yoke_program_verify(set);
    assert_status_says(status, YOKE_CHECK, SAYS("is divided along pp"));
    unmake();
}

/* --- Llama 2 70B on 8192 ranks ---------------------------------------------------------------- */

enum { LAYERS = 80, WIDTH = 8192, KEYS = 1024, FEATURES = 28672, WORDS = 32000 };
enum { TP = 8, PP = 16, DP = 64, RANKS = TP * PP * DP, MICROBATCHES = 16, TOKENS = 4096 };

static int64_t parameters_of_layer(void)
{
    int64_t divided = (int64_t)WIDTH * (2 * WIDTH + 2 * KEYS + 3 * FEATURES);
    return divided / TP + (int64_t)2 * WIDTH;
}

/* Of a rank on the stage: the table first, the norm and the head last. */
static int64_t parameters_of_stage(int stage)
{
    int64_t table = stage == 0 || stage == PP - 1 ? (int64_t)WORDS * WIDTH / TP : 0;
    return LAYERS / PP * parameters_of_layer() + table + (stage == PP - 1 ? WIDTH : 0);
}

static yoke_session *plan_70b(void)
{
    yoke_model_config model;
    yoke_session *session;
    yoke_config config = yoke_config_default();
    config.mesh = "tp=8,pp=16,dp=64";
    config.batch_size = (int64_t)DP * MICROBATCHES;
    config.microbatches = MICROBATCHES;
    config.seq_len = TOKENS;
    assert_ok(yoke_model_config_load("llama2-70b", &model), "llama2-70b");
    yoke_session_parts parts = {.config = &config, .model = &model};
    assert_ok(yoke_session_create(&parts, &session), "llama2-70b");
    return session;
}

/* So much, and besides only the scalars of a step. */
static void assert_holds(const yoke_program *program, yoke_buffer_kind kind, int64_t bytes)
{
    assert_in_range(program->kind_bytes[kind], bytes, bytes + 65536);
}

static void assert_stages(const yoke_program_set *programs)
{
    assert_int_equal(programs->n_ranks, RANKS);
    assert_int_equal(programs->n_classes, PP);
    for (int stage = 0; stage < PP; stage++) {
        const yoke_program *program = &programs->classes[stage];
        int64_t bytes = 4 * parameters_of_stage(stage);
        assert_int_equal(program->n_ranks, DP * TP);
        assert_int_equal(yoke_mesh_coordinate(&programs->mesh, program->rank, YOKE_AXIS_PP), stage);
        assert_int_equal(program->kind_bytes[YOKE_BUFFER_PARAMS], bytes);
        assert_holds(program, YOKE_BUFFER_GRADS, bytes);
        assert_holds(program, YOKE_BUFFER_OPTIMIZER, 2 * bytes);
    }
}

static void assert_moved(const yoke_program_set *programs)
{
    yoke_arena *arena;
    assert_ok(yoke_arena_create(&arena, 0), "arena");
    yoke_plan_measures m = yoke_plan_measure(programs, arena);
    double activation = 4.0 * DP * TOKENS * WIDTH; /* of a micro-batch, all samples */
    double parameters = 0;
    for (int stage = 0; stage < PP; stage++) {
        parameters += 4.0 * (double)parameters_of_stage(stage) * DP * TP;
    }
    /* Each boundary forward and back; each replica of tp sends its own. */
    assert_true(m.moved[YOKE_AXIS_PP][YOKE_TRAFFIC_BOUNDARIES] ==
                2.0 * (PP - 1) * MICROBATCHES * activation * TP);
    /* One all_reduce of the gradients. */
    assert_true(m.moved[YOKE_AXIS_DP][YOKE_TRAFFIC_PARAMS] == 2.0 * (DP - 1) / DP * parameters);
    /* Two all_reduce a layer and direction (Shoeybi et al. 2019). */
    assert_true(m.moved[YOKE_AXIS_TP][YOKE_TRAFFIC_LAYERS] ==
                4.0 * LAYERS * MICROBATCHES * 2.0 * (TP - 1) / TP * activation * TP);
    yoke_arena_destroy(arena);
}

static void test_70b_on_8192_ranks(void **state)
{
    (void)state;
    yoke_session *session = plan_70b();
    const yoke_program_set *programs = yoke_session_programs(session);
    assert_int_equal(yoke_session_n_ranks(session), RANKS);
    assert_stages(programs);
    assert_moved(programs);
    yoke_session_destroy(session);
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < 2 * 1024 * 1024); /* KiB */
}

/* --- More than one machine runs --------------------------------------------------------------- */

static void test_too_many_to_run(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=1100", .batch = 1100, .steps = 1, .seq_len = 4};
    scene s;
    yoke_run_result result;
    yoke_run_options options = {.n_steps = 1};
    scene_open(&s, &c);
    scene_plan(&s);
    assert_status_says(yoke_session_run(s.session, &options, &result), YOKE_BAD_INPUT,
                       SAYS("dp=1100 has 1100 ranks", "1024", "smaller mesh"));
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_programs_are_those_of_each_rank),
        cmocka_unit_test(test_spoiled_classes),
        cmocka_unit_test(test_layout_that_cuts_along_stages),
        cmocka_unit_test(test_70b_on_8192_ranks),
        cmocka_unit_test(test_too_many_to_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
