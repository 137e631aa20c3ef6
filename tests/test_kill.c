/* labels: slow serial */
/*
 * A training that loses a rank, is interrupted, or loses its launcher, as a user would see it: it ends within five seconds,
 * says who was lost and what the others waited for, leaves no process behind, and keeps the metrics.
 *
 * Every kind of loss in every kind of transfer is in test_launch.c; here it is the whole program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <time.h>
#include "cli_run.h"

#define TRAIN                                                                                      \
    "train", "--model", "gpt2-tiny", "--data", "text.txt", "--seq_len", "24", "--batch_size", "6", \
        "--steps", "1000000", "--run_dir", "r", "--mesh"

enum { N_RANKS = 8 };

/* From the loss to the end of the last process. */
static const double limit_s = 5.0;

static int create_place(void **state)
{
    cli_place *place = cli_place_create();
    static const char sentence[] = "The ox that stands still pulls nothing, said the driver. ";
    size_t bytes = sizeof sentence - 1;
    for (size_t i = 0; i < 200; i++) {
        memcpy(place->out + i * bytes, sentence, bytes);
    }
    place->out[200 * bytes] = '\0';
    cli_write_text(place, "text.txt", place->out);
    *state = place;
    return 0;
}

static int destroy_place(void **state)
{
    cli_place_destroy(*state);
    return 0;
}

/* --- Processes ---------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* The children of a process, in the order of their start. */
static int list_children(pid_t of, pid_t children[N_RANKS])
{
    char path[64];
    int n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)of, (int)of);
    FILE *file = fopen(path, "r");
    if (!file) {
        return 0;
    }
    while (n < N_RANKS && fscanf(file, "%d", &children[n]) == 1) {
        n++;
    }
    (void)fclose(file);
    return n;
}

/* Not there, or only not yet reaped by whoever inherited it. */
static bool is_gone(pid_t pid)
{
    char path[64];
    char state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            state = 'Z';
        }
        (void)fclose(file);
    }
    return state == 'Z' || state == 'X';
}

static void wait_until_gone(const pid_t *pids, int n, double end_s)
{
    for (int i = 0; i < n; i++) {
        while (!is_gone(pids[i])) {
            if (now_s() > end_s) {
                fail_msg("process %d, the %dth rank, lives on", (int)pids[i], i);
            }
            nap();
        }
    }
}

/* --- A run ---------------------------------------------------------------------------------------------- */

typedef struct job {
    cli_place *place;
    pid_t launcher;
    pid_t ranks[N_RANKS];
    double lost_s; /* when the test did its deed */
} job;

/* Lines of the metrics so far; each must be an object. The last may be torn only while the file grows. */
static int n_metrics(const cli_place *place, bool ended)
{
    char path[CLI_PATH_BYTES];
    char line[1024];
    int n = 0;
    cli_path(place, "r/metrics.jsonl", path);
    FILE *file = fopen(path, "r");
    if (!file) {
        return 0;
    }
    while (fgets(line, sizeof line, file)) {
        if (!ended && !strchr(line, '\n')) {
            break;
        }
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(object) || !strchr(line, '\n')) {
            fail_msg("line %d of the metrics: %s", n + 1, line);
        }
        json_decref(object);
        n++;
    }
    (void)fclose(file);
    return n;
}

/* Starts the training and waits until it has done some steps. */
static job start(cli_place *place, const char *mesh)
{
    job j = {.place = place};
    j.launcher = cli_start(place, NULL, CLI_ARGS(TRAIN, mesh));
    for (double end_s = now_s() + 50.0; n_metrics(place, false) < 5;) {
        assert_true(now_s() < end_s);
        nap();
    }
    assert_int_equal(list_children(j.launcher, j.ranks), N_RANKS);
    return j;
}

static void hit(job *j, pid_t pid, int signal)
{
    j->lost_s = now_s();
    assert_int_equal(kill(pid, signal), 0);
}

/* The launcher's end, in time; then everything that must hold at any end. */
static void finish(job *j, int code)
{
    cli_finish(j->place, j->launcher);
    assert_true(now_s() < j->lost_s + limit_s);
    wait_until_gone(j->ranks, N_RANKS, j->lost_s + limit_s);
    if (j->place->code != code) {
        fail_msg("exit code %d, not %d; standard error: %s", j->place->code, code, j->place->err);
    }
    assert_true(n_metrics(j->place, true) >= 5);
    assert_false(cli_exists(j->place, "r/model.safetensors"));
}

static void assert_says(const cli_place *place, const char *part)
{
    if (!strstr(place->err, part)) {
        fail_msg("'%s' is not in: %s", part, place->err);
    }
}

