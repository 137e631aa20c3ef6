/*
 * Run file: a YAML mapping from keys of a run to values.
 *
 *     mesh: dp=2,tp=2,pp=2
 *     model: {preset: gpt2-mini, n_layer: 4}   # or only: model: gpt2-mini
 *     steps: 500
 *
 * Reading says what stands where; whether a key exists and what its value means is run_config.h's business.
 */
#ifndef YOKE_CLI_RUN_FILE_H
#define YOKE_CLI_RUN_FILE_H

#include "cli/invocation.h"

/* Appends the keys of the file in its order; those below `model` become "model.<key>", and its preset or path "model".
 * YOKE_BAD_INPUT, with file and line, for a file that is missing, no YAML, or holds more than one flat mapping, for a
 * key given twice and for a key without a value. */
yoke_status yoke_run_file_read(yoke_arena *arena, const char *path,
                               yoke_settings *settings) YOKE_MUST_USE;

#endif
