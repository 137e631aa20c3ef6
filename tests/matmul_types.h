/*
 * Matrix products of every mix of f32 and bf16 operands, by every set that has them and with a multiplier of bf16, against
 * sums in double: transposed, in batches, accumulated, empty, between guard bytes, and with any number of threads.
 *
 * oneDNN's own multiplier of bf16 runs where the processor has its instructions; elsewhere a plain one stands in, so that
 * the blocks which are rounded on their way to it are tested everywhere.
 *
 * Included after cmocka.h by the quick test and the slow one.
 */
#ifndef MATMUL_TYPES_H
#define MATMUL_TYPES_H

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

static inline size_t bytes_of(const yoke_tensor *tensor)
{
    return (size_t)yoke_piece_elements(tensor) * (tensor->dtype == YOKE_BF16 ? 2 : 4);
}

static inline double number(const yoke_tensor *tensor, int64_t i)
{
    return tensor->dtype == YOKE_BF16
               ? (double)yoke_bf16_widen(((const yoke_bf16 *)tensor->data)[i])
               : (double)((const float *)tensor->data)[i];
}

static inline yoke_tensor matrix_create(int64_t n_batch, int64_t rows, int64_t columns, bool narrow,
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

static inline void case_init(matmul_case *c, sizes size, unsigned mix, bool a_turned, bool b_turned)
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

static inline void case_fini(matmul_case *c)
{
    guarded_free(c->in[0].data);
    guarded_free(c->in[1].data);
    guarded_free(c->out.data);
    guarded_free(c->call.scratch);
    free(c->before);
}

/* The sum in double of element [i, m, n] and of its magnitudes; operands are rounded to bf16 first if `narrow`. */
static inline double sum_of(const matmul_case *c, int64_t at, bool narrow, double *magnitude)
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
static inline void assert_product(const matmul_case *c, bool narrow, const char *what)
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
static inline void case_reset(matmul_case *c)
{
    memcpy(c->out.data, c->before, bytes_of(&c->out));
    memset(c->call.scratch, 0xFF, c->scratch_bytes);
}

/* Of a[m, k] or b[k, n] as stored: rows along the side unless k runs down them. */
static inline int64_t index_of(int64_t side, int64_t k, bool k_is_row, int64_t stride)
{
    return k_is_row ? k * stride + side : side * stride + k;
}

/* What oneDNN does with bf16, a row at a time. */
static inline void multiply_plainly(const yoke_tile *t)
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

static inline void run_all(matmul_case *c, const char *what)
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
static inline void run_mixes(sizes size)
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

#endif
