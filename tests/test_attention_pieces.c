/*
 * Attention cut into pieces, by every set, against the whole by the book: attention_pieces.h. Few tokens here, and what is
 * special about pieces; test_attention_pieces_long.c goes across blocks of queries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attention_pieces.h"

/* Fault A9 is told of width 64 in 4 heads over 2, 32 tokens. The others: odd, one head, chunks of few tokens. */
static const problem problems[] = {
    {1, 32, 4, 2, 16, true, 0.0f, 0},  {1, 32, 4, 2, 16, false, 0.0f, 0},
    {3, 11, 6, 3, 5, true, 0.4f, 0},   {2, 11, 6, 2, 5, false, 0.4f, 0},
    {1, 1, 1, 1, 2, true, 0.0f, 0},    {2, 12, 2, 1, 9, true, 0.4f, 12},
    {1, 40, 4, 2, 8, false, 0.25f, 8},
};

static void test_pieces_by_the_book(void **state)
{
    (void)state;
    problems_ask(problems, sizeof problems / sizeof problems[0]);
}

/* A piece without queries adds nothing to the gradients of keys and values, and says so. */
static void test_no_queries_give_zeros(void **state)
{
    (void)state;
    const problem p = {2, 7, 4, 2, 9, true, 0.0f, 0};
    for (int i = 0; i < (int)N_SETS; i++) {
        if (!has_attention(sets[i])) {
            continue;
        }
        kernel_case *c =
            problem_case(&gradient_row, &p, (letter_size){'t', 0, 3}, (letter_size){'s', p.T, 0});
        case_run(sets[i], YOKE_OP_ATTENTION_GRAD, c);
        for (int j = 1; j < 3; j++) {
            for (int64_t e = 0; e < yoke_piece_elements(&c->out[j]); e++) {
                assert_true(((const float *)c->out[j].data)[e] == 0.0f);
            }
        }
        case_destroy(c);
    }
}

/* What a query does not see leaves the rest as it is, bit by bit; two such are one; and what is not a number stays so. */
static void test_combine_with_nothing(void **state)
{
    (void)state;
    static const op_case row = {
        YOKE_OP_ATTENTION_COMBINE, {"bthx", "bth", "bthx", "bth"}, {"bthx", "bth"}, .fill = "nnnn"};
    const problem p = {2, 3, 5, 5, 19, true, 0.0f, 0};
    for (int i = 0; i < (int)N_SETS * 2; i++) {
        int seen = i % 2; /* which of the two pieces */
        if (!has_attention(sets[i / 2])) {
            continue;
        }
        kernel_case *c =
            problem_case(&row, &p, (letter_size){'t', p.T, 0}, (letter_size){'s', p.T, 0});
        int64_t n_rows = yoke_piece_elements(&c->in[1]);
        float *unseen_lse = c->in[3 - 2 * seen].data;
        memset(c->in[2 - 2 * seen].data, 0, piece_bytes(&c->in[0]));
        for (int64_t j = 0; j < n_rows; j++) {
            unseen_lse[j] = -INFINITY;
        }
        float *lse = c->in[1 + 2 * seen].data;
        float *y = c->in[2 * seen].data;
        lse[0] = -INFINITY;
        memset(y, 0, (size_t)p.X * sizeof(*y));
        lse[1] = NAN;
        case_run(sets[i / 2], YOKE_OP_ATTENTION_COMBINE, c);
        const float *y_out = c->out[0].data;
        const float *lse_out = c->out[1].data;
        assert_true(lse_out[0] == -INFINITY && isnan(lse_out[1]) && isnan(y_out[p.X]));
        assert_memory_equal(lse_out + 2, lse + 2, (size_t)(n_rows - 2) * sizeof(*lse));
        assert_memory_equal(y_out, y, (size_t)p.X * sizeof(*y));
        assert_memory_equal(y_out + 2 * p.X, y + 2 * p.X,
                            (size_t)((n_rows - 2) * p.X) * sizeof(*y));
        case_destroy(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_by_the_book),
        cmocka_unit_test(test_no_queries_give_zeros),
        cmocka_unit_test(test_combine_with_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
