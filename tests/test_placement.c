/*
 * Placement: which cores ranks get on machines that hwloc imagines, and that on this one every thread of every rank
 * runs where it was placed, in threads and in processes, and nowhere in particular where ranks outnumber cores.
 */
/* labels: threads */
/* Affinity is not in POSIX. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "run/placement.h"
#include "session_case.h"

/* --- Machines that are not here ------------------------------------------------------------------------ */

#define TWO_SOCKETS "package:2 [numa] l3:2 core:4 pu:1"
#define HYPER       "package:1 core:4 pu:2"
enum { MOST_SETS = 17 };

typedef struct place_case {
    const char *machine, *wanted;
    int n_ranks, n_threads;
    const char *text;            /* a part of the line */
    const char *sets[MOST_SETS]; /* of the ranks; none: not bound */
} place_case;

static const place_case cases[] = {
    {TWO_SOCKETS,
     "auto",
     16,
     1,
     "each thread has a core, in 0-15 (16 cores, 4 L3, 2 NUMA)",
     {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"}},
    /* A team of three stays below its L3, and leaves the fourth core idle, */
    {TWO_SOCKETS, "auto", 4, 3, "in 0-2,4-6,8-10,12-14", {"0-2", "4-6", "8-10", "12-14"}},
    /* unless there are more teams than that; */
    {TWO_SOCKETS, "auto", 5, 3, "in 0-14", {"0-2", "3-5", "6-8", "9-11", "12-14"}},
    /* a team larger than an L3 stays in its package. */
    {TWO_SOCKETS, "auto", 2, 5, "in 0-4,8-12", {"0-4", "8-12"}},
    {TWO_SOCKETS, "auto", 1, 16, "in 0-15", {"0-15"}},
    {TWO_SOCKETS, "auto", 8, 1, "not bound: 8 of 16 cores, the others are free", {NULL}},
    {TWO_SOCKETS, "auto", 3, 3, "in 0-2,4-6,8-10", {"0-2", "4-6", "8-10"}},
    {TWO_SOCKETS, "auto", 17, 1, "not bound: 17 threads on 16 cores", {NULL}},
    {TWO_SOCKETS, "auto", 3000000, 4096, "not bound: 12288000000 threads on 16 cores", {NULL}},
    {TWO_SOCKETS, "cores", 3, 1, "in 0-2", {"0", "1", "2"}},
    {TWO_SOCKETS, "none", 16, 1, "not bound, as placement is none", {NULL}},
    {HYPER, "auto", 4, 1, "each thread has a core, in 0-7", {"0-1", "2-3", "4-5", "6-7"}},
    {HYPER, "auto", 5, 1, "each thread has a hardware thread", {"0", "1", "2", "3", "4"}},
    {HYPER, "auto", 3, 2, "each thread has a hardware thread", {"0-1", "2-3", "4-5"}},
    {HYPER, "auto", 2, 3, "each thread has a hardware thread", {"0-2", "3-5"}},
    {HYPER, "auto", 9, 1, "not bound: 9 threads on 4 cores", {NULL}},
    {"no such machine", "cores", 1, 1, "not bound, as this system cannot", {NULL}},
};

static yoke_placement *place(const place_case *c)
{
    yoke_placement *placement = NULL;
    yoke_placement_request request = {.machine = c->machine,
                                      .wanted = c->wanted,
                                      .n_ranks = c->n_ranks,
                                      .n_threads = c->n_threads};
    assert_ok(yoke_placement_create(&request, &placement), "placement");
    return placement;
}

static void test_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const place_case *c = &cases[i];
        yoke_placement *placement = place(c);
        char set[64];
        if (!strstr(yoke_placement_text(placement), c->text)) {
            fail_msg("case %zu: '%s' is not in: %s", i, c->text, yoke_placement_text(placement));
        }
        assert_int_equal(yoke_placement_is_bound(placement), c->sets[0] != NULL);
        for (int r = 0; r < c->n_ranks && r < MOST_SETS; r++) {
            yoke_placement_print(placement, r, set, sizeof set);
            if (strcmp(set, c->sets[0] ? c->sets[r] : "") != 0) {
                fail_msg("case %zu, rank %d: on %s", i, r, set);
            }
        }
        yoke_placement_destroy(placement);
    }
}

static void test_demanded_cores_must_be_there(void **state)
{
    (void)state;
    yoke_placement *placement = NULL;
    yoke_placement_request request = {
        .machine = TWO_SOCKETS, .wanted = "cores", .n_ranks = 6, .n_threads = 3};
    assert_status_says(yoke_placement_create(&request, &placement), YOKE_BAD_INPUT,
                       SAYS("6 ranks of 3 threads need 18 cores, there are 16", "placement=auto"));
    assert_null(placement);
}

/* --- This machine -------------------------------------------------------------------------------------- */

static uint64_t mask_of_thread(void)
{
    cpu_set_t set;
    uint64_t mask = 0;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (size_t cpu = 0; cpu < 64; cpu++) {
        mask |= CPU_ISSET(cpu, &set) ? UINT64_C(1) << cpu : 0;
    }
    return mask;
}

static void test_an_imagined_machine_binds_nothing(void **state)
{
    (void)state;
    uint64_t before = mask_of_thread();
    yoke_placement *placement = place(&cases[0]);
    yoke_placement_bind(placement, 0);
    assert_true(mask_of_thread() == before);
    yoke_placement_destroy(placement);
}

/* As taskset does, for every thread of this process: a sanitizer has one of its own. */
static bool confine(size_t cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    DIR *tasks = opendir("/proc/self/task");
    bool good = tasks != NULL;
    for (struct dirent *task = good ? readdir(tasks) : NULL; task; task = readdir(tasks)) {
        pid_t id = (pid_t)strtol(task->d_name, NULL, 10);
        good = good && (id == 0 || sched_setaffinity(id, sizeof one, &one) == 0);
    }
    if (tasks) {
        (void)closedir(tasks);
    }
    return good;
}

