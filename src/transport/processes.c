/*
 * Ranks as forked processes. A child never returns into the caller's code: it runs its rank, leaves
 * its report in shared memory and is gone. The kernel kills it if the launcher dies.
 */
#include "transport/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/rank.h"

#if defined(__GNUC__)
__attribute__((noreturn))
#endif
static void
run_child(yoke_endpoint *endpoint, pid_t launcher)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        /* It died before the line above. */
        _exit(1);
    }
    /* Ctrl-C is the launcher's to answer; a rank told to end ends, whatever the program does. */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_DFL);
    yoke_rank_run(endpoint);
    (void)fflush(NULL);
    _exit(endpoint->self->report.end == YOKE_RANK_GOOD ? 0 : 1);
}

static yoke_status start_process(yoke_crew *crew, int rank)
{
    /* Or the child would write what the launcher has not yet written, once more. */
    (void)fflush(NULL);
    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        run_child(crew->hands[rank].endpoint, launcher);
    }
    if (pid < 0) {
        int n_ranks = crew->world->n_ranks;
        return YOKE_FAIL(YOKE_IO,
                         "rank %d of %d could not be started: fork: %s; the %d before it were "
                         "started and ended again; raise the limit of processes (ulimit -u), free "
                         "memory, or use fewer ranks",
                         rank, n_ranks, strerror(errno), rank);
    }
    crew->hands[rank].pid = pid;
    return YOKE_OK;
}

static void force_process(yoke_crew *crew, int rank)
{
    yoke_hand *hand = &crew->hands[rank];
    if (!hand->gone) {
        hand->forced = true;
        (void)kill(hand->pid, SIGKILL);
    }
}

/* The terminal stops a whole job, launcher and all, and lets it go on: that is no fault. */
static bool is_from_terminal(int stop_signal)
{
    return stop_signal == SIGTSTP || stop_signal == SIGTTIN || stop_signal == SIGTTOU;
}

static void note_stop(yoke_crew *crew, int rank, int stop_signal)
{
    yoke_hand *hand = &crew->hands[rank];
    if (is_from_terminal(stop_signal)) {
        return;
    }
    char what[64];
    hand->end = YOKE_RANK_STOPPED;
    hand->signal = stop_signal;
    (void)snprintf(what, sizeof what, "was stopped by signal %d (%s)", stop_signal,
                   strsignal(stop_signal));
    yoke_crew_abort(crew, YOKE_CAUSE_STOPPED, rank, what);
    force_process(crew, rank);
}

static void note_end(yoke_crew *crew, int rank, int wait_status)
{
    yoke_hand *hand = &crew->hands[rank];
    hand->gone = true;
    crew->n_gone++;
    /* Partner: yoke_rank_run; a report that was written counts, whatever came after it. */
    bool reported = atomic_load_explicit(&crew->world->states[rank].ended, memory_order_acquire);
    if (reported || hand->forced) {
        return;
    }
    char what[64];
    if (WIFSIGNALED(wait_status)) {
        hand->end = YOKE_RANK_KILLED;
        hand->signal = WTERMSIG(wait_status);
        (void)snprintf(what, sizeof what, "was killed by signal %d (%s)", hand->signal,
                       strsignal(hand->signal));
        yoke_crew_abort(crew, YOKE_CAUSE_KILLED, rank, what);
        return;
    }
    hand->end = YOKE_RANK_FAILED;
    hand->exit_code = WEXITSTATUS(wait_status);
    (void)snprintf(what, sizeof what, "left with exit code %d without a report", hand->exit_code);
    yoke_crew_abort(crew, YOKE_CAUSE_FAILED, rank, what);
}

static void collect_process(yoke_crew *crew, int rank)
{
    int wait_status = 0;
    pid_t pid = waitpid(crew->hands[rank].pid, &wait_status, WNOHANG | WUNTRACED);
    if (pid == 0 || (pid < 0 && errno == EINTR)) {
        return;
    }
    if (pid > 0 && WIFSTOPPED(wait_status)) {
        note_stop(crew, rank, WSTOPSIG(wait_status));
        return;
    }
    /* Where the caller ignores SIGCHLD the status is lost (pid < 0), and only the end is known. */
    note_end(crew, rank, pid > 0 ? wait_status : 0);
}

const yoke_crew_kind *yoke_crew_of_processes(void)
{
    static const yoke_crew_kind kind = {
        .start = start_process, .collect = collect_process, .force = force_process};
    return &kind;
}
