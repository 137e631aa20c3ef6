/*
 * labels: slow
 * The command line as a user types it, where it is not refused: train, show, parity and generate from end to end; verify is in test_cli_verify.c.
 *
 * Models are tiny and runs a few steps long; what is tested is the contract of files, JSON and exit codes, not learning.
 */
/* For the pseudo terminal. */
#undef _POSIX_C_SOURCE
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sys/ioctl.h>
#include <time.h>
#include "cli_run.h"

#define TINY "--model", "gpt2-tiny", "--data", "text.txt", "--seq_len", "24", "--batch_size", "6"

static int create_place(void **state)
{
    cli_place *place = cli_place_create();
    static const char sentence[] = "It is a truth universally acknowledged, that oxen pull. ";
    for (int i = 0; i < 200; i++) {
        memcpy(place->out + (size_t)i * (sizeof sentence - 1), sentence, sizeof sentence);
    }
    cli_write_text(place, "text.txt", place->out);
    *state = place;
    return 0;
}

static int destroy_place(void **state)
{
    cli_place_destroy(*state);
    return 0;
}

static void wait_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) {
        fail_msg("%s is no number", key);
    }
    return json_number_value(value);
}

static int n_lines(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

/* A file of the run folder `run`, below the working folder. */
static void read_run_file(const cli_place *place, const char *run, const char *name, char *text)
{
    char path[CLI_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s/%s", place->work, run, name);
    if (!cli_read(path, text)) {
        fail_msg("there is no %s", path);
    }
}

static char file_text[CLI_OUTPUT_BYTES];

static void test_train_keeps_its_contract(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0,
               CLI_ARGS("train", TINY, "--steps", "5", "--mesh", "dp=2", "--eval_interval", "2",
                        "--eval_batches", "1", "--run_dir", "a/first", "--json"));
    json_t *object = cli_last_line(place);
    assert_true(number(object, "steps") == 5);
    assert_true(number(object, "loss") > 0 && number(object, "loss") < 20);
    assert_true(number(object, "eval_loss") > 0 && number(object, "eval_loss") < 20);
    assert_true(number(object, "tokens_per_s") > 0);
    assert_true(number(object, "roof_share") > 0 && number(object, "roof_share") < 1.5);
    assert_true(number(object, "step_allocations") == 0);
    json_t *exposed = json_object_get(object, "exposed_s");
    assert_true(number(exposed, "dp") > 0 && number(exposed, "dp") < number(object, "seconds"));
    assert_true(number(exposed, "tp") == 0);
    assert_int_equal(json_array_size(json_object_get(object, "peak_bytes")), 2);
    assert_int_equal(json_array_size(json_object_get(object, "planned_bytes")), 2);
    for (size_t rank = 0; rank < 2; rank++) {
        double peak =
            json_number_value(json_array_get(json_object_get(object, "peak_bytes"), rank));
        double planned =
            json_number_value(json_array_get(json_object_get(object, "planned_bytes"), rank));
        assert_true(planned > 0 && peak > planned / 2);
    }
    assert_string_equal(json_string_value(json_object_get(object, "run_dir")), "a/first");
    json_decref(object);

    read_run_file(place, "a/first", "summary.json", file_text);
    json_t *summary = json_loads(file_text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(summary, "ended")), "finished");
    assert_true(number(summary, "steps") == 5);
    json_decref(summary);
    read_run_file(place, "a/first", "model.safetensors", file_text);
    read_run_file(place, "a/first", "config.json", file_text);
    assert_non_null(strstr(file_text, "\"gpt2\""));
}

