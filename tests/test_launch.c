/* labels: quick */
/*
 * Launching ranks as processes, and all the ways in which one of them can be lost while the others
 * wait for it in every kind of transfer: the job ends soon, says who was first, by what and where,
 * whom the others waited for, and leaves nothing behind. A few of the same with threads.
 */
/* For prctl, dirent and setrlimit beside POSIX. */
#define _DEFAULT_SOURCE
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum { N_RANKS = 5, VICTIM = 3 };

typedef enum fault {
    RETURNS_ERROR,
    HAS_NO_MEMORY,
    IS_KILLED,
    IS_STOPPED,
    ASSERTS,
    EXITS,
    LEAVES_EARLY,
    NEVER_ARRIVES,
    N_FAULTS
} fault;

/* What each fault must look like from outside. */
static const struct {
    yoke_code code;
    yoke_rank_end end;
    int signal;
    const char *said;
} expected[N_FAULTS] = {
    [RETURNS_ERROR] = {YOKE_IO, YOKE_RANK_FAILED, 0,
                       "rank 3 of 5 failed in #41 op41: the disk is full"},
    [HAS_NO_MEMORY] = {YOKE_NO_MEMORY, YOKE_RANK_FAILED, 0,
                       "rank 3 of 5 failed in #41 op41: cannot map"},
    [IS_KILLED] = {YOKE_RANK_LOST, YOKE_RANK_KILLED, SIGKILL,
                   "rank 3 of 5 was killed by signal 9 (Killed) in #41 op41"},
    [IS_STOPPED] = {YOKE_RANK_LOST, YOKE_RANK_STOPPED, SIGSTOP,
                    "rank 3 of 5 was stopped by signal 19 (Stopped (signal)) in #41 op41"},
    [ASSERTS] = {YOKE_RANK_LOST, YOKE_RANK_KILLED, SIGABRT,
                 "rank 3 of 5 was killed by signal 6 (Aborted) in #41 op41"},
    [EXITS] = {YOKE_RANK_LOST, YOKE_RANK_FAILED, 0,
               "rank 3 of 5 left with exit code 7 without a report in #41 op41"},
    [LEAVES_EARLY] = {YOKE_RANK_LOST, YOKE_RANK_GOOD, 0,
                      "rank 3 of 5 had already ended, without an error, last in #41 op41"},
    [NEVER_ARRIVES] = {YOKE_RANK_LOST, YOKE_RANK_HUNG, 0, "rank 3 of 5 gave no sign of life for"},
};

typedef struct scene {
    fault fault;
    yoke_transfer_kind kind;
    int64_t elements;
    float *memory; /* of all ranks */
} scene;

static void sleep_s(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {}
}

static yoke_status commit(fault what)
{
    void *memory;
    switch (what) {
    case RETURNS_ERROR:
        return YOKE_FAIL(YOKE_IO, "the disk is full");
    case HAS_NO_MEMORY:
        return yoke_mapping_create(&memory, (size_t)1 << 48, false);
    case IS_KILLED:
        (void)raise(SIGKILL);
        break;
    case IS_STOPPED:
        (void)raise(SIGSTOP);
        break;
    case ASSERTS:
        /* What it prints is not the matter of this test. */
        (void)dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        YOKE_ASSERT(what != ASSERTS);
        break;
    case EXITS:
        _exit(7);
    case LEAVES_EARLY:
        return YOKE_OK;
    case NEVER_ARRIVES:
    case N_FAULTS:
        break;
    }
    sleep_s(60.0);
    return YOKE_FAIL(YOKE_CHECK, "the fault did not happen");
}

static bool is_message(yoke_transfer_kind kind)
{
    return kind == YOKE_TRANSFER_SEND || kind == YOKE_TRANSFER_RECV;
}

/* The victim commits its fault after one round that goes well. In the second, the others wait for
 * it: all in the collective, or rank 1 for a message and the rest for rank 1. */
