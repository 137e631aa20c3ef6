/*
 * Interleaved 1F1B, ZB-H1 and ZB-V: bubble and memory as published, for every number of stages up
 * to 8 and micro-batches up to 16; and what each schedule refuses.
 */
#include "schedule_case.h"

#include <math.h>

enum { MOST_P = 8, MOST_M = 16 };

static void assert_refused(const char *name, yoke_schedule_request request, const char *says)
{
    yoke_schedule schedule;
    assert_fails(yoke_schedule_build(find(name), &request, arena, &schedule), YOKE_BAD_INPUT, says);
}

/* The same within rounding. */
static void assert_share(const yoke_schedule *schedule, double f, double b, double wanted)
{
    double bubble = yoke_schedule_bubble(schedule, f, b);
    if (fabs(bubble - wanted) > 1e-12) {
        fail_msg("%s p=%d m=%d: bubble %g, not %g", schedule->name, schedule->n_stages,
                 schedule->n_microbatches, bubble, wanted);
    }
}

/* Idle share of a step of `span` units in which each stage works for `busy`. */
static double share(int span, int busy)
{
    return (double)(span - busy) / span;
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

static void test_every_schedule_verifies_wherever_it_is_accepted(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        const yoke_schedule_def *def = yoke_schedule_get(i);
        int n_accepted = 0;
        for (int k = 0; k < MOST_P * MOST_M * 2; k++) {
            yoke_schedule_request request = {.n_stages = 1 + k % MOST_P,
                                             .n_microbatches = 1 + k / MOST_P % MOST_M,
                                             .forward_only = k >= MOST_P * MOST_M};
            yoke_schedule schedule;
            yoke_status status = yoke_schedule_build(def, &request, arena, &schedule);
            n_accepted += !status;
            assert_true(!status || yoke_status_code(status) == YOKE_BAD_INPUT);
            yoke_status_free(status);
        }
        int n_multiples = 0;
        for (int k = 0; k < MOST_P * MOST_M; k++) {
            n_multiples += (1 + k / MOST_P) % (1 + k % MOST_P) == 0;
        }
        bool needs_multiple = strcmp(def->name, "interleaved") == 0;
        assert_int_equal(n_accepted, MOST_P * MOST_M * (needs_multiple ? 1 : 2) +
                                         (needs_multiple ? n_multiples : 0));
    }
}

static void check_interleaved(int p, int m, int v)
{
    yoke_schedule_request request = {.n_stages = p, .n_microbatches = m, .chunks_per_stage = v};
    yoke_schedule schedule = make_of(find("interleaved"), &request);
    assert_int_equal(schedule.n_chunks, v * p);
    assert_share(&schedule, 1, 2, (double)(p - 1) / (v * m + p - 1));
    assert_share(&schedule, 0.5, 1, (double)(p - 1) / (v * m + p - 1));
    for (int c = 0; c < v * p; c++) {
        assert_int_equal(schedule.stage_of_chunk[c], c % p);
    }
    for (int s = 0; s < p; s++) {
        int held = 2 * (p - 1 - s) + (v - 1) * p + 1;
        assert_int_equal(yoke_schedule_in_flight(&schedule, s), min(held, v * m));
    }
}