/* One object a step, and one an evaluation: after steps 2 and 4, and after the last. */
static void test_metrics_hold_every_step(void **state)
{
    cli_place *place = *state;
    static const char *const keys[] = {"loss",         "lr",      "grad_norm",
                                       "tokens_per_s", "seconds", "n_valid"};
    int n_steps = 0;
    int n_evaluations = 0;
    read_run_file(place, "a/first", "metrics.jsonl", file_text);
    for (char *line = strtok(file_text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        if (json_object_get(object, "eval_loss")) {
            n_evaluations++;
            assert_true(number(object, "eval_loss") > 0);
        } else {
            n_steps++;
            assert_true(number(object, "step") == n_steps);
            for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
                assert_true(number(object, keys[i]) > 0);
            }
            assert_true(number(object, "n_valid") == 6 * 24);
            assert_true(json_is_false(json_object_get(object, "skipped")));
        }
        json_decref(object);
    }
    assert_int_equal(n_steps, 5);
    assert_int_equal(n_evaluations, 3);
}

/* Losses of all steps, as they stand in the file: equal texts are equal bits. */
static void read_losses(const cli_place *place, const char *run, double losses[5])
{
    int n = 0;
    read_run_file(place, run, "metrics.jsonl", file_text);
    for (char *line = strtok(file_text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "loss")) {
            assert_true(n < 5);
            losses[n++] = number(object, "loss");
        }
        json_decref(object);
    }
    assert_int_equal(n, 5);
}

/* Each layer's shares, which are 1 together; the weights are read back under HuggingFace's names. */
static void test_experts_tell_their_load(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0,
               CLI_ARGS("train", TINY, "--model", "mixtral-tiny", "--steps", "2", "--mesh", "ep=2",
                        "--log_interval", "1", "--run_dir", "experts", "--recompute", "full"));
    assert_non_null(strstr(place->out, "  load "));
    assert_non_null(strstr(place->out, "\nrecompute "));
    assert_non_null(strstr(place->out, "layers.1 full\n"));
    read_run_file(place, "experts", "metrics.jsonl", file_text);
    json_t *object = json_loads(strtok(file_text, "\n"), JSON_REJECT_DUPLICATES, NULL);
    assert_true(number(object, "aux_loss") > 0);
    json_t *layers = json_object_get(object, "expert_load");
    assert_int_equal(json_array_size(layers), 2);
    for (size_t layer = 0; layer < 2; layer++) {
        double sum = 0;
        for (size_t i = 0; i < 4; i++) {
            sum += json_number_value(json_array_get(json_array_get(layers, layer), i));
        }
        assert_true(fabs(sum - 1) < 1e-6);
    }
    json_decref(object);
    cli_expect(place, 0, CLI_ARGS("generate", "--run", "experts", "--tokens", "5"));
}

static void test_resolved_config_repeats_the_run(void **state)
{
    cli_place *place = *state;
    double first[5];
    double again[5];
    cli_expect(place, 0, CLI_ARGS("train", "a/first/config.yaml", "--run_dir", "again"));
    read_losses(place, "a/first", first);
    read_losses(place, "again", again);
    assert_memory_equal(first, again, sizeof first);
    /* The resolved configs of both are the same: a fixed point. */
    static char other[CLI_OUTPUT_BYTES];
    read_run_file(place, "a/first", "config.yaml", other);
    read_run_file(place, "again", "config.yaml", file_text);
    assert_string_equal(strstr(other, "\nweights"), strstr(file_text, "\nweights"));
    assert_string_equal(strstr(other, "\nmodel"), strstr(file_text, "\nmodel"));
}

static void test_log_has_one_line_a_step(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0,
               CLI_ARGS("train", TINY, "--steps", "6", "--log_interval", "3", "--zero", "1"));
    assert_non_null(strstr(place->out, "\nnote: zero has no effect"));
    assert_null(strstr(place->out, "recompute"));
    assert_null(strchr(place->out, '\r'));
    assert_non_null(strstr(place->out, "\nstep 3/6  loss "));
    assert_non_null(strstr(place->out, "\nstep 6/6  loss "));
    assert_null(strstr(place->out, "\nstep 1/6"));
    assert_non_null(strstr(place->out, "run folder runs/gpt2-tiny-"));
    assert_true(cli_exists(place, "runs"));
}

