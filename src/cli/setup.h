/*
 * Setup: what train, parity, verify and show have in common before they differ.
 */
#ifndef YOKE_CLI_SETUP_H
#define YOKE_CLI_SETUP_H

#include "cli/run_config.h"
#include "yoke/session.h"

typedef struct yoke_setup {
    yoke_run_config run;
    yoke_corpus *corpus; /* NULL if the run names none */
    yoke_session_parts parts;
    yoke_session *session; /* planned and verified; NULL before yoke_setup_plan */
} yoke_setup;

/* Resolves the config and opens the corpus. `needs_corpus`: without one it is YOKE_BAD_INPUT. The setup must stay where it is, and be
 * closed also after a failure. */
yoke_status yoke_setup_open(yoke_setup *setup, const yoke_invocation *invocation,
                            bool needs_corpus) YOKE_MUST_USE;
yoke_status yoke_setup_plan(yoke_setup *setup) YOKE_MUST_USE;
void yoke_setup_close(yoke_setup *setup);

/* One line "note: ..." for each thing that a user may not have meant; after the plan. */
void yoke_setup_print_notes(const yoke_setup *setup);

/* "gpt2-mini on dp=2,tp=2: 4 ranks, 1,315,072 parameters"; after the plan. Returns buffer. */
const char *yoke_setup_print(const yoke_setup *setup, char *buffer, int buffer_bytes);

#endif
