/*
 * Runs the program as a user would: in a folder of its own, output and exit code kept.
 *
 * A test makes one cli_place in its setup. It relies on YOKE_BINARY; a run that takes longer than a minute is ended.
 */
#ifndef YOKE_TESTS_CLI_RUN_H
#define YOKE_TESTS_CLI_RUN_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

enum { CLI_OUTPUT_BYTES = 1 << 18, CLI_PATH_BYTES = 512, CLI_MOST_ARGS = 40 };

typedef struct cli_place {
    char root[64];              /* removed at the end */
    char work[80];              /* the working folder of the program */
    char out[CLI_OUTPUT_BYTES]; /* of the last run */
    char err[CLI_OUTPUT_BYTES];
    int code; /* exit code, or 128 + signal */
} cli_place;

static inline void cli_path(const cli_place *place, const char *name, char path[CLI_PATH_BYTES])
{
    (void)snprintf(path, CLI_PATH_BYTES, "%s/%s", place->work, name);
}

static inline void cli_write(const cli_place *place, const char *name, const void *data,
                             size_t bytes)
{
    char path[CLI_PATH_BYTES];
    cli_path(place, name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void cli_write_text(const cli_place *place, const char *name, const char *text)
{
    cli_write(place, name, text, strlen(text));
}

/* Reads at most CLI_OUTPUT_BYTES - 1; false if there is no such file. */
static inline bool cli_read(const char *path, char *text)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return false;
    }
    size_t bytes = fread(text, 1, CLI_OUTPUT_BYTES - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
    return true;
}

static inline bool cli_exists(const cli_place *place, const char *name)
{
    char path[CLI_PATH_BYTES];
    struct stat info;
    cli_path(place, name, path);
    return lstat(path, &info) == 0;
}

/* Entries of the working folder. */
static inline int cli_n_entries(const cli_place *place)
{
    int n = 0;
    DIR *folder = opendir(place->work);
    assert_non_null(folder);
    while (readdir(folder)) {
        n++;
    }
    (void)closedir(folder);
    return n;
}

static inline cli_place *cli_place_create(void)
{
    cli_place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    (void)snprintf(place->root, sizeof place->root, "%s", "/tmp/yoke-cli-XXXXXX");
    assert_non_null(mkdtemp(place->root));
    (void)snprintf(place->work, sizeof place->work, "%s/work", place->root);
    assert_int_equal(mkdir(place->work, 0777), 0);
    return place;
}

static inline void cli_place_destroy(cli_place *place)
{
    pid_t child = fork();
    if (child == 0) {
        (void)execlp("rm", "rm", "-rf", place->root, (char *)NULL);
        _exit(1);
    }
    (void)waitpid(child, NULL, 0);
    free(place);
}

static inline void cli_redirect(int to, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, to) < 0) {
        _exit(99);
    }
    (void)close(file);
}

/* Starts the program; standard output goes to `out_path`, to place->root/out if NULL, or is closed if "-". `args` end with
 * NULL. */
static inline pid_t cli_start(const cli_place *place, const char *out_path, const char *const *args)
{
    const char *argv[CLI_MOST_ARGS + 2] = {YOKE_BINARY};
    char out[CLI_PATH_BYTES];
    char err[CLI_PATH_BYTES];
    int n = 0;
    while (args[n]) {
        assert_true(n < CLI_MOST_ARGS);
        argv[n + 1] = args[n];
        n++;
    }
    (void)snprintf(out, sizeof out, "%s/out", place->root);
    (void)snprintf(err, sizeof err, "%s/err", place->root);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, 0) < 0 || chdir(place->work) != 0) {
            _exit(99);
        }
        if (out_path && strcmp(out_path, "-") == 0) {
            (void)close(1);
        } else {
            cli_redirect(1, out_path ? out_path : out);
        }
        cli_redirect(2, err);
        (void)alarm(60);
        /* execv does not change what it is given; its type is older than const. */
        union {
            const char **with;
            char **without;
        } arguments = {argv};
        (void)execv(YOKE_BINARY, arguments.without);
        _exit(98);
    }
    return child;
}

/* Waits for the end and takes code and output into the place. */
static inline void cli_finish(cli_place *place, pid_t child)
{
    char path[CLI_PATH_BYTES];
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    place->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    place->out[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/out", place->root);
    (void)cli_read(path, place->out);
    (void)snprintf(path, sizeof path, "%s/err", place->root);
    assert_true(cli_read(path, place->err));
}

static inline void cli_run(cli_place *place, const char *const *args)
{
    cli_finish(place, cli_start(place, NULL, args));
}

/* Runs and expects an exit code. */
static inline void cli_expect(cli_place *place, int code, const char *const *args)
{
    cli_run(place, args);
    if (place->code != code) {
        fail_msg("yoke %s %s ...: exit code %d, not %d; standard error: %s", args[0],
                 args[1] ? args[1] : "", place->code, code, place->err);
    }
}

#define CLI_ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The last line of the output as an object; the caller decrefs it. */
static inline json_t *cli_last_line(const cli_place *place)
{
    size_t end = strlen(place->out);
    if (end == 0 || place->out[end - 1] != '\n') {
        fail_msg("the output does not end with a line: %s", place->out);
    }
    size_t begin = end - 1;
    while (begin > 0 && place->out[begin - 1] != '\n') {
        begin--;
    }
    json_error_t error;
    json_t *object = json_loadb(place->out + begin, end - begin, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) {
        fail_msg("the last line is no JSON object: %s", place->out + begin);
    }
    return object;
}

#endif