/* A step without a valid label is skipped, visibly; max_skipped of them end the run. */
static void test_skipped_steps_are_told(void **state)
{
    cli_place *place = *state;
    char same[600];
    memset(same, 'a', sizeof same);
    cli_write(place, "same.txt", same, sizeof same);
    cli_expect(place, 1,
               CLI_ARGS("train", "--model", "gpt2-tiny", "--data", "same.txt", "--ignore_token",
                        "97", "--seq_len", "8", "--batch_size", "2", "--steps", "100",
                        "--max_skipped", "4", "--run_dir", "skipped", "--json"));
    assert_non_null(strstr(place->out, "step 1 skipped: no valid label"));
    assert_non_null(strstr(place->err, "4 steps in a row"));
    assert_non_null(strstr(place->err, "no valid label"));
    json_t *object = cli_last_line(place);
    assert_true(number(object, "code") == 1);
    assert_true(json_is_null(json_object_get(object, "loss")));
    json_decref(object);
    read_run_file(place, "skipped", "summary.json", file_text);
    assert_non_null(strstr(file_text, "\"failed\""));
    assert_false(cli_exists(place, "skipped/model.safetensors"));

    cli_expect(place, 0,
               CLI_ARGS("train", "--model", "gpt2-tiny", "--data", "same.txt", "--ignore_token",
                        "97", "--seq_len", "8", "--batch_size", "2", "--steps", "1"));
    assert_non_null(strstr(place->out, "\nstep 1 evaluation loss not finite, or of no label"));
    assert_non_null(strstr(place->out, "\nloss none, as the last step was skipped\n"));
    assert_null(strstr(place->out, "nan"));
}

/* With standard output closed no file may take its place: what is printed would end in the metrics. */
static void test_closed_output_spoils_no_file(void **state)
{
    cli_place *place = *state;
    cli_finish(place, cli_start(place, "-",
                                CLI_ARGS("train", TINY, "--steps", "2", "--run_dir", "closed")));
    assert_int_equal(place->code, 1);
    assert_non_null(strstr(place->err, "could not be written"));
    read_run_file(place, "closed", "metrics.jsonl", file_text);
    for (char *line = strtok(file_text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(object));
        json_decref(object);
    }
    assert_true(cli_exists(place, "closed/model.safetensors"));
}

/* More memory than any machine has. */
static void test_plan_that_does_not_fit_leaves_nothing(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 1,
               CLI_ARGS("train", TINY, "--batch_size", "16777216", "--run_dir", "too/large"));
    assert_non_null(strstr(place->err, "the plan needs"));
    assert_false(cli_exists(place, "too"));
}

/* Starts a run that would take long, and returns once it has done a step. */
static pid_t start_long_run(cli_place *place, const char *run)
{
    pid_t child = cli_start(place, NULL,
                            CLI_ARGS("train", TINY, "--steps", "1000000", "--mesh", "dp=2",
                                     "--run_dir", run, "--json"));
    char path[CLI_PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s/metrics.jsonl", place->work, run);
    for (int tries = 0; tries < 600; tries++) {
        if (cli_read(path, file_text) && strchr(file_text, '\n')) {
            return child;
        }
        wait_ms(50);
    }
    (void)kill(child, SIGKILL);
    fail_msg("no step was done in 30 s");
    return child;
}

static void interrupt(void **state, int signal, const char *run)
{
    cli_place *place = *state;
    pid_t child = start_long_run(place, run);
    assert_int_equal(kill(child, signal), 0);
    time_t begin = time(NULL);
    cli_finish(place, child);
    assert_true(time(NULL) - begin <= 5);
    assert_int_equal(place->code, 130);
    assert_non_null(strstr(place->err, "interrupted"));
    json_t *object = cli_last_line(place);
    assert_true(number(object, "code") == 130);
    assert_true(number(object, "steps") >= 1);
    json_decref(object);
    read_run_file(place, run, "summary.json", file_text);
    assert_non_null(strstr(file_text, "\"interrupted\""));
    read_run_file(place, run, "metrics.jsonl", file_text);
    assert_true(n_lines(file_text) >= 1);
}

static void test_ctrl_c_keeps_the_metrics(void **state)
{
    interrupt(state, SIGINT, "stopped");
}

static void test_sigterm_keeps_the_metrics(void **state)
{
    interrupt(state, SIGTERM, "terminated");
}

/* The terminal went away. */
static void test_sighup_keeps_the_metrics(void **state)
{
    interrupt(state, SIGHUP, "hung_up");
}

/* The program's output on a terminal of the given width. */
static void run_on_terminal(cli_place *place, unsigned short columns, const char *const *args)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0);
    assert_int_equal(grantpt(master), 0);
    assert_int_equal(unlockpt(master), 0);
    const char *name = ptsname(master);
    assert_non_null(name);
    int slave = open(name, O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    pid_t child = cli_start(place, name, args);
    (void)close(slave);
    static char seen[CLI_OUTPUT_BYTES];
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n<sizeof seen - 1; n += got> 0 ? (size_t)got : 0) {
        got = read(master, seen + n, sizeof seen - 1 - n);
    }
    seen[n] = '\0';
    cli_finish(place, child);
    (void)close(master);
    (void)snprintf(place->out, sizeof place->out, "%s", seen);
}

