/*
 * Run folder: what a training run leaves behind.
 *
 *     config.yaml        every key of the run; `yoke train` on it repeats the run
 *     metrics.jsonl      one object a step, and one an evaluation
 *     summary.json       how it ended, and the results
 *     model.safetensors, config.json   written by the checkpoint code
 */
#ifndef YOKE_CLI_RUN_FOLDER_H
#define YOKE_CLI_RUN_FOLDER_H

#include <jansson.h>
#include <stdio.h>
#include "cli/run_config.h"

typedef struct yoke_run_folder {
    const char *path; /* NULL before it is made */
    FILE *metrics;
    size_t
        made_from; /* length of the part of the path that was there before; the whole path: nothing was made */
} yoke_run_folder;

/* YOKE_BAD_INPUT if `run_dir` is a file, or a folder that holds a run. Writes nothing. "" is fine: a new folder gets its name later. */
yoke_status yoke_run_folder_check(const char *run_dir) YOKE_MUST_USE;

/* Makes the folder, config.yaml and an empty metrics.jsonl. After a failure nothing is left that was not there before. */
yoke_status yoke_run_folder_create(yoke_run_folder *folder, const yoke_run_config *run,
                                   yoke_arena *arena) YOKE_MUST_USE;

/* Appends one line to metrics.jsonl and takes over `line`. */
yoke_status yoke_run_folder_metrics(yoke_run_folder *folder, json_t *line) YOKE_MUST_USE;

/* Writes summary.json, whole or not at all; `summary` stays the caller's. */
yoke_status yoke_run_folder_summary(const yoke_run_folder *folder, const json_t *summary,
                                    yoke_arena *arena) YOKE_MUST_USE;

void yoke_run_folder_close(yoke_run_folder *folder); /* the files stay */

#endif
