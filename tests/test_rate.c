/*
 * Schedules of the learning rate: warm-up, end points, monotony, and the case of fault A24.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "yoke/optimizer.h"

static double rate_of_step(const yoke_optimizer *optimizer, int64_t step)
{
    return yoke_optimizer_lr(optimizer, step - 1);
}

static yoke_optimizer hundred_steps(yoke_rate rate)
{
    return (yoke_optimizer){.rate = rate,
                            .lr = 3e-4,
                            .min_lr = 1e-5,
                            .warmup_steps = 10,
                            .decay_steps = 20,
                            .total_steps = 100};
}

/* Fault A24: the schedule counts iterations, whatever the number of samples in each. */
static void test_wsd_counts_iterations(void **state)
{
    (void)state;
    yoke_optimizer o = hundred_steps(YOKE_RATE_WSD);
    for (int step = 1; step <= 10; step++) {
        assert_true(fabs(rate_of_step(&o, step) - 3e-4 * step / 10.0) < 1e-15);
    }
    for (int step = 10; step <= 80; step++) {
        assert_true(rate_of_step(&o, step) == 3e-4);
    }
    assert_true(rate_of_step(&o, 81) < 3e-4);
    assert_true(fabs(rate_of_step(&o, 90) - (3e-4 + 1e-5) / 2) < 1e-15);
    assert_true(rate_of_step(&o, 99) > 1e-5);
    assert_true(rate_of_step(&o, 100) == 1e-5);
}

static void test_end_points_of_every_shape(void **state)
{
    (void)state;
    for (int rate = 0; rate < (int)YOKE_N_RATES; rate++) {
        yoke_optimizer o = hundred_steps((yoke_rate)rate);
        double last = rate == (int)YOKE_RATE_CONSTANT ? 3e-4 : 1e-5;
        assert_true(fabs(rate_of_step(&o, 1) - 3e-5) < 1e-15);
        assert_true(rate_of_step(&o, 10) == 3e-4);
        assert_true(rate_of_step(&o, 100) == last);
        assert_true(rate_of_step(&o, 101) == last);
        assert_true(rate_of_step(&o, 100000) == last);
        for (int step = 11; step <= 100; step++) {
            assert_true(rate_of_step(&o, step) <= rate_of_step(&o, step - 1));
        }
    }
}

static void test_half_way(void **state)
{
    (void)state;
    yoke_optimizer linear = hundred_steps(YOKE_RATE_LINEAR);
    yoke_optimizer cosine = hundred_steps(YOKE_RATE_COSINE);
    assert_true(fabs(rate_of_step(&linear, 55) - (3e-4 + 1e-5) / 2) < 1e-12);
    assert_true(fabs(rate_of_step(&cosine, 55) - (3e-4 + 1e-5) / 2) < 1e-12);
    /* A third of the way a cosine has fallen by a quarter. */
    assert_true(fabs(rate_of_step(&cosine, 40) - (3e-4 - 0.25 * 2.9e-4)) < 1e-12);
}

static void test_short_runs(void **state)
{
    (void)state;
    for (int rate = 0; rate < (int)YOKE_N_RATES; rate++) {
        yoke_optimizer o = hundred_steps((yoke_rate)rate);
        o.warmup_steps = 0;
        assert_true(rate_of_step(&o, 1) == 3e-4);
        o.total_steps = 1;
        o.decay_steps = 0;
        assert_true(rate_of_step(&o, 1) == 3e-4);
        o.warmup_steps = 4;
        o.total_steps = 4;
        assert_true(rate_of_step(&o, 4) == 3e-4);
        o.warmup_steps = 6;
        assert_true(rate_of_step(&o, 4) == 3e-4 * (4.0 / 6.0));
    }
    yoke_optimizer all_decay = hundred_steps(YOKE_RATE_WSD);
    all_decay.decay_steps = 1000;
    assert_true(rate_of_step(&all_decay, 10) == 3e-4);
    assert_true(fabs(rate_of_step(&all_decay, 55) - (3e-4 + 1e-5) / 2) < 1e-12);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(yoke_rate_name(YOKE_RATE_CONSTANT), "constant");
    assert_string_equal(yoke_rate_name(YOKE_RATE_WSD), "wsd");
    assert_string_equal(yoke_rate_name(YOKE_N_RATES), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wsd_counts_iterations),
        cmocka_unit_test(test_end_points_of_every_shape),
        cmocka_unit_test(test_half_way),
        cmocka_unit_test(test_short_runs),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
