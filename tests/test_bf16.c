/*
 * Conversions between f32 and bf16: every pattern, every middle between two neighbours, overflow, what is not a number;
 * and that the kernels of each set round and widen as the scalar functions do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"

enum { N_PATTERNS = 1 << 16, N_RANDOM = 300 * 1000 };

static uint32_t bits_of(float a)
{
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

static bool is_nan(uint16_t bits)
{
    return (bits & 0x7fff) > 0x7f80;
}

static void test_every_pattern_comes_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_PATTERNS; i++) {
        float wide = yoke_bf16_widen((yoke_bf16){(uint16_t)i});
        assert_int_equal(bits_of(wide), i << 16);
        uint16_t back = yoke_bf16_round(wide).bits;
        assert_int_equal(back, is_nan((uint16_t)i) ? i | 0x40 : i);
    }
}

/* Of all neighbours, the largest number and infinity among them. */
static void test_rounds_to_nearest_and_halves_to_even(void **state)
{
    (void)state;
    for (uint32_t sign = 0; sign < 2; sign++) {
        for (uint32_t i = 0; i < 0x7f80; i++) {
            uint32_t low = sign << 15 | i;
            uint32_t even = low + (low & 1);
            assert_int_equal(yoke_bf16_round(float_of(low << 16 | 0x7fff)).bits, low);
            assert_int_equal(yoke_bf16_round(float_of(low << 16 | 0x8000)).bits, even);
            assert_int_equal(yoke_bf16_round(float_of(low << 16 | 0x8001)).bits, low + 1);
            assert_int_equal(yoke_bf16_round(float_of(low << 16 | 0xffff)).bits, low + 1);
        }
    }
    assert_int_equal(yoke_bf16_round(3.4e38f).bits, 0x7f80);
    assert_int_equal(yoke_bf16_round(-3.4e38f).bits, 0xff80);
}

/* The payload in the lower half alone must not turn into infinity. */
static void test_no_number_stays_none(void **state)
{
    (void)state;
    for (uint32_t payload = 1; payload < 0x10000; payload++) {
        assert_true(is_nan(yoke_bf16_round(float_of(0x7f800000 | payload)).bits));
        assert_true(is_nan(yoke_bf16_round(float_of(0xff800000 | payload)).bits));
    }
    assert_true(is_nan(yoke_bf16_round(float_of(0x7fffffff)).bits));
    assert_true(is_nan(yoke_bf16_round(float_of(0xffffffff)).bits));
}

typedef void (*set_question)(const yoke_kernel_set *set);

