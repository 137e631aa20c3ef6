/*
 * ZB-H1 (Qi et al., "Zero bubble pipeline parallelism", 2023): 1F1B with backwards split into I and
 * W, so that the stage before waits for I only and W fills what was idle. Stage s of p puts W off
 * by s micro-batches, the most with which it holds no more than the first stage of 1F1B: p.
 *
 * With F, I and W of one unit each the step takes 3 m + p - 1 units, from m = p on: a third of the
 * idle time of 1F1B. With fewer micro-batches it takes 2 m + 2 p - 1.
 */
#include "pipe/schedule_build.h"

static yoke_stage_actions order_stage(const yoke_schedule_request *request, int stage,
                                      yoke_arena *arena)
{
    int m = request->n_microbatches;
    int n_warmup = request->n_stages - stage;
    yoke_action_list list = yoke_action_list_build(arena, 3 * m);
    for (int k = 0; k < m && k < n_warmup; k++) {
        yoke_action_list_add(&list, YOKE_ACTION_F, stage, k);
    }
    for (int k = 0; k < m; k++) {
        yoke_action_list_add(&list, YOKE_ACTION_I, stage, k);
        if (k >= stage) {
            yoke_action_list_add(&list, YOKE_ACTION_W, stage, k - stage);
        }
        if (k + n_warmup < m) {
            yoke_action_list_add(&list, YOKE_ACTION_F, stage, k + n_warmup);
        }
    }
    for (int k = m > stage ? m - stage : 0; k < m; k++) {
        yoke_action_list_add(&list, YOKE_ACTION_W, stage, k);
    }
    return (yoke_stage_actions){.action = list.action, .n = list.n};
}

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    yoke_stage_actions *stages = yoke_schedule_one_chunk_a_stage(request, arena, out);
    for (int s = 0; s < request->n_stages; s++) {
        stages[s] = order_stage(request, s, arena);
    }
    return YOKE_OK;
}

const yoke_schedule_def yoke_schedule_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b with backwards split in two: a third of its bubble, p micro-batches held",
    .build = build,
};
