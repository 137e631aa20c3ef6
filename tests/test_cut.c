/*
 * The cut: against trying every cut, and by its message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "pipe/cut.h"

enum { MOST_BLOCKS = 200, MOST_TRIED = 9 };

static uint32_t random_state;

static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

/* Dearest stage and sum of squares of a cut. */
typedef struct merit {
    double dearest, squares;
} merit;

static merit judge(const double *cost, int n_stages, const int *first_block)
{
    merit m = {0, 0};
    for (int s = 0; s < n_stages; s++) {
        double sum = 0;
        for (int i = first_block[s]; i < first_block[s + 1]; i++) {
            sum += cost[i];
        }
        m.dearest = fmax(m.dearest, sum);
        m.squares += sum * sum;
    }
    return m;
}

static void check_form(const int *first_block, int n_blocks, int n_stages)
{
    assert_int_equal(first_block[0], 0);
    assert_int_equal(first_block[n_stages], n_blocks);
    for (int s = 0; s < n_stages; s++) {
        assert_true(first_block[s] < first_block[s + 1]);
    }
}

/* A bit of `mask` says that a stage begins after the block of that number. */
static int cut_of_mask(unsigned mask, int n_blocks, int *first_block)
{
    int n_stages = 1;
    first_block[0] = 0;
    for (int i = 1; i < n_blocks; i++) {
        if (mask & 1u << (i - 1)) {
            first_block[n_stages++] = i;
        }
    }
    first_block[n_stages] = n_blocks;
    return n_stages;
}

/* Of two cuts equally good, the one whose stages begin earlier has more blocks in later stages. */
static bool begins_earlier(const int *a, const int *b, int n_stages)
{
    for (int s = n_stages - 1; s >= 0; s--) {
        if (a[s] != b[s]) {
            return a[s] < b[s];
        }
    }
    return false;
}

static void try_all(const double *cost, int n_blocks, int n_stages, int *best)
{
    merit found = {(double)INFINITY, (double)INFINITY};
    for (unsigned mask = 0; mask < 1u << (n_blocks - 1); mask++) {
        int tried[MOST_TRIED + 1];
        if (cut_of_mask(mask, n_blocks, tried) != n_stages) {
            continue;
        }
        merit m = judge(cost, n_stages, tried);
        bool is_equal = m.dearest == found.dearest && m.squares == found.squares;
        bool is_better =
            m.dearest < found.dearest || (m.dearest == found.dearest && m.squares < found.squares);
        if (is_better || (is_equal && begins_earlier(tried, best, n_stages))) {
            found = m;
            memcpy(best, tried, sizeof tried);
        }
    }
}

static void check_against_all(const double *cost, int n_blocks, int n_stages)
{
    int found[MOST_TRIED + 1];
    int wanted[MOST_TRIED + 1];
    yoke_status status = yoke_cut_balance(cost, n_blocks, n_stages, found);
    assert_null(status);
    check_form(found, n_blocks, n_stages);
    try_all(cost, n_blocks, n_stages, wanted);
    for (int s = 0; s <= n_stages; s++) {
        if (found[s] != wanted[s]) {
            merit a = judge(cost, n_stages, found);
            merit b = judge(cost, n_stages, wanted);
            fail_msg("%d blocks, %d stages: stage %d begins at %d, not %d; dearest %g, not %g; "
                     "squares %g, not %g",
                     n_blocks, n_stages, s, found[s], wanted[s], a.dearest, b.dearest, a.squares,
                     b.squares);
        }
    }
}

/* Whole numbers, so that equal costs are equal: many ties, zeros among them. */
static void test_small_chains_against_every_cut(void **state)
{
    (void)state;
    random_state = 7041776;
    print_message("seed %u\n", random_state);
    for (int n_blocks = 1; n_blocks <= MOST_TRIED; n_blocks++) {
        for (int n_stages = 1; n_stages <= n_blocks; n_stages++) {
            for (int i = 0; i < 60; i++) {
                double cost[MOST_TRIED];
                int range = 1 + random_below(i % 2 ? 4 : 100);
                for (int b = 0; b < n_blocks; b++) {
                    cost[b] = random_below(range + 1);
                }
                check_against_all(cost, n_blocks, n_stages);
            }
        }
    }
}

