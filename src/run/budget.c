/*
 * The cheapest choice within a budget, by a dynamic programme over the blocks of a stage.
 *
 * What a block keeps does not depend on the levels of the others: it is read off the plans in which
 * all have the same. The stash has its largest sums at a few moments of the schedule, so a state of
 * the programme is the work done twice so far and the bytes at each of these moments; of two states
 * one is dropped if it is nowhere better. That is exact. Should there be too many states (many
 * moments that matter, many unlike blocks), the moments are taken as one, at which every block keeps
 * the most that it ever does: what is chosen still fits.
 *
 * Live bytes are counted. How they come to lie is the plan's affair, so the caller checks the plan.
 */
#include "run/budget.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "program/stash.h"
#include "run/config_keys.h"

/* --- Parsing ---------------------------------------------------------------------------------- */

static yoke_status fail_unknown(const char *text)
{
    static const char *const names[] = {
#define NAME(upper, lower, help) #lower,
        YOKE_RECOMPUTE_LIST(NAME)
#undef NAME
    };
    const char *nearest = yoke_text_nearest(text, names, YOKE_N_RECOMPUTES);
    return YOKE_FAIL(
        YOKE_BAD_INPUT,
        "unknown recompute '%.80s'%s%s%s use none, light, selective, full, or the bytes that "
        "a pipeline stage may keep, such as 600MiB or 2GiB",
        text, nearest ? "; did you mean '" : ";", nearest ? nearest : "", nearest ? "'? Or" : "");
}

yoke_status yoke_recompute_parse(const char *text, yoke_recompute_wish *wish)
{
    *wish = (yoke_recompute_wish){0};
    for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
        if (strcmp(text, yoke_recompute_name((yoke_recompute)level)) == 0) {
            wish->level = (yoke_recompute)level;
            return YOKE_OK;
        }
    }
    if (text[0] < '0' || text[0] > '9') {
        return fail_unknown(text);
    }
    return yoke_number_parse_bytes("recompute", text, &wish->budget_bytes);
}

/* --- What there is to choose from --------------------------------------------------------------- */

typedef struct problem {
    yoke_arena *arena;
    const yoke_program_set *const *sets;
    yoke_stash stash[YOKE_N_RECOMPUTES];
    int *block; /* [n] those of the stage */
    int n;
    double *work;    /* [n][levels] done twice */
    int64_t *column; /* [n_columns] moments that matter */
    int64_t n_columns;
    int64_t *bytes; /* [n + 1][levels][n_columns]; the last for what is shared */
    int64_t *rest;  /* [n + 1][n_columns] least that this block and those behind it keep */
    int64_t limit;
} problem;

static void find_blocks(problem *p, int stage)
{
    const yoke_program_set *set = p->sets[0];
    p->block = YOKE_ARENA_NEW(p->arena, int, set->graph->n_blocks);
    for (int c = 0; c < set->schedule.n_chunks; c++) {
        bool here = set->schedule.stage_of_chunk[c] == stage;
        for (int b = set->first_block[c]; here && b < set->first_block[c + 1]; b++) {
            p->block[p->n++] = b;
        }
    }
    p->work = YOKE_ARENA_NEW(p->arena, double, (p->n + 1) * YOKE_N_RECOMPUTES);
    for (int i = 0; i < p->n; i++) {
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            p->work[i * YOKE_N_RECOMPUTES + level] =
                yoke_graph_recompute_flops(p->sets[level]->graph, p->block[i]);
        }
    }
}

