/*
 * The exact GELU of every kernel set against the C library's erfc, over all the floats that matter: a few units in the
 * last place, also where the result is tiny.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include "kernel_case.h"

enum { N = 1 << 16 };
static float a[N], y[N], dy[N];

/* Measured: 2.2. */
static const double most_units = 4.0;

static yoke_tensor piece_of(float *data)
{
    return (yoke_tensor){.data = data, .shard = {.n_dims = 1, .extent = {N}}};
}

static void run(const yoke_kernel_set *set, yoke_op op)
{
    for (int i = 0; i < N; i++) {
        dy[i] = 1.0f;
    }
    const yoke_tensor in[] = {piece_of(a), piece_of(dy)};
    const yoke_tensor out = piece_of(y);
    const yoke_attributes attributes = {0};
    set->run[op](&(yoke_kernel_call){.in = in,
                                     .out = &out,
                                     .n_in = op == YOKE_OP_GELU_ERF ? 1 : 2,
                                     .n_out = 1,
                                     .attributes = &attributes});
}

/* Evenly over [low, high]. */
static void fill_even(double low, double high)
{
    for (int i = 0; i < N; i++) {
        a[i] = (float)(low + (high - low) * i / (N - 1));
    }
}

/* From the smallest numbers up, of both signs: equal steps of the bits. */
static void fill_bits(void)
{
    for (int i = 0; i < N; i++) {
        a[i] = ldexpf(1.0f + (float)(i % 509) / 509.0f, i / 509 - 125);
        a[i] = i % 2 ? -fminf(a[i], 13.0f) : fminf(a[i], 13.0f);
    }
}

/* The greatest distance in units of the last place of `size`, which is the result or what it is a difference of. */
static void assert_units(const char *what, double expected, double size, int i)
{
    double unit = fmax(size, (double)FLT_MIN) * (double)FLT_EPSILON;
    if (!(fabs((double)y[i] - expected) <= most_units * unit)) {
        fail_msg("%s of %.9g is %.9g, expected %.9g: %.3g units apart", what, (double)a[i],
                 (double)y[i], expected, fabs((double)y[i] - expected) / unit);
    }
}

static double share_of(double u)
{
    return 0.5 * erfc(-u * sqrt(0.5));
}

static void check_values(const yoke_kernel_set *set)
{
    run(set, YOKE_OP_GELU_ERF);
    for (int i = 0; i < N; i++) {
        double expected = (double)a[i] * share_of((double)a[i]);
        assert_units(set->name, expected, fabs(expected), i);
    }
    run(set, YOKE_OP_GELU_ERF_GRAD);
    for (int i = 0; i < N; i++) {
        double u = (double)a[i];
        double bend = u * exp(-0.5 * u * u) / sqrt(2.0 * 3.14159265358979323846);
        assert_units(set->name, share_of(u) + bend, share_of(u) + fabs(bend), i);
    }
}

typedef void (*visit)(const yoke_kernel_set *set);

static void each_set(visit check)
{
    int n = 0;
    const yoke_kernel_set *const sets[] = {
#define SET_POINTER(name) &yoke_kernel_set_##name,
        YOKE_KERNEL_SET_LIST(SET_POINTER)
#undef SET_POINTER
    };
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        bool here = !sets[i]->supported || sets[i]->supported();
        if (here && sets[i]->run[YOKE_OP_GELU_ERF]) {
            check(sets[i]);
            n++;
        }
    }
    assert_true(n >= 1); /* ref at least */
}

static void test_a_few_units(void **state)
{
    (void)state;
    fill_even(-13.0, 13.0);
    each_set(check_values);
    fill_even(-1.5, 1.5);
    each_set(check_values);
    fill_bits();
    each_set(check_values);
}

static void check_ends(const yoke_kernel_set *set)
{
    for (int i = 0; i < N; i++) {
        a[i] = 0.0f;
    }
    a[1] = -40.0f;
    a[2] = 40.0f;
    a[3] = NAN;
    a[4] = INFINITY;
    run(set, YOKE_OP_GELU_ERF);
    assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 40.0f);
    assert_true(isnan(y[3]) && y[4] == INFINITY);
    run(set, YOKE_OP_GELU_ERF_GRAD);
    assert_true(y[0] == 0.5f && y[1] == 0.0f && y[2] == 1.0f && isnan(y[3]));
}

static void test_ends(void **state)
{
    (void)state;
    each_set(check_ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_few_units),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
