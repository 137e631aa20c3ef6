/*
 * Matrix products of every mix of f32 and bf16 operands: matmul_types.h. Small ones here; test_matmul_types_large.c has those
 * of several tiles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dnnl.h>
#include "matmul_types.h"

static void test_small_and_odd(void **state)
{
    (void)state;
    static const sizes all[] = {{1, 1, 1, 1}, {3, 5, 7, 9}, {1, 17, 3, 65}, {5, 33, 40, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run_mixes(all[i]);
    }
}

/* Without a k the product is zero, and adds nothing; without rows or columns nothing is read. */
static void test_empty(void **state)
{
    (void)state;
    run_mixes((sizes){1, 4, 5, 0});
    run_mixes((sizes){1, 0, 5, 3});
    run_mixes((sizes){2, 4, 0, 3});
    run_mixes((sizes){0, 4, 5, 3});
    matmul_case c;
    case_init(&c, (sizes){1, 4, 5, 0}, 7, false, false);
    guarded_free(c.in[0].data);
    guarded_free(c.in[1].data);
    c.in[0].data = c.in[1].data = NULL;
    yoke_kernel_set_find("ref")->run[YOKE_OP_MATMUL](&c.call);
    assert_true(number(&c.out, 19) == 0.0);
    case_reset(&c);
    yoke_product_run(&c.call, multiplier_bf16());
    assert_true(number(&c.out, 19) == 0.0);
    case_fini(&c);
}

static void run_threads(matmul_case *c, int n_threads, bool in_bf16)
{
    case_reset(c);
    yoke_kernel_threads_set(n_threads);
    if (in_bf16) {
        yoke_product_run(&c->call, multiplier_bf16());
    } else {
        yoke_kernel_set_find("onednn")->run_narrow[YOKE_OP_MATMUL](&c->call);
    }
}

static void test_threads_give_equal_bits(void **state)
{
    (void)state;
    for (unsigned i = 1; i < N_MIXES * 2; i++) {
        matmul_case c;
        bool in_bf16 = i / N_MIXES;
        case_init(&c, (sizes){3, 140, 150, 395}, i % N_MIXES, i & 1, i & 2);
        if (!yoke_product_is_narrow(&c.call)) {
            case_fini(&c);
            continue;
        }
        run_threads(&c, 1, in_bf16);
        void *alone = malloc(bytes_of(&c.out));
        memcpy(alone, c.out.data, bytes_of(&c.out));
        for (int n_threads = 2; n_threads <= MAX_THREADS; n_threads++) {
            run_threads(&c, n_threads, in_bf16);
            assert_memory_equal(alone, c.out.data, bytes_of(&c.out));
        }
        assert_true(guarded_check(c.call.scratch, c.scratch_bytes));
        free(alone);
        case_fini(&c);
    }
    yoke_kernel_threads_set(1);
}

/* Operands of f32 alone: each tile of the output has the bits of oneDNN's own product of it, in whichever mode. */
static void test_f32_keeps_its_bits(void **state)
{
    (void)state;
    matmul_case c;
    case_init(&c, (sizes){1, 100, 120, 300}, 0, false, true);
    assert_int_equal(c.scratch_bytes, 0);
    float *alone = malloc(bytes_of(&c.out));
    yoke_kernel_threads_set(1);
    dnnl_status_t status = dnnl_sgemm('N', 'T', 100, 120, 300, 1.0f, c.in[0].data, 300,
                                      c.in[1].data, 300, 0.0f, alone, 120);
    assert_int_equal(status, dnnl_success);
    yoke_kernel kernels[] = {yoke_kernel_set_find("onednn")->run[YOKE_OP_MATMUL],
                             yoke_product_in_bf16};
    for (int i = 0; i < 2; i++) {
        case_reset(&c);
        kernels[i](&c.call);
        assert_memory_equal(alone, c.out.data, bytes_of(&c.out));
    }
    free(alone);
    case_fini(&c);
}