/* Only the last processor of this process may be used. */
static void test_a_narrower_choice_of_the_user_holds(void **state)
{
    (void)state;
    uint64_t allowed = mask_of_thread();
    size_t last = 63;
    while (last > 0 && !(allowed >> last & 1)) {
        last--;
    }
    pid_t child = fork();
    if (child == 0) {
        char set[64];
        char wanted[16];
        yoke_placement *placement = NULL;
        yoke_placement_request request = {.wanted = "auto", .n_ranks = 1, .n_threads = 1};
        bool good = confine(last) && !yoke_placement_create(&request, &placement);
        (void)snprintf(wanted, sizeof wanted, "%zu", last);
        _exit(good && strcmp(yoke_placement_print(placement, 0, set, sizeof set), wanted) == 0 ? 0
                                                                                               : 1);
    }
    int status = 1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

/* What the threads of all ranks saw, in memory that they share. */
typedef struct sight {
    _Atomic uint64_t mask[64]; /* by its lowest processor */
    _Atomic int n_threads;     /* that looked */
} sight;

static sight *seen;
static yoke_kernel true_add;

static void note_thread(void)
{
    uint64_t mask = mask_of_thread();
    atomic_store(&seen->mask[__builtin_ctzll(mask)], mask);
    atomic_fetch_add(&seen->n_threads, 1);
}

static void add_and_note(const yoke_kernel_call *call)
{
#if YOKE_OPENMP
#pragma omp parallel
#endif
    note_thread();
    true_add(call);
}

/* Trains a little on `n_ranks` ranks of `n_threads`, with note_thread in each thread of each rank. */
static void run_noting(scene *s, const session_case *c, int n_threads, const char *placement)
{
    memset((void *)seen, 0, sizeof *seen);
    scene_open(s, c);
    s->config.threads = n_threads;
    s->config.placement = placement;
    scene_plan(s);
    true_add = s->session->kernels[YOKE_OP_ADD];
    s->session->kernels[YOKE_OP_ADD] = add_and_note;
    outcome o = {0};
    run_steps(s, 0, 1, &o);
#if !YOKE_OPENMP
    n_threads = 1;
#endif
    assert_true(atomic_load(&seen->n_threads) >= n_threads * yoke_session_n_ranks(s->session));
}

/* Cores of this machine as a run sees them: hwloc's, at most 16, of which cmocka's process may use all. */
static int n_cores(void)
{
    yoke_placement *placement = place(&(place_case){NULL, "cores", 1, 1, NULL, {NULL}});
    const char *count = strchr(yoke_placement_text(placement), '(');
    int n = count ? (int)strtol(count + 1, NULL, 10) : 0;
    yoke_placement_destroy(placement);
    return n > 16 ? 16 : n;
}

static uint64_t mask_of_text(const char *list)
{
    uint64_t mask = 0;
    while (*list) {
        char *end;
        long first = strtol(list, &end, 10);
        long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long cpu = first; cpu <= last; cpu++) {
            mask |= UINT64_C(1) << cpu;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return mask;
}

static void check_bound(const char *home, int n_ranks, int n_threads)
{
    scene s;
    char mesh[16];
    (void)snprintf(mesh, sizeof mesh, "dp=%d", n_ranks);
    const session_case c = {.mesh = mesh, .ranks = home, .batch = n_ranks};
    uint64_t before = mask_of_thread();
    run_noting(&s, &c, n_threads, "cores");
    int n_masks = 0;
    for (int cpu = 0; cpu < 64; cpu++) {
        n_masks += atomic_load(&seen->mask[cpu]) != 0;
    }
    assert_int_equal(n_masks, n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        char set[64];
        uint64_t mask =
            mask_of_text(yoke_placement_print(s.session->placement, r, set, sizeof set));
        assert_true(mask != 0);
        assert_true(atomic_load(&seen->mask[__builtin_ctzll(mask)]) == mask);
    }
    assert_true(mask_of_thread() == before);
    scene_close(&s);
}

static void test_each_rank_runs_where_it_was_placed(void **state)
{
    (void)state;
    int n = n_cores();
    if (n < 1) {
        skip();
    }
    check_bound("threads", n, 1);
    check_bound("processes", n, 1);
    check_bound("threads", 1, n);
    check_bound("processes", 1, n);
}

static void test_more_ranks_than_cores_are_not_bound(void **state)
{
    (void)state;
    static const char *const homes[] = {"threads", "processes"};
    int n = n_cores();
    if (n < 1) {
        skip();
    }
    char mesh[16];
    (void)snprintf(mesh, sizeof mesh, "dp=%d", 2 * n + 1);
    uint64_t all = mask_of_thread();
    for (int home = 0; home < 2; home++) {
        scene s;
        const session_case c = {.mesh = mesh, .ranks = homes[home], .batch = 2 * n + 1};
        run_noting(&s, &c, 1, "auto");
        for (int cpu = 0; cpu < 64; cpu++) {
            assert_true(atomic_load(&seen->mask[cpu]) == (cpu == __builtin_ctzll(all) ? all : 0));
        }
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_demanded_cores_must_be_there),
        cmocka_unit_test(test_an_imagined_machine_binds_nothing),
        cmocka_unit_test(test_a_narrower_choice_of_the_user_holds),
        cmocka_unit_test(test_each_rank_runs_where_it_was_placed),
        cmocka_unit_test(test_more_ranks_than_cores_are_not_bound),
    };
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
