/*
 * A session's books: memory planned, allocated and used, nothing asked for in the step loop, memory that is not there, whole
 * tensors in and out, logits, and the metrics of every step.
 */
/* For setrlimit beside POSIX. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "session_case.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* --- Memory ------------------------------------------------------------------------------------------ */

enum { ALLOWANCE_BYTES = 48 << 20 }; /* program, libraries, kernels' own; over the plan */

static int64_t sum_of_kinds(yoke_rank_bytes bytes)
{
    return bytes.params + bytes.grads + bytes.optimizer + bytes.stash + bytes.gathered +
           bytes.scratch;
}

/* The plan stands before anything is mapped; then it is what is mapped, and the rank keeps to it. */
static void assert_books(const session_case *c)
{
    scene s;
    outcome o = {0};
    scene_open(&s, c);
    scene_plan(&s);
    int n_ranks = yoke_session_n_ranks(s.session);
    yoke_rank_bytes *plan = calloc((size_t)n_ranks, sizeof *plan);
    assert_non_null(plan);
    assert_null(s.session->slabs);
    for (int r = 0; r < n_ranks; r++) {
        plan[r] = yoke_session_bytes(s.session, r);
        assert_true(plan[r].params > 0 && plan[r].grads > 0 && plan[r].scratch > 0);
        assert_true(plan[r].planned >= sum_of_kinds(plan[r]));
        assert_true(plan[r].planned < sum_of_kinds(plan[r]) + YOKE_N_BUFFER_KINDS * YOKE_ALIGNMENT);
        assert_true(plan[r].allocated == 0 && plan[r].peak == 0);
    }
    run_steps(&s, 0, s.config.steps, &o);
    assert_int_equal(o.result.step_allocations, 0);
    for (int r = 0; r < n_ranks; r++) {
        yoke_rank_bytes now = yoke_session_bytes(s.session, r);
        assert_int_equal(now.planned, plan[r].planned);
        assert_int_equal(now.allocated, now.planned);
        assert_true(now.peak > 0);
        if (now.peak > now.planned + ALLOWANCE_BYTES) {
            fail_msg("%s: rank %d used %lld bytes, planned %lld", s.config.mesh, r,
                     (long long)now.peak, (long long)now.planned);
        }
    }
    free(plan);
    scene_close(&s);
}

static void test_planned_allocated_used(void **state)
{
    (void)state;
    static const session_case cases[] = {
        {.ranks = "processes"},
        {.ranks = "processes", .mesh = "dp=2,tp=2,pp=2", .microbatches = 3},
        {.ranks = "processes", .mesh = "pp=3", .schedule = "gpipe", .microbatches = 6},
        {.ranks = "processes", .preset = "llama-tiny", .mesh = "dp=3,tp=3"},
        /* 5 M parameters: 20 MB of them, 80 with gradients and moments, 40 on a rank */
        {.ranks = "processes",
         .keys = "n_layer=6 n_embd=256",
         .mesh = "dp=2,tp=2",
         .batch = 2,
         .steps = 2},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        assert_books(&cases[i]);
    }
}

/* The plan counts what there is: the copies of every parameter, each with its gradient and two moments. */
static void test_plan_counts_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        int copies; /* of what is divided nowhere but over tp and pp */
    } cases[] = {{"", 1}, {"dp=3", 3}, {"pp=4", 1}, {"tp=2", 1}};
    for (int i = 0; i < COUNT(cases); i++) {
        const session_case c = {.preset = "llama-tiny", .mesh = cases[i].mesh};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        int64_t params = 0, grads = 0, optimizer = 0;
        for (int r = 0; r < yoke_session_n_ranks(s.session); r++) {
            yoke_rank_bytes bytes = yoke_session_bytes(s.session, r);
            params += bytes.params;
            grads += bytes.grads;
            optimizer += bytes.optimizer;
        }
        int64_t wanted = 4 * yoke_session_parameter_count(s.session) * cases[i].copies;
        int64_t norms = 4 * 5 * 32; /* on both ranks of tp */
        assert_in_range(params, wanted, wanted + norms + 64 * 100);
        assert_in_range(grads, wanted, wanted + norms + 64 * 100);
        assert_in_range(optimizer, 2 * wanted, 2 * (wanted + norms) + 64 * 200);
        scene_close(&s);
    }
}

