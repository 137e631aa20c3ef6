/*
 * The stash of a pipeline stage, read off its plan block by block: what each block keeps from its
 * forward passes for its backward passes while the schedule goes on.
 */
#ifndef YOKE_PROGRAM_STASH_H
#define YOKE_PROGRAM_STASH_H

#include "program/program.h"

/* A stash grows in forward passes only, so its largest sums stand at their ends: the moments. They
 * are the same for every program that the same schedule makes. */
typedef struct yoke_stash {
    int64_t n_moments;
    /* [n_blocks + 1][n_moments + 1] bytes in the plan; the last row for what no block has to itself,
     * the last column is 0. */
    int64_t *bytes;
} yoke_stash;

/* Of the stage's rank with the largest pieces. Needs a set with a backward pass. */
void yoke_stash_read(const yoke_program_set *set, int stage, yoke_arena *arena, yoke_stash *stash);

/* Bytes planned for the stash on that rank of the stage that has most of them. */
int64_t yoke_stash_planned(const yoke_program_set *set, int stage);

#endif
