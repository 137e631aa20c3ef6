/*
 * Matrix products of every mix of f32 and bf16 operands, by every set that has them and with a multiplier of bf16, against
 * sums in double: transposed, in batches, accumulated, empty, between guard bytes, and with any number of threads.
 *
 * oneDNN's own multiplier of bf16 runs where the processor has its instructions; elsewhere a plain one stands in, so that
 * the blocks which are rounded on their way to it are tested everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dnnl.h>
#include "base/bf16.h"
#include "kernel/product.h"
#include "kernel_case.h"

enum { MAX_THREADS = 4, N_MIXES = 8 };

typedef struct sizes {
    int64_t n_batch, m, n, k;
} sizes;

/* A product and its operands: bits 0, 1 and 2 of `mix` say whether a, b and y are bf16. */
typedef struct matmul_case {
    sizes size;
    yoke_attributes attributes;
    yoke_tensor in[2], out;
    yoke_kernel_call call;
    float *before; /* what y held */
    size_t scratch_bytes;
} matmul_case;

static size_t bytes_of(const yoke_tensor *tensor)
{
    return (size_t)yoke_piece_elements(tensor) * (tensor->dtype == YOKE_BF16 ? 2 : 4);
}

static double number(const yoke_tensor *tensor, int64_t i)
{
    return tensor->dtype == YOKE_BF16
               ? (double)yoke_bf16_widen(((const yoke_bf16 *)tensor->data)[i])
               : (double)((const float *)tensor->data)[i];
}

static yoke_tensor matrix_create(int64_t n_batch, int64_t rows, int64_t columns, bool narrow,
                                 uint64_t seed)
{
    yoke_tensor matrix = {.shard = {.n_dims = 3, .extent = {n_batch, rows, columns}},
                          .dtype = narrow ? YOKE_BF16 : YOKE_F32};
    matrix.data = guarded_alloc(bytes_of(&matrix));
    for (int64_t i = 0; i < yoke_piece_elements(&matrix); i++) {
        float value = (float)(mix(seed, (uint64_t)i) >> 8) * 0x1p-23f - 1.0f;
        if (narrow) {
            ((yoke_bf16 *)matrix.data)[i] = yoke_bf16_round(value);
        } else {
            ((float *)matrix.data)[i] = value;
        }
    }
    return matrix;
}

static void case_init(matmul_case *c, sizes size, unsigned mix, bool a_turned, bool b_turned)
{
    *c = (matmul_case){.size = size,
                       .attributes = {.contraction = {.a_split = 1,
                                                      .b_split = 1,
                                                      .a_transposed = a_turned,
                                                      .b_transposed = b_turned,
                                                      .n_batch = 1}}};
    c->in[0] = matrix_create(size.n_batch, a_turned ? size.k : size.m, a_turned ? size.m : size.k,
                             mix & 1, 1);
    c->in[1] = matrix_create(size.n_batch, b_turned ? size.n : size.k, b_turned ? size.k : size.n,
                             mix & 2, 2);
    c->out = matrix_create(size.n_batch, size.m, size.n, mix & 4, 3);
    c->before = malloc(bytes_of(&c->out) + 1);
    memcpy(c->before, c->out.data, bytes_of(&c->out));
    c->call = (yoke_kernel_call){
        .in = c->in, .out = &c->out, .n_in = 2, .n_out = 1, .attributes = &c->attributes};
    c->scratch_bytes = yoke_kernel_scratch_bytes(YOKE_OP_MATMUL, &c->call, MAX_THREADS);
    c->call.scratch = guarded_alloc(c->scratch_bytes);
}

static void case_fini(matmul_case *c)
{
    guarded_free(c->in[0].data);
    guarded_free(c->in[1].data);
    guarded_free(c->out.data);
    guarded_free(c->call.scratch);
    free(c->before);
}

/* The sum in double of element [i, m, n] and of its magnitudes; operands are rounded to bf16 first if `narrow`. */
static double sum_of(const matmul_case *c, int64_t at, bool narrow, double *magnitude)
{
    const sizes *s = &c->size;
    int64_t batch = at / (s->m * s->n), m = at / s->n % s->m, n = at % s->n;
    double sum = 0.0;
    *magnitude = 0.0;
    for (int64_t k = 0; k < s->k; k++) {
        int64_t a = c->attributes.contraction.a_transposed ? k * s->m + m : m * s->k + k;
        int64_t b = c->attributes.contraction.b_transposed ? n * s->k + k : k * s->n + n;
        double left = number(&c->in[0], batch * s->m * s->k + a);
        double right = number(&c->in[1], batch * s->k * s->n + b);
        if (narrow) {
            left = (double)yoke_bf16_widen(yoke_bf16_round((float)left));
            right = (double)yoke_bf16_widen(yoke_bf16_round((float)right));
        }
        sum += left * right;
        *magnitude += fabs(left * right);
    }
    return sum;
}