static yoke_status play(yoke_endpoint *endpoint, void *user)
{
    const scene *s = user;
    int rank = yoke_endpoint_rank(endpoint);
    float *own = s->memory + (size_t)rank * 4 * (size_t)s->elements;
    yoke_endpoint_mark(endpoint, 1);
    YOKE_TRY(run_barrier(endpoint, 0));
    if (rank == VICTIM) {
        yoke_endpoint_mark(endpoint, 41);
        return commit(s->fault);
    }
    yoke_shard held[N_RANKS];
    yoke_shard wanted = line(0, s->elements);
    for (int r = 0; r < N_RANKS; r++) {
        bool sums = s->kind == YOKE_TRANSFER_REDISTRIBUTE_SUM;
        held[r] = sums || r == 0 ? wanted : line(0, 0);
    }
    yoke_transfer transfer = {.kind = s->kind,
                              .elements = s->elements,
                              .peer = VICTIM,
                              .in = own,
                              .out = own + 2 * s->elements,
                              .in_shards = held,
                              .out_shard = &wanted};
    yoke_endpoint_mark(endpoint, 100 + rank);
    if (is_message(s->kind) && rank != 1) {
        return run_barrier(endpoint, 0);
    }
    return run_transfer(endpoint, &transfer);
}

static const char *name_instruction(void *user, int rank, int64_t instruction, char *buffer,
                                    int buffer_bytes)
{
    (void)user;
    (void)rank;
    (void)snprintf(buffer, (size_t)buffer_bytes, "op%lld", (long long)instruction);
    return buffer;
}

static void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        n++;
    }
    if (folder) {
        (void)closedir(folder);
    }
    return n;
}

/* Mappings of this process that could be shared with ranks. */
static int count_shared_mappings(void)
{
    char row[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(row, sizeof row, maps)) {
        const char *gap = strchr(row, ' ');
        n += gap && gap[4] == 's' ? 1 : 0;
    }
    (void)fclose(maps);
    return n;
}

typedef struct traces {
    int n_shm;
    int n_mappings;
    double start_s;
} traces;

static traces look_before(void)
{
    return (traces){count_entries("/dev/shm"), count_shared_mappings(), yoke_clock_s()};
}

/* No child, no shared memory, and soon. */
static void expect_nothing_left(const traces *before)
{
    assert_true(yoke_clock_s() - before->start_s < 5.0);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(count_entries("/dev/shm"), before->n_shm);
    assert_int_equal(count_shared_mappings(), before->n_mappings);
}

static void expect_outcome(const scene *s, yoke_status status, const yoke_rank_report *reports)
{
    const char *message = yoke_status_message(status);
    assert_int_equal(yoke_status_code(status), expected[s->fault].code);
    expect_text(message, expected[s->fault].said);
    expect_text(message, "; rank ");
    expect_text(message, " waited for it in #10");
    assert_int_equal(reports[VICTIM].end, expected[s->fault].end);
    assert_int_equal(reports[VICTIM].signal, expected[s->fault].signal);
    assert_true(reports[VICTIM].instruction == 41);
    for (int r = 0; r < N_RANKS; r++) {
        if (r == VICTIM) {
            continue;
        }
        char place[64];
        (void)snprintf(place, sizeof place, "rank %d ended: it waited in #10%d op10%d for rank ", r,
                       r, r);
        assert_int_equal(reports[r].end, YOKE_RANK_ABORTED);
        assert_int_equal(reports[r].code, YOKE_RANK_LOST);
        assert_true(reports[r].instruction == 100 + r);
        expect_text(reports[r].message, place);
        expect_text(reports[r].message, strstr(expected[s->fault].said, "5 ") + 2);
        assert_true(is_message(s->kind) && r != 1 ? reports[r].waits_for >= 0
                                                  : reports[r].waits_for == VICTIM);
    }
}

static yoke_world *open_scene(scene *s, double timeout_s)
{
    rank_options options = {.n_ranks = N_RANKS,
                            .timeout_s = timeout_s,
                            .user_bytes = sizeof(float) * N_RANKS * 4 * (size_t)s->elements + 4096};
    yoke_world *world = open_world(&options);
    s->memory = yoke_world_user(world);
    return world;
}