/* A double that rounds to f32 lies on the middle between two bf16; rounded once it is above. */
static void test_ref_rounds_once(void **state)
{
    (void)state;
    matmul_case c;
    case_init(&c, (sizes){1, 1, 1, 3}, 4, false, false);
    const float a[] = {1.0f, 0x1p-8f, 0x1p-30f}, b[] = {1.0f, 1.0f, 1.0f};
    memcpy(c.in[0].data, a, sizeof a);
    memcpy(c.in[1].data, b, sizeof b);
    yoke_kernel ref = yoke_kernel_set_find("ref")->run[YOKE_OP_MATMUL];
    ref(&c.call);
    assert_true(number(&c.out, 0) == 1.0 + 0x1p-7);
    ((float *)c.in[0].data)[2] = -0x1p-30f;
    ref(&c.call);
    assert_true(number(&c.out, 0) == 1.0);
    ((float *)c.in[0].data)[2] = NAN;
    ref(&c.call);
    assert_true(isnan(number(&c.out, 0)));
    case_fini(&c);
}

/* Rows as they are converted, against one number at a time; widths that no register divides. */
static void test_rows(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    yoke_bf16 *all = malloc(N * sizeof *all), *back = malloc(N * sizeof *back);
    float *wide = malloc(N * sizeof *wide);
    for (int i = 0; i < N; i++) {
        all[i].bits = (uint16_t)i;
    }
    for (int n = N; n > 0; n = n > 40 ? 40 : n - 1) {
        yoke_product_widen(all + N - n, wide, n);
        yoke_product_round(wide, back, n);
        for (int i = 0; i < n; i++) {
            uint16_t bits = (uint16_t)(N - n + i);
            bool nan = (bits & 0x7fff) > 0x7f80;
            assert_int_equal(back[i].bits, nan ? bits | 0x40 : bits);
        }
    }
    for (int i = 0; i < N; i++) {
        uint32_t bits = mix(9, (uint64_t)i);
        memcpy(&wide[i], &bits, sizeof bits);
    }
    yoke_product_round(wide, back, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(back[i].bits, yoke_bf16_round(wide[i]).bits);
    }
    free(all);
    free(back);
    free(wide);
}

/* Scratch is a few blocks for each thread, however large the operands are. */
static void test_scratch_is_bounded(void **state)
{
    (void)state;
    yoke_attributes attributes = {.contraction = {.a_split = 1, .b_split = 1}};
    yoke_tensor in[2] = {{.shard = {.n_dims = 2, .extent = {1 << 20, 1 << 16}}, .dtype = YOKE_BF16},
                         {.shard = {.n_dims = 2, .extent = {1 << 16, 1 << 18}}}};
    yoke_tensor out = {.shard = {.n_dims = 2, .extent = {1 << 20, 1 << 18}}};
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .attributes = &attributes};
    size_t one = yoke_kernel_scratch_bytes(YOKE_OP_MATMUL, &call, 1);
    assert_true(one > 0 && one < 5 << 20);
    assert_int_equal(yoke_kernel_scratch_bytes(YOKE_OP_MATMUL, &call, 5), 5 * one);
    in[0].dtype = YOKE_F32;
    assert_int_equal(yoke_kernel_scratch_bytes(YOKE_OP_MATMUL, &call, 5), 0);
}

static void test_sample_takes_time(void **state)
{
    (void)state;
    yoke_product_sample sample = {.m = 64, .n = 80, .k = 96, .a = YOKE_BF16, .y = YOKE_BF16};
    yoke_kernel kernel = yoke_kernel_set_find("onednn")->run_narrow[YOKE_OP_MATMUL];
    double seconds = yoke_product_sample_s(&sample, kernel, 0.001);
    assert_true(seconds > 0.0 && seconds < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_and_odd),           cmocka_unit_test(test_empty),
        cmocka_unit_test(test_threads_give_equal_bits), cmocka_unit_test(test_f32_keeps_its_bits),
        cmocka_unit_test(test_ref_rounds_once),         cmocka_unit_test(test_rows),
        cmocka_unit_test(test_scratch_is_bounded),      cmocka_unit_test(test_sample_takes_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
