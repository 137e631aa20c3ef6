/*
 * GPipe (Huang et al., "GPipe: efficient training of giant neural networks using pipeline
 * parallelism", 2019): every forward, then every backward. Each stage holds all micro-batches.
 *
 * Backwards run in the order of the micro-batches, so that gradients are summed in the same order
 * as on one rank.
 */
#include "pipe/schedule_build.h"

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    yoke_stage_actions *stages = yoke_schedule_one_chunk_a_stage(request, arena, out);
    int n = request->n_microbatches;
    for (int s = 0; s < request->n_stages; s++) {
        yoke_action_list list = yoke_action_list_build(arena, 2 * n);
        for (int m = 0; m < n; m++) {
            yoke_action_list_add(&list, YOKE_ACTION_F, s, m);
        }
        for (int m = 0; m < n; m++) {
            yoke_action_list_add(&list, YOKE_ACTION_B, s, m);
        }
        stages[s] = (yoke_stage_actions){.action = list.action, .n = list.n};
    }
    return YOKE_OK;
}

const yoke_schedule_def yoke_schedule_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards; holds every micro-batch",
    .build = build,
};
