/*
 * Schedules in the real plan: how much the fullest moment of each stage keeps of the layers' activations, in layers of one
 * micro-batch, read off the programs' buffers; and that a schedule from a CSV file makes the program of the schedule that
 * wrote it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session_case.h"
#include "sim/measure.h"

enum { LAYERS_PER_STAGE = 2, MOST_P = 5 };

typedef struct planned {
    scene at;
    yoke_arena *arena;
    yoke_plan_measures measures;
} planned;

/* Two layers a stage, of a width beside which embedding and head weigh little, so that every stage gets its two. */
static void open_plan(planned *p, const char *schedule, int n_stages, int n_microbatches)
{
    char mesh[16], keys[160];
    (void)snprintf(mesh, sizeof mesh, "pp=%d", n_stages);
    (void)snprintf(keys, sizeof keys, "vocab_size=257 n_positions=16 n_embd=64 n_head=4 n_layer=%d",
                   LAYERS_PER_STAGE * n_stages);
    session_case c = {.keys = keys,
                      .mesh = mesh,
                      .schedule = schedule,
                      .options = "recompute=none",
                      .batch = n_microbatches,
                      .microbatches = n_microbatches};
    scene_open(&p->at, &c);
    scene_plan(&p->at);
    assert_ok(yoke_arena_create(&p->arena, 0), "arena");
    p->measures = yoke_plan_measure(yoke_session_programs(p->at.session), p->arena);
}

static void close_plan(planned *p)
{
    yoke_arena_destroy(p->arena);
    scene_close(&p->at);
}

/* The cut deals the layers evenly; embedding and head come with the first and the last chunk. */
static void assert_even(const yoke_program_set *set)
{
    int n_chunks = set->schedule.n_chunks;
    int each = LAYERS_PER_STAGE * set->schedule.n_stages / n_chunks;
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        int n = set->first_block[chunk + 1] - set->first_block[chunk];
        assert_int_equal(n, each + (chunk == 0) + (chunk == n_chunks - 1));
    }
}

/* Bytes that a stage keeps of one micro-batch: those of one rank with one stage's layers. */
static double stage_bytes(void)
{
    planned p;
    open_plan(&p, "1f1b", 1, 1);
    double bytes = p.measures.stage[0].layer_stash;
    /* 16 numbers a channel, two statistics of each norm, one number a head. */
    assert_true(bytes == LAYERS_PER_STAGE * 4 * 16 * (16 * 64 + 4 + 4));
    close_plan(&p);
    return bytes;
}

/* In stages' worth of activations, [stage]; `least` is what it holds at the least, where that is not the same. */
typedef struct held {
    double most, least;
} held;

typedef held (*held_function)(int p, int m, int stage);

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static held held_gpipe(int p, int m, int stage)
{
    (void)p;
    (void)stage;
    return (held){m, m};
}

static held held_1f1b(int p, int m, int stage)
{
    double n = smaller(p - stage, m);
    return (held){n, n};
}

/* Two chunks a stage. */
static held held_interleaved(int p, int m, int stage)
{
    double n = smaller(2 * (p - 1 - stage) + p + 1, 2 * m) / 2;
    return (held){n, n};
}

/* What only I reads is given back before W, unless a gradient has taken its storage over: of 16 numbers a channel 3. */
static held held_zb_h1(int p, int m, int stage)
{
    double n = smaller(p, m);
    return (held){n, stage == 0 ? n : n - 0.2 * (n - 1)};
}

static held held_zb_v(int p, int m, int stage)
{
    (void)stage;
    (void)m;
    return (held){p, p};
}

static void check_held(const char *schedule, int p, int m, held_function wanted)
{
    planned at;
    double unit = stage_bytes();
    open_plan(&at, schedule, p, m);
    assert_even(yoke_session_programs(at.at.session));
    for (int stage = 0; stage < p; stage++) {
        double stages = at.measures.stage[stage].layer_stash / unit;
        held h = wanted(p, m, stage);
        if (stages > h.most + 1e-12 || stages < h.least - 1e-12) {
            fail_msg("%s p=%d m=%d: stage %d holds %g stages' worth, not %g to %g", schedule, p, m,
                     stage, stages, h.least, h.most);
        }
    }
    close_plan(&at);
}

static void test_what_is_held_is_what_is_published(void **state)
{
    (void)state;
    for (int p = 2; p <= MOST_P; p++) {
        for (int m = 2 * p - 1; m <= 2 * p; m++) {
            check_held("gpipe", p, m, held_gpipe);
            check_held("1f1b", p, m, held_1f1b);
            check_held("zb-h1", p, m, held_zb_h1);
            check_held("zb-v", p, m, held_zb_v);
        }
        check_held("interleaved", p, p, held_interleaved);
        check_held("interleaved", p, 2 * p, held_interleaved);
    }
    check_held("1f1b", 5, 3, held_1f1b);
    check_held("zb-h1", 5, 3, held_zb_h1);
}

/* Idle time in parts of the work, F, I and W of one unit each. */
static double idle(const char *schedule, int p, int m)
{
    planned at;
    open_plan(&at, schedule, p, m);
    double bubble = yoke_program_set_bubble(yoke_session_programs(at.at.session));
    close_plan(&at);
    return bubble / (1 - bubble);
}

static void test_zb_h1_idles_a_third(void **state)
{
    (void)state;
    for (int p = 2; p <= MOST_P; p++) {
        for (int m = p; m <= 2 * p; m++) {
            assert_true(idle("zb-h1", p, m) <= idle("1f1b", p, m) / 3 + 1e-12);
        }
    }
}

static void assert_same_program(const yoke_program_set *a, const yoke_program_set *b)
{
    assert_int_equal(a->n_classes, b->n_classes);
    for (int c = 0; c < a->n_classes; c++) {
        const yoke_program *x = &a->classes[c], *y = &b->classes[c];
        assert_int_equal(x->n_instructions, y->n_instructions);
        assert_int_equal(x->slab_bytes, y->slab_bytes);
        for (int64_t i = 0; i < x->n_instructions; i++) {
            char left[300], right[300];
            (void)yoke_instruction_print(a, x->rank, i, left, sizeof left);
            (void)yoke_instruction_print(b, y->rank, i, right, sizeof right);
            assert_string_equal(left, right);
        }
    }
}

static void check_file(const char *schedule, int p, int m)
{
    planned built, read;
    char folder[] = "schedule-XXXXXX";
    char path[sizeof folder + sizeof "/own.csv"];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/own.csv", folder);
    open_plan(&built, schedule, p, m);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    yoke_schedule_print(out, &yoke_session_programs(built.at.session)->schedule);
    assert_int_equal(fclose(out), 0);
    open_plan(&read, path, p, m);
    assert_same_program(yoke_session_programs(built.at.session),
                        yoke_session_programs(read.at.session));
    close_plan(&read);
    close_plan(&built);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_a_file_makes_the_same_program(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        check_file(yoke_schedule_get(i)->name, 3, 6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_held_is_what_is_published),
        cmocka_unit_test(test_zb_h1_idles_a_third),
        cmocka_unit_test(test_a_file_makes_the_same_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
