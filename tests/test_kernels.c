/*
 * Every kernel of every set against its twin in ref, on small and odd sizes: kernel_rows.h. test_kernels_large.c goes on
 * with sizes of several blocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_rows.h"

static void test_sets_against_ref(void **state)
{
    (void)state;
    sets_ask(STORED_WIDE, small_sizes, N_SMALL_SIZES);
}

static void test_narrow_sets_against_ref(void **state)
{
    (void)state;
    sets_ask(STORED_NARROW, small_sizes, N_SMALL_SIZES);
}

static void test_every_op_has_a_row_and_a_kernel(void **state)
{
    (void)state;
    yoke_kernel automatic[YOKE_N_OPS];
    yoke_kernel ref[YOKE_N_OPS];
    assert_null(yoke_kernel_choose(NULL, automatic));
    assert_null(yoke_kernel_choose("ref", ref));
    for (int op = 0; op < (int)YOKE_N_OPS; op++) {
        int n = 0;
        for (int r = 0; r < (int)N_ROWS; r++) {
            n += (int)rows[r].op == op;
        }
        assert_true(n > 0);
        assert_non_null(automatic[op]);
        assert_true(ref[op] == yoke_kernel_set_find("ref")->run[op]);
    }
    assert_true(automatic[YOKE_OP_MATMUL] == yoke_kernel_set_find("onednn")->run[YOKE_OP_MATMUL]);
    yoke_status status = yoke_kernel_choose("fast", ref);
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_non_null(strstr(yoke_status_message(status), "\"fast\""));
    assert_non_null(strstr(yoke_status_message(status), "auto or ref"));
    yoke_status_free(status);
    assert_null(yoke_kernel_set_find("fast"));
}

/* What may be bf16 has a kernel for it, and nothing else has. */
static void test_every_narrow_op_has_a_kernel(void **state)
{
    (void)state;
    yoke_kernel automatic[YOKE_N_OPS];
    yoke_kernel ref[YOKE_N_OPS];
    assert_null(yoke_kernel_choose_narrow(NULL, automatic));
    assert_null(yoke_kernel_choose_narrow("ref", ref));
    for (int op = 0; op < (int)YOKE_N_OPS; op++) {
        const yoke_op_def *def = yoke_op_get((yoke_op)op);
        bool narrow = def->narrow_in || def->narrow_out;
        if (narrow != (ref[op] && automatic[op])) {
            fail_msg("%s: %s kernel for bf16", op_names[op], narrow ? "no" : "a needless");
        }
        assert_true(ref[op] == yoke_kernel_set_find("ref")->run_narrow[op]);
    }
}

static void test_threads_and_rate(void **state)
{
    (void)state;
    enum { N = 32 };
    yoke_kernel_threads_set(1);
    assert_int_equal(yoke_kernel_threads_get(), 1);
    assert_true(yoke_kernel_matmul_rate(N, 0.01) > 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_row_and_a_kernel),
        cmocka_unit_test(test_every_narrow_op_has_a_kernel),
        cmocka_unit_test(test_sets_against_ref),
        cmocka_unit_test(test_narrow_sets_against_ref),
        cmocka_unit_test(test_threads_and_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
