/*
 * The config: every key of the list parsed, printed and read back; what is refused, and with which words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "run/config_keys.h"
#include "yoke/schedule.h"

static void expect_refusal(yoke_status status, const char *const words[3], const char *what)
{
    if (!status) {
        fail_msg("%s: accepted", what);
    }
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    for (int i = 0; i < 3 && words[i]; i++) {
        if (!strstr(yoke_status_message(status), words[i])) {
            fail_msg("%s: '%s' is missing in: %s", what, words[i], yoke_status_message(status));
        }
    }
    yoke_status_free(status);
}

static void expect_good(yoke_status status, const char *what)
{
    if (status) {
        fail_msg("%s: %s", what, yoke_status_message(status));
    }
}

/* Sets one key by its name. */
static yoke_status set(yoke_config *config, const char *name, const char *value)
{
    const yoke_config_key *key = yoke_config_key_find(name);
    assert_non_null(key);
    return yoke_config_set(config, key, value);
}

static void test_defaults_are_those_of_the_list(void **state)
{
    (void)state;
    yoke_config config = yoke_config_default();
    expect_good(yoke_config_check(&config), "defaults");
    assert_string_equal(config.model, "gpt2-mini");
    assert_string_equal(config.mesh, "");
    assert_int_equal(config.batch_size, 16);
    assert_int_equal(config.ignore_token, -1);
    assert_true(config.beta2 == 0.95);
}

/* What is printed is read back as the same bits, for every key of the list. */
static void test_every_key_prints_and_reads_back(void **state)
{
    (void)state;
    yoke_config config = yoke_config_default();
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        char first[32];
        char second[32];
        const yoke_config_key *key = yoke_config_key_get(i);
        yoke_config other;
        memset(&other, 0, sizeof other);
        const char *printed = yoke_config_print(&config, key, first, sizeof first);
        assert_ptr_equal(yoke_config_key_find(key->name), key);
        expect_good(yoke_config_set(&other, key, printed), key->name);
        assert_string_equal(yoke_config_print(&other, key, second, sizeof second), printed);
        assert_true(*key->help);
    }
}

static void test_names_take_dashes(void **state)
{
    (void)state;
    assert_ptr_equal(yoke_config_key_find("batch-size"), yoke_config_key_find("batch_size"));
    assert_non_null(yoke_config_key_find("batch-size"));
    assert_null(yoke_config_key_find("batch"));
    assert_null(yoke_config_key_find("batch_sizes"));
    assert_null(yoke_config_key_find(""));
}

static void test_whole_numbers_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0}, {"-7", -7}, {"+7", 7}, {"007", 7}, {"9223372036854775807", INT64_MAX}};
    static const char *const bad[] = {"",  " 1",  "1 ",  "1x",    "0x10", "1.0", "1e3",  "--1",
                                      "+", "1_0", "nan", "1,000", "-",    "1-",  "true", "１"};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        expect_good(yoke_number_parse_int("steps", good[i].text, &value), good[i].text);
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const words[3] = {"steps", "whole number", bad[i]};
        expect_refusal(yoke_number_parse_int("steps", bad[i], &value), words, bad[i]);
    }
    const char *const words[3] = {"steps", "9223372036854775808", "64 bits"};
    expect_refusal(yoke_number_parse_int("steps", "9223372036854775808", &value), words, "2^63");
    expect_refusal(yoke_number_parse_int("steps", "-9223372036854775809", &value),
                   (const char *const[3]){"64 bits"}, "-2^63 - 1");
}

static void test_real_numbers_are_read_strictly(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     " 1",  "1 ",  "1x",   "0x1p3", "nan", "inf",
                                      "-inf", "1e",  "e5",  ".",    "1..0",  "1,5", "--1",
                                      "+",    "1e+", "1 2", "true", "1e5.5"};
    double value;
    expect_good(yoke_number_parse_real("lr", "3e-4", &value), "3e-4");
    assert_true(value == 3e-4);
    expect_good(yoke_number_parse_real("lr", "-.5", &value), "-.5");
    assert_true(value == -0.5);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const words[3] = {"lr", "not a number", bad[i]};
        expect_refusal(yoke_number_parse_real("lr", bad[i], &value), words, bad[i]);
    }
    expect_refusal(yoke_number_parse_real("lr", "1e999", &value),
                   (const char *const[3]){"lr", "1e999", "too large"}, "1e999");
}

