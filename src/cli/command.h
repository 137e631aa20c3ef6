/*
 * Command: one word after `yoke`.
 *
 * Adding one: a file with a `const yoke_command`, and a line in YOKE_COMMAND_LIST. Parsing, help and docs/cli.md follow from the
 * struct. A command says what happened by its status, and its results by the JSON object; the exit code and the last
 * line of --json are made from the two in one place, dispatch.c.
 */
#ifndef YOKE_CLI_COMMAND_H
#define YOKE_CLI_COMMAND_H

#include <jansson.h>
#include "cli/invocation.h"

typedef enum yoke_option_kind {
    YOKE_OPTION_SWITCH, /* takes no value */
    YOKE_OPTION_INT,
    YOKE_OPTION_REAL,
    YOKE_OPTION_TEXT
} yoke_option_kind;

/* An option that one command has beside the keys of a run. It hides a key of the same name. */
typedef struct yoke_option {
    const char *name; /* without the dashes */
    yoke_option_kind kind;
    const char *fallback; /* read as if it was typed; NULL: a switch, or none */
    const char *unit;
    const char *help;
} yoke_option;

struct yoke_command {
    const char *name;
    const char *summary;         /* one line */
    const char *details;         /* a paragraph for --help and the docs, or NULL */
    const char *usage;           /* what follows `yoke <name>` */
    const char *const *subjects; /* words of which the first argument must be one; NULL: none */
    int n_subjects;
    bool subject_optional;
    bool takes_run;             /* a run file, the keys of a run, and --set */
    const yoke_option *options; /* without --json and --help, which every command has */
    int n_options;
    yoke_status (*run)(const yoke_invocation *invocation, json_t *result);
};

/* X(name): `yoke_command_<name>`, in the order of `yoke --help`. */
#define YOKE_COMMAND_LIST(X) X(train) X(parity) X(verify) X(show) X(generate) X(help)

#define YOKE_COMMAND_DECLARE(name) extern const yoke_command yoke_command_##name;
YOKE_COMMAND_LIST(YOKE_COMMAND_DECLARE)
#undef YOKE_COMMAND_DECLARE

#define YOKE_COMMAND_COUNT(name) +1
enum { YOKE_N_COMMANDS = 0 YOKE_COMMAND_LIST(YOKE_COMMAND_COUNT) };
#undef YOKE_COMMAND_COUNT

const yoke_command *yoke_command_get(int index); /* index in [0, YOKE_N_COMMANDS) */

/* YOKE_BAD_INPUT for an unknown name; the message has the nearest, and all of them. */
yoke_status yoke_command_find(const char *name, const yoke_command **command) YOKE_MUST_USE;

/* The whole program: returns the exit code. */
int yoke_dispatch(int argc, char **argv);

#endif