/* The live line is drawn over itself, and never wider than the terminal. */
static void test_terminal_gets_one_live_line(void **state)
{
    cli_place *place = *state;
    const int columns = 44;
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    run_on_terminal(place, (unsigned short)columns,
                    CLI_ARGS("train", TINY, "--steps", "30", "--run_dir", "terminal"));
    assert_int_equal(place->code, 0);
    int n_drawn = 0;
    for (const char *line = strstr(place->out, "\rstep "); line;
         line = strstr(line + 1, "\rstep ")) {
        size_t width = strcspn(line + 1, "\033\r\n");
        assert_true(width < (size_t)columns);
        n_drawn++;
    }
    assert_true(n_drawn >= 1 && n_drawn <= 30);
    assert_non_null(strstr(place->out, "step 30/30"));
    assert_null(strstr(place->out, "step 30/30\n"));
}

/* One that can erase nothing gets lines, as a file does. */
static void test_dumb_terminal_gets_lines(void **state)
{
    cli_place *place = *state;
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    run_on_terminal(place, 200, CLI_ARGS("train", TINY, "--steps", "3", "--run_dir", "dumb"));
    assert_int_equal(place->code, 0);
    assert_null(strchr(place->out, '\033'));
    assert_non_null(strstr(place->out, "\nstep 1/3  loss "));
    assert_non_null(strstr(place->out, "\nstep 3/3  loss "));
}

static void test_show_prints_every_stage(void **state)
{
    cli_place *place = *state;
    static const char *const subjects[] = {"graph", "layout", "schedule", "program"};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        cli_expect(place, 0,
                   CLI_ARGS("show", subjects[i], "--model", "gpt2-tiny", "--seq_len", "24",
                            "--mesh", "dp=2,pp=2", "--microbatches", "2"));
        assert_true(n_lines(place->out) >= 3);
    }
    int all = n_lines(place->out);
    cli_expect(place, 0,
               CLI_ARGS("show", "program", "--model", "gpt2-tiny", "--seq_len", "24", "--mesh",
                        "dp=2,pp=2", "--microbatches", "2", "--rank", "3"));
    assert_true(n_lines(place->out) < all / 2);
    cli_expect(
        place, 2,
        CLI_ARGS("show", "program", "--model", "gpt2-tiny", "--seq_len", "24", "--rank", "1"));
    assert_non_null(strstr(place->err, "--rank is 1"));
}

static void test_parity_keeps_its_contract(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0, CLI_ARGS("parity", TINY, "--mesh", "dp=3", "--steps", "3", "--json"));
    json_t *object = cli_last_line(place);
    assert_true(json_is_true(json_object_get(object, "ok")));
    assert_true(number(object, "grad_rel") <= 1e-5);
    assert_true(number(object, "norm_rel") <= 1e-5);
    assert_true(number(object, "loss_rel") <= 1e-6);
    assert_true(number(object, "weights_rel") <= 1e-4);
    assert_true(json_is_boolean(json_object_get(object, "bits_equal")));
    assert_true(json_is_null(json_object_get(object, "first_difference")));
    json_decref(object);

    cli_expect(place, 0,
               CLI_ARGS("parity", TINY, "--mesh", "pp=2", "--zero", "1", "--steps", "2", "--json"));
    assert_non_null(strstr(place->out, "\nnote: zero has no effect"));
    object = cli_last_line(place);
    assert_true(json_is_true(json_object_get(object, "bits_equal")));
    assert_true(json_is_null(json_object_get(object, "first_difference")));
    json_decref(object);
}

