/*
 * Schedules: the formulas of the literature, a slow twin that steps through time unit by unit, and
 * broken schedules, each of which the verifier must refuse with words that help.
 */
#include "schedule_case.h"

#include <math.h>

enum { MOST_STAGES = 4, MOST_CHUNKS = 8, MOST_MICROBATCHES = 5, MOST_ACTIONS = 64 };

/* A schedule whose tables can be changed. */
typedef struct draft {
    yoke_schedule schedule;
    int stage_of_chunk[MOST_CHUNKS];
    yoke_stage_actions stage[MOST_STAGES];
    yoke_action action[MOST_STAGES][MOST_ACTIONS];
} draft;

/* Schedules point into the draft, so it is filled in place. */
static void draft_init(draft *d, int n_stages, int n_chunks, int n_microbatches)
{
    memset(d, 0, sizeof *d);
    d->schedule = (yoke_schedule){.name = "draft",
                                  .n_stages = n_stages,
                                  .n_chunks = n_chunks,
                                  .n_microbatches = n_microbatches,
                                  .stage_of_chunk = d->stage_of_chunk,
                                  .stage = d->stage};
    for (int s = 0; s < n_stages; s++) {
        d->stage[s].action = d->action[s];
    }
}

static void draft_copy(draft *d, const yoke_schedule *from)
{
    draft_init(d, from->n_stages, from->n_chunks, from->n_microbatches);
    d->schedule.forward_only = from->forward_only;
    for (int c = 0; c < from->n_chunks; c++) {
        d->stage_of_chunk[c] = from->stage_of_chunk[c];
    }
    for (int s = 0; s < from->n_stages; s++) {
        assert_true(from->stage[s].n <= MOST_ACTIONS);
        d->stage[s].n = from->stage[s].n;
        memcpy(d->action[s], from->stage[s].action, sizeof(yoke_action) * (size_t)d->stage[s].n);
    }
}

static void draft_swap(draft *d, int stage, int i, int j)
{
    yoke_action kept = d->action[stage][i];
    d->action[stage][i] = d->action[stage][j];
    d->action[stage][j] = kept;
}

static void draft_drop(draft *d, int stage, int i)
{
    d->stage[stage].n--;
    memmove(&d->action[stage][i], &d->action[stage][i + 1],
            sizeof(yoke_action) * (size_t)(d->stage[stage].n - i));
}

static void draft_add(draft *d, int stage, yoke_action_kind kind, int chunk, int microbatch)
{
    assert_true(d->stage[stage].n < MOST_ACTIONS);
    d->action[stage][d->stage[stage].n++] =
        (yoke_action){.kind = kind, .chunk = chunk, .microbatch = microbatch};
}

/* The slow twin: time goes on by one unit, and each stage looks whether what it needs has ended. */
typedef struct twin {
    const yoke_schedule *schedule;
    int ended[YOKE_N_ACTION_KINDS][MOST_CHUNKS][MOST_MICROBATCHES]; /* time, or -1 */
    int next[MOST_STAGES], busy_until[MOST_STAGES];
    int busy, span;
} twin;

static bool twin_ended(const twin *t, yoke_action_kind kind, int chunk, int microbatch, int now)
{
    int ended = t->ended[kind][chunk][microbatch];
    return ended >= 0 && ended <= now;
}

static bool twin_backward_ended(const twin *t, int chunk, int microbatch, int now)
{
    return twin_ended(t, YOKE_ACTION_B, chunk, microbatch, now) ||
           twin_ended(t, YOKE_ACTION_I, chunk, microbatch, now);
}

static bool twin_ready(const twin *t, yoke_action a, int now)
{
    bool is_last = a.chunk == t->schedule->n_chunks - 1;
    if (a.kind == YOKE_ACTION_F) {
        return a.chunk == 0 || twin_ended(t, YOKE_ACTION_F, a.chunk - 1, a.microbatch, now);
    }
    if (a.kind == YOKE_ACTION_W) {
        return twin_ended(t, YOKE_ACTION_I, a.chunk, a.microbatch, now);
    }
    return twin_ended(t, YOKE_ACTION_F, a.chunk, a.microbatch, now) &&
           (is_last || twin_backward_ended(t, a.chunk + 1, a.microbatch, now));
}

