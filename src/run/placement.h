/*
 * Placement: which cores of the machine each rank runs on.
 *
 * Ranks follow one another through the machine as hwloc numbers its cores, so that neighbours on the
 * innermost axis of the mesh share caches; a rank's threads stay below one L3 or one package where
 * all ranks fit in that way. Where there are fewer cores than threads nothing is bound, and the
 * system moves threads as it likes. Results never depend on it.
 *
 * Only the cores that the calling process may use count: a smaller cpuset, or taskset, holds.
 */
#ifndef YOKE_RUN_PLACEMENT_H
#define YOKE_RUN_PLACEMENT_H

#include <stdbool.h>
#include "yoke/status.h"

/* The values of the config key `placement`. X(name) */
#define YOKE_PLACEMENT_LIST(X) X(auto) X(cores) X(none)

typedef struct yoke_placement yoke_placement;

typedef struct yoke_placement_request {
    /* cores: a core for each thread, refused where they do not suffice. auto: likewise if the run
     * needs more than half of them, so that two smaller runs never share a core while others are
     * idle; else nothing is bound. none. */
    const char *wanted;
    int n_ranks, n_threads; /* threads of each rank */
    /* A machine as hwloc describes one in a line ("package:2 [numa] l3:2 core:4 pu:2"), on which nothing
     * is ever bound; NULL: this one. */
    const char *machine;
} yoke_placement_request;

/* YOKE_BAD_INPUT where cores are demanded and there are too few. A machine that hwloc cannot read is
 * no failure: nothing is bound. */
yoke_status yoke_placement_create(const yoke_placement_request *request,
                                  yoke_placement **placement) YOKE_MUST_USE;
void yoke_placement_destroy(yoke_placement *placement); /* NULL is fine */

/* One line for the start of a run: what is bound where, or why nothing is. Lives as long as the
 * placement. */
const char *yoke_placement_text(const yoke_placement *placement);

bool yoke_placement_is_bound(const yoke_placement *placement);

/* The processors of one rank as the system numbers them ("0-3,8"); "" if nothing is bound. Returns
 * buffer. */
const char *yoke_placement_print(const yoke_placement *placement, int rank, char *buffer,
                                 int buffer_bytes);

/* Binds the calling thread to the cores of its rank; threads that it starts later inherit that, so
 * a rank calls it before its team of threads is made. Thread-safe. */
void yoke_placement_bind(const yoke_placement *placement, int rank);

#endif
