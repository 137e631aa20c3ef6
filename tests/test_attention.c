/*
 * The reference attention against a naive twin in double: grouped queries, dropout, and pieces of heads, tokens and batch
 * that must equal slices of the whole. Its gradient is in test_kernel_gradients.c and, for pieces, here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"
#include "yoke/random.h"

enum { B = 3, T = 11, N = 6, K = 3, X = 5, GROUP = N / K };

static const op_case forward_row = {
    YOKE_OP_ATTENTION, {"bthx", "bskx", "bskx"}, {"bthx", "bth"}, "nnn", .tolerance = 1e-6f};
static const op_case gradient_row = {YOKE_OP_ATTENTION_GRAD,
                                     {"bthx", "bskx", "bskx", "bthx", "bth", "bthx"},
                                     {"bthx", "bskx", "bskx"},
                                     "nnnnnn",
                                     .tolerance = 1e-6f};

static const case_sizes whole_sizes = {
    "whole", {{'b', B, 0}, {'t', T, 0}, {'s', T, 0}, {'h', N, 0}, {'k', K, 0}, {'x', X, 0}}, N, K};

static void run_ref(kernel_case *c, yoke_op op)
{
    yoke_kernel_set_find("ref")->run[op](&c->call);
}

static double naive_dot(const float *a, const float *b)
{
    double sum = 0.0;
    for (int x = 0; x < X; x++) {
        sum += (double)a[x] * (double)b[x];
    }
    return sum;
}

static const float *at(const yoke_tensor *piece, int64_t b, int64_t t, int64_t h)
{
    return (const float *)piece->data + yoke_piece_head(piece, b, t, h);
}

static double keep(const kernel_case *c, int b, int t, int h, int s)
{
    const yoke_attributes *a = &c->attributes;
    yoke_random_key key =
        yoke_random_stream_hashed(c->call.seed, a->site, c->call.step, c->call.microbatch);
    uint64_t index = (uint64_t)((((b * N) + h) * T + t) * T + s);
    if (a->rate == 0.0f) {
        return 1.0;
    }
    return yoke_random_uniform(key, index) >= a->rate ? 1.0 / (1.0 - (double)a->rate) : 0.0;
}

/* y and lse of one query by the book: all scores, softmax, mask, weighted sum. */
static void naive_query(const kernel_case *c, int b, int t, int h, double y[X], double *lse)
{
    double p[T];
    double sum = 0.0;
    for (int s = 0; s <= t; s++) {
        p[s] = exp((double)c->attributes.scale *
                   naive_dot(at(&c->in[0], b, t, h), at(&c->in[1], b, s, h / GROUP)));
        sum += p[s];
    }
    *lse = log(sum);
    for (int x = 0; x < X; x++) {
        y[x] = 0.0;
        for (int s = 0; s <= t; s++) {
            double v = (double)at(&c->in[2], b, s, h / GROUP)[x];
            y[x] += p[s] / sum * keep(c, b, t, h, s) * v;
        }
    }
}

static void assert_whole_is_naive(float rate)
{
    kernel_case *c = case_create(&forward_row, &whole_sizes, 3);
    c->attributes.rate = rate;
    run_ref(c, YOKE_OP_ATTENTION);
    for (int i = 0; i < B * T * N; i++) {
        int b = i / (T * N);
        int t = i / N % T;
        int h = i % N;
        double y[X];
        double lse;
        naive_query(c, b, t, h, y, &lse);
        assert_true(fabs((double)*at(&c->out[1], b, t, h) - lse) < 1e-6);
        for (int x = 0; x < X; x++) {
            assert_true(fabs((double)at(&c->out[0], b, t, h)[x] - y[x]) < 1e-6);
        }
    }
    case_destroy(c);
}

static void test_whole_against_naive(void **state)
{
    (void)state;
    assert_whole_is_naive(0.0f);
    assert_whole_is_naive(0.4f);
}

/* Fills a piece with its slice of the whole. */
static void piece_slice(yoke_tensor *piece, const yoke_tensor *whole)
{
    const yoke_shard *p = &piece->shard;
    int64_t width = p->n_dims > 3 ? p->extent[3] : 1;
    for (int64_t b = 0; b < p->extent[0]; b++) {
        for (int64_t t = 0; t < p->extent[1]; t++) {
            for (int64_t h = 0; h < p->extent[2]; h++) {
                const float *from = at(whole, b + p->offset[0], t + p->offset[1], h + p->offset[2]);
                memcpy((float *)piece->data + yoke_piece_head(piece, b, t, h), from,
                       (size_t)width * sizeof(float));
            }
        }
    }
}

/* Pieces of one sample, three heads over two groups, tokens 4 to 9. */
static const case_sizes piece_sizes[] = {
    {"sample",
     {{'b', 1, 2}, {'t', T, 0}, {'s', T, 0}, {'h', N, 0}, {'k', K, 0}, {'x', X, 0}},
     N,
     K},
    {"heads", {{'b', B, 0}, {'t', T, 0}, {'s', T, 0}, {'h', 3, 1}, {'k', 2, 0}, {'x', X, 0}}, N, K},
    {"tokens",
     {{'b', B, 0}, {'t', 6, 4}, {'s', T, 0}, {'h', N, 0}, {'k', K, 0}, {'x', X, 0}},
     N,
     K},
    {"all kv",
     {{'b', 2, 1}, {'t', 3, 8}, {'s', T, 0}, {'h', 2, 4}, {'k', K, 0}, {'x', X, 0}},
     N,
     K},
};
enum { N_PIECES = sizeof piece_sizes / sizeof piece_sizes[0] };

