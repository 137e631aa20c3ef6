/*
 * Denormals are zero on every thread that computes: each OpenMP thread of each rank, in threads and in processes, also
 * in a team that was there before; and in the kernels of every set. So a vanishing gradient costs no time, and no
 * thread rounds otherwise. The test's own thread keeps them, so that no rank has its mode from there.
 */
/* labels: threads */
/* MAP_ANONYMOUS is not in POSIX. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "kernel/sets.h"
#include "session_case.h"

/* Normal numbers whose product is none, and one that is none itself. */
static volatile float tiny = 1e-20f;
static volatile float denormal = 1e-40f;
static volatile float large = 1e30f;

static bool mode_is_set(void)
{
#if defined(__SSE2__)
    const unsigned flush_to_zero = 0x8000;
    const unsigned denormals_are_zero = 0x0040;
    const unsigned both = flush_to_zero | denormals_are_zero;
    return (_mm_getcsr() & both) == both;
#else
    return true;
#endif
}

/* By the processor's own word, and by what it does. */
static bool flushes(void)
{
    volatile float product = tiny * tiny;
    volatile float scaled = denormal * large;
    return mode_is_set() && product == 0.0f && scaled == 0.0f;
}

static void test_this_thread_does_not(void **state)
{
    (void)state;
    volatile float product = tiny * tiny;
    assert_true(product > 0.0f);
    assert_false(flushes());
}

/* --- Every thread of every rank ------------------------------------------------------------------------- */

/* Shared by all ranks: threads that were asked, and those that keep denormals. */
typedef struct tally {
    _Atomic int n_asked, n_keeping, n_calls;
} tally;

static tally *shared;
static yoke_kernel true_add;

static void ask_thread(void)
{
    atomic_fetch_add(&shared->n_asked, 1);
    atomic_fetch_add(&shared->n_keeping, !flushes());
}

static void add_and_ask(const yoke_kernel_call *call)
{
    atomic_fetch_add(&shared->n_calls, 1);
#if YOKE_OPENMP
#pragma omp parallel
#endif
    ask_thread();
    true_add(call);
}

static void check_run(const char *home, const char *mesh, const char *kernels, int n_threads)
{
    scene s;
    const session_case c = {.mesh = mesh, .ranks = home, .microbatches = 2};
    memset((void *)shared, 0, sizeof *shared);
    scene_open(&s, &c);
    s.config.threads = n_threads;
    s.config.kernels = kernels;
    scene_plan(&s);
    true_add = s.session->kernels[YOKE_OP_ADD];
    s.session->kernels[YOKE_OP_ADD] = add_and_ask;
    outcome o = {0};
    run_steps(&s, 0, 2, &o);
#if !YOKE_OPENMP
    n_threads = 1;
#endif
    assert_true(atomic_load(&shared->n_calls) >= 2 * yoke_session_n_ranks(s.session));
    assert_int_equal(atomic_load(&shared->n_asked), n_threads * atomic_load(&shared->n_calls));
    assert_int_equal(atomic_load(&shared->n_keeping), 0);
    scene_close(&s);
}

static void test_every_thread_of_every_rank(void **state)
{
    (void)state;
    static const char *const homes[] = {"threads", "processes"};
    for (int home = 0; home < 2; home++) {
        check_run(homes[home], "", "auto", 1);
        check_run(homes[home], "", "auto", 3);
        check_run(homes[home], "dp=3", "ref", 2);
        check_run(homes[home], "pp=2,tp=2", "auto", 2);
    }
}

#if YOKE_OPENMP
/* In a thread of its own, after the tests that fork ranks: who forks must have no team. */
static void *ask_an_older_team(void *unused)
{
    (void)unused;
    /* A team of four that keeps denormals; then fewer, and as many again. */
#pragma omp parallel num_threads(4)
    atomic_fetch_add(&shared->n_calls, !flushes());
    const int teams[] = {2, 4, 5};
    for (int i = 0; i < 3; i++) {
        yoke_kernel_threads_set(teams[i]);
#pragma omp parallel
        ask_thread();
    }
    return NULL;
}

static void test_a_team_that_was_there_before(void **state)
{
    (void)state;
    pthread_t thread;
    memset((void *)shared, 0, sizeof *shared);
    assert_int_equal(pthread_create(&thread, NULL, ask_an_older_team, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&shared->n_calls), 4);
    assert_int_equal(atomic_load(&shared->n_asked), 2 + 4 + 5);
    assert_int_equal(atomic_load(&shared->n_keeping), 0);
}
#endif

/* --- Every kernel set ----------------------------------------------------------------------------------- */

enum { SIDE = 16, N = SIDE * SIDE };

typedef struct product_case {
    yoke_op op;
    float a, b; /* of every element */
} product_case;

/* Each would be a denormal if they were kept; the last has them as operands. */
static const product_case products[] = {
    {YOKE_OP_MATMUL, 1e-21f, 1e-20f},
    {YOKE_OP_SWIGLU, 1e-20f, 1e-20f},
    {YOKE_OP_ADD, 1e-40f, 1e-40f},
};

static void multiply(const yoke_kernel_set *set, const product_case *c)
{
    static _Alignas(64) float a[N], b[N], y[N], scratch[16 * N];
    yoke_shard square = {.n_dims = 2, .extent = {SIDE, SIDE}};
    const yoke_tensor in[] = {{.data = a, .shard = square}, {.data = b, .shard = square}};
    const yoke_tensor out = {.data = y, .shard = square};
    const yoke_attributes attributes = {.contraction = {.a_split = 1, .b_split = 1}};
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .attributes = &attributes};
    size_t scratch_bytes = yoke_kernel_scratch_bytes(c->op, &call, 2);
    assert_true(scratch_bytes <= sizeof scratch);
    call.scratch = scratch;
    for (int i = 0; i < N; i++) {
        a[i] = c->a;
        b[i] = c->b;
        y[i] = 1.0f;
    }
    set->run[c->op](&call);
    for (int i = 0; i < N; i++) {
        /* By its bits: to a comparison of this thread a denormal is zero. */
        uint32_t bits;
        memcpy(&bits, &y[i], sizeof bits);
        if (bits != 0) {
            fail_msg("set %s, operator %d: element %d has bits %08x", set->name, (int)c->op, i,
                     (unsigned)bits);
        }
    }
}

static void *multiply_all(void *n_products)
{
    static const yoke_kernel_set *const sets[] = {
#define SET(name) &yoke_kernel_set_##name,
        YOKE_KERNEL_SET_LIST(SET)
#undef SET
    };
    int *n = n_products;
    yoke_kernel_threads_set(2);
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        for (size_t p = 0; p < sizeof products / sizeof *products; p++) {
            bool here = !sets[s]->supported || sets[s]->supported();
            if (here && sets[s]->run[products[p].op]) {
                multiply(sets[s], &products[p]);
                n[0]++;
            }
        }
    }
    return NULL;
}

/* The whole of it in a thread of its own, which ends with its mode and its team. */
static void test_no_kernel_makes_one(void **state)
{
    (void)state;
    pthread_t thread;
    int n = 0;
    assert_int_equal(pthread_create(&thread, NULL, multiply_all, &n), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* ref has all three; oneDNN products at least. */
    assert_true(n >= 4);
    assert_false(flushes());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_thread_does_not),
        cmocka_unit_test(test_every_thread_of_every_rank),
#if YOKE_OPENMP
        cmocka_unit_test(test_a_team_that_was_there_before),
#endif
        cmocka_unit_test(test_no_kernel_makes_one),
    };
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
