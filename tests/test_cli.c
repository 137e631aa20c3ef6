/*
 * The command line as a user types it: help, and everything that is refused.
 *
 * Each refusal must end with code 2, one message that holds the numbers or names and a way out, and nothing written. What a run
 * does when it is not refused: test_cli_train.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli_run.h"
#include "run/config_keys.h"

static const char *const commands[] = {"train", "parity", "verify", "show", "generate", "help"};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* What the refused runs find in their folder. */
static int create_place(void **state)
{
    cli_place *place = cli_place_create();
    char text[8192];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = "abcdefghij klmno\n"[(i * i + i / 7) % 17];
    }
    cli_write(place, "text.txt", text, sizeof text);
    cli_write_text(place, "empty.txt", "");
    cli_write_text(place, "short.txt", "short");
    cli_write(place, "latin1.txt", "caf\xe9 au lait", 12);
    cli_write(place, "odd.bin", "\1\0\2", 3);
    cli_write(place, "high.u16", "\xff\xee\xff\xee\xff\xee\xff\xee", 8);
    cli_write_text(place, "broken.json", "{\"model_type\": \"gpt2\",");
    cli_write_text(place, "typeless.json", "{\"n_layer\": 2}");
    cli_write_text(place, "t5.json", "{\"model_type\": \"t5\"}");
    cli_write_text(place, "key.json", "{\"model_type\": \"gpt2\", \"n_layers\": 2}");
    cli_write_text(place, "heads.json",
                   "{\"model_type\": \"gpt2\", \"n_embd\": 30, \"n_head\": 4}");
    char path[CLI_PATH_BYTES];
    cli_path(place, "folder", path);
    assert_int_equal(mkdir(path, 0777), 0);
    cli_path(place, "done", path);
    assert_int_equal(mkdir(path, 0777), 0);
    cli_write_text(place, "done/metrics.jsonl", "{}\n");
    *state = place;
    return 0;
}

static int destroy_place(void **state)
{
    cli_place_destroy(*state);
    return 0;
}

enum { MOST_CASE_ARGS = 12, MOST_WORDS = 4 };

typedef struct refusal {
    const char *const args[MOST_CASE_ARGS];
    const char *const words[MOST_WORDS]; /* all of them are in the message */
} refusal;

#define DATA "--data", "text.txt"