static void each_set(set_question ask)
{
#define ASK(name)                                                                                  \
    if (!yoke_kernel_set_##name.supported || yoke_kernel_set_##name.supported()) {                 \
        ask(&yoke_kernel_set_##name);                                                              \
    }
    YOKE_KERNEL_SET_LIST(ASK)
#undef ASK
}

static yoke_tensor tensor_of(void *data, int64_t rows, int64_t columns, yoke_dtype dtype)
{
    return (yoke_tensor){
        .data = data, .shard = {.n_dims = 2, .extent = {rows, columns}}, .dtype = dtype};
}

/* Looks up the one row of a table of floats: y is the table, rounded. */
static void ask_rounding(const yoke_kernel_set *set)
{
    yoke_kernel kernel = set->run_narrow[YOKE_OP_EMBEDDING];
    if (!kernel) {
        return;
    }
    float *table = guarded_alloc(N_RANDOM * sizeof(float));
    yoke_bf16 *y = guarded_alloc(N_RANDOM * sizeof(yoke_bf16));
    int32_t id = 0;
    for (int64_t i = 0; i < N_RANDOM; i++) {
        uint32_t bits = mix(29, (uint64_t)i);
        /* A third are middles, and a third patterns around infinity. */
        bits = i % 3 == 0 ? (bits & 0xffff0000) | 0x8000 : bits;
        bits = i % 3 == 1 ? (bits & 0x8000ffff) | 0x7f7f0000 | (bits & 0x00ff0000) : bits;
        table[i] = float_of(bits);
    }
    yoke_tensor in[] = {tensor_of(table, 1, N_RANDOM, YOKE_F32), tensor_of(&id, 1, 1, YOKE_I32)};
    yoke_tensor out = tensor_of(y, 1, N_RANDOM, YOKE_BF16);
    kernel(&(yoke_kernel_call){.in = in, .out = &out, .n_in = 2, .n_out = 1});
    for (int64_t i = 0; i < N_RANDOM; i++) {
        uint16_t expected = yoke_bf16_round(table[i]).bits;
        if (y[i].bits != expected) {
            fail_msg("%s: %08x is rounded to %04x, expected %04x", set->name, bits_of(table[i]),
                     y[i].bits, expected);
        }
    }
    assert_true(guarded_check(y, N_RANDOM * sizeof(yoke_bf16)));
    guarded_free(table);
    guarded_free(y);
}

/* The sums over one row are the row itself. */
static void ask_widening(const yoke_kernel_set *set)
{
    yoke_kernel kernel = set->run_narrow[YOKE_OP_SUM_ROWS];
    if (!kernel) {
        return;
    }
    yoke_bf16 *row = guarded_alloc(N_PATTERNS * sizeof(yoke_bf16));
    float *sum = guarded_alloc(N_PATTERNS * sizeof(float));
    for (int64_t i = 0; i < N_PATTERNS; i++) {
        row[i].bits = (uint16_t)i;
    }
    yoke_tensor in = tensor_of(row, 1, N_PATTERNS, YOKE_BF16);
    yoke_tensor out = tensor_of(sum, 1, N_PATTERNS, YOKE_F32);
    kernel(&(yoke_kernel_call){.in = &in, .out = &out, .n_in = 1, .n_out = 1});
    for (int64_t i = 0; i < N_PATTERNS; i++) {
        float expected = yoke_bf16_widen(row[i]);
        if (!(sum[i] == expected || (isnan(sum[i]) && isnan(expected)))) {
            fail_msg("%s: %04x is widened to %g", set->name, row[i].bits, (double)sum[i]);
        }
    }
    guarded_free(row);
    guarded_free(sum);
}

static void test_sets_convert_as_scalars_do(void **state)
{
    (void)state;
    each_set(ask_rounding);
    each_set(ask_widening);
}

/* An element that is not a number is none in the result, infinity is infinity, and their neighbours are finite. */
static void ask_not_finite(const yoke_kernel_set *set)
{
    static const yoke_op ops[] = {YOKE_OP_ADD, YOKE_OP_ADD_BIAS, YOKE_OP_GELU, YOKE_OP_GELU_ERF,
                                  YOKE_OP_SWIGLU};
    enum { N = 37 };
    yoke_bf16 a[N];
    yoke_bf16 y[N];
    yoke_bf16 other[N];
    float bias[N];
    for (int i = 0; i < N; i++) {
        a[i] = yoke_bf16_round(i % 5 == 1 ? NAN : i % 5 == 3 ? INFINITY : 0.25f * (float)i);
        other[i] = yoke_bf16_round(1.0f);
        bias[i] = 1.0f;
    }
    for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
        /* The second operand of these is a bias. */
        bool is_bias = ops[k] != YOKE_OP_ADD && ops[k] != YOKE_OP_SWIGLU;
        yoke_tensor in[] = {tensor_of(a, 1, N, YOKE_BF16), is_bias
                                                               ? tensor_of(bias, 1, N, YOKE_F32)
                                                               : tensor_of(other, 1, N, YOKE_BF16)};
        yoke_tensor out = tensor_of(y, 1, N, YOKE_BF16);
        yoke_kernel kernel = set->run_narrow[ops[k]];
        if (!kernel) {
            continue;
        }
        kernel(&(yoke_kernel_call){.in = in, .out = &out, .n_in = 2, .n_out = 1});
        for (int i = 0; i < N; i++) {
            float result = yoke_bf16_widen(y[i]);
            if (!!isnan(result) != (i % 5 == 1) || !!isinf(result) != (i % 5 == 3)) {
                fail_msg("%s, operator %d: element %d is %g", set->name, (int)ops[k], i,
                         (double)result);
            }
        }
    }
}

static void test_what_is_not_finite_passes(void **state)
{
    (void)state;
    each_set(ask_not_finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_comes_back),
        cmocka_unit_test(test_rounds_to_nearest_and_halves_to_even),
        cmocka_unit_test(test_no_number_stays_none),
        cmocka_unit_test(test_sets_convert_as_scalars_do),
        cmocka_unit_test(test_what_is_not_finite_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
