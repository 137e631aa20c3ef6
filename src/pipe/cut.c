/*
 * The cut, by dynamic programming over a chain: exact, n_stages * n_blocks^2 steps.
 *
 * Two passes. The first finds the least possible cost of the dearest stage, the second the most
 * even cut that stays within it. One pass over pairs (dearest, sum of squares) would not do: a part
 * that is best by the first of the two may be worse than another once a dearer stage comes after
 * it.
 */
#include "pipe/cut.h"

#include <math.h>
#include <stddef.h>

#include "base/memory.h"

/* Sums of doubles in another order differ by about this, relative; such costs count as equal. */
static const double SLACK = 1e-12;

/* Best value for the first `i` blocks on the first `s` stages, and where the last stage begins. */
typedef struct entry {
    double value;
    int begin;
} entry;

typedef struct tables {
    const double *cost;
    double *sum; /* [n_blocks + 1], of all blocks before */
    entry *best; /* [n_stages + 1][n_blocks + 1] */
    int n_blocks, n_stages;
} tables;

static entry *best_at(const tables *t, int s, int i)
{
    return &t->best[(size_t)s * (size_t)(t->n_blocks + 1) + (size_t)i];
}

static double stage_cost(const tables *t, int begin, int end)
{
    return t->sum[end] - t->sum[begin];
}

/* With `limit` infinite: value is the dearest stage. Else: sum of squares of stages within it. */
static double extend(const tables *t, int s, int begin, int end, double limit)
{
    double before = best_at(t, s - 1, begin)->value;
    double cost = stage_cost(t, begin, end);
    if (isinf(limit)) {
        return fmax(before, cost);
    }
    return cost > limit ? (double)INFINITY : before + cost * cost;
}

static void fill(const tables *t, double limit)
{
    for (int i = 0; i <= t->n_blocks; i++) {
        *best_at(t, 0, i) = (entry){.value = i ? (double)INFINITY : 0.0};
    }
    for (int s = 1; s <= t->n_stages; s++) {
        for (int i = 0; i <= t->n_blocks; i++) {
            entry best = {.value = (double)INFINITY, .begin = s - 1};
            /* From the left, taking only what is clearly better: the last stage stays longest. */
            for (int begin = s - 1; begin < i; begin++) {
                double value = extend(t, s, begin, i, limit);
                if (value < best.value * (1 - SLACK) || (isinf(best.value) && !isinf(value))) {
                    best = (entry){.value = value, .begin = begin};
                }
            }
            *best_at(t, s, i) = best;
        }
    }
}

static yoke_status fail_too_many(int n_blocks, int n_stages)
{
    int n_layers = n_blocks - 2;
    if (n_layers < 1) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "pp=%d stages over %d blocks: use pp <= %d", n_stages,
                         n_blocks, n_blocks);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "pp=%d stages over %d blocks (embedding, %d layer%s, head): use pp <= %d",
                     n_stages, n_blocks, n_layers, n_layers == 1 ? "" : "s", n_blocks);
}

static void sum_costs(const tables *t)
{
    t->sum[0] = 0;
    for (int i = 0; i < t->n_blocks; i++) {
        YOKE_ASSERT(t->cost[i] >= 0 && !isinf(t->cost[i]));
        t->sum[i + 1] = t->sum[i] + t->cost[i];
    }
}

yoke_status yoke_cut_balance(const double *block_cost, int n_blocks, int n_stages, int *first_block)
{
    YOKE_ASSERT(n_stages >= 1 && n_blocks >= 1);
    if (n_stages > n_blocks) {
        return fail_too_many(n_blocks, n_stages);
    }
    size_t n_entries = (size_t)(n_stages + 1) * (size_t)(n_blocks + 1);
    size_t bytes = n_entries * sizeof(entry) + (size_t)(n_blocks + 1) * sizeof(double);
    entry *block = yoke_block_alloc(bytes);
    if (!block) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "cut: %zu bytes for %d blocks over %d stages", bytes,
                         n_blocks, n_stages);
    }
    tables t = {.cost = block_cost,
                .best = block,
                .sum = (double *)(void *)(block + n_entries),
                .n_blocks = n_blocks,
                .n_stages = n_stages};
    sum_costs(&t);
    fill(&t, (double)INFINITY);
    fill(&t, best_at(&t, n_stages, n_blocks)->value * (1 + SLACK));
    first_block[n_stages] = n_blocks;
    for (int s = n_stages; s > 0; s--) {
        first_block[s - 1] = best_at(&t, s, first_block[s])->begin;
    }
    yoke_block_free(block);
    return YOKE_OK;
}
