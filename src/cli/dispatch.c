/*
 * Dispatch: from argv to a command, and from its status to exit code, message and the last line of --json.
 *
 * The only place that prints errors. Exit codes: 0 good, 1 a check failed or the machine did, 2 bad input, 130 interrupted.
 */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>
#include "base/float.h"
#include "base/text.h"
#include "cli/format.h"
#include "cli/help.h"
#include "cli/version.h"

static const yoke_command *const commands[YOKE_N_COMMANDS] = {
#define ENTRY(name) &yoke_command_##name,
    YOKE_COMMAND_LIST(ENTRY)
#undef ENTRY
};

static const size_t arena_bytes = (size_t)256 << 20;

const yoke_command *yoke_command_get(int index)
{
    YOKE_ASSERT(index >= 0 && index < YOKE_N_COMMANDS);
    return commands[index];
}

yoke_status yoke_command_find(const char *name, const yoke_command **command)
{
    const char *names[YOKE_N_COMMANDS];
    char list[160] = "";
    for (int i = 0; i < YOKE_N_COMMANDS; i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            *command = commands[i];
            return YOKE_OK;
        }
        names[i] = commands[i]->name;
        size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *nearest = yoke_text_nearest(name, names, YOKE_N_COMMANDS);
    return YOKE_FAIL(YOKE_BAD_INPUT, "unknown command '%.80s'%s%s%s There are %s", name,
                     nearest ? "; did you mean '" : "", nearest ? nearest : "",
                     nearest ? "'?" : ".", list);
}

static int exit_code(yoke_code code)
{
    switch (code) {
    case YOKE_GOOD:
        return 0;
    case YOKE_BAD_INPUT:
        return 2;
    case YOKE_INTERRUPTED:
        return 130;
    case YOKE_NO_MEMORY:
    case YOKE_IO:
    case YOKE_CHECK:
    case YOKE_RANK_LOST:
        break;
    }
    return 1;
}

/* One line, whatever the message quotes: a name may hold a newline, or what a terminal takes for a command. */
static void print_message(const char *message)
{
    (void)fputs("yoke: ", stderr);
    while (*message) {
        size_t plain = 0;
        while ((unsigned char)message[plain] >= 0x20 && message[plain] != 0x7f) {
            plain++;
        }
        (void)fwrite(message, 1, plain, stderr);
        message += plain;
        if (*message) {
            (void)fprintf(stderr, "\\x%02X", (unsigned)(unsigned char)*message++);
        }
    }
    (void)fputc('\n', stderr);
}

/* Ends the program's output: the error, the JSON object, and a look whether all of it could be written. */
static int finish(yoke_status status, json_t *result, bool json)
{
    int code = exit_code(yoke_status_code(status));
    if (status) {
        /* Everything printed before it stands before it, also where both go to one file. */
        (void)fflush(stdout);
        print_message(yoke_status_message(status));
        (void)json_object_set_new(result, "error", yoke_json_text(yoke_status_message(status)));
        (void)json_object_set_new(result, "code", json_integer(code));
        yoke_status_free(status);
    }
    if (json) {
        (void)json_dumpf(result, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(result);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "yoke: the output could not be written; is the disk full?\n");
        return code == 0 ? 1 : code;
    }
    return code;
}

static yoke_status run_command(yoke_invocation *invocation, int argc, char **argv, json_t *result)
{
    YOKE_TRY(yoke_command_find(argv[1], &invocation->command));
    YOKE_TRY(yoke_invocation_parse(invocation, argc - 2, argv + 2));
    if (invocation->help) {
        yoke_help_print_command(invocation->command);
        return YOKE_OK;
    }
    return invocation->command->run(invocation, result);
}

static bool has_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            return true;
        }
    }
    return false;
}

static bool is_any(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

int yoke_dispatch(int argc, char **argv)
{
    yoke_arena *arena = NULL;
    yoke_float_flush_denormals();
    json_t *result = json_object();
    yoke_status status = yoke_arena_create(&arena, arena_bytes);
    if (status) {
        return finish(status, result, false);
    }
    bool json = has_json(argc, argv);
    if (argc < 2) {
        yoke_help_print_all(stderr);
        status = YOKE_FAIL(YOKE_BAD_INPUT, "no command; start with `yoke train --help`");
    } else if (is_any(argv[1], "--help", "-h")) {
        yoke_help_print_all(stdout);
    } else if (is_any(argv[1], "--version", "-V")) {
        (void)printf("yoke %s\n", YOKE_VERSION);
    } else {
        yoke_invocation invocation = {.arena = arena};
        status = run_command(&invocation, argc, argv, result);
    }
    int code = finish(status, result, json);
    yoke_arena_destroy(arena);
    return code;
}