static void play_and_check(scene *s, double timeout_s)
{
    traces before = look_before();
    yoke_world *world = open_scene(s, timeout_s);
    yoke_rank_report reports[N_RANKS];
    yoke_launch launch = {.run = play, .describe = name_instruction, .user = s};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    yoke_world_destroy(world);
    expect_nothing_left(&before);
    expect_outcome(s, status, reports);
    yoke_status_free(status);
}

static void test_every_fault_in_every_transfer(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAULTS; f++) {
        for (int k = 0; k < YOKE_N_TRANSFER_KINDS; k++) {
            scene s = {.fault = (fault)f,
                       .kind = (yoke_transfer_kind)k,
                       .elements = k % 2 == 0 ? 3 : 50000};
            play_and_check(&s, f == NEVER_ARRIVES ? 0.4 : 60.0);
        }
    }
}

static void test_timeout_of_a_second(void **state)
{
    (void)state;
    scene s = {.fault = NEVER_ARRIVES, .kind = YOKE_TRANSFER_BROADCAST, .elements = 10};
    double start_s = yoke_clock_s();
    play_and_check(&s, 1.0);
    assert_true(yoke_clock_s() - start_s >= 1.0);
}

static void test_one_world_many_launches(void **state)
{
    (void)state;
    traces before = look_before();
    scene s = {.kind = YOKE_TRANSFER_ALL_REDUCE_SUM, .elements = 1000};
    yoke_world *world = open_scene(&s, 0);
    for (int i = 0; i < 12; i++) {
        s.fault = i % 3 == 1 ? IS_KILLED : RETURNS_ERROR;
        yoke_rank_report reports[N_RANKS];
        yoke_launch launch = {
            .run = play, .describe = name_instruction, .user = &s, .threads = i % 3 == 2};
        yoke_status status = yoke_world_launch(world, &launch, reports);
        expect_outcome(&s, status, reports);
        yoke_status_free(status);
    }
    yoke_world_destroy(world);
    before.start_s = yoke_clock_s();
    expect_nothing_left(&before);
}

/* All ranks say the same of a collective on which they disagree, and the launcher says it once. */
static yoke_status disagree(yoke_endpoint *endpoint, void *user)
{
    float *memory = user;
    int rank = yoke_endpoint_rank(endpoint);
    return run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM,
                                                   .elements = rank == 4 ? 409600 : 409598,
                                                   .out = memory});
}

static void test_mismatch_ends_all_ranks(void **state)
{
    (void)state;
    scene s = {.elements = 1};
    yoke_world *world = open_scene(&s, 0);
    yoke_rank_report reports[N_RANKS];
    yoke_launch launch = {.run = disagree, .user = s.memory};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    assert_int_equal(yoke_status_code(status), YOKE_CHECK);
    expect_text(yoke_status_message(status), "rank 4 starts all_reduce (sum) of 409600");
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(reports[r].end, YOKE_RANK_FAILED);
        expect_text(reports[r].message, "rank 4 starts all_reduce (sum) of 409600");
        expect_text(reports[r].message, "409598");
    }
    yoke_status_free(status);
    yoke_world_destroy(world);
}

/* Each waits for the other's message before it sends its own. */
static yoke_status wait_in_a_circle(yoke_endpoint *endpoint, void *user)
{
    int rank = yoke_endpoint_rank(endpoint);
    yoke_endpoint_mark(endpoint, 10 + rank);
    yoke_transfer transfer = {
        .kind = YOKE_TRANSFER_RECV, .peer = (rank + 1) % 3, .elements = 1, .out = user};
    return run_transfer(endpoint, &transfer);
}