static void test_pieces_are_slices(void **state)
{
    (void)state;
    kernel_case *whole = case_create(&forward_row, &whole_sizes, 4);
    whole->attributes.rate = 0.4f;
    run_ref(whole, YOKE_OP_ATTENTION);
    for (int i = 0; i < (int)N_PIECES; i++) {
        kernel_case *c = case_create(&forward_row, &piece_sizes[i], 5);
        kernel_case *expected = case_create(&forward_row, &piece_sizes[i], 6);
        c->attributes.rate = 0.4f;
        for (int j = 0; j < 3; j++) {
            piece_slice(&c->in[j], &whole->in[j]);
        }
        run_ref(c, YOKE_OP_ATTENTION);
        for (int j = 0; j < 2; j++) {
            piece_slice(&expected->out[j], &whole->out[j]);
            assert_memory_equal(c->out[j].data, expected->out[j].data, piece_bytes(&c->out[j]));
        }
        case_destroy(c);
        case_destroy(expected);
    }
    case_destroy(whole);
}

/* Adds a piece of dk or dv to where it belongs in the whole. */
static void piece_add(yoke_tensor *whole, const yoke_tensor *piece)
{
    const yoke_shard *p = &piece->shard;
    for (int64_t i = 0; i < yoke_piece_elements(piece); i++) {
        int64_t x = i % X;
        int64_t h = i / X % p->extent[2] + p->offset[2];
        int64_t s = i / X / p->extent[2] % p->extent[1] + p->offset[1];
        int64_t b = i / X / p->extent[2] / p->extent[1] + p->offset[0];
        ((float *)whole->data)[yoke_piece_head(whole, b, s, h) + x] +=
            ((const float *)piece->data)[i];
    }
}

/* Gradients of two pieces that share the queries between them: dq joined, dk and dv summed, equal those of the whole. */
static void assert_pieces_sum(const case_sizes pieces[2])
{
    kernel_case *whole = case_create(&gradient_row, &whole_sizes, 7);
    kernel_case *sum = case_create(&gradient_row, &whole_sizes, 7);
    whole->attributes.rate = 0.4f;
    inputs_derive(whole, YOKE_OP_ATTENTION_GRAD, yoke_kernel_set_find("ref"));
    run_ref(whole, YOKE_OP_ATTENTION_GRAD);
    for (int j = 0; j < 3; j++) {
        memset(sum->out[j].data, 0, piece_bytes(&sum->out[j]));
    }
    for (int i = 0; i < 2; i++) {
        kernel_case *c = case_create(&gradient_row, &pieces[i], 8);
        c->attributes.rate = 0.4f;
        for (int j = 0; j < 6; j++) {
            piece_slice(&c->in[j], &whole->in[j]);
        }
        run_ref(c, YOKE_OP_ATTENTION_GRAD);
        for (int j = 0; j < 3; j++) {
            piece_add(&sum->out[j], &c->out[j]);
        }
        case_destroy(c);
    }
    for (int j = 0; j < 3; j++) {
        assert_true(floats_near("sum of pieces", sum->out[j].data, whole->out[j].data,
                                yoke_piece_elements(&whole->out[j]), 1e-6));
    }
    case_destroy(whole);
    case_destroy(sum);
}

static void test_gradients_of_pieces_sum(void **state)
{
    (void)state;
    static const case_sizes heads[2] = {
        {"", {{'b', B, 0}, {'t', T, 0}, {'s', T, 0}, {'h', 3, 0}, {'k', K, 0}, {'x', X, 0}}, N, K},
        {"", {{'b', B, 0}, {'t', T, 0}, {'s', T, 0}, {'h', 3, 3}, {'k', 2, 1}, {'x', X, 0}}, N, K}};
    static const case_sizes tokens[2] = {
        {"", {{'b', B, 0}, {'t', 4, 0}, {'s', T, 0}, {'h', N, 0}, {'k', K, 0}, {'x', X, 0}}, N, K},
        {"", {{'b', B, 0}, {'t', 7, 4}, {'s', T, 0}, {'h', N, 0}, {'k', K, 0}, {'x', X, 0}}, N, K}};
    assert_pieces_sum(heads);
    assert_pieces_sum(tokens);
}

/* Memory for tiles grows with the number of tokens, not with its square. */
static void test_scratch_grows_with_tokens(void **state)
{
    (void)state;
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        yoke_shard shard = {.n_dims = 4, .extent = {1, 1000 << i, 4, 64}};
        yoke_tensor in[6] = {{.shard = shard}, {.shard = shard}, {.shard = shard}};
        yoke_kernel_call call = {.in = in, .n_in = 6};
        bytes[i] = yoke_kernel_scratch_bytes(YOKE_OP_ATTENTION_GRAD, &call, 2);
        assert_true(bytes[i] >= 1000 * 64 * sizeof(float));
    }
    assert_true((double)bytes[1] < 2.1 * (double)bytes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_against_naive),
        cmocka_unit_test(test_pieces_are_slices),
        cmocka_unit_test(test_gradients_of_pieces_sum),
        cmocka_unit_test(test_scratch_grows_with_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
