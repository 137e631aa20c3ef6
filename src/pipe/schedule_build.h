/*
 * What the files of the schedules have in common while they fill a table.
 */
#ifndef YOKE_PIPE_SCHEDULE_BUILD_H
#define YOKE_PIPE_SCHEDULE_BUILD_H

#include "base/memory.h"
#include "yoke/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the sizes of `out` and returns its stages [n_stages], still without actions. Chunk c is on
 * stage_of_chunk[c]; [n_chunks], in the arena. */
yoke_stage_actions *yoke_schedule_place_chunks(const yoke_schedule_request *request,
                                               const int *stage_of_chunk, int n_chunks,
                                               yoke_arena *arena, yoke_schedule *out);

/* The same with chunk c on stage c. */
yoke_stage_actions *yoke_schedule_one_chunk_a_stage(const yoke_schedule_request *request,
                                                    yoke_arena *arena, yoke_schedule *out);

/* An empty list with room for `capacity` actions, and the way to lengthen it. */
typedef struct yoke_action_list {
    yoke_action *action;
    int n, capacity;
} yoke_action_list;

yoke_action_list yoke_action_list_build(yoke_arena *arena, int capacity);
void yoke_action_list_add(yoke_action_list *list, yoke_action_kind kind, int chunk, int microbatch);

/* What yoke_schedule_find gives for a name that ends in ".csv". */
extern const yoke_schedule_def yoke_schedule_csv;

#ifdef __cplusplus
}
#endif
#endif
