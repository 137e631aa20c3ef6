/*
 * Invocation: what was typed after `yoke`, taken apart and checked against the command's options.
 *
 * Keys of a run stay texts here, in the order in which they were given; run_config.h gives them meaning.
 */
#ifndef YOKE_CLI_INVOCATION_H
#define YOKE_CLI_INVOCATION_H

#include <stdbool.h>
#include <stdint.h>
#include "base/memory.h"
#include "yoke/status.h"

typedef struct yoke_command yoke_command;

/* A key of a run, such as "steps" or "model.n_layer", and the text given for it. */
typedef struct yoke_setting {
    const char *key;
    const char *value;
    const char *where; /* for messages: "--steps" or "run.yaml:3" */
} yoke_setting;

typedef struct yoke_settings {
    yoke_setting *item;
    int64_t n, capacity;
} yoke_settings;

/* Appends; the three texts are copied into the arena. */
void yoke_settings_add(yoke_settings *settings, yoke_arena *arena, const yoke_setting *setting);

enum { YOKE_MAX_OPTIONS = 16 };

typedef struct yoke_invocation {
    yoke_arena *arena; /* borrowed; lives as long as the command runs */
    const yoke_command *command;
    const char *subject;  /* NULL if not given */
    const char *run_file; /* NULL if not given */
    bool json, help;
    yoke_settings line; /* flags and --set */
    const char *option
        [YOKE_MAX_OPTIONS]; /* the command's options, in their order; NULL: not given and no default */
} yoke_invocation;

/* Takes argv[0..n), which begins after the command's name, apart. YOKE_BAD_INPUT for anything that the command does not
 * know, with the nearest thing that it does. */
yoke_status yoke_invocation_parse(yoke_invocation *invocation, int n, char **argv) YOKE_MUST_USE;

/* Values of the command's options; they have been checked. It is an assert that the command has the option. */
const char *yoke_invocation_text(const yoke_invocation *invocation,
                                 const char *option); /* or NULL */
int64_t yoke_invocation_int(const yoke_invocation *invocation, const char *option);
double yoke_invocation_real(const yoke_invocation *invocation, const char *option);
bool yoke_invocation_switch(const yoke_invocation *invocation, const char *option);

#endif