static void test_truth_is_true_or_false(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "yes", "True", "1", "0", "true "};
    bool value = false;
    expect_good(yoke_number_parse_bool("b", "true", &value), "true");
    assert_true(value);
    expect_good(yoke_number_parse_bool("b", "false", &value), "false");
    assert_false(value);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_refusal(yoke_number_parse_bool("b", bad[i], &value),
                       (const char *const[3]){"b", "neither true nor false"}, bad[i]);
    }
}

static void test_reals_print_in_the_shortest_exact_form(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.1, "0.1"},     {600.0, "600"}, {1e-8, "1e-08"},  {0.0, "0"},
                 {32000, "32000"}, {-3, "-3"},     {1e300, "1e+300"}};
    char buffer[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(yoke_number_print_real(cases[i].value, buffer, sizeof buffer),
                            cases[i].text);
    }
    const double third = 1.0 / 3.0;
    assert_true(strtod(yoke_number_print_real(third, buffer, sizeof buffer), NULL) == third);
    const double tiny = 4.9406564584124654e-324;
    assert_true(strtod(yoke_number_print_real(tiny, buffer, sizeof buffer), NULL) == tiny);
}

/* Two settings, of which the second may be left out, and the words that the refusal must hold. */
typedef struct refusal {
    const char *key, *value;
    const char *key2, *value2;
    const char *words[3];
} refusal;

static const refusal refusals[] = {
    {"steps", "0", NULL, NULL, {"steps is 0", "at least 1"}},
    {"steps", "-5", NULL, NULL, {"steps is -5"}},
    {"batch_size", "0", NULL, NULL, {"batch_size is 0", "at least 1"}},
    {"batch_size", "999999999999", NULL, NULL, {"batch_size is 999999999999", "at most"}},
    {"seq_len", "0", NULL, NULL, {"seq_len is 0"}},
    {"microbatches", "0", NULL, NULL, {"microbatches is 0"}},
    {"microbatches", "3", NULL, NULL, {"16", "3 microbatches", "2 or 4"}},
    {"microbatches", "32", NULL, NULL, {"16", "32 microbatches", "microbatches=16"}},
    {"microbatches", "5", "batch_size", "7", {"7", "5 microbatches", "1 or 7"}},
    {"seed", "-1", NULL, NULL, {"seed is -1", "at least 0"}},
    {"ignore_token", "-2", NULL, NULL, {"ignore_token is -2", "at least -1"}},
    {"ignore_token", "65536", NULL, NULL, {"ignore_token is 65536", "at most 65535"}},
    {"threads", "-1", NULL, NULL, {"threads is -1"}},
    {"warmup_steps", "-1", NULL, NULL, {"warmup_steps is -1"}},
    {"eval_batches", "0", NULL, NULL, {"eval_batches is 0"}},
    {"eval_interval", "-1", NULL, NULL, {"eval_interval is -1"}},
    {"max_skipped", "0", NULL, NULL, {"max_skipped is 0"}},
    {"log_interval", "0", NULL, NULL, {"log_interval is 0"}},
    {"eval_fraction", "1", NULL, NULL, {"eval_fraction is 1", "[0, 1)"}},
    {"eval_fraction", "-0.1", NULL, NULL, {"eval_fraction is -0.1"}},
    {"lr", "0", NULL, NULL, {"lr is 0", "(0, 1000000]"}},
    {"lr", "-1e-3", NULL, NULL, {"lr is -0.001"}},
    {"lr", "1e-5", NULL, NULL, {"min_lr 0.0001", "lr 1e-05", "min_lr=1e-05"}},
    {"beta1", "1", NULL, NULL, {"beta1 is 1", "[0, 1)"}},
    {"beta2", "-0.5", NULL, NULL, {"beta2 is -0.5"}},
    {"epsilon", "0", NULL, NULL, {"epsilon is 0", "[1e-30, 1)"}},
    {"eval_interval", "5", "eval_fraction", "0", {"eval_interval is 5", "eval_fraction=0.05"}},
    {"weight_decay", "-0.1", NULL, NULL, {"weight_decay is -0.1"}},
    {"grad_clip", "-1", NULL, NULL, {"grad_clip is -1"}},
    {"timeout_s", "0", NULL, NULL, {"timeout_s is 0"}},
    {"mesh", "dp=0", NULL, NULL, {"dp", "0"}},
    {"mesh", "dq=2", NULL, NULL, {"dq", "dp"}},
    {"mesh", "dp=2,dp=2", NULL, NULL, {"dp"}},
    {"mesh", "dp=512,tp=256", NULL, NULL, {"131072", "65536"}},
    {"schedule", "1f1c", NULL, NULL, {"1f1c", "1f1b", "gpipe"}},
    {"kernels", "fast", NULL, NULL, {"fast", "auto", "ref"}},
    {"ranks", "thread", NULL, NULL, {"thread", "did you mean 'threads'", "processes or threads"}},
    {"ranks", "cuda", NULL, NULL, {"cuda", "use processes or threads"}},
    {"lr_schedule", "cosin", NULL, NULL, {"cosin", "did you mean 'cosine'"}},
    {"lr_schedule", "wsd", NULL, NULL, {"wsd", "decay_steps", "decay_steps=200"}},
    {"lr_schedule", "wsd", "decay_steps", "1001", {"decay_steps 1001", "1000 steps"}},
    {"decay_steps", "10", NULL, NULL, {"decay_steps is 10", "cosine", "lr_schedule=wsd"}},
    {"model", "", NULL, NULL, {"model is empty", "gpt2-mini"}},
};

