/*
 * The crew: the launcher's view of the ranks it has started, as processes or as threads.
 */
#ifndef YOKE_TRANSPORT_CREW_H
#define YOKE_TRANSPORT_CREW_H

#include <pthread.h>
#include <sys/types.h>
#include "transport/world.h"

/* One rank as the launcher knows it. */
typedef struct yoke_hand {
    pid_t pid;
    pthread_t thread;
    yoke_endpoint *endpoint;
    bool gone;         /* reaped or joined */
    bool forced;       /* the launcher ended it by force */
    yoke_rank_end end; /* what the launcher found out; RUNNING: see the report */
    int signal;
    int exit_code; /* of a process that left without a report */
    int waiter;    /* a rank that waits for it, or -1 */
    uint32_t n_beats;
    double silent_s; /* since the last beat, while somebody waited */
    int last_waiter; /* of those who waited when it had ended, and its looks then; or -1 */
    uint32_t n_looks;
} yoke_hand;

typedef struct yoke_crew {
    yoke_world *world;
    const yoke_launch *launch;
    yoke_hand *hands; /* [n_ranks] */
    size_t endpoint_bytes;
    void *endpoints;
    int n_started;
    int n_gone;
    double polled_s;  /* when the callbacks were called last */
    double aborted_s; /* when the launcher saw the abort; 0: not yet */
} yoke_crew;

typedef struct yoke_crew_kind {
    yoke_status (*start)(yoke_crew *crew, int rank);
    void (*collect)(yoke_crew *crew, int rank); /* sets `gone` once the rank has ended */
    void (*force)(yoke_crew *crew, int rank);   /* ends it, if that is possible */
} yoke_crew_kind;

const yoke_crew_kind *yoke_crew_of_processes(void);
const yoke_crew_kind *yoke_crew_of_threads(void);

/* Looks for ranks that hang, left too early, or wait in a circle, `elapsed_s` after the last look;
 * aborts the job if there is one. */
void yoke_crew_watch(yoke_crew *crew, double elapsed_s);

/* Ends the job because of a rank; `what` says what it did, and where it was is added. */
void yoke_crew_abort(yoke_crew *crew, yoke_cause_kind kind, int rank, const char *what);

/* After the end: the reports of all ranks, and the status of the whole. */
void yoke_crew_report(const yoke_crew *crew, yoke_rank_report *reports);
yoke_status yoke_crew_status(const yoke_crew *crew, const yoke_rank_report *reports) YOKE_MUST_USE;

#endif
