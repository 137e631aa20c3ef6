/* labels: slow */
/*
 * Matrix products of every mix of f32 and bf16 operands, of several tiles and with strides that caches dislike:
 * matmul_types.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "matmul_types.h"

/* More than one tile each way and more than one block along k, the last of each not full. */
static void test_many_tiles(void **state)
{
    (void)state;
    run_mixes((sizes){1, 397, 403, 35});
    run_mixes((sizes){1, 5, 131, 801});
    run_mixes((sizes){1, 777, 19, 20});
    run_mixes((sizes){1, 7, 790, 20});
    run_mixes((sizes){2, 130, 67, 390});
}

/* Rows of 2 KiB and 4 KiB, of which blocks are copied even where the type is right. */
static void test_bad_strides(void **state)
{
    (void)state;
    run_mixes((sizes){1, 32, 1024, 20});
    run_mixes((sizes){1, 1024, 24, 20});
    run_mixes((sizes){1, 20, 24, 1024});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_tiles),
        cmocka_unit_test(test_bad_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