/* Refused before anything is planned. */
static const refusal refusals[] = {
    /* Commands and options. */
    {{NULL}, {"no command", "--help"}},
    {{"trian"}, {"unknown command 'trian'", "did you mean 'train'", "verify"}},
    {{"--mesh", "dp=2"}, {"unknown command '--mesh'", "train"}},
    {{"train", "--stepz", "3"}, {"--stepz", "did you mean --steps"}},
    {{"train", "--xyzzyx", "3"}, {"--xyzzyx", "yoke train --help"}},
    {{"train", "-s", "3"}, {"'-s'", "two dashes"}},
    {{"train", DATA, "--steps"}, {"--steps needs a value"}},
    {{"train", DATA, "--steps", "--seed", "3"}, {"--steps needs a value", "--seed"}},
    {{"train", DATA, "--json=yes"}, {"--json takes no value", "yes"}},
    {{"train", DATA, "--set", "steps"}, {"--set steps", "key=value"}},
    {{"train", DATA, "--set", "=3"}, {"--set =3", "key=value"}},
    {{"train", DATA, "--set", "stepz=3"}, {"--set", "'stepz'", "did you mean 'steps'"}},
    {{"train", "a.yaml", "b.yaml"}, {"b.yaml", "a.yaml"}},
    {{"parity", DATA, "--steps", "0"}, {"--steps is 0", "at least 1"}},
    {{"parity", DATA, "--steps", "two"}, {"--steps", "'two'", "whole number"}},
    {{"show"}, {"graph|layout|schedule|program"}},
    {{"show", "shedule"}, {"'shedule'", "did you mean 'schedule'"}},
    {{"help", "trian"}, {"'trian'", "did you mean 'train'"}},
    {{"help", "train", "verify"}, {"unexpected", "'verify'"}},
    /* Types and ranges of keys. */
    {{"train", DATA, "--steps", "ten"}, {"steps", "'ten'", "whole number"}},
    {{"train", DATA, "--steps", "10x"}, {"steps", "'10x'", "whole number"}},
    {{"train", DATA, "--steps", "1e3"}, {"steps", "'1e3'"}},
    {{"train", DATA, "--steps", "99999999999999999999"}, {"steps", "64 bits"}},
    {{"train", DATA, "--steps", "0"}, {"steps is 0", "at least 1"}},
    {{"train", DATA, "--steps="}, {"steps", "''", "whole number"}},
    {{"train", DATA, "--lr", "nan"}, {"lr", "'nan'", "not a number"}},
    {{"train", DATA, "--lr", "1e-3e"}, {"lr", "'1e-3e'"}},
    {{"train", DATA, "--lr", "-1"}, {"lr is -1"}},
    {{"train", DATA, "--epsilon", "1e-40"}, {"epsilon is 1e-40", "[1e-30, 1)"}},
    {{"train", DATA, "--ignore_token", "257"}, {"ignore_token is 257", "0 to 256", "-1"}},
    {{"train", DATA, "--eval_fraction", "0", "--eval_interval", "5"},
     {"eval_interval is 5", "eval_fraction 0", "eval_interval=0"}},
    {{"train", DATA, "--batch-size", "0"}, {"batch_size is 0", "at least 1"}},
    {{"train", DATA, "--microbatches", "5"}, {"batch_size 16", "5 microbatches", "4 or 8"}},
    {{"train", DATA, "--beta1", "1.0"}, {"beta1 is 1", "[0, 1)"}},
    {{"train", DATA, "--eval_fraction", "1"}, {"eval_fraction is 1", "[0, 1)"}},
    {{"train", DATA, "--schedule", "1f1c"}, {"1f1c", "1f1b"}},
    {{"train", DATA, "--kernels", "fast"}, {"fast", "ref"}},
    {{"train", DATA, "--ranks", "fibres"}, {"fibres", "processes or threads"}},
    {{"train", DATA, "--lr_schedule", "wsd"}, {"decay_steps"}},
    {{"train", DATA, "--threads", "-1"}, {"threads is -1"}},
    {{"train", DATA, "--seed", "-1"}, {"seed is -1"}},
    /* Meshes. */
    {{"train", DATA, "--mesh", "dp"}, {"dp", "mesh"}},
    {{"train", DATA, "--mesh", "dp=two"}, {"two"}},
    {{"train", DATA, "--mesh", "dp=2x"}, {"2x"}},
    {{"train", DATA, "--mesh", "dp=0"}, {"dp", "0"}},
    {{"train", DATA, "--mesh", "dp=2,dp=2"}, {"dp"}},
    {{"train", DATA, "--mesh", "dq=2"}, {"dq", "dp"}},
    {{"train", DATA, "--mesh", "dp=2,"}, {"mesh"}},
    {{"train", DATA, "--mesh", "dp=4096"}, {"4096", "1024"}},
    /* Models. */
    {{"train", DATA, "--model", ""}, {"model is empty", "gpt2-mini"}},
    {{"train", DATA, "--model", "gpt2-mni"}, {"gpt2-mni", "gpt2-mini"}},
    {{"train", DATA, "--model", "missing.json"}, {"missing.json"}},
    {{"train", DATA, "--model", "a\n\033[31mb.json"}, {"a\\x0A\\x1B[31mb.json"}},
    {{"train", DATA, "--model", "broken.json"}, {"broken.json", "line 1"}},
    {{"train", DATA, "--model", "typeless.json"}, {"typeless.json", "model_type"}},
    {{"train", DATA, "--model", "t5.json"}, {"t5", "gpt2"}},
    {{"train", DATA, "--model", "key.json"}, {"n_layers", "n_layer"}},
    {{"train", DATA, "--model", "heads.json"}, {"30", "4"}},
    {{"train", DATA, "--set", "model.n_layr=2"}, {"n_layr", "n_layer"}},
    {{"train", DATA, "--set", "model.preset=gpt2"}, {"--set", "model.preset", "--model gpt2"}},
    {{"train", DATA, "--set", "model.n_layer=two"}, {"n_layer", "two"}},
    {{"train", DATA, "--set", "model.n_layer=0"}, {"n_layer", "0"}},
    {{"train", DATA, "--model.n_head", "3"}, {"128", "3"}},
    {{"train", DATA, "--set", "model.model_type=gtp2"}, {"gtp2", "gpt2"}},
    /* Corpora. */
    {{"train"}, {"no corpus", "--data"}},
    {{"parity"}, {"no corpus", "--data"}},
    {{"train", "--data", "missing.txt"}, {"missing.txt"}},
    {{"train", "--data", "folder"}, {"folder"}},
    {{"train", "--data", "empty.txt"}, {"empty.txt", "0 bytes"}},
    {{"train", "--data", "latin1.txt"}, {"latin1.txt", "UTF-8"}},
    {{"train", "--data", "odd.bin"}, {"odd.bin", "3"}},
    {{"train", DATA, "--data_format", "txt"}, {"txt", "text"}},
    {{"verify", "--data_format", "u16"}, {"u16", "--data"}},
    {{"verify", "--data", "missing.txt"}, {"missing.txt"}},
    /* Run folders. */
    {{"train", DATA, "--run_dir", "text.txt"}, {"text.txt", "not a folder"}},
    {{"train", DATA, "--run_dir", "done"}, {"done", "metrics.jsonl", "another"}},
    {{"generate"}, {"--run"}},
    {{"generate", "--run", ""}, {"no run folder", "--run DIR"}},
    {{"generate", "--run", "missing"}, {"missing", "config.json"}},
    {{"generate", "--run", "folder", "--tokens", "0"}, {"--tokens is 0"}},
    {{"generate", "--run", "folder", "--temperature", "-1"}, {"--temperature is -1"}},
    {{"generate", "--run", "folder", "--temperature", "hot"}, {"--temperature", "'hot'"}},
    {{"generate", "--run", "folder", "--top-k", "-2"}, {"--top-k is -2"}},
    {{"generate", "--run", "folder", "--steps", "3"}, {"--steps"}},
    {{"generate", "folder"}, {"unexpected", "'folder'"}},
};

