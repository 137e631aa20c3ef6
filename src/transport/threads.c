/*
 * Ranks as threads of the calling process: for tests, for the thread sanitizer, and for programs
 * that must not fork. A thread cannot be killed, so ranks end when they wait or ask.
 */
#include "transport/crew.h"

#include <string.h>

#include "transport/rank.h"

static void *run_thread(void *endpoint)
{
    yoke_rank_run(endpoint);
    return NULL;
}

static yoke_status start_thread(yoke_crew *crew, int rank)
{
    yoke_hand *hand = &crew->hands[rank];
    int error = pthread_create(&hand->thread, NULL, run_thread, hand->endpoint);
    if (error) {
        return YOKE_FAIL(YOKE_IO,
                         "rank %d of %d could not be started: thread: %s; the %d before it were "
                         "started and ended again; raise the limit of processes (ulimit -u), or "
                         "use fewer ranks",
                         rank, crew->world->n_ranks, strerror(error), rank);
    }
    return YOKE_OK;
}

static void collect_thread(yoke_crew *crew, int rank)
{
    yoke_hand *hand = &crew->hands[rank];
    /* Partner: yoke_rank_run. */
    if (atomic_load_explicit(&crew->world->states[rank].ended, memory_order_acquire)) {
        (void)pthread_join(hand->thread, NULL);
        hand->gone = true;
        crew->n_gone++;
    }
}

static void force_thread(yoke_crew *crew, int rank)
{
    (void)crew;
    (void)rank;
}

const yoke_crew_kind *yoke_crew_of_threads(void)
{
    static const yoke_crew_kind kind = {
        .start = start_thread, .collect = collect_thread, .force = force_thread};
    return &kind;
}