static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 1; p <= MOST_P; p++) {
        for (int m = p; m <= MOST_M; m += p) {
            check_interleaved(p, m, 2);
            check_interleaved(p, m, 3);
            check_interleaved(p, m, 5);
        }
    }
    yoke_schedule schedule = make(find("interleaved"), 2, 4, false);
    assert_string_equal(written(yoke_schedule_print, &schedule),
                        "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
                        "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

/* Equal costs of F, I and W: b_cost is that of both halves. */
static void check_zb_h1(int p, int m)
{
    yoke_schedule schedule = make(find("zb-h1"), p, m, false);
    assert_int_equal(schedule.n_chunks, p);
    int span = max(3 * m + p - 1, 2 * m + 2 * p - 1);
    assert_share(&schedule, 1, 2, share(span, 3 * m));
    for (int s = 0; s < p; s++) {
        assert_int_equal(yoke_schedule_in_flight(&schedule, s), min(p, m));
    }
    if (m >= p) {
        yoke_schedule old = make(find("1f1b"), p, m, false);
        double bubble = yoke_schedule_bubble(&schedule, 1, 2);
        double bubble_old = yoke_schedule_bubble(&old, 1, 2);
        /* Idle time in parts of the work, which is the same for both. */
        assert_true(bubble / (1 - bubble) <= bubble_old / (1 - bubble_old) / 3 + 1e-12);
    }
}

static void test_zb_h1(void **state)
{
    (void)state;
    for (int p = 1; p <= MOST_P; p++) {
        for (int m = 1; m <= MOST_M; m++) {
            check_zb_h1(p, m);
        }
    }
    yoke_schedule schedule = make(find("zb-h1"), 2, 3, false);
    assert_string_equal(written(yoke_schedule_print, &schedule),
                        "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
                        "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

static void check_zb_v(int p, int m)
{
    yoke_schedule schedule = make(find("zb-v"), p, m, false);
    assert_int_equal(schedule.n_chunks, 2 * p);
    for (int c = 0; c < p; c++) {
        assert_int_equal(schedule.stage_of_chunk[c], c);
        assert_int_equal(schedule.stage_of_chunk[2 * p - 1 - c], c);
    }
    int span = max(6 * m + p - 1, 4 * m + 4 * p - 2);
    assert_share(&schedule, 1, 2, share(span, 6 * m));
    for (int s = 0; s < p; s++) {
        /* A chunk is half a stage. */
        int held = yoke_schedule_in_flight(&schedule, s);
        assert_true(held <= 2 * p);
        assert_true(m < 2 * p - 1 || held == 2 * p);
    }
}

static void test_zb_v(void **state)
{
    (void)state;
    for (int p = 1; p <= MOST_P; p++) {
        for (int m = 1; m <= MOST_M; m++) {
            check_zb_v(p, m);
        }
    }
    yoke_schedule schedule = make(find("zb-v"), 2, 3, false);
    assert_string_equal(
        written(yoke_schedule_print, &schedule),
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
        "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
}

static void test_refusals(void **state)
{
    (void)state;
    yoke_schedule_request request = {.n_stages = 4, .n_microbatches = 6};
    assert_refused("interleaved", request,
                   "schedule interleaved: 6 micro-batches on 4 stages; they must be a multiple of "
                   "the stages: use 4 or 8, whichever divides batch_size, or the schedule 1f1b");
    request.n_microbatches = 3;
    assert_refused("interleaved", request,
                   "schedule interleaved: 3 micro-batches on 4 stages; they must be a multiple of "
                   "the stages: use 4, with a batch_size that it divides, or the schedule 1f1b");
    request.chunks_per_stage = 1;
    assert_refused("interleaved", request,
                   "schedule interleaved: 1 chunk a stage; use at least 2, or 1f1b, which is the "
                   "same with 1");
    assert_refused("zb-v", request,
                   "schedule zb-v: 1 chunks a stage, but it has 2; use chunks_per_stage=2, or the "
                   "schedule interleaved");
    request.chunks_per_stage = -1;
    assert_refused("zb-v", request,
                   "schedule zb-v: -1 chunks a stage; use 0 for the schedule's own number, or at "
                   "least 1");
    request.chunks_per_stage = 1 << 30;
    assert_refused("interleaved", request,
                   "schedule interleaved: 4 stages, 1073741824 chunks a stage and 3 micro-batches "
                   "make 38654705664 actions; there may be 67108864: use fewer chunks or "
                   "micro-batches");
}

static void test_schedules_of_one_chunk_refuse_more(void **state)
{
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char says[200];
        yoke_schedule_request request = {.n_stages = 2, .n_microbatches = 2, .chunks_per_stage = 2};
        snprintf(says, sizeof says,
                 "schedule %s: 2 chunks a stage, but it has 1; use chunks_per_stage=1, or the "
                 "schedule interleaved",
                 names[i]);
        assert_refused(names[i], request, says);
        request.chunks_per_stage = 1;
        assert_int_equal(make_of(find(names[i]), &request).n_chunks, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule_verifies_wherever_it_is_accepted),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_zb_h1),
        cmocka_unit_test(test_zb_v),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_schedules_of_one_chunk_refuse_more),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