/* Every seventh element, which meets all rows and columns of odd matrices, within rounding of f32 sums and of y. */
static void assert_product(const matmul_case *c, bool narrow, const char *what)
{
    yoke_tensor before = c->out;
    before.data = c->before;
    int64_t n = yoke_piece_elements(&c->out);
    for (int64_t i = 0; i < n; i += n < 4096 ? 1 : 7) {
        double magnitude;
        double wanted = sum_of(c, i, narrow, &magnitude);
        if (c->call.accumulate) {
            wanted += number(&before, i);
            magnitude += fabs(number(&before, i));
        }
        double got = number(&c->out, i);
        double allowed = 3e-7 * magnitude * (1.0 + sqrt((double)c->size.k) / 8.0) +
                         (c->out.dtype == YOKE_BF16 ? fabs(wanted) * 0x1p-8 : 0.0);
        if (!(fabs(got - wanted) <= allowed)) {
            fail_msg("%s: element %lld is %.9g, wanted %.9g, off by %.3g (allowed %.3g)", what,
                     (long long)i, got, wanted, fabs(got - wanted), allowed);
        }
    }
    assert_true(guarded_check(c->in[0].data, bytes_of(&c->in[0])));
    assert_true(guarded_check(c->in[1].data, bytes_of(&c->in[1])));
    assert_true(guarded_check(c->out.data, bytes_of(&c->out)));
    assert_true(guarded_check(c->call.scratch, c->scratch_bytes));
}

/* y and scratch as before a run. */
static void case_reset(matmul_case *c)
{
    memcpy(c->out.data, c->before, bytes_of(&c->out));
    memset(c->call.scratch, 0xFF, c->scratch_bytes);
}

/* Of a[m, k] or b[k, n] as stored: rows along the side unless k runs down them. */
static int64_t index_of(int64_t side, int64_t k, bool k_is_row, int64_t stride)
{
    return k_is_row ? k * stride + side : side * stride + k;
}

/* What oneDNN does with bf16, a row at a time. */
static void multiply_plainly(const yoke_tile *t)
{
    const yoke_bf16 *a = t->a, *b = t->b;
    for (int64_t m = 0; m < t->m; m++) {
        for (int64_t n = 0; n < t->n; n++) {
            double sum = 0.0;
            for (int64_t k = 0; k < t->k; k++) {
                sum += (double)yoke_bf16_widen(a[index_of(m, k, t->a_transposed, t->a_stride)]) *
                       (double)yoke_bf16_widen(b[index_of(n, k, !t->b_transposed, t->b_stride)]);
            }
            float *y = &t->y[m * t->y_stride + n];
            *y = (float)(t->beta == 0.0f ? sum : (double)(t->beta * *y) + sum);
        }
    }
}

static const yoke_multiplier plain_bf16 = {YOKE_BF16, multiply_plainly};

static const yoke_multiplier *multiplier_bf16(void)
{
    return yoke_multiplier_bf16_missing() ? &plain_bf16 : &yoke_multiplier_bf16;
}

static void run_all(matmul_case *c, const char *what)
{
    char text[160];
    yoke_kernel ref = yoke_kernel_set_find("ref")->run_narrow[YOKE_OP_MATMUL];
    yoke_kernel fast = yoke_kernel_set_find("onednn")->run_narrow[YOKE_OP_MATMUL];
    case_reset(c);
    ref(&c->call);
    (void)snprintf(text, sizeof text, "%s, ref", what);
    assert_product(c, false, text);
    case_reset(c);
    fast(&c->call);
    (void)snprintf(text, sizeof text, "%s, multiplied in f32", what);
    assert_product(c, false, text);
    if (yoke_product_is_narrow(&c->call)) {
        case_reset(c);
        yoke_product_run(&c->call, multiplier_bf16());
        (void)snprintf(text, sizeof text, "%s, multiplied in bf16", what);
        assert_product(c, true, text);
    }
}

/* All mixes of types, transposed or not, accumulated where y is f32. */
static void run_mixes(sizes size)
{
    for (unsigned i = 0; i < N_MIXES * 8; i++) {
        unsigned types = i % N_MIXES;
        bool a_turned = i / N_MIXES & 1, b_turned = i / N_MIXES & 2, adds = i / N_MIXES & 4;
        char what[120];
        (void)snprintf(what, sizeof what, "%lld x [%lld,%lld,%lld] types %u%s%s%s",
                       (long long)size.n_batch, (long long)size.m, (long long)size.n,
                       (long long)size.k, types, a_turned ? ", a turned" : "",
                       b_turned ? ", b turned" : "", adds ? ", accumulated" : "");
        if (adds && types & 4) {
            continue;
        }
        matmul_case c;
        case_init(&c, size, types, a_turned, b_turned);
        c.call.accumulate = adds;
        run_all(&c, what);
        case_fini(&c);
    }
}

static void test_small_and_odd(void **state)
{
    (void)state;
    static const sizes all[] = {{1, 1, 1, 1}, {3, 5, 7, 9}, {1, 17, 3, 65}, {5, 33, 40, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run_mixes(all[i]);
    }
}

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
        cmocka_unit_test(test_small_and_odd),
        cmocka_unit_test(test_many_tiles),
        cmocka_unit_test(test_bad_strides),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_threads_give_equal_bits),
        cmocka_unit_test(test_f32_keeps_its_bits),
        cmocka_unit_test(test_ref_rounds_once),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_scratch_is_bounded),
        cmocka_unit_test(test_sample_takes_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