/* Refused by the plan, because model, mesh and corpus do not fit together. */
static const refusal plan_refusals[] = {
    {{"train", "--data", "short.txt", "--model", "gpt2-tiny", "--seq_len", "32"}, {"6", "33"}},
    {{"train", DATA, "--model", "gpt2-tiny", "--seq_len", "128"}, {"128", "64"}},
    {{"train", DATA, "--eval_fraction", "0.01"}, {"held-out", "0.01", "129"}},
    {{"train", "--data", "high.u16", "--model", "gpt2-tiny", "--seq_len", "1"}, {"61183", "257"}},
    {{"train", DATA, "--model.vocab_size", "100"}, {"256", "100", "257"}},
    {{"verify", "--model", "gpt2-tiny", "--seq_len", "64", "--mesh", "pp=64"}, {"64", "pp <= 4"}},
    {{"train", DATA, "--mesh", "dp=2,pp=9"}, {"pp=9", "pp <= 8"}},
    {{"train", DATA, "--weights", "missing.safetensors"}, {"missing.safetensors"}},
    {{"train", DATA, "--weights", "text.txt"}, {"text.txt"}},
};

/* Run files, each with what the message must hold. */
static const struct {
    const char *text;
    const char *const words[MOST_WORDS];
} files[] = {
    {"", {"run.yaml", "empty"}},
    {"# nothing\n", {"run.yaml", "empty"}},
    {"hello\n", {"run.yaml:1", "no keys"}},
    {"- steps\n- 3\n", {"run.yaml:1", "no keys"}},
    {"steps: 3\nstepz: 4\n", {"run.yaml:2", "'stepz'", "did you mean 'steps'"}},
    {"steps: 3\n\nsteps: 4\n", {"run.yaml:3", "steps is given twice", "run.yaml:1"}},
    {"batch_size: 4\nbatch-size: 8\n", {"run.yaml:2", "given twice"}},
    {"steps: ten\n", {"run.yaml:1", "'ten'", "whole number"}},
    {"steps: 1.5\n", {"run.yaml:1", "'1.5'"}},
    {"steps:\n", {"run.yaml:1", "steps has no value"}},
    {"steps: ~\n", {"run.yaml:1", "steps has no value"}},
    {"run_dir: NULL\n", {"run.yaml:1", "run_dir has no value"}},
    {"steps: [1, 2]\n", {"run.yaml:1", "steps is a list"}},
    {"mesh: {dp: 2}\n", {"run.yaml:1", "mesh is a mapping"}},
    {"? [a]\n: 3\n", {"run.yaml:1", "a key is a list"}},
    {"seed: &x 3\nsteps: *x\n", {"run.yaml:2", "steps is an alias"}},
    {"steps: 3\n---\nsteps: 4\n", {"run.yaml:2", "second document"}},
    {"steps: 3\nmesh: \"dp=2\n", {"run.yaml", "not YAML"}},
    {"steps: 3\n\tseed: 4\n", {"run.yaml:2", "not YAML"}},
    {"a: b: c\n", {"run.yaml:1", "not YAML"}},
    {"data: caf\xe9\n", {"run.yaml", "not YAML", "UTF-8"}},
    {"steps: 3\n\"st\\0p\": 4\n", {"run.yaml:2", "zero byte"}},
    {"model: {preset: gpt2-mini, n_layr: 2}\n", {"run.yaml:1", "n_layr", "n_layer"}},
    {"model: {preset: gpt2-mini, path: a.json}\n", {"run.yaml:1", "given twice"}},
    {"model: {preset: gpt2-mini, model_type: gpt2}\n", {"run.yaml:1", "model_type"}},
    {"model:\n  preset: gpt2-mini\n  n_layer: {a: 1}\n", {"run.yaml:3", "model.n_layer"}},
    {"model:\n  model_type: gtp2\n", {"run.yaml:2", "gtp2", "gpt2"}},
    {"model: [gpt2]\n", {"run.yaml:1", "model is a list"}},
    {"model: {model_type: }\n", {"run.yaml:1", "model_type has no value"}},
    {"model: {preset: {preset: gpt2-mini}}\n", {"run.yaml:1", "model is a mapping"}},
    {"model: gpt2-mini\nmodel: {n_layer: 2}\n",
     {"run.yaml:2", "model is given twice", "run.yaml:1"}},
    {"model: {n_layer: 2}\nmodel: {n_head: 2}\n", {"run.yaml:2", "model is given twice"}},
};