/* --- Memory that is not there ------------------------------------------------------------------------ */

static void test_plan_larger_than_the_machine(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=2", .steps = 1};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    s.config.batch_size = 1 << 24;
    scene_plan(&s);
    assert_true(yoke_session_bytes(s.session, 1).planned > (int64_t)1 << 37);
    for (int again = 0; again < 2; again++) {
        assert_status_says(try_steps(&s, 0, 1, &o), YOKE_NO_MEMORY,
                           SAYS("the plan needs", "2 ranks", "GiB free", "batch_size"));
        assert_int_equal(yoke_session_bytes(s.session, 0).allocated, 0);
    }
    scene_close(&s);
}

static int64_t address_space_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long long pages = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages * sysconf(_SC_PAGESIZE);
}

static void limit_address_space(int64_t more_bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)(address_space_bytes() + more_bytes);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void unlimit_address_space(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

/* E7: where there is no room to plan, for the slabs, or to launch, that is said, and all can be tried again. A rank that has no
 * memory is in test_launch.c. */
static void test_e7_no_address_space(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=2,pp=2", .microbatches = 2, .ranks = "processes"};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    yoke_session_parts parts = scene_parts(&s);
    limit_address_space(1 << 20);
    assert_status_says(yoke_session_create(&parts, &s.session), YOKE_NO_MEMORY,
                       SAYS("cannot map", "ulimit -v"));
    unlimit_address_space();
    scene_plan(&s);
    int64_t slab = yoke_session_bytes(s.session, 0).planned;
    limit_address_space(slab + slab / 2);
    assert_status_says(try_steps(&s, 0, 3, &o), YOKE_NO_MEMORY,
                       SAYS("slab of rank 1 of 4", "cannot map", "ulimit -v"));
    assert_int_equal(yoke_session_bytes(s.session, 0).allocated, 0);
    limit_address_space(5 * slab + (64 << 20));
    assert_status_says(try_steps(&s, 0, 3, &o), YOKE_NO_MEMORY,
                       SAYS("cannot map 8.0 GiB for an arena", "ulimit -v"));
    unlimit_address_space();
    assert_int_equal(o.n_steps, 0);
    run_steps(&s, 0, 3, &o);
    assert_int_equal(o.n_steps, 3);
    scene_close(&s);
}

/* --- Whole tensors ------------------------------------------------------------------------------------ */

/* What is loaded is fetched, whatever lies between, and is what the next step starts from. */
static void test_load_and_fetch(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2,tp=3", "pp=3", "dp=2,tp=4,pp=2"};
    const session_case single = {.steps = 2};
    outcome wanted;
    run_case(&single, &wanted);
    for (int i = 0; i < COUNT(meshes); i++) {
        session_case c = single;
        c.mesh = meshes[i];
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        s.config.seed = 5; /* other initial weights */
        scene_plan(&s);
        const float *from = wanted.weight;
        for (int p = 0; p < yoke_session_n_parameters(s.session); p++) {
            assert_ok(yoke_session_load(s.session, p, from), "load");
            from += parameter_elements(s.session, p);
        }
        fetch_all(&s, &o);
        assert_equal_floats(meshes[i], o.weight, wanted.weight, wanted.elements);
        run_steps(&s, 0, 1, &o);
        assert_true(fabs(o.step[0].loss - wanted.step[0].loss) > 1e-4);
        outcome_free(&o);
        scene_close(&s);
    }
    outcome_free(&wanted);
}

static void test_load_refuses_what_is_not_finite(void **state)
{
    (void)state;
    const session_case c = {.mesh = "tp=2"};
    scene s;
    scene_open(&s, &c);
    scene_plan(&s);
    float *table = calloc(257 * 32, sizeof *table);
    assert_non_null(table);
    table[4321] = (float)NAN;
    assert_status_says(yoke_session_load(s.session, 0, table), YOKE_BAD_INPUT,
                       SAYS("transformer.wte.weight", "4321"));
    free(table);
    scene_close(&s);
}

/* --- Logits -------------------------------------------------------------------------------------------- */

static void logits_on(const char *mesh, bool after_run, float *logits)
{
    const session_case c = {.mesh = mesh, .batch = 8, .microbatches = 8, .seq_len = 32, .steps = 1};
    scene s;
    outcome o = {0};
    int32_t tokens[8 * 32];
    scene_open(&s, &c);
    scene_plan(&s);
    for (int i = 0; i < COUNT(tokens); i++) {
        tokens[i] = (i * 37 + 11) % VOCABULARY;
    }
    if (after_run) {
        run_steps(&s, 0, 0, &o);
    }
    assert_ok(yoke_session_logits(s.session, tokens, logits), mesh);
    scene_close(&s);
}

/* Also of a session that has already run, with as many micro-batches as sequences. */
static void test_logits_on_any_mesh(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2", "tp=3", "pp=2", "tp=2,pp=2"};
    int64_t n = 8 * 32 * VOCABULARY;
    float *single = calloc((size_t)n, sizeof *single), *other = calloc((size_t)n, sizeof *other);
    assert_true(single && other);
    logits_on("", false, single);
    for (int i = 0; i < COUNT(meshes); i++) {
        logits_on(meshes[i], i % 2 == 1, other);
        assert_true(distance(other, single, n) < 1e-5);
    }
    free(single);
    free(other);
}

/* Asking for logits between two runs changes nothing for the second. */
static void test_logits_leave_training_alone(void **state)
{
    (void)state;
    const session_case c = {
        .mesh = "dp=2,pp=2", .batch = 8, .microbatches = 4, .seq_len = 32, .steps = 2};
    scene s;
    outcome plain, o = {0};
    int32_t tokens[8 * 32] = {0};
    float *logits = calloc((size_t)(8 * 32 * VOCABULARY), sizeof *logits);
    assert_non_null(logits);
    run_case(&c, &plain);
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    assert_ok(yoke_session_logits(s.session, tokens, logits), "logits");
    run_steps(&s, 1, 1, &o);
    fetch_all(&s, &o);
    assert_equal_outcomes(&o, &plain);
    for (int r = 0; r < 4; r++) {
        yoke_rank_bytes bytes = yoke_session_bytes(s.session, r);
        assert_int_equal(bytes.allocated, bytes.planned);
        assert_true(bytes.planned >= sum_of_kinds(bytes));
    }
    free(logits);
    outcome_free(&plain);
    outcome_free(&o);
    scene_close(&s);
}

/* --- Metrics ------------------------------------------------------------------------------------------ */

typedef struct slow_reader {
    int64_t n;
    double seconds;
} slow_reader;

static void read_metrics(void *user, const yoke_step_metrics *metrics)
{
    slow_reader *reader = user;
    assert_int_equal(metrics->step, reader->n);
    reader->n++;
    reader->seconds += metrics->seconds;
    if (reader->n == 10) { /* long enough for the ranks to come round the ring */
        (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
}

/* More steps than the ring holds, while the reader sleeps: none is lost, none comes early. */
static void test_every_step_is_told(void **state)
{
    (void)state;
    const session_case c = {.ranks = "processes", .batch = 1, .seq_len = 2, .steps = 300};
    scene s;
    slow_reader reader = {0};
    yoke_run_result result;
    scene_open(&s, &c);
    scene_plan(&s);
    yoke_run_options options = {.n_steps = 300, .on_step = read_metrics, .user = &reader};
    assert_ok(yoke_session_run(s.session, &options, &result), "run");
    assert_int_equal(reader.n, 300);
    assert_int_equal(result.steps, 300);
    assert_true(fabs(result.seconds - reader.seconds) < 1e-9 * 300);
    scene_close(&s);
}

static bool after_the_third(void *user)
{
    const slow_reader *reader = user;
    return reader->n >= 3;
}

static void test_interrupted(void **state)
{
    (void)state;
    const session_case c = {.mesh = "pp=2", .ranks = "processes", .steps = 60};
    scene s;
    slow_reader reader = {0};
    yoke_run_result result;
    scene_open(&s, &c);
    s.config.steps = 1000000;
    scene_plan(&s);
    yoke_run_options options = {.n_steps = 1000000,
                                .on_step = read_metrics,
                                .interrupted = after_the_third,
                                .user = &reader};
    assert_status_says(yoke_session_run(s.session, &options, &result), YOKE_INTERRUPTED,
                       SAYS("asked to stop"));
    assert_true(result.steps >= 3 && result.steps < 1000000);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    scene_close(&s);
}

static void refuse_plan(const session_case *c, const char *const *says)
{
    scene s;
    scene_open(&s, c);
    yoke_session_parts parts = scene_parts(&s);
    assert_status_says(yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT, says);
    scene_close(&s);
}

/* What the transport cannot do is said by the plan, with the options that make it so. */
static void test_depth_of_a_plan(void **state)
{
    (void)state;
    scene s;
    outcome o = {0};
    const session_case deep = {.keys = "n_layer=30",
                               .mesh = "pp=2",
                               .schedule = "interleaved",
                               .options = "chunks_per_stage=16",
                               .batch = 16,
                               .microbatches = 16,
                               .seq_len = 4};
    scene_open(&s, &deep);
    scene_plan(&s);
    assert_true(s.session->train.set->depth > 64);
    run_steps(&s, 0, 1, &o);
    scene_close(&s);

    session_case too_deep = deep;
    too_deep.keys = "n_layer=126";
    too_deep.options = "chunks_per_stage=64";
    refuse_plan(&too_deep, SAYS("interleaved on mesh pp=2", "at most 256",
                                "fewer chunks (chunks_per_stage is 64), fewer microbatches (16)",
                                "schedule=1f1b"));
}

/* The way out is told in what the user gave, stages, and not in the chunks made of them. */
static void test_more_chunks_than_blocks(void **state)
{
    (void)state;
    refuse_plan(&(session_case){.mesh = "pp=3", .schedule = "zb-v", .microbatches = 6},
                SAYS("zb-v: pp=3 stages of 2 chunks are 6 chunks over 4 blocks",
                     "use pp <= 2, a schedule with one chunk a stage"));
    refuse_plan(&(session_case){.mesh = "pp=2",
                                .schedule = "interleaved",
                                .options = "chunks_per_stage=3",
                                .microbatches = 2},
                SAYS("interleaved: pp=2 stages of 3 chunks are 6 chunks over 4 blocks",
                     "use pp <= 1, chunks_per_stage <= 2, "));
    refuse_plan(&(session_case){.mesh = "pp=5", .microbatches = 3},
                SAYS("pp=5 stages over 4 blocks", "use pp <= 4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planned_allocated_used),
        cmocka_unit_test(test_plan_counts_parameters),
        cmocka_unit_test(test_plan_larger_than_the_machine),
        cmocka_unit_test(test_e7_no_address_space),
        cmocka_unit_test(test_load_and_fetch),
        cmocka_unit_test(test_load_refuses_what_is_not_finite),
        cmocka_unit_test(test_logits_on_any_mesh),
        cmocka_unit_test(test_logits_leave_training_alone),
        cmocka_unit_test(test_every_step_is_told),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_depth_of_a_plan),
        cmocka_unit_test(test_more_chunks_than_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