static void twin_step(twin *t, int now, const int *cost)
{
    for (int s = 0; s < t->schedule->n_stages; s++) {
        const yoke_stage_actions *actions = &t->schedule->stage[s];
        if (t->next[s] == actions->n || t->busy_until[s] > now) {
            continue;
        }
        yoke_action a = actions->action[t->next[s]];
        if (twin_ready(t, a, now)) {
            t->next[s]++;
            t->busy_until[s] = now + cost[a.kind];
            t->busy += cost[a.kind];
            t->ended[a.kind][a.chunk][a.microbatch] = t->busy_until[s];
            t->span = t->busy_until[s] > t->span ? t->busy_until[s] : t->span;
        }
    }
}

/* Whether the schedule comes to its end. */
static bool twin_run(twin *t, const yoke_schedule *schedule, const int *cost)
{
    memset(t, 0, sizeof *t);
    memset(t->ended, -1, sizeof t->ended);
    t->schedule = schedule;
    int longest = 4 * MOST_STAGES * MOST_ACTIONS;
    for (int now = 0; now < longest; now++) {
        twin_step(t, now, cost);
    }
    for (int s = 0; s < schedule->n_stages; s++) {
        if (t->next[s] < schedule->stage[s].n) {
            return false;
        }
    }
    return true;
}

static void test_list_and_find(void **state)
{
    (void)state;
    assert_true(yoke_schedule_count() >= 2);
    for (int i = 0; i < yoke_schedule_count(); i++) {
        const yoke_schedule_def *def = yoke_schedule_get(i);
        assert_ptr_equal(find(def->name), def);
        assert_true(strlen(def->help) > 0);
    }
    const yoke_schedule_def *def = NULL;
    yoke_status status = yoke_schedule_find("1fb", &def);
    assert_non_null(status);
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_non_null(strstr(yoke_status_message(status), "unknown schedule '1fb'; there are gpipe"));
    assert_non_null(strstr(yoke_status_message(status), "did you mean 1f1b?"));
    yoke_status_free(status);
    assert_null(def);
}

static void test_build_refuses_empty_requests(void **state)
{
    (void)state;
    yoke_schedule schedule;
    yoke_schedule_request request = {.n_stages = 4, .n_microbatches = 0};
    assert_fails(yoke_schedule_build(find("gpipe"), &request, arena, &schedule), YOKE_BAD_INPUT,
                 "schedule gpipe: 4 stages and 0 micro-batches; use at least 1 of each");
}

static void check_formulas(const yoke_schedule_def *def, int p, int m)
{
    static const double costs[][2] = {{1, 1}, {1, 2}, {0.7, 1.9}, {3, 1}};
    yoke_schedule schedule = make(def, p, m, false);
    double wanted = (double)(p - 1) / (double)(m + p - 1);
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        double bubble = yoke_schedule_bubble(&schedule, costs[i][0], costs[i][1]);
        if (fabs(bubble - wanted) > 1e-12) {
            fail_msg("%s p=%d m=%d: bubble %g, not %g", def->name, p, m, bubble, wanted);
        }
    }
    bool holds_all = strcmp(def->name, "gpipe") == 0;
    for (int s = 0; s < p; s++) {
        int held = holds_all || m < p - s ? m : p - s;
        assert_int_equal(yoke_schedule_in_flight(&schedule, s), held);
    }
}

static void test_bubble_and_held_follow_the_formulas(void **state)
{
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b"};
    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 17; m++) {
            check_formulas(find(names[0]), p, m);
            check_formulas(find(names[1]), p, m);
        }
    }
}

/* Gradients are summed in the order of B or W, so of each chunk it must be that of one rank. */
static void check_order(const yoke_schedule *schedule)
{
    int next[MOST_CHUNKS] = {0};
    for (int s = 0; s < schedule->n_stages; s++) {
        for (int k = 0; k < schedule->stage[s].n; k++) {
            yoke_action a = schedule->stage[s].action[k];
            if (a.kind == YOKE_ACTION_B || a.kind == YOKE_ACTION_W) {
                assert_int_equal(a.microbatch, next[a.chunk]++);
            }
        }
    }
    for (int c = 0; c < schedule->n_chunks; c++) {
        assert_int_equal(next[c], schedule->n_microbatches);
    }
}

static void test_weight_gradients_come_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        for (int m = 3; m <= 9; m += 3) {
            yoke_schedule schedule = make(yoke_schedule_get(i), 3, m, false);
            check_order(&schedule);
        }
    }
}