static void expect_refused(cli_place *place, const char *const *args, const char *const *words,
                           const char *what)
{
    int before = cli_n_entries(place);
    cli_run(place, args);
    if (place->code != 2) {
        fail_msg("%s: exit code %d, not 2; standard error: %s", what, place->code, place->err);
    }
    for (int i = 0; i < MOST_WORDS && words[i]; i++) {
        if (!strstr(place->err, words[i])) {
            fail_msg("%s: '%s' is missing in: %s", what, words[i], place->err);
        }
    }
    if (cli_n_entries(place) != before) {
        fail_msg("%s: something was written", what);
    }
}

/* The last line of standard error is the message; only a missing command prints help before it. */
static void expect_one_message(const cli_place *place, const char *what)
{
    const char *message = strstr(place->err, "yoke: ");
    if (!message || strchr(message, '\n') != message + strlen(message) - 1) {
        fail_msg("%s: not one line: %s", what, place->err);
    }
}

static void refuse_all(cli_place *place, const refusal *table, int n)
{
    for (int i = 0; i < n; i++) {
        char what[256] = "yoke";
        for (int k = 0; k < MOST_CASE_ARGS && table[i].args[k]; k++) {
            size_t used = strlen(what);
            (void)snprintf(what + used, sizeof what - used, " %s", table[i].args[k]);
        }
        expect_refused(place, table[i].args, table[i].words, what);
        expect_one_message(place, what);
    }
}

static void test_bad_command_lines_are_refused(void **state)
{
    refuse_all(*state, refusals, (int)(sizeof refusals / sizeof *refusals));
}

