/*
 * 1F1B (Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, in
 * the form with a flush at the end of the step): stage s warms up with as many forwards as there
 * are stages after it, then alternates one forward and one backward, then drains. The bubble is
 * that of GPipe, but stage s of p holds at most p - s micro-batches.
 */
#include "pipe/schedule_build.h"

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    yoke_stage_actions *stages = yoke_schedule_one_chunk_a_stage(request, arena, out);
    int n = request->n_microbatches;
    for (int s = 0; s < request->n_stages; s++) {
        int n_after = request->n_stages - 1 - s;
        int n_warmup = n_after < n ? n_after : n;
        yoke_action_list list = yoke_action_list_build(arena, 2 * n);
        for (int k = 0; k < n + n_warmup; k++) {
            if (k < n) {
                yoke_action_list_add(&list, YOKE_ACTION_F, s, k);
            }
            if (k >= n_warmup) {
                yoke_action_list_add(&list, YOKE_ACTION_B, s, k - n_warmup);
            }
        }
        stages[s] = (yoke_stage_actions){.action = list.action, .n = list.n};
    }
    return YOKE_OK;
}

const yoke_schedule_def yoke_schedule_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward in turn; stage s of p holds at most p - s micro-batches",
    .build = build,
};
