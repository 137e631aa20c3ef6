/*
 * What is said after the end: a report for each rank, and one sentence with the first cause and the
 * ranks that waited.
 */
#include "transport/crew.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transport/rank.h"

/* Waiting ranks named in a message; the reports have the others. */
enum { MOST_EXAMPLES = 3 };

typedef struct text {
    char at[2048];
    size_t used;
} text;

static void append(text *t, const char *format, ...) YOKE_FORMAT(2, 3);

static void append(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, format, args);
    va_end(args);
    t->used += n > 0 ? (size_t)n : 0;
    if (t->used > sizeof t->at - 1) {
        t->used = sizeof t->at - 1;
    }
}

static int64_t instruction_of(const yoke_crew *crew, int rank)
{
    return atomic_load_explicit(&crew->world->states[rank].instruction, memory_order_relaxed);
}

void yoke_crew_abort(yoke_crew *crew, yoke_cause_kind kind, int rank, const char *what)
{
    yoke_cause cause = {.kind = kind, .rank = rank};
    char place[192];
    yoke_place_print(crew->launch, rank, instruction_of(crew, rank), place, sizeof place);
    (void)snprintf(cause.text, sizeof cause.text, "%s %s", what, place);
    yoke_job_abort(crew->world, &cause);
}

/* The report of a rank that could not write its own. */
static void write_for(const yoke_crew *crew, int rank, yoke_rank_report *report)
{
    const yoke_hand *hand = &crew->hands[rank];
    const yoke_cause *cause = &crew->world->control->cause;
    char place[192];
    yoke_place_print(crew->launch, rank, instruction_of(crew, rank), place, sizeof place);
    report->end = hand->end == YOKE_RANK_RUNNING ? YOKE_RANK_ABORTED : hand->end;
    report->code = YOKE_RANK_LOST;
    report->signal = hand->signal;
    report->instruction = instruction_of(crew, rank);
    report->waits_for = -1;
    size_t n = sizeof report->message;
    if (rank >= crew->n_started) {
        (void)snprintf(report->message, n, "rank %d was never started", rank);
    } else if (cause->rank == rank) {
        (void)snprintf(report->message, n, "rank %d %.480s", rank, cause->text);
    } else if (hand->end == YOKE_RANK_KILLED || hand->end == YOKE_RANK_STOPPED) {
        (void)snprintf(report->message, n, "rank %d was %s by signal %d (%s) %s", rank,
                       hand->end == YOKE_RANK_KILLED ? "killed" : "stopped", hand->signal,
                       strsignal(hand->signal), place);
    } else if (hand->end == YOKE_RANK_FAILED) {
        (void)snprintf(report->message, n, "rank %d left with exit code %d without a report %s",
                       rank, hand->exit_code, place);
    } else {
        (void)snprintf(report->message, n,
                       "rank %d did not end by itself and was killed by the launcher %s", rank,
                       place);
    }
}

void yoke_crew_report(const yoke_crew *crew, yoke_rank_report *reports)
{
    for (int r = 0; r < crew->world->n_ranks; r++) {
        const yoke_rank_state *state = &crew->world->states[r];
        /* Partner: yoke_rank_run. */
        if (atomic_load_explicit(&state->ended, memory_order_acquire)) {
            reports[r] = state->report;
        } else {
            write_for(crew, r, &reports[r]);
        }
        if (crew->hands[r].end == YOKE_RANK_HUNG) {
            reports[r].end = YOKE_RANK_HUNG;
        }
    }
}

/* Appends the ranks that waited for `awaited`, or (-1) for ranks other than the cause. */
static int append_waiters(const yoke_crew *crew, const yoke_rank_report *reports, int awaited,
                          int n_before, text *t)
{
    int cause = crew->world->control->cause.rank;
    int n = n_before;
    for (int r = 0; r < crew->world->n_ranks; r++) {
        int other = reports[r].waits_for;
        bool fits = awaited >= 0 ? other == awaited : other >= 0 && other != cause;
        if (reports[r].end != YOKE_RANK_ABORTED || !fits) {
            continue;
        }
        n++;
        if (n > MOST_EXAMPLES) {
            continue;
        }
        char whom[32] = "it";
        char place[192];
        if (awaited < 0) {
            (void)snprintf(whom, sizeof whom, "rank %d", other);
        }
        append(t, "%s rank %d waited for %s %s", n == 1 ? ";" : ",", r, whom,
               yoke_place_print(crew->launch, r, reports[r].instruction, place, sizeof place));
    }
    return n;
}

static yoke_code code_of(const yoke_cause *cause, const yoke_rank_report *reports)
{
    switch (cause->kind) {
    case YOKE_CAUSE_FAILED:
        return reports[cause->rank].code;
    case YOKE_CAUSE_INTERRUPTED:
        return YOKE_INTERRUPTED;
    case YOKE_CAUSE_NOT_STARTED:
        return YOKE_IO;
    case YOKE_CAUSE_KILLED:
    case YOKE_CAUSE_STOPPED:
    case YOKE_CAUSE_HUNG:
    case YOKE_CAUSE_ENDED:
    case YOKE_CAUSE_CIRCLE:
        break;
    }
    return YOKE_RANK_LOST;
}

yoke_status yoke_crew_status(const yoke_crew *crew, const yoke_rank_report *reports)
{
    if (!yoke_job_is_aborted(crew->world)) {
        return YOKE_OK;
    }
    const yoke_cause *cause = &crew->world->control->cause;
    text t = {.used = 0};
    int n_waiters = 0;
    if (cause->rank >= 0) {
        append(&t, "rank %d of %d ", cause->rank, crew->world->n_ranks);
    }
    append(&t, "%s", cause->text);
    if (cause->rank >= 0) {
        n_waiters = append_waiters(crew, reports, cause->rank, 0, &t);
    }
    if (cause->kind != YOKE_CAUSE_CIRCLE && cause->kind != YOKE_CAUSE_NOT_STARTED) {
        n_waiters = append_waiters(crew, reports, -1, n_waiters, &t);
    }
    if (n_waiters > MOST_EXAMPLES) {
        append(&t, " and %d more waited", n_waiters - MOST_EXAMPLES);
    }
    if (cause->kind == YOKE_CAUSE_KILLED && crew->hands[cause->rank].signal == SIGKILL) {
        append(&t, "; if nobody killed it, the machine had no memory left (dmesg says so)");
    }
    return YOKE_FAIL(code_of(cause, reports), "%s", t.at);
}