static void test_bad_plans_are_refused(void **state)
{
    refuse_all(*state, plan_refusals, (int)(sizeof plan_refusals / sizeof *plan_refusals));
}

static void test_bad_run_files_are_refused(void **state)
{
    cli_place *place = *state;
    cli_write_text(place, "run.yaml", "");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cli_write_text(place, "run.yaml", files[i].text);
        expect_refused(place, CLI_ARGS("train", "run.yaml", DATA), files[i].words, files[i].text);
    }
    const char *const missing[MOST_WORDS] = {"missing.yaml"};
    expect_refused(place, CLI_ARGS("train", "missing.yaml", DATA), missing, "missing run file");
    const char *const folder[MOST_WORDS] = {"run file", "folder"};
    expect_refused(place, CLI_ARGS("train", "folder", DATA), folder, "a folder as run file");
}

static void test_large_run_file_is_refused(void **state)
{
    cli_place *place = *state;
    size_t bytes = (size_t)3 << 19;
    char *text = calloc(bytes, 1);
    assert_non_null(text);
    memset(text, 'a', bytes);
    cli_write(place, "large.txt", text, bytes);
    free(text);
    const char *const words[MOST_WORDS] = {"large.txt", "1.5 MiB", "--data"};
    expect_refused(place, CLI_ARGS("train", "large.txt"), words, "a corpus as run file");
}

/* A hostile file costs no stack: mappings lie in one another as deep as the format has them, and no deeper. */
static void test_deep_run_file_is_refused(void **state)
{
    cli_place *place = *state;
    static char text[1 << 19] = "model: ";
    static const char level[] = "{preset: ";
    for (size_t used = strlen(text); used + sizeof level < sizeof text; used += sizeof level - 1) {
        memcpy(text + used, level, sizeof level);
    }
    cli_write_text(place, "run.yaml", text);
    const char *const words[MOST_WORDS] = {"run.yaml:1"};
    expect_refused(place, CLI_ARGS("train", "run.yaml", DATA), words, "a deep run file");
}

/* The command line wins over the file, the last of two over the first; seen by what is refused. */
static void test_later_settings_win(void **state)
{
    cli_place *place = *state;
    static const char *const nine[MOST_WORDS] = {"steps is -9"};
    cli_write_text(place, "run.yaml", "steps: -5\nlr: 0.5\n");
    expect_refused(place, CLI_ARGS("train", "run.yaml", DATA, "--steps", "-9"), nine, "flag");
    expect_refused(place, CLI_ARGS("train", "--set", "steps=-9", "run.yaml", DATA), nine, "--set");
    expect_refused(place, CLI_ARGS("train", DATA, "--steps", "4", "--set", "steps=-9"), nine,
                   "--set after flag");
    expect_refused(place, CLI_ARGS("train", DATA, "--set", "steps=4", "--steps=-9"), nine,
                   "flag after --set");
    /* A model named on the command line takes the file's model away, keys included. */
    static const char *const llama[MOST_WORDS] = {"num_hidden_layers", "0"};
    cli_write_text(place, "run.yaml", "model: {preset: gpt2-mini, n_layer: 4}\n");
    expect_refused(place,
                   CLI_ARGS("train", "run.yaml", DATA, "--model.num_hidden_layers", "0", "--model",
                            "llama-mini"),
                   llama, "another model");
}

static void test_json_ends_with_the_error(void **state)
{
    cli_place *place = *state;
    const char *const *const runs[] = {
        CLI_ARGS("train", "--json", "--stepz", "3"), CLI_ARGS("trian", "--json"),
        CLI_ARGS("verify", "--mesh", "dq=2", "--json"), CLI_ARGS("train", "missing.yaml", "--json"),
        CLI_ARGS("train", "--data", "caf\xe9", "--json")};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        cli_expect(place, 2, runs[i]);
        json_t *object = cli_last_line(place);
        assert_int_equal(json_integer_value(json_object_get(object, "code")), 2);
        const char *message = json_string_value(json_object_get(object, "error"));
        assert_non_null(message);
        assert_true(strlen(message) > 10);
        json_decref(object);
    }
}