static void test_circle_is_told(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        rank_options options = {.n_ranks = 3, .timeout_s = 0.4, .user_bytes = 64};
        yoke_world *world = open_world(&options);
        yoke_rank_report reports[3];
        yoke_launch launch = {
            .run = wait_in_a_circle, .user = yoke_world_user(world), .threads = threads};
        yoke_status status = yoke_world_launch(world, &launch, reports);
        assert_int_equal(yoke_status_code(status), YOKE_RANK_LOST);
        expect_text(yoke_status_message(status), "ranks wait for one another: ");
        for (int r = 0; r < 3; r++) {
            char link[64];
            (void)snprintf(link, sizeof link, "rank %d for rank %d in #1%d", r, (r + 1) % 3, r);
            expect_text(yoke_status_message(status), link);
            assert_int_equal(reports[r].end, YOKE_RANK_ABORTED);
        }
        yoke_status_free(status);
        yoke_world_destroy(world);
    }
}

/* Threads: a rank that leaves early, and one that sleeps where it should take part. */
static yoke_status leave_or_sleep(yoke_endpoint *endpoint, void *user)
{
    const scene *s = user;
    int rank = yoke_endpoint_rank(endpoint);
    yoke_endpoint_mark(endpoint, 7);
    if (rank != VICTIM) {
        return run_barrier(endpoint, 0);
    }
    return s->fault == LEAVES_EARLY
               ? YOKE_OK
               : yoke_endpoint_sleep(endpoint, (const uint32_t *)(const void *)s->memory, 0, 60.0);
}

static void test_threads_are_watched_too(void **state)
{
    (void)state;
    static const fault faults[] = {LEAVES_EARLY, NEVER_ARRIVES};
    for (int i = 0; i < 2; i++) {
        scene s = {.fault = faults[i], .elements = 1};
        yoke_world *world = open_scene(&s, 0.4);
        yoke_rank_report reports[N_RANKS];
        yoke_launch launch = {.run = leave_or_sleep, .user = &s, .threads = true};
        yoke_status status = yoke_world_launch(world, &launch, reports);
        assert_int_equal(yoke_status_code(status), YOKE_RANK_LOST);
        expect_text(yoke_status_message(status), "rank 3 of 5 ");
        expect_text(yoke_status_message(status), " waited for it in #7");
        assert_int_equal(reports[VICTIM].end, expected[faults[i]].end);
        yoke_status_free(status);
        yoke_world_destroy(world);
    }
}

/* Slow, but alive: rank 0 marks now and then while the others wait; later it is silent for longer
 * than the timeout while nobody waits. */
static yoke_status be_slow(yoke_endpoint *endpoint, void *user)
{
    (void)user;
    if (yoke_endpoint_rank(endpoint) != 0) {
        return run_barrier(endpoint, 0);
    }
    for (int i = 0; i < 12; i++) {
        yoke_endpoint_mark(endpoint, i);
        sleep_s(0.1);
    }
    YOKE_TRY(run_barrier(endpoint, 0));
    sleep_s(1.0);
    return YOKE_OK;
}

static void test_slow_is_not_hung(void **state)
{
    (void)state;
    rank_options options = {.n_ranks = 3, .timeout_s = 0.7};
    yoke_world *world = open_world(&options);
    run_ranks(world, false, be_slow, NULL);
    yoke_world_destroy(world);
}

typedef struct watcher {
    int n_polls;
    double start_s;
} watcher;

static void count_polls(void *user)
{
    ((watcher *)user)->n_polls++;
}

static bool interrupt_soon(void *user)
{
    return yoke_clock_s() - ((watcher *)user)->start_s > 0.4;
}

/* Rank 0 waits for nobody, rank 1 asks, rank 2 does neither and must be killed; the others wait. */
static yoke_status wait_for_ever(yoke_endpoint *endpoint, void *user)
{
    (void)user;
    int rank = yoke_endpoint_rank(endpoint);
    static const uint32_t word = 0;
    (void)raise(SIGINT);
    yoke_endpoint_mark(endpoint, 5);
    if (rank == 0) {
        return yoke_endpoint_sleep(endpoint, &word, 0, 60.0);
    }
    while (rank == 1) {
        YOKE_TRY(yoke_endpoint_check(endpoint));
        sleep_s(0.01);
    }
    if (rank == 2) {
        sleep_s(60.0);
    }
    return run_barrier(endpoint, 0);
}

