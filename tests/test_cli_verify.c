/*
 * yoke verify as a user types it: what it prints, and the contract of its JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include "cli_run.h"

static int create_place(void **state)
{
    *state = cli_place_create();
    return 0;
}

static int destroy_place(void **state)
{
    cli_place_destroy(*state);
    return 0;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(value);
}

static void test_verify_keeps_its_contract(void **state)
{
    cli_place *place = *state;
    static const char *const kinds[] = {"params", "grads", "optimizer", "stash", "scratch"};
    static const char *const idle[] = {"fsdp", "ep", "cp"};
    cli_expect(place, 0,
               CLI_ARGS("verify", "--model", "gpt2-tiny", "--seq_len", "24", "--batch_size", "8",
                        "--microbatches", "4", "--mesh", "dp=2,tp=2,pp=2", "--json"));
    json_t *object = cli_last_line(place);
    assert_true(json_is_true(json_object_get(object, "ok")));
    assert_true(number(object, "ranks") == 8);
    assert_true(number(object, "instructions") > 100);
    /* (p - 1) / (m + p - 1) */
    assert_true(fabs(number(object, "bubble") - 1.0 / 5.0) < 1e-9);
    assert_int_equal(json_array_size(json_object_get(object, "errors")), 0);
    json_t *bytes = json_object_get(object, "bytes");
    assert_int_equal(json_array_size(bytes), 8);
    for (size_t rank = 0; rank < 8; rank++) {
        json_t *row = json_array_get(bytes, rank);
        assert_true(number(row, "gathered") == 0);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            assert_true(number(row, kinds[i]) > 0);
        }
    }
    json_t *comm = json_object_get(object, "comm_bytes");
    assert_int_equal(json_object_size(comm), 6);
    assert_true(number(comm, "dp") > 0 && number(comm, "tp") > 0 && number(comm, "pp") > 0);
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        assert_true(number(comm, idle[i]) == 0);
    }
    json_decref(object);

    cli_expect(place, 0, CLI_ARGS("verify", "--model", "gpt2-tiny", "--seq_len", "24", "--json"));
    object = cli_last_line(place);
    comm = json_object_get(object, "comm_bytes");
    assert_true(number(comm, "dp") == 0 && number(comm, "tp") == 0 && number(comm, "pp") == 0);
    assert_true(number(object, "bubble") == 0);
    json_decref(object);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

/* The first row of a quantity and part in the list `published` of the object. */
static json_t *published(const json_t *object, const char *quantity, const char *part)
{
    json_t *rows = json_object_get(object, "published");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (strcmp(text_of(row, "quantity"), quantity) == 0 &&
            strcmp(text_of(row, "part"), part) == 0) {
            return row;
        }
    }
    fail_msg("no %s %s", quantity, part);
    return NULL;
}

static void test_verify_tells_the_published(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0,
               CLI_ARGS("verify", "--model", "gpt2-tiny", "--seq_len", "24", "--batch_size", "8",
                        "--microbatches", "4", "--mesh", "tp=2,pp=2,fsdp=2", "--json"));
    assert_non_null(strstr(place->out, "\na rank of "));
    assert_non_null(strstr(place->out, "\nstage 1 "));
    assert_non_null(strstr(place->out, "\nbeside the published "));
    assert_non_null(strstr(place->out, "1.000  8bsh(n-1)/n a layer, Narayanan et al. 2021\n"));
    json_t *object = cli_last_line(place);
    json_t *layers = published(object, "traffic", "layers");
    /* 8 [b,t,d] a layer, 2 layers */
    assert_true(number(layers, "published") == 4 * 8 * (8 * 24 * 32) * 2);
    assert_true(number(layers, "plan") == number(layers, "published"));
    assert_true(number(layers, "ratio") == 1);
    assert_string_equal(text_of(layers, "axis"), "tp");
    json_t *rest = published(object, "traffic", "rest");
    assert_true(json_is_null(json_object_get(rest, "published")));
    assert_true(json_is_null(json_object_get(rest, "ratio")));
    json_t *state_row = published(object, "state", "");
    assert_true(number(state_row, "stage") == 0);
    assert_string_equal(text_of(state_row, "formula"), "16P/2");
    assert_true(fabs(number(published(object, "bubble", ""), "published") - 1.0 / 5.0) < 1e-9);
    assert_true(number(json_array_get(json_object_get(object, "bytes"), 0), "gathered") > 0);
    json_decref(object);
}

/* What has no effect is said, one line each, and nothing where everything has some. */
static void test_verify_tells_what_does_nothing(void **state)
{
    cli_place *place = *state;
    static const struct {
        const char *args[10], *note;
    } cases[] = {
        {{"--mesh", "tp=2", "--zero", "2"}, "note: zero has no effect: it is along dp"},
        {{"--mesh", "dp=2", "--sequence_parallel", "true"},
         "note: sequence_parallel has no effect: it is along tp"},
        {{"--mesh", "tp=2", "--context_parallel", "ring"},
         "note: context_parallel has no effect: it is along cp"},
        {{"--mesh", "tp=2", "--balance_context", "true"},
         "note: balance_context has no effect: it is along cp"},
        {{"--mesh", "ep=2"}, "note: ep does as dp does"},
        {{"--mask_rate", "0.3"}, "note: mask_rate has no effect"},
        {{"--mesh", "dp=8", "--batch_size", "2"},
         "note: 6 of the 8 ranks of dp=8 have nothing to do: there are 2 sequences"},
        {{"--mesh", "dp=2,fsdp=2", "--batch_size", "12", "--microbatches", "4"},
         "note: 1 of the 4 ranks of dp=2,fsdp=2 has nothing to do: there are 3 sequences"},
        {{"--mesh", "cp=4", "--seq_len", "1"},
         "note: 3 of the 4 ranks of cp=4 have nothing to do: there is 1 token in a sequence"},
        {{"--model", "mixtral-tiny", "--model.capacity_factor", "0.01"},
         "note: experts have 4 slots for the 48 choices of a sequence: at least 44 are dropped"},
        {{"--model", "mixtral-tiny", "--model.capacity_factor", "1"}, NULL},
        {{"--mesh", "ep=2", "--model", "mixtral-tiny"}, NULL},
        {{"--mask_rate", "0.3", "--model", "bert-tiny"}, NULL},
        {{"--mesh", "dp=2,tp=2", "--zero", "1", "--sequence_parallel", "true"}, NULL},
        {{"--mesh", "cp=2", "--context_parallel", "ring", "--balance_context", "true"}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *args[16] = {"verify", "--model", "gpt2-tiny", "--seq_len", "24"};
        memcpy(args + 5, cases[i].args, sizeof cases[i].args);
        cli_expect(place, 0, args);
        const char *first = strstr(place->out, "note: ");
        if (!cases[i].note) {
            assert_null(first);
        } else if (!first || !strstr(place->out, cases[i].note)) {
            fail_msg("no '%s' in: %s", cases[i].note, place->out);
        } else {
            assert_null(strstr(first + 1, "note: "));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify_keeps_its_contract),
        cmocka_unit_test(test_verify_tells_the_published),
        cmocka_unit_test(test_verify_tells_what_does_nothing),
    };
    return cmocka_run_group_tests(tests, create_place, destroy_place);
}