/* What block i of the stage keeps at a moment; i = n: what is shared, whoever keeps it. */
static int64_t kept_at(const problem *p, int i, int level, int64_t moment)
{
    int64_t width = p->stash[0].n_moments + 1;
    if (i < p->n) {
        return p->stash[level].bytes[p->block[i] * width + moment];
    }
    int64_t most = 0;
    for (int k = 0; k < YOKE_N_RECOMPUTES; k++) {
        int64_t bytes = p->stash[k].bytes[p->sets[0]->graph->n_blocks * width + moment];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* True if whatever is chosen, no more is kept at moment a than at b. */
static bool matters_less(const problem *p, int64_t a, int64_t b)
{
    for (int i = 0; i <= p->n; i++) {
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            if (kept_at(p, i, level, a) > kept_at(p, i, level, b)) {
                return false;
            }
        }
    }
    return true;
}

static void find_columns(problem *p)
{
    p->column = YOKE_ARENA_NEW(p->arena, int64_t, p->stash[0].n_moments + 1);
    for (int64_t m = 0; m < p->stash[0].n_moments; m++) {
        int64_t n = 0;
        bool covered = false;
        for (int64_t k = 0; k < p->n_columns && !covered; k++) {
            covered = matters_less(p, m, p->column[k]);
        }
        if (covered) {
            continue;
        }
        for (int64_t k = 0; k < p->n_columns; k++) {
            if (!matters_less(p, p->column[k], m)) {
                p->column[n++] = p->column[k];
            }
        }
        p->column[n++] = m;
        p->n_columns = n;
    }
}

static int64_t *bytes_of(const problem *p, int i, int level)
{
    return p->bytes + ((int64_t)i * YOKE_N_RECOMPUTES + level) * p->n_columns;
}

static void fill_bytes(problem *p)
{
    p->bytes =
        YOKE_ARENA_NEW(p->arena, int64_t, ((int64_t)p->n + 1) * YOKE_N_RECOMPUTES * p->n_columns);
    for (int i = 0; i <= p->n; i++) {
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            for (int64_t k = 0; k < p->n_columns; k++) {
                bytes_of(p, i, level)[k] = kept_at(p, i, level, p->column[k]);
            }
        }
    }
}

/* Takes all moments as one, at which each block keeps the most that it ever does. */
static void merge_columns(problem *p)
{
    int64_t n = p->n_columns;
    for (int64_t row = 0; row < ((int64_t)p->n + 1) * YOKE_N_RECOMPUTES; row++) {
        int64_t most = 0;
        for (int64_t k = 0; k < n; k++) {
            most = p->bytes[row * n + k] > most ? p->bytes[row * n + k] : most;
        }
        p->bytes[row] = most;
    }
    p->n_columns = 1;
}

static void sum_rest(problem *p)
{
    p->rest = YOKE_ARENA_NEW(p->arena, int64_t, (p->n + 1) * p->n_columns);
    for (int i = p->n - 1; i >= 0; i--) {
        for (int64_t k = 0; k < p->n_columns; k++) {
            int64_t least = INT64_MAX;
            for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
                int64_t bytes = bytes_of(p, i, level)[k];
                least = bytes < least ? bytes : least;
            }
            p->rest[i * p->n_columns + k] = p->rest[(i + 1) * p->n_columns + k] + least;
        }
    }
}

/* --- The dynamic programme ---------------------------------------------------------------------- */

/* The first blocks have their levels. */
typedef struct state {
    double work;
    int64_t *bytes; /* [n_columns] */
    int64_t n_columns;
    const struct state *before;
    yoke_recompute level; /* of the last block */
} state;

typedef struct states {
    state *state;
    int64_t n;
} states;

/* More than these make the search slow: a second, or so, for a stage of 100 blocks. */
static const int64_t MOST_STATES = 20000;

/* Cheaper first; of equally cheap ones the smaller. */
static int compare_states(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->work < y->work || x->work > y->work) {
        return x->work < y->work ? -1 : 1;
    }
    for (int64_t k = 0; k < x->n_columns; k++) {
        if (x->bytes[k] != y->bytes[k]) {
            return x->bytes[k] < y->bytes[k] ? -1 : 1;
        }
    }
    return (int)x->level - (int)y->level;
}

/* Adds block i at `level` to a state; false if that can end in nothing that fits. */
static bool extend(const problem *p, const state *before, int i, int level, state *out)
{
    *out = (state){.work = before->work + p->work[i * YOKE_N_RECOMPUTES + level],
                   .bytes = YOKE_ARENA_NEW(p->arena, int64_t, p->n_columns),
                   .n_columns = p->n_columns,
                   .before = before,
                   .level = (yoke_recompute)level};
    for (int64_t k = 0; k < p->n_columns; k++) {
        out->bytes[k] = before->bytes[k] + bytes_of(p, i, level)[k];
        if (out->bytes[k] + p->rest[(i + 1) * p->n_columns + k] > p->limit) {
            return false;
        }
    }
    return true;
}

static bool is_no_larger(const state *a, const state *b)
{
    for (int64_t k = 0; k < a->n_columns; k++) {
        if (a->bytes[k] > b->bytes[k]) {
            return false;
        }
    }
    return true;
}

