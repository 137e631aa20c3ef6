/*
 * Run config: defaults, then the run file, then the command line in its order, resolved to a config and a model.
 */
#ifndef YOKE_CLI_RUN_CONFIG_H
#define YOKE_CLI_RUN_CONFIG_H

#include <stdio.h>
#include "cli/invocation.h"
#include "yoke/config.h"
#include "yoke/model.h"

typedef struct yoke_run_config {
    yoke_config config;      /* checked; texts live in the invocation's arena */
    yoke_model_config model; /* checked */
    const char *
        model_name; /* the preset, or the family if the model came from a file: for people and folder names */
} yoke_run_config;

/* Reads the run file if there is one. A `model` on the command line replaces the file's model as a whole; keys of the
 * model given on the command line then apply to it. */
yoke_status yoke_run_config_resolve(const yoke_invocation *invocation,
                                    yoke_run_config *out) YOKE_MUST_USE;

/* Writes a run file that repeats the run from any folder: every key with its value, paths made absolute, and no
 * run_dir, so that the repetition gets a folder of its own. `text` lives in the arena. */
const char *yoke_run_config_print(const yoke_run_config *run, yoke_arena *arena);

#endif