static void test_values_out_of_range_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *refused = &refusals[i];
        yoke_config config = yoke_config_default();
        expect_good(set(&config, refused->key, refused->value), refused->key);
        if (refused->key2) {
            expect_good(set(&config, refused->key2, refused->value2), refused->key2);
        }
        expect_refusal(yoke_config_check(&config), refused->words, refused->key);
    }
}

static void test_bounds_themselves_are_accepted(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"eval_fraction", "0"}, {"beta1", "0"},          {"grad_clip", "0"},
        {"weight_decay", "0"},  {"warmup_steps", "0"},   {"steps", "1"},
        {"microbatches", "16"}, {"seed", "0"},           {"min_lr", "1e-3"},
        {"seq_len", "1"},       {"schedule", "gpipe"},   {"kernels", "ref"},
        {"ranks", "threads"},   {"mesh", "dp=32,tp=32"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        yoke_config config = yoke_config_default();
        expect_good(set(&config, good[i][0], good[i][1]), good[i][0]);
        expect_good(yoke_config_check(&config), good[i][0]);
    }
    /* A rate that never falls has no use for its minimum. */
    yoke_config config = yoke_config_default();
    expect_good(set(&config, "lr", "1e-6"), "lr");
    expect_good(set(&config, "lr_schedule", "constant"), "lr_schedule");
    expect_good(yoke_config_check(&config), "constant");
}

static void test_every_schedule_of_the_list_is_known(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        yoke_config config = yoke_config_default();
        config.schedule = yoke_schedule_get(i)->name;
        expect_good(yoke_config_check(&config), config.schedule);
    }
}

static void test_optimizer_takes_its_keys(void **state)
{
    (void)state;
    yoke_config config = yoke_config_default();
    config.lr = 0.5;
    config.min_lr = 0.25;
    config.lr_schedule = "wsd";
    config.steps = 77;
    config.warmup_steps = 5;
    config.decay_steps = 11;
    config.beta1 = 0.7;
    config.beta2 = 0.8;
    config.epsilon = 1e-3;
    config.weight_decay = 0.01;
    config.grad_clip = 3.0;
    yoke_optimizer optimizer = yoke_config_optimizer(&config);
    assert_int_equal(optimizer.rate, YOKE_RATE_WSD);
    assert_true(optimizer.lr == 0.5 && optimizer.min_lr == 0.25);
    assert_int_equal(optimizer.total_steps, 77);
    assert_int_equal(optimizer.warmup_steps, 5);
    assert_int_equal(optimizer.decay_steps, 11);
    assert_true(optimizer.beta1 == 0.7 && optimizer.beta2 == 0.8 && optimizer.epsilon == 1e-3);
    assert_true(optimizer.decay == 0.01 && optimizer.clip == 3.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_those_of_the_list),
        cmocka_unit_test(test_every_key_prints_and_reads_back),
        cmocka_unit_test(test_names_take_dashes),
        cmocka_unit_test(test_whole_numbers_are_read_strictly),
        cmocka_unit_test(test_real_numbers_are_read_strictly),
        cmocka_unit_test(test_truth_is_true_or_false),
        cmocka_unit_test(test_reals_print_in_the_shortest_exact_form),
        cmocka_unit_test(test_values_out_of_range_are_refused),
        cmocka_unit_test(test_bounds_themselves_are_accepted),
        cmocka_unit_test(test_every_schedule_of_the_list_is_known),
        cmocka_unit_test(test_optimizer_takes_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