/* Keeps the states that no cheaper one makes needless. */
static void prune(states *s)
{
    int64_t n = 0;
    qsort(s->state, (size_t)s->n, sizeof *s->state, compare_states);
    for (int64_t i = 0; i < s->n; i++) {
        /* At one moment the last that was kept is the smallest so far. */
        int64_t first = s->state[i].n_columns == 1 && n > 0 ? n - 1 : 0;
        bool needless = false;
        for (int64_t k = first; k < n && !needless; k++) {
            needless = is_no_larger(&s->state[k], &s->state[i]);
        }
        if (!needless) {
            s->state[n++] = s->state[i];
        }
    }
    s->n = n;
}

/* Gives every block a level at least work; NULL if nothing fits, or if there are too many states. */
static const state *solve(const problem *p, bool *too_many)
{
    state start = {.bytes = bytes_of(p, p->n, 0), .n_columns = p->n_columns};
    states now = {YOKE_ARENA_NEW(p->arena, state, 1), 1};
    now.state[0] = start;
    for (int i = 0; i < p->n; i++) {
        states next = {YOKE_ARENA_NEW(p->arena, state, now.n * YOKE_N_RECOMPUTES), 0};
        for (int64_t k = 0; k < now.n; k++) {
            for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
                next.n += extend(p, &now.state[k], i, level, &next.state[next.n]);
            }
        }
        prune(&next);
        *too_many = next.n > MOST_STATES;
        if (next.n == 0 || *too_many) {
            return NULL;
        }
        now = next;
    }
    return now.state;
}

static int64_t apply(const problem *p, const state *best, yoke_recompute *choice)
{
    int64_t most = 0;
    for (int64_t k = 0; best && k < best->n_columns; k++) {
        most = best->bytes[k] > most ? best->bytes[k] : most;
    }
    const state *s = best;
    for (int i = p->n - 1; i >= 0; i--) {
        choice[p->block[i]] = s ? s->level : YOKE_N_RECOMPUTES - 1;
        s = s ? s->before : NULL;
    }
    return best ? most : -1;
}

static int64_t choose(problem *p, int stage, yoke_recompute *choice)
{
    bool too_many = false;
    for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
        yoke_stash_read(p->sets[level], stage, p->arena, &p->stash[level]);
        YOKE_ASSERT(p->stash[level].n_moments == p->stash[0].n_moments);
    }
    find_blocks(p, stage);
    find_columns(p);
    fill_bytes(p);
    sum_rest(p);
    const state *best = solve(p, &too_many);
    if (too_many) {
        merge_columns(p);
        sum_rest(p);
        best = solve(p, &too_many);
    }
    return apply(p, best, choice);
}

yoke_status yoke_budget_choose(const yoke_budget_request *request, yoke_recompute *choice,
                               int64_t *bytes)
{
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    problem p = {.arena = arena, .sets = request->sets, .limit = request->limit};
    *bytes = choose(&p, request->stage, choice);
    yoke_arena_destroy(arena);
    return YOKE_OK;
}

yoke_status yoke_budget_refuse(const yoke_program_set *set, int stage, int64_t budget,
                               int64_t least)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    char given[16], needed[16];
    int unit = 0;
    int64_t amount = (least + 1023) / 1024;
    while (unit < 2 && amount >= 10000) {
        amount = (amount + 1023) / 1024;
        unit++;
    }
    const yoke_schedule *schedule = &set->schedule;
    int in_flight = yoke_schedule_in_flight(schedule, stage);
    bool has_loss = schedule->stage_of_chunk[schedule->n_chunks - 1] == stage;
    return YOKE_FAIL(
        YOKE_BAD_INPUT,
        "recompute: stage %d keeps %s of activations even if every block%s computes all of them "
        "again (up to %d forward passes wait for their backward pass), the budget is %s: use "
        "recompute=%lld%s or more, %smore microbatches, or a smaller batch_size or seq_len",
        stage, yoke_text_bytes((double)least, needed, sizeof needed),
        has_loss ? " but that of the loss, which keeps its own," : "", in_flight,
        yoke_text_bytes((double)budget, given, sizeof given), (long long)amount, units[unit],
        in_flight > schedule->n_stages - stage ? "schedule=1f1b, " : "");
}
