/*
 * Budget: which blocks compute their activations again, so that the stash of every pipeline stage
 * stays within so many bytes and the work done twice is least.
 */
#ifndef YOKE_RUN_BUDGET_H
#define YOKE_RUN_BUDGET_H

#include "program/program.h"

/* The key `recompute` of a config. */
typedef struct yoke_recompute_wish {
    yoke_recompute level; /* of every block, */
    int64_t budget_bytes; /* unless this is above 0 */
} yoke_recompute_wish;

/* A level's name, or bytes such as 600MiB or 1.5GiB. */
yoke_status yoke_recompute_parse(const char *text, yoke_recompute_wish *wish) YOKE_MUST_USE;

typedef struct yoke_budget_request {
    /* Plans for which every block has the same level, all by one schedule. */
    const yoke_program_set *const *sets; /* [YOKE_N_RECOMPUTES] */
    int stage;
    int64_t limit; /* bytes */
} yoke_budget_request;

/* Sets choice[block] for the blocks of one stage: those levels with which it keeps at most `limit`
 * bytes at the least work done twice. `bytes` are what it keeps then, or -1 if nothing fits; the
 * levels are then the highest. */
yoke_status yoke_budget_choose(const yoke_budget_request *request, yoke_recompute *choice,
                               int64_t *bytes) YOKE_MUST_USE;

/* Refuses a budget that a stage cannot meet; `least` is what it keeps at the highest level. */
yoke_status yoke_budget_refuse(const yoke_program_set *set, int stage, int64_t budget,
                               int64_t least) YOKE_MUST_USE;

#endif
