/*
 * Setup: config, corpus, session, in this order, so that the cheapest refusal comes first.
 */
#include "cli/setup.h"

#include <stdio.h>
#include <string.h>
#include "cli/format.h"
#include "run/session.h"

yoke_status yoke_setup_open(yoke_setup *setup, const yoke_invocation *invocation, bool needs_corpus)
{
    *setup = (yoke_setup){0};
    YOKE_TRY(yoke_run_config_resolve(invocation, &setup->run));
    const yoke_config *config = &setup->run.config;
    if (*config->data) {
        YOKE_TRY(yoke_corpus_open(config->data, config->data_format, &setup->corpus));
    } else if (strcmp(config->data_format, "auto") != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "data_format is %.80s, but there is no corpus; give one with --data FILE, "
                         "or leave it at auto",
                         config->data_format);
    } else if (needs_corpus) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "there is no corpus; give a text with --data FILE, or `data:` in the run file");
    }
    setup->parts = (yoke_session_parts){
        .config = &setup->run.config, .model = &setup->run.model, .corpus = setup->corpus};
    return YOKE_OK;
}

yoke_status yoke_setup_plan(yoke_setup *setup)
{
    return yoke_session_create(&setup->parts, &setup->session);
}

void yoke_setup_close(yoke_setup *setup)
{
    yoke_session_destroy(setup->session);
    yoke_corpus_close(setup->corpus);
    *setup = (yoke_setup){0};
}

void yoke_setup_print_notes(const yoke_setup *setup)
{
    yoke_note notes[YOKE_MOST_NOTES];
    int n = yoke_session_notes(setup->session, notes);
    for (int i = 0; i < n; i++) {
        (void)printf("note: %s\n", notes[i].text);
    }
}

const char *yoke_setup_print(const yoke_setup *setup, char *buffer, int buffer_bytes)
{
    char axes[64];
    char parameters[32];
    yoke_mesh mesh = yoke_mesh_single();
    yoke_status status = yoke_mesh_parse(setup->run.config.mesh, &mesh);
    YOKE_ASSERT(!status);
    int n_ranks = yoke_mesh_n_ranks(&mesh);
    yoke_mesh_print(&mesh, axes, sizeof axes);
    yoke_format_count(yoke_session_parameter_count(setup->session), parameters, sizeof parameters);
    if (n_ranks == 1) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%s on one rank, %s parameters",
                       setup->run.model_name, parameters);
    } else {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%s on %s: %d ranks, %s parameters",
                       setup->run.model_name, axes, n_ranks, parameters);
    }
    return buffer;
}