/* Fewest stages that a limit allows, filling each as far as it goes: right for a chain. */
static int stages_within(const double *cost, int n_blocks, double limit)
{
    int n_stages = 1;
    double sum = 0;
    for (int i = 0; i < n_blocks; i++) {
        if (sum + cost[i] > limit) {
            n_stages++;
            sum = 0;
        }
        sum += cost[i];
    }
    return n_stages;
}

/* No cut of a long chain is better: a limit a little below what was found needs more stages. */
static void test_long_chains_cannot_be_cut_better(void **state)
{
    (void)state;
    static double cost[MOST_BLOCKS];
    static int first_block[MOST_BLOCKS + 1];
    random_state = 19970703;
    print_message("seed %u\n", random_state);
    for (int i = 0; i < 60; i++) {
        int n_blocks = 10 + random_below(MOST_BLOCKS - 10);
        int n_stages = 1 + random_below(i % 3 ? 16 : n_blocks);
        n_stages = n_stages < n_blocks ? n_stages : n_blocks;
        double most = 0;
        for (int b = 0; b < n_blocks; b++) {
            cost[b] = 0.1 + 1e-3 * random_below(5000);
            most = fmax(most, cost[b]);
        }
        yoke_status status = yoke_cut_balance(cost, n_blocks, n_stages, first_block);
        assert_null(status);
        check_form(first_block, n_blocks, n_stages);
        double limit = judge(cost, n_stages, first_block).dearest * (1 - 1e-9);
        assert_true(most > limit || stages_within(cost, n_blocks, limit) > n_stages);
    }
}

static void assert_cut(const double *cost, int n_blocks, int n_stages, const int *wanted)
{
    int found[MOST_TRIED * 2];
    yoke_status status = yoke_cut_balance(cost, n_blocks, n_stages, found);
    assert_null(status);
    for (int s = 0; s <= n_stages; s++) {
        assert_int_equal(found[s], wanted[s]);
    }
}

static void test_known_cuts(void **state)
{
    (void)state;
    /* 30 layers over 4 stages: all are there. A costly head takes layers off its stage. */
    static const double five[] = {0, 1, 1, 1, 1, 1, 0};
    assert_cut(five, 7, 3, (const int[]){0, 2, 4, 7});
    static const double head[] = {0, 1, 1, 1, 1, 1, 1, 2};
    assert_cut(head, 8, 2, (const int[]){0, 5, 8});
    /* Equal in the dearest: 3 + 3 + 0 would do, 2 + 2 + 2 is more even. */
    static const double spare[] = {1, 1, 4, 1, 1};
    assert_cut(spare, 5, 3, (const int[]){0, 2, 3, 5});
    /* Tenths have no exact sums; equal costs must still count as equal. */
    static const double tenths[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
    assert_cut(tenths, 7, 2, (const int[]){0, 3, 7});
    assert_cut(tenths, 7, 3, (const int[]){0, 2, 4, 7});
    static const double nothing[] = {0, 0, 0};
    assert_cut(nothing, 3, 2, (const int[]){0, 1, 3});
}

static void test_more_stages_than_blocks(void **state)
{
    (void)state;
    static const double cost[] = {1, 1, 1, 1};
    static const struct {
        int n_blocks, n_stages;
        const char *says;
    } cases[] = {
        {3, 4, "pp=4 stages over 3 blocks (embedding, 1 layer, head): use pp <= 3"},
        {4, 7, "pp=7 stages over 4 blocks (embedding, 2 layers, head): use pp <= 4"},
        {2, 3, "pp=3 stages over 2 blocks: use pp <= 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int first_block[8] = {9, 9, 9, 9, 9, 9, 9, 9};
        yoke_status status =
            yoke_cut_balance(cost, cases[i].n_blocks, cases[i].n_stages, first_block);
        assert_non_null(status);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        assert_string_equal(yoke_status_message(status), cases[i].says);
        assert_int_equal(first_block[0], 9);
        yoke_status_free(status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_chains_against_every_cut),
        cmocka_unit_test(test_long_chains_cannot_be_cut_better),
        cmocka_unit_test(test_known_cuts),
        cmocka_unit_test(test_more_stages_than_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