static void test_generate_writes_the_same_text_for_a_seed(void **state)
{
    cli_place *place = *state;
    static char first[CLI_OUTPUT_BYTES];
    cli_expect(place, 0,
               CLI_ARGS("generate", "--run", "a/first", "--prompt", "It is", "--tokens", "40",
                        "--seed", "3", "--json"));
    json_t *object = cli_last_line(place);
    /* As long as the sequences of the training. */
    assert_true(number(object, "window") == 24);
    assert_true(json_array_size(json_object_get(object, "tokens")) <= 40);
    assert_true(json_array_size(json_object_get(object, "tokens")) >= 1);
    json_decref(object);
    assert_memory_equal(place->out, "It is", 5);
    memcpy(first, place->out, sizeof first);
    cli_expect(place, 0,
               CLI_ARGS("generate", "--run", "a/first", "--prompt", "It is", "--tokens", "40",
                        "--seed", "3", "--json"));
    assert_memory_equal(place->out, first, strlen(first) + 1);
    cli_expect(place, 0,
               CLI_ARGS("generate", "--run", "a/first", "--prompt", "It is", "--tokens", "40",
                        "--seed", "4", "--json"));
    assert_true(strcmp(place->out, first) != 0);
}

static void test_generate_takes_tokens(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 0,
               CLI_ARGS("generate", "--run", "a/first", "--prompt-ids", "73 116", "--tokens", "3",
                        "--temperature", "0"));
    assert_memory_equal(place->out, "It", 2);
    cli_expect(place, 2, CLI_ARGS("generate", "--run", "a/first", "--prompt-ids", "257"));
    assert_non_null(strstr(place->err, "257"));
    cli_expect(place, 2,
               CLI_ARGS("generate", "--run", "a/first", "--prompt", "a", "--prompt-ids", "1"));
    assert_non_null(strstr(place->err, "both"));
}

/* A model of long sequences, and more of them than any machine has memory for. */
static void test_generate_refuses_what_does_not_fit(void **state)
{
    cli_place *place = *state;
    static const char key[] = "\"max_position_embeddings\": ";
    char path[CLI_PATH_BYTES];
    cli_expect(place, 0,
               CLI_ARGS("train", "--model", "llama-tiny", "--data", "text.txt", "--seq_len", "8",
                        "--batch_size", "2", "--steps", "1", "--run_dir", "llama"));
    read_run_file(place, "llama", "config.json", file_text);
    char *length = strstr(file_text, key);
    assert_non_null(length);
    length += sizeof key - 1;
    char *rest = strchr(length, ',');
    assert_non_null(rest);
    static char changed[CLI_OUTPUT_BYTES];
    (void)snprintf(changed, sizeof changed, "%.*s16777216%s", (int)(length - file_text), file_text,
                   rest);
    cli_path(place, "long", path);
    assert_int_equal(mkdir(path, 0777), 0);
    cli_write_text(place, "long/config.json", changed);
    cli_path(place, "long/model.safetensors", path);
    assert_int_equal(symlink("../llama/model.safetensors", path), 0);
    cli_expect(place, 0, CLI_ARGS("generate", "--run", "long", "--tokens", "2"));
    cli_expect(place, 1, CLI_ARGS("generate", "--run", "long", "--tokens", "16777216"));
    assert_non_null(strstr(place->err, "a window of 16777216 tokens; use fewer --tokens"));
}

