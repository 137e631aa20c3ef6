/*
 * Interleaved 1F1B (Narayanan et al., "Efficient large-scale language model training on GPU
 * clusters using Megatron-LM", 2021): stage s of p has the chunks s, s + p, s + 2 p, ..., v of
 * them, and takes micro-batches in groups of p, each group through one chunk after the other. Every
 * chunk is a v-th of a stage, and so is the bubble: (p - 1) / (v m + p - 1) of the time. Stage s
 * holds at most 2 (p - 1 - s) + (v - 1) p + 1 pairs of chunk and micro-batch.
 *
 * A group that is not full would break the pattern of backwards, so micro-batches come in multiples
 * of the stages; forwards alone need not.
 */
#include "pipe/schedule_build.h"

static yoke_status check(const yoke_schedule_request *request)
{
    int p = request->n_stages;
    int m = request->n_microbatches;
    if (request->chunks_per_stage < 2) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule interleaved: %d chunk a stage; use at least 2, or 1f1b, which "
                         "is the same with 1",
                         request->chunks_per_stage);
    }
    if (m % p == 0 || request->forward_only) {
        return YOKE_OK;
    }
    if (m < p) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule interleaved: %d micro-batches on %d stages; they must be a "
                         "multiple of the stages: use %d, with a batch_size that it divides, or "
                         "the schedule 1f1b",
                         m, p, p);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule interleaved: %d micro-batches on %d stages; they must be a multiple "
                     "of the stages: use %d or %d, whichever divides batch_size, or the schedule "
                     "1f1b",
                     m, p, m / p * p, (m / p + 1) * p);
}

/* Turn (0 to v - 1) and micro-batch of each forward of a stage; backwards take the turns in
 * reverse. `order` [v m], as actions whose chunk is the turn. */
static void order_forwards(const yoke_schedule_request *request, yoke_action_list *order)
{
    int p = request->n_stages;
    int m = request->n_microbatches;
    for (int first = 0; first < m; first += p) {
        int n = m - first < p ? m - first : p;
        for (int turn = 0; turn < request->chunks_per_stage; turn++) {
            for (int i = 0; i < n; i++) {
                yoke_action_list_add(order, YOKE_ACTION_F, turn, first + i);
            }
        }
    }
}

static yoke_stage_actions order_stage(const yoke_schedule_request *request,
                                      const yoke_action_list *order, int stage, yoke_arena *arena)
{
    int p = request->n_stages;
    int v = request->chunks_per_stage;
    int n_warmup = 2 * (p - 1 - stage) + (v - 1) * p;
    n_warmup = n_warmup < order->n ? n_warmup : order->n;
    yoke_action_list list = yoke_action_list_build(arena, 2 * order->n);
    for (int k = 0; k < order->n + n_warmup; k++) {
        if (k < order->n) {
            yoke_action a = order->action[k];
            yoke_action_list_add(&list, YOKE_ACTION_F, a.chunk * p + stage, a.microbatch);
        }
        if (k >= n_warmup) {
            yoke_action a = order->action[k - n_warmup];
            yoke_action_list_add(&list, YOKE_ACTION_B, (v - 1 - a.chunk) * p + stage, a.microbatch);
        }
    }
    return (yoke_stage_actions){.action = list.action, .n = list.n};
}

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    YOKE_TRY(check(request));
    int p = request->n_stages;
    int n_chunks = p * request->chunks_per_stage;
    int *stage_of_chunk = YOKE_ARENA_NEW(arena, int, n_chunks);
    for (int c = 0; c < n_chunks; c++) {
        stage_of_chunk[c] = c % p;
    }
    yoke_stage_actions *stages =
        yoke_schedule_place_chunks(request, stage_of_chunk, n_chunks, arena, out);
    yoke_action_list order =
        yoke_action_list_build(arena, request->chunks_per_stage * request->n_microbatches);
    order_forwards(request, &order);
    for (int s = 0; s < p; s++) {
        stages[s] = order_stage(request, &order, s, arena);
    }
    return YOKE_OK;
}

const yoke_schedule_def yoke_schedule_interleaved = {
    .name = "interleaved",
    .help = "1f1b with several chunks a stage, which divides the bubble by their number",
    .default_chunks = 2,
    .takes_chunks = true,
    .build = build,
};