/* "in #41 wait ...", and not "in #41 #41 wait ...". */
static void assert_numbers_once(const cli_place *place)
{
    for (const char *at = strstr(place->err, "in #"); at; at = strstr(at + 1, "in #")) {
        const char *name = at + strlen("in #");
        name += strspn(name, "0123456789 ");
        if (*name == '#') {
            fail_msg("an instruction is numbered twice: %s", place->err);
        }
    }
}

/* The summary tells how it ended, and why. */
static void assert_summary(const cli_place *place, const char *ended, const char *why)
{
    char path[CLI_PATH_BYTES];
    json_error_t error;
    cli_path(place, "r/summary.json", path);
    json_t *summary = json_load_file(path, 0, &error);
    assert_non_null(summary);
    assert_string_equal(json_string_value(json_object_get(summary, "ended")), ended);
    assert_non_null(strstr(json_string_value(json_object_get(summary, "error")), why));
    json_decref(summary);
}

static void test_a_rank_is_killed(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    hit(&j, j.ranks[3], SIGKILL);
    finish(&j, 1);
    assert_says(j.place, "rank 3 of 8 was killed by signal 9 (Killed) in #");
    assert_says(j.place, "waited for it in #");
    assert_numbers_once(j.place);
    assert_summary(j.place, "failed", "rank 3 of 8 was killed by signal 9");
}

/* The plain `kill`: the command's own answer to it must not live on in its ranks. */
static void test_a_rank_is_told_to_end(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    hit(&j, j.ranks[5], SIGTERM);
    finish(&j, 1);
    assert_says(j.place, "rank 5 of 8 was killed by signal 15 (Terminated) in #");
}

static void test_a_rank_is_stopped(void **state)
{
    job j = start(*state, "pp=4,tp=2");
    hit(&j, j.ranks[6], SIGSTOP);
    finish(&j, 1);
    assert_says(j.place, "rank 6 of 8 was stopped by signal 19 (Stopped (signal)) in #");
    assert_says(j.place, "waited for it in #");
}

static void test_a_rank_breaks(void **state)
{
    job j = start(*state, "dp=2,tp=4");
    hit(&j, j.ranks[0], SIGBUS); /* as when a page of shared memory cannot be had */
    finish(&j, 1);
    assert_says(j.place, "rank 0 of 8 was killed by signal 7 (Bus error) in #");
}

static void test_ctrl_c(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    hit(&j, j.launcher, SIGINT);
    finish(&j, 130);
    assert_says(j.place, "interrupted after ");
    assert_summary(j.place, "interrupted", "interrupted after ");
}

/* From a terminal every process of the job gets it. */
static void test_ctrl_c_to_all(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(kill(j.ranks[r], SIGINT), 0);
    }
    hit(&j, j.launcher, SIGINT);
    finish(&j, 130);
    assert_says(j.place, "interrupted after ");
}

static void test_ctrl_c_twice(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    assert_int_equal(kill(j.ranks[5], SIGSTOP), 0); /* nothing to wait for */
    hit(&j, j.launcher, SIGINT);
    (void)kill(j.launcher, SIGINT);
    cli_finish(j.place, j.launcher);
    assert_true(j.place->code == 130 || j.place->code == 1);
    wait_until_gone(j.ranks, N_RANKS, j.lost_s + limit_s);
    assert_true(n_metrics(j.place, true) >= 5);
}

static void test_the_launcher_is_killed(void **state)
{
    job j = start(*state, "dp=2,tp=2,pp=2");
    hit(&j, j.launcher, SIGKILL);
    finish(&j, 128 + SIGKILL);
}

/* As soon as there is a rank at all, be it in the measurement before the run. */
static void test_ctrl_c_at_the_start(void **state)
{
    job j = {.place = *state};
    int n = 0;
    j.launcher = cli_start(j.place, NULL, CLI_ARGS(TRAIN, "dp=2,tp=2,pp=2"));
    for (double end_s = now_s() + 50.0; n == 0; n = list_children(j.launcher, j.ranks)) {
        assert_true(now_s() < end_s && !is_gone(j.launcher));
    }
    hit(&j, j.launcher, SIGINT);
    cli_finish(j.place, j.launcher);
    assert_int_equal(j.place->code, 130);
    wait_until_gone(j.ranks, n, j.lost_s + limit_s);
}

#define AT_A_PLACE(test) cmocka_unit_test_setup_teardown(test, create_place, destroy_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AT_A_PLACE(test_a_rank_is_killed),
        AT_A_PLACE(test_a_rank_is_stopped),
        AT_A_PLACE(test_a_rank_is_told_to_end),
        AT_A_PLACE(test_a_rank_breaks),
        AT_A_PLACE(test_ctrl_c),
        AT_A_PLACE(test_ctrl_c_to_all),
        AT_A_PLACE(test_ctrl_c_twice),
        AT_A_PLACE(test_the_launcher_is_killed),
        AT_A_PLACE(test_ctrl_c_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
