/*
 * The watchdog. It judges only ranks that others wait for, by what these tell (transfer.c) and by
 * the signs of life of the rank itself; a rank that waits in turn is not to blame, but the one at
 * the end of the chain is, and a chain without end is a deadlock.
 */
#include "transport/crew.h"

#include <stdio.h>

#include "transport/rank.h"

/* The rank that `rank` waits for, or -1. */
static int waits_for(const yoke_crew *crew, int rank)
{
    if (crew->hands[rank].gone) {
        return -1;
    }
    return atomic_load_explicit(&crew->world->states[rank].waits_for, memory_order_relaxed);
}

static uint32_t looks_of(const yoke_crew *crew, int rank)
{
    /* Partner: sleep_once in transfer.c; read before waits_for, which is then at least as new. */
    return atomic_load_explicit(&crew->world->states[rank].n_looks, memory_order_acquire);
}

static void find_waiters(yoke_crew *crew)
{
    int n_ranks = crew->world->n_ranks;
    for (int r = 0; r < n_ranks; r++) {
        crew->hands[r].waiter = -1;
    }
    for (int r = 0; r < n_ranks; r++) {
        int awaited = waits_for(crew, r);
        if (awaited >= 0) {
            crew->hands[awaited].waiter = r;
        }
    }
}

/* A rank that ended well is to blame once a waiter has looked twice since and still misses it: the
 * second look began after the end, so it is no news that was on its way. */
static void check_ended(yoke_crew *crew, int rank)
{
    yoke_hand *hand = &crew->hands[rank];
    uint32_t n_looks = looks_of(crew, hand->waiter);
    if (hand->last_waiter != hand->waiter) {
        hand->last_waiter = hand->waiter;
        hand->n_looks = n_looks;
    } else if (n_looks - hand->n_looks >= 2 && waits_for(crew, hand->waiter) == rank) {
        yoke_crew_abort(crew, YOKE_CAUSE_ENDED, rank, "had already ended, without an error, last");
    }
}

static void abort_circle(yoke_crew *crew, int rank)
{
    yoke_cause cause = {.kind = YOKE_CAUSE_CIRCLE, .rank = -1};
    size_t used = 0;
    int at = rank;
    const char *lead = "ranks wait for one another: ";
    do {
        char place[192];
        int64_t instruction =
            atomic_load_explicit(&crew->world->states[at].instruction, memory_order_relaxed);
        int next = waits_for(crew, at);
        int n = snprintf(cause.text + used, sizeof cause.text - used, "%srank %d for rank %d %s",
                         lead, at, next,
                         yoke_place_print(crew->launch, at, instruction, place, sizeof place));
        used += n > 0 ? (size_t)n : 0;
        lead = ", ";
        at = next;
    } while (at >= 0 && at != rank && used < sizeof cause.text);
    yoke_job_abort(crew->world, &cause);
}

/* The last rank of the chain of waits from `rank`, or -1 if the chain comes back to itself. */
static int chain_end(const yoke_crew *crew, int rank, int *on_circle)
{
    int at = rank;
    for (int i = 0; i <= crew->world->n_ranks; i++) {
        int next = waits_for(crew, at);
        if (next < 0) {
            return at;
        }
        at = next;
    }
    *on_circle = at;
    return -1;
}

static void check_silent(yoke_crew *crew, int rank, double elapsed_s)
{
    yoke_hand *hand = &crew->hands[rank];
    uint32_t n_beats =
        atomic_load_explicit(&crew->world->states[rank].n_beats, memory_order_relaxed);
    hand->silent_s = n_beats == hand->n_beats ? hand->silent_s + elapsed_s : 0.0;
    hand->n_beats = n_beats;
    if (hand->silent_s < crew->world->timeout_s) {
        return;
    }
    int on_circle = -1;
    int last = chain_end(crew, rank, &on_circle);
    if (last < 0) {
        abort_circle(crew, on_circle);
    } else if (last == rank) {
        char what[64];
        (void)snprintf(what, sizeof what, "gave no sign of life for %.3g s", hand->silent_s);
        hand->end = YOKE_RANK_HUNG;
        yoke_crew_abort(crew, YOKE_CAUSE_HUNG, rank, what);
    }
}

void yoke_crew_watch(yoke_crew *crew, double elapsed_s)
{
    find_waiters(crew);
    for (int r = 0; r < crew->world->n_ranks && !yoke_job_is_aborted(crew->world); r++) {
        yoke_hand *hand = &crew->hands[r];
        if (hand->waiter < 0) {
            hand->silent_s = 0.0;
            /* Partner: yoke_rank_run. */
        } else if (atomic_load_explicit(&crew->world->states[r].ended, memory_order_acquire)) {
            check_ended(crew, r);
        } else {
            check_silent(crew, r, elapsed_s);
        }
    }
}
