/*
 * Timeline: an abstract run of a schedule over all stages, with a cost for each kind of action.
 *
 * A stage starts an action when it has ended the one before and all that the action needs has ended
 * anywhere; messages take no time and as much room as they like. Whether the program with its real
 * messages can stall is for the verifier of programs.
 */
#ifndef YOKE_PIPE_TIMELINE_H
#define YOKE_PIPE_TIMELINE_H

#include <stdbool.h>
#include "yoke/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_action_costs {
    double of[YOKE_N_ACTION_KINDS];
} yoke_action_costs;

/* I and W take half of B each. */
yoke_action_costs yoke_action_costs_of(double f_cost, double b_cost);

enum { YOKE_MAX_NEEDS = 2 };

/* What must have ended before `action` can start; returns how many. A need B means B or I. */
int yoke_action_needs(const yoke_schedule *schedule, yoke_action action,
                      yoke_action needs[YOKE_MAX_NEEDS]);

typedef struct yoke_timeline {
    double **start;   /* [n_stages][actions of the stage that are done] */
    int *n_done;      /* [n_stages] actions done; all of them if complete */
    bool is_complete; /* false: the schedule stalls after what is done */
    double span;      /* from 0 to the end of the last action */
    double busy;      /* summed over the stages */
    void *block;
} yoke_timeline;

/* Chunks and micro-batches must be in range. The only failure is YOKE_NO_MEMORY. */
yoke_status yoke_timeline_create(const yoke_schedule *schedule, yoke_action_costs costs,
                                 yoke_timeline *timeline) YOKE_MUST_USE;
void yoke_timeline_destroy(yoke_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif
