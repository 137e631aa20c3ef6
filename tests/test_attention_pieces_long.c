/* labels: slow */
/*
 * Attention cut into pieces, by every set, against the whole by the book: attention_pieces.h. Across blocks of 48 queries,
 * chunks longer than a block, and dropout in several sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attention_pieces.h"

static const problem problems[] = {
    {2, 32, 4, 2, 16, true, 0.1f, 0},  {1, 131, 3, 3, 24, true, 0.0f, 0},
    {2, 97, 4, 1, 17, true, 0.25f, 0}, {1, 97, 3, 1, 17, false, 0.25f, 0},
    {1, 48, 4, 2, 5, true, 0.25f, 6},  {1, 130, 3, 1, 17, true, 0.25f, 10},
    {1, 104, 2, 2, 8, true, 0.0f, 2},
};

static void test_pieces_by_the_book(void **state)
{
    (void)state;
    problems_ask(problems, sizeof problems / sizeof problems[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_by_the_book),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