/* Five micro-batches are no multiple of three stages, which matters to backwards only. */
static void test_forward_only(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        yoke_schedule schedule = make(yoke_schedule_get(i), 3, 5, true);
        int n_chunks = schedule.n_chunks / 3;
        assert_true(schedule.forward_only);
        for (int s = 0; s < 3; s++) {
            assert_int_equal(schedule.stage[s].n, 5 * n_chunks);
            assert_int_equal(yoke_schedule_in_flight(&schedule, s), 1);
            for (int k = 0; k < schedule.stage[s].n; k++) {
                assert_int_equal(schedule.stage[s].action[k].kind, YOKE_ACTION_F);
            }
        }
        if (n_chunks == 1) {
            assert_true(fabs(yoke_schedule_bubble(&schedule, 1, 2) - 2.0 / 7.0) < 1e-12);
        }
    }
}

static uint32_t random_state;

static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

/* Actions of all chunks and micro-batches in a random order that may or may not be possible: an
 * order that is, with a few neighbours swapped. */
static void random_draft(draft *d)
{
    int n_stages = 1 + random_below(MOST_STAGES);
    int n_chunks = n_stages * (1 + random_below(2));
    int n_microbatches = 1 + random_below(MOST_MICROBATCHES);
    draft_init(d, n_stages, n_chunks, n_microbatches);
    bool is_split = random_below(2);
    bool is_v = random_below(2);
    for (int c = 0; c < n_chunks; c++) {
        int turn = c % n_stages;
        d->stage_of_chunk[c] = is_v && c >= n_stages ? n_stages - 1 - turn : turn;
    }
    for (int m = 0; m < n_microbatches; m++) {
        for (int c = 0; c < n_chunks; c++) {
            draft_add(d, d->stage_of_chunk[c], YOKE_ACTION_F, c, m);
        }
        for (int c = n_chunks - 1; c >= 0; c--) {
            draft_add(d, d->stage_of_chunk[c], is_split ? YOKE_ACTION_I : YOKE_ACTION_B, c, m);
        }
        for (int c = 0; c < n_chunks && is_split; c++) {
            draft_add(d, d->stage_of_chunk[c], YOKE_ACTION_W, c, m);
        }
    }
    int n_swaps = random_below(4);
    for (int i = 0; i < n_swaps; i++) {
        int s = random_below(n_stages);
        int at = random_below(d->stage[s].n - 1);
        draft_swap(d, s, at, at + 1);
    }
}

static void test_random_schedules_against_the_twin(void **state)
{
    (void)state;
    static draft d;
    static twin t;
    static const int cost[YOKE_N_ACTION_KINDS] = {
        [YOKE_ACTION_F] = 3, [YOKE_ACTION_B] = 4, [YOKE_ACTION_I] = 2, [YOKE_ACTION_W] = 2};
    int n_good = 0;
    int n_bad = 0;
    random_state = 20240611;
    print_message("seed %u\n", random_state);
    for (int i = 0; i < 1500; i++) {
        random_draft(&d);
        bool ends = twin_run(&t, &d.schedule, cost);
        yoke_status status = yoke_schedule_verify(&d.schedule);
        if (ends == (status != YOKE_OK)) {
            fail_msg("draft %d: the twin %s, but: %s", i, ends ? "ends" : "stalls",
                     yoke_status_message(status));
        }
        if (ends) {
            double wanted = 1.0 - (double)t.busy / (t.span * d.schedule.n_stages);
            assert_true(fabs(yoke_schedule_bubble(&d.schedule, 3, 4) - wanted) < 1e-12);
        } else {
            assert_non_null(strstr(yoke_status_message(status), "schedule draft stalls: stage "));
        }
        yoke_status_free(status);
        n_good += ends;
        n_bad += !ends;
    }
    assert_true(n_good > 400);
    assert_true(n_bad > 400);
}

/* The second chunk's micro-batch is held besides the first's. */
static void test_held_counts_chunks(void **state)
{
    (void)state;
    static draft d;
    draft_init(&d, 1, 2, 2);
    draft_add(&d, 0, YOKE_ACTION_F, 0, 0);
    draft_add(&d, 0, YOKE_ACTION_F, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_I, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_F, 0, 1);
    assert_int_equal(yoke_schedule_in_flight(&d.schedule, 0), 3);
    draft_drop(&d, 0, 3);
    draft_add(&d, 0, YOKE_ACTION_W, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_F, 0, 1);
    assert_int_equal(yoke_schedule_in_flight(&d.schedule, 0), 2);
}

