/*
 * Train log: what a person sees of a training run.
 *
 * On a terminal one live line, drawn anew about five times a second; in a log one line every log_interval steps.
 * Skipped steps and evaluations always get a line of their own.
 */
#ifndef YOKE_CLI_TRAIN_LOG_H
#define YOKE_CLI_TRAIN_LOG_H

#include <stdbool.h>
#include "cli/setup.h"

typedef struct yoke_train_log {
    const yoke_setup *setup;
    double flops_per_s; /* the machine's rate in matrix products; 0: unknown */
    bool live;          /* standard output is a terminal */
    bool drawn;         /* a live line stands in the last row */
    double last_drawn_s;
    double step_seconds; /* smoothed */
    int64_t n_seen;
    bool announced_stop;
} yoke_train_log;

/* `flops_per_s`: of yoke_session_matmul_rate. */
void yoke_train_log_start(yoke_train_log *log, const yoke_setup *setup, double flops_per_s);
void yoke_train_log_step(yoke_train_log *log, const yoke_step_metrics *metrics);

/* Says once that the run is about to stop. */
void yoke_train_log_stopping(yoke_train_log *log);

/* Ends the live line; what is printed from now on begins a new one. */
void yoke_train_log_end(yoke_train_log *log);

/* Why a step was skipped, for lines and messages. Returns buffer. */
const char *yoke_train_skip_reason(const yoke_session *session, const yoke_step_metrics *metrics,
                                   char *buffer, int buffer_bytes);

#endif