/* A run goes on from the weights of another: its first loss is not that of random weights. */
static void test_weights_are_taken_up(void **state)
{
    cli_place *place = *state;
    double first[5];
    double onwards[5];
    read_losses(place, "a/first", first);
    cli_expect(place, 0,
               CLI_ARGS("train", "a/first/config.yaml", "--weights", "a/first/model.safetensors",
                        "--run_dir", "onwards"));
    read_losses(place, "onwards", onwards);
    assert_true(onwards[0] < first[0]);
    cli_expect(place, 2,
               CLI_ARGS("train", TINY, "--model.n_layer", "1", "--weights",
                        "a/first/model.safetensors", "--run_dir", "misfit"));
    assert_false(cli_exists(place, "misfit"));
    cli_expect(place, 2, CLI_ARGS("train", TINY, "--weights", "none", "--run_dir", "misfit"));
    assert_false(cli_exists(place, "misfit"));
}

static void test_folder_that_cannot_be_made_leaves_nothing(void **state)
{
    cli_place *place = *state;
    cli_expect(place, 2, CLI_ARGS("train", TINY, "--steps", "1", "--run_dir", "text.txt/run"));
    /* A name longer than any file system takes: the folders above it are taken away again. */
    char name[300] = "new/above/";
    memset(name + strlen(name), 'n', sizeof name - 1 - strlen(name));
    name[sizeof name - 1] = '\0';
    cli_expect(place, 2, CLI_ARGS("train", TINY, "--steps", "1", "--run_dir", name));
    assert_non_null(strstr(place->err, "--run_dir"));
    assert_false(cli_exists(place, "new"));
    cli_expect(place, 2, CLI_ARGS("train", TINY, "--steps", "1", "--run_dir", "a/first"));
    assert_non_null(strstr(place->err, "a/first already holds"));
    char path[CLI_PATH_BYTES];
    /* As if another run had begun there since the folder was looked at: stat sees no file, and none can be made. */
    cli_path(place, "race", path);
    assert_int_equal(mkdir(path, 0777), 0);
    cli_path(place, "race/metrics.jsonl", path);
    assert_int_equal(symlink("gone", path), 0);
    cli_expect(place, 2, CLI_ARGS("train", TINY, "--steps", "1", "--run_dir", "race"));
    assert_non_null(strstr(place->err, "another run has begun in race"));
    assert_false(cli_exists(place, "race/config.yaml"));
    /* Root may write everywhere. */
    cli_path(place, "read-only", path);
    assert_int_equal(mkdir(path, 0555), 0);
    if (access(path, W_OK) != 0) {
        cli_expect(place, 2, CLI_ARGS("train", TINY, "--steps", "1", "--run_dir", "read-only"));
        assert_non_null(strstr(place->err, "read-only cannot be written to"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_keeps_its_contract),
        cmocka_unit_test(test_metrics_hold_every_step),
        cmocka_unit_test(test_experts_tell_their_load),
        cmocka_unit_test(test_resolved_config_repeats_the_run),
        cmocka_unit_test(test_log_has_one_line_a_step),
        cmocka_unit_test(test_skipped_steps_are_told),
        cmocka_unit_test(test_ctrl_c_keeps_the_metrics),
        cmocka_unit_test(test_closed_output_spoils_no_file),
        cmocka_unit_test(test_plan_that_does_not_fit_leaves_nothing),
        cmocka_unit_test(test_sigterm_keeps_the_metrics),
        cmocka_unit_test(test_sighup_keeps_the_metrics),
        cmocka_unit_test(test_terminal_gets_one_live_line),
        cmocka_unit_test(test_dumb_terminal_gets_lines),
        cmocka_unit_test(test_show_prints_every_stage),
        cmocka_unit_test(test_parity_keeps_its_contract),
        cmocka_unit_test(test_generate_writes_the_same_text_for_a_seed),
        cmocka_unit_test(test_generate_takes_tokens),
        cmocka_unit_test(test_generate_refuses_what_does_not_fit),
        cmocka_unit_test(test_weights_are_taken_up),
        cmocka_unit_test(test_folder_that_cannot_be_made_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, create_place, destroy_place);
}