/* 1F1B with 2 stages and 3 micro-batches, which each test breaks in one place:
 * 0F0,0F1,0B0,0F2,0B1,0B2
 * 1F0,1B0,1F1,1B1,1F2,1B2 */
static draft *good_draft(void)
{
    static draft d;
    yoke_schedule schedule = make(find("1f1b"), 2, 3, false);
    draft_copy(&d, &schedule);
    assert_null(yoke_schedule_verify(&d.schedule));
    return &d;
}

static void refuse(draft *d, const char *says)
{
    assert_fails(yoke_schedule_verify(&d->schedule), YOKE_CHECK, says);
}

static void test_refuses_missing_and_double(void **state)
{
    (void)state;
    draft *d = good_draft();
    draft_drop(d, 1, 4);
    refuse(d, "schedule draft: stage 1 never does 1F2; add it");
    d = good_draft();
    draft_drop(d, 0, 5);
    refuse(d, "schedule draft: stage 0 never does 0B2; add it");
    d = good_draft();
    d->action[0][5].kind = YOKE_ACTION_I;
    refuse(d, "schedule draft: stage 0 never does 0W2; add it");
    d->action[0][5].kind = YOKE_ACTION_W;
    refuse(d, "schedule draft: stage 0 never does 0I2; add it");
    d = good_draft();
    draft_add(d, 0, YOKE_ACTION_F, 0, 1);
    refuse(d, "schedule draft: stage 0 does 0F1 twice; drop action 6");
    d = good_draft();
    draft_add(d, 1, YOKE_ACTION_W, 1, 0);
    refuse(d, "schedule draft: stage 1, action 6 is 1W0 beside the other form of the same "
              "backward; use B, or I and W");
}

static void test_refuses_out_of_place(void **state)
{
    (void)state;
    draft *d = good_draft();
    d->action[0][3].microbatch = 3;
    refuse(d, "schedule draft: stage 0, action 3 is 0F3; chunks are 0 to 1 and micro-batches "
              "0 to 2");
    d = good_draft();
    d->action[0][0].chunk = 2;
    refuse(d, "schedule draft: stage 0, action 0 is 2F0; chunks are 0 to 1 and micro-batches "
              "0 to 2");
    d = good_draft();
    d->action[0][0].chunk = 1;
    refuse(d, "schedule draft: stage 0, action 0 is 1F0, but chunk 1 is on stage 1");
    d = good_draft();
    d->schedule.forward_only = true;
    refuse(d, "schedule draft: stage 0, action 2 is 0B0 in a schedule of forwards only");
    d = good_draft();
    d->stage_of_chunk[1] = 2;
    refuse(d, "schedule draft: chunk 1 is on stage 2; the stages are 0 to 1");
    d = good_draft();
    d->schedule.n_chunks = 1;
    refuse(d, "schedule draft: 2 stages, 1 chunks, 3 micro-batches; it needs at least 1 stage, a "
              "chunk for each and 1 micro-batch");
}

static void test_refuses_circles(void **state)
{
    (void)state;
    draft *d = good_draft();
    draft_swap(d, 0, 1, 2);
    draft_swap(d, 1, 1, 2);
    refuse(d, "schedule draft stalls: stage 0, at action 1, needs 1B0 for 0B0; stage 1, at action "
              "1, needs 0F1 for 1F1. They wait in a circle; do one of the needed actions "
              "earlier");
    d = good_draft();
    draft_swap(d, 1, 0, 1);
    refuse(d, "schedule draft stalls: stage 1, at action 0, needs 1F0 for 1B0. It waits for itself;"
              " do one of the needed actions earlier");
}

/* Chunks s and s + P are on stage s; stage 0 takes its second chunk first, so that every stage waits
 * for the one before it. */
