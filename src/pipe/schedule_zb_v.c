/*
 * ZB-V (Qi et al., "Zero bubble pipeline parallelism", 2023, and "Pipeline parallelism with
 * controllable memory", 2024): two chunks a stage that go down the stages and up again, chunk c on
 * stage c and then on stage 2 p - 1 - c, and backwards split into I and W. The stage that begins a
 * micro-batch also ends it, so every stage holds the same: at most 2 p chunks, or p stages' worth.
 *
 * The order of each stage is the paper's, for at least 2 p - 1 micro-batches; with fewer, the ones
 * that are not there are left out. With F, I and W of a chunk of one unit each a step takes
 * 6 m + p - 1 units, or 4 m + 4 p - 2 where that is more.
 */
#include "pipe/schedule_build.h"

enum { DOWN, UP, N_WAYS };

/* One stage in the making: how many of each kind have been done on each of its two chunks. */
typedef struct progress {
    yoke_action_list list;
    int chunk[N_WAYS];
    int done[N_WAYS][YOKE_N_ACTION_KINDS];
    int n_microbatches;
} progress;

static void do_next(progress *p, yoke_action_kind kind, int way)
{
    int microbatch = p->done[way][kind]++;
    if (microbatch < p->n_microbatches) {
        yoke_action_list_add(&p->list, kind, p->chunk[way], microbatch);
    }
}

static void warm_up(progress *p, int n_stages, int stage)
{
    for (int i = 0; i < 2 * (n_stages - stage) - 1; i++) {
        do_next(p, YOKE_ACTION_F, DOWN);
    }
    for (int i = 0; i < stage; i++) {
        do_next(p, YOKE_ACTION_F, UP);
        do_next(p, YOKE_ACTION_F, DOWN);
    }
    for (int i = 0; i < n_stages - stage; i++) {
        do_next(p, YOKE_ACTION_F, UP);
        do_next(p, YOKE_ACTION_I, UP);
        do_next(p, YOKE_ACTION_W, UP);
    }
}

/* Until all `n` forwards are done. */
static void keep_going(progress *p, int n)
{
    while (p->done[UP][YOKE_ACTION_F] < n) {
        if (p->done[DOWN][YOKE_ACTION_F] < n) {
            do_next(p, YOKE_ACTION_F, DOWN);
        }
        do_next(p, YOKE_ACTION_I, DOWN);
        do_next(p, YOKE_ACTION_W, DOWN);
        do_next(p, YOKE_ACTION_F, UP);
        do_next(p, YOKE_ACTION_I, UP);
        do_next(p, YOKE_ACTION_W, UP);
    }
}

static void cool_down(progress *p, int n_stages, int stage, int n)
{
    for (int i = 0; i < stage; i++) {
        do_next(p, YOKE_ACTION_I, DOWN);
        do_next(p, YOKE_ACTION_I, UP);
    }
    for (int i = 0; i < n_stages - stage; i++) {
        do_next(p, YOKE_ACTION_I, DOWN);
        do_next(p, YOKE_ACTION_W, DOWN);
    }
    while (p->done[UP][YOKE_ACTION_W] < n) {
        do_next(p, YOKE_ACTION_W, UP);
    }
    while (p->done[DOWN][YOKE_ACTION_W] < n) {
        do_next(p, YOKE_ACTION_W, DOWN);
    }
}

static yoke_stage_actions order_stage(const yoke_schedule_request *request, int stage,
                                      yoke_arena *arena)
{
    int n_stages = request->n_stages;
    int m = request->n_microbatches;
    int n = m > 2 * n_stages - 1 ? m : 2 * n_stages - 1;
    progress p = {.list = yoke_action_list_build(arena, 3 * N_WAYS * m),
                  .chunk = {[DOWN] = stage, [UP] = 2 * n_stages - 1 - stage},
                  .n_microbatches = m};
    warm_up(&p, n_stages, stage);
    keep_going(&p, n);
    cool_down(&p, n_stages, stage, n);
    return (yoke_stage_actions){.action = p.list.action, .n = p.list.n};
}

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    int p = request->n_stages;
    int *stage_of_chunk = YOKE_ARENA_NEW(arena, int, N_WAYS *p);
    for (int c = 0; c < p; c++) {
        stage_of_chunk[c] = c;
        stage_of_chunk[2 * p - 1 - c] = c;
    }
    yoke_stage_actions *stages =
        yoke_schedule_place_chunks(request, stage_of_chunk, N_WAYS * p, arena, out);
    for (int s = 0; s < p; s++) {
        stages[s] = order_stage(request, s, arena);
    }
    return YOKE_OK;
}

const yoke_schedule_def yoke_schedule_zb_v = {
    .name = "zb-v",
    .help = "two chunks a stage, down and up, split backwards: almost no bubble, 1f1b's memory",
    .default_chunks = N_WAYS,
    .build = build,
};