static void test_interrupted(void **state)
{
    (void)state;
    traces before = look_before();
    scene s = {.elements = 1};
    yoke_world *world = open_scene(&s, 60.0);
    yoke_rank_report reports[N_RANKS];
    watcher w = {.start_s = yoke_clock_s()};
    yoke_launch launch = {
        .run = wait_for_ever, .poll = count_polls, .interrupted = interrupt_soon, .user = &w};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    yoke_world_destroy(world);
    expect_nothing_left(&before);
    assert_int_equal(yoke_status_code(status), YOKE_INTERRUPTED);
    expect_text(yoke_status_message(status), "the user asked to stop");
    assert_true(w.n_polls >= 6);
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(reports[r].end, YOKE_RANK_ABORTED);
        expect_text(reports[r].message,
                    r == 2 ? "did not end by itself and was killed" : "the user asked to stop");
    }
    yoke_status_free(status);
}

/* In a process of its own, because it gives up rights. */
static int launch_without_room(void)
{
    if (geteuid() == 0 && setuid(65534) != 0) {
        return 2;
    }
    struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) {
        return 3;
    }
    scene s = {.fault = IS_KILLED, .kind = YOKE_TRANSFER_BARRIER, .elements = 1};
    yoke_world *world = open_scene(&s, 0);
    yoke_rank_report reports[N_RANKS];
    yoke_launch launch = {.run = play, .user = &s};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    bool right = yoke_status_code(status) == YOKE_IO &&
                 strstr(yoke_status_message(status), "of 5 could not be started: fork: ") &&
                 strstr(reports[N_RANKS - 1].message, "rank 4 was never started") &&
                 waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
    yoke_status_free(status);
    yoke_world_destroy(world);
    return right ? 0 : 4;
}

static void test_fork_fails_midway(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(launch_without_room());
    }
    int wait_status = 0;
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
}

static yoke_status tell_pid(yoke_endpoint *endpoint, void *user)
{
    uint32_t *pids = user;
    __atomic_store_n(&pids[yoke_endpoint_rank(endpoint)], (uint32_t)getpid(), __ATOMIC_RELEASE);
    sleep_s(60.0);
    return YOKE_OK;
}

static void test_ranks_die_with_their_launcher(void **state)
{
    (void)state;
    /* So that the orphans come to this process. */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    rank_options options = {.n_ranks = 2, .user_bytes = 64};
    yoke_world *world = open_world(&options);
    uint32_t *pids = yoke_world_user(world);
    pid_t launcher = fork();
    if (launcher == 0) {
        yoke_rank_report reports[2];
        yoke_launch launch = {.run = tell_pid, .user = pids};
        yoke_status_free(yoke_world_launch(world, &launch, reports));
        _exit(0);
    }
    while (!__atomic_load_n(&pids[0], __ATOMIC_ACQUIRE) ||
           !__atomic_load_n(&pids[1], __ATOMIC_ACQUIRE)) {
        sleep_s(0.01);
    }
    assert_int_equal(kill(launcher, SIGKILL), 0);
    assert_int_equal(waitpid(launcher, NULL, 0), launcher);
    for (int r = 0; r < 2; r++) {
        int wait_status = 0;
        assert_int_equal(waitpid((pid_t)pids[r], &wait_status, 0), (pid_t)pids[r]);
        assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
    }
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    yoke_world_destroy(world);
}

int main(void)
{
    /* Killed ranks need not leave a core file. */
    const struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_in_every_transfer),
        cmocka_unit_test(test_timeout_of_a_second),
        cmocka_unit_test(test_one_world_many_launches),
        cmocka_unit_test(test_mismatch_ends_all_ranks),
        cmocka_unit_test(test_circle_is_told),
        cmocka_unit_test(test_threads_are_watched_too),
        cmocka_unit_test(test_slow_is_not_hung),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_fork_fails_midway),
        cmocka_unit_test(test_ranks_die_with_their_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