static void test_long_circle_is_cut_short(void **state)
{
    (void)state;
    enum { P = 12 };
    static int stage_of_chunk[2 * P];
    static yoke_stage_actions stage[P];
    static yoke_action action[P][2];
    for (int s = 0; s < P; s++) {
        stage_of_chunk[s] = s;
        stage_of_chunk[s + P] = s;
        action[s][s == 0] = (yoke_action){YOKE_ACTION_F, s, 0};
        action[s][s != 0] = (yoke_action){YOKE_ACTION_F, s + P, 0};
        stage[s] = (yoke_stage_actions){.action = action[s], .n = 2};
    }
    yoke_schedule schedule = {.name = "ring",
                              .n_stages = P,
                              .n_chunks = 2 * P,
                              .n_microbatches = 1,
                              .forward_only = true,
                              .stage_of_chunk = stage_of_chunk,
                              .stage = stage};
    yoke_status status = yoke_schedule_verify(&schedule);
    assert_non_null(status);
    const char *message = yoke_status_message(status);
    assert_non_null(strstr(message, "stalls: stage 0, at action 0, needs 11F0 for 12F0; "
                                    "stage 11, at action 0, needs 10F0 for 11F0; stage 10, "));
    assert_non_null(strstr(message, "; and so on. They wait in a circle; do"));
    yoke_status_free(status);
}

static void test_csv(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("1f1b"), 2, 3, false);
    assert_string_equal(written(yoke_schedule_print, &schedule), "0F0,0F1,0B0,0F2,0B1,0B2\n"
                                                                 "1F0,1B0,1F1,1B1,1F2,1B2\n");
}

static void test_diagram(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("1f1b"), 3, 4, false);
    assert_string_equal(written(yoke_schedule_draw, &schedule),
                        "1f1b, 3 stages, 4 micro-batches; F is 1 unit long, B 2\n"
                        "         0              5              10             15\n"
                        "stage 0 |F0 F1 F2 .  .  .  .  B0--- F3 B1--- .  B2--- .  B3--- |\n"
                        "stage 1 |.  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- .  .  |\n"
                        "stage 2 |.  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  .  .  |\n"
                        "bubble 33.3 %: 18 of 54 units idle\n"
                        "micro-batches held at once: at most 3; by stage 3 2 1\n");
}

static void test_diagram_of_split_backwards_and_chunks(void **state)
{
    (void)state;
    static draft d;
    draft_init(&d, 1, 2, 1);
    draft_add(&d, 0, YOKE_ACTION_F, 0, 0);
    draft_add(&d, 0, YOKE_ACTION_F, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_I, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_W, 1, 0);
    draft_add(&d, 0, YOKE_ACTION_B, 0, 0);
    assert_string_equal(written(yoke_schedule_draw, &d.schedule),
                        "draft, 1 stage, 1 micro-batch; F is 1 unit long, B 2, I and W 1\n"
                        "         0                   5\n"
                        "stage 0 |0F0 1F0 1I0 1W0 0B0---- |\n"
                        "bubble 0.0 %: 0 of 6 units idle\n"
                        "micro-batches of a chunk held at once: at most 2; by stage 2\n");
}

static void check_width(const char *text)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (length > 100) {
            fail_msg("%zu columns: %.120s", length, line);
        }
        line += length + 1;
    }
}

static void test_diagram_is_at_most_100_columns(void **state)
{
    (void)state;
    static const int p[] = {1, 2, 5, 8, 16, 17, 128};
    static const int m[] = {1, 3, 8, 12, 100, 1000};
    for (size_t i = 0; i < sizeof p / sizeof p[0] * (sizeof m / sizeof m[0]); i++) {
        yoke_schedule schedule = make(find("1f1b"), p[i % 7], m[i / 7], false);
        const char *text = written(yoke_schedule_draw, &schedule);
        check_width(text);
        int n_units = 3 * (p[i % 7] + m[i / 7] - 1);
        if (n_units > 100) {
            assert_non_null(strstr(text, "clipped to 100 columns: units 0 to "));
        }
        if (n_units <= 30 && m[i / 7] < 10) {
            assert_null(strstr(text, "clipped"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_find),
        cmocka_unit_test(test_build_refuses_empty_requests),
        cmocka_unit_test(test_bubble_and_held_follow_the_formulas),
        cmocka_unit_test(test_weight_gradients_come_in_order),
        cmocka_unit_test(test_forward_only),
        cmocka_unit_test(test_random_schedules_against_the_twin),
        cmocka_unit_test(test_held_counts_chunks),
        cmocka_unit_test(test_refuses_missing_and_double),
        cmocka_unit_test(test_refuses_out_of_place),
        cmocka_unit_test(test_refuses_circles),
        cmocka_unit_test(test_long_circle_is_cut_short),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_diagram),
        cmocka_unit_test(test_diagram_of_split_backwards_and_chunks),
        cmocka_unit_test(test_diagram_is_at_most_100_columns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
