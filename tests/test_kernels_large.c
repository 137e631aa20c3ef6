/* labels: slow */
/*
 * Every kernel of every set against its twin in ref, on sizes of several blocks, and where strides are powers of two:
 * kernel_rows.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_rows.h"

static const case_sizes large_sizes[] = {
    {"large",
     {{'b', 2, 0},
      {'t', 131, 0},
      {'s', 131, 0},
      {'d', 297, 0},
      {'f', 520, 0},
      {'h', 3, 0},
      {'k', 3, 0},
      {'x', 64, 0},
      {'v', 1111, 0},
      {'c', 8, 0}},
     3,
     3},
    {"powers of two",
     {{'b', 2, 0},
      {'t', 128, 0},
      {'s', 128, 0},
      {'d', 256, 0},
      {'f', 512, 0},
      {'h', 4, 0},
      {'k', 1, 0},
      {'x', 32, 0},
      {'v', 1024, 0},
      {'c', 8, 0}},
     4,
     1},
};
enum { N_LARGE_SIZES = sizeof large_sizes / sizeof large_sizes[0] };

static void test_sets_against_ref(void **state)
{
    (void)state;
    sets_ask(STORED_WIDE, large_sizes, N_LARGE_SIZES);
}

static void test_narrow_sets_against_ref(void **state)
{
    (void)state;
    sets_ask(STORED_NARROW, large_sizes, N_LARGE_SIZES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_against_ref),
        cmocka_unit_test(test_narrow_sets_against_ref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