static void test_verify_lists_its_errors(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 2, CLI_ARGS("verify", "--mesh", "dq=2", "--json"));
    json_t *object = cli_last_line(place);
    assert_true(json_is_false(json_object_get(object, "ok")));
    assert_int_equal(json_array_size(json_object_get(object, "errors")), 1);
    json_decref(object);
}

static void test_help_is_everywhere(void **state)
{
    cli_place *place = *state;
    for (int i = 0; i < N_COMMANDS; i++) {
        static char help[CLI_OUTPUT_BYTES];
        char usage[64];
        (void)snprintf(usage, sizeof usage, "usage: yoke %s", commands[i]);
        cli_expect(place, 0, CLI_ARGS(commands[i], "--help"));
        assert_non_null(strstr(place->out, usage));
        assert_non_null(strstr(place->out, "--json"));
        (void)snprintf(help, sizeof help, "%s", place->out);
        cli_expect(place, 0, CLI_ARGS("help", commands[i]));
        assert_string_equal(place->out, help);
        cli_expect(place, 0, CLI_ARGS(commands[i], "-h"));
        assert_string_equal(place->out, help);
        cli_expect(place, 0, CLI_ARGS("--help"));
        assert_non_null(strstr(place->out, commands[i]));
    }
}

static void test_help_names_every_key(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0, CLI_ARGS("train", "--help"));
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        char option[64];
        (void)snprintf(option, sizeof option, "  --%s ", yoke_config_key_get(i)->name);
        const char *first = strstr(place->out, option);
        if (!first || strstr(first + 1, option)) {
            fail_msg("%s stands not once in the help", option);
        }
    }
    cli_expect(place, 0, CLI_ARGS("help", "model"));
    assert_non_null(strstr(place->out, "model_type llama"));
    assert_non_null(strstr(place->out, "n_positions"));
    assert_non_null(strstr(place->out, "gpt2-mini"));
}

static void test_version_is_that_of_the_project(void **state)
{
    cli_place *place = *state;
    static char project[CLI_OUTPUT_BYTES];
    char version[32] = "";
    assert_true(cli_read(YOKE_SOURCE_DIR "/CMakeLists.txt", project));
    const char *line = strstr(project, "project(yoke VERSION ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "project(yoke VERSION %31s", version), 1);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "yoke %s\n", version);
    cli_expect(place, 0, CLI_ARGS("--version"));
    assert_string_equal(place->out, expected);
}

static void test_docs_hold_the_generated_tables(void **state)
{
    cli_place *place = *state;
    static char docs[CLI_OUTPUT_BYTES];
    assert_true(cli_read(YOKE_SOURCE_DIR "/docs/cli.md", docs));
    cli_expect(place, 0, CLI_ARGS("help", "--markdown"));
    assert_true(strlen(place->out) > 1000);
    if (!strstr(docs, place->out)) {
        fail_msg(
            "docs/cli.md is not up to date: replace what stands between its two markers by the "
            "output of `yoke help --markdown`");
    }
}

static void test_full_output_is_an_error(void **state)
{
    cli_place *place = *state;
    cli_finish(place, cli_start(place, "/dev/full", CLI_ARGS("train", "--help")));
    assert_int_equal(place->code, 1);
    assert_non_null(strstr(place->err, "could not be written"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_command_lines_are_refused),
        cmocka_unit_test(test_bad_plans_are_refused),
        cmocka_unit_test(test_bad_run_files_are_refused),
        cmocka_unit_test(test_large_run_file_is_refused),
        cmocka_unit_test(test_deep_run_file_is_refused),
        cmocka_unit_test(test_later_settings_win),
        cmocka_unit_test(test_json_ends_with_the_error),
        cmocka_unit_test(test_verify_lists_its_errors),
        cmocka_unit_test(test_help_is_everywhere),
        cmocka_unit_test(test_help_names_every_key),
        cmocka_unit_test(test_version_is_that_of_the_project),
        cmocka_unit_test(test_docs_hold_the_generated_tables),
        cmocka_unit_test(test_full_output_is_an_error),
    };
    return cmocka_run_group_tests(tests, create_place, destroy_place);
}
