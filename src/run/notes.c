/*
 * Notes: what is no mistake of a plan and yet perhaps not what was meant.
 *
 * Relies on the graph and its layouts; which options do nothing is said by config.c.
 */
#include <string.h>
#include "run/config_keys.h"
#include "run/session.h"

static int note_options(const yoke_session *session, yoke_note *notes)
{
    const yoke_model *model = session->model.model;
    const yoke_config_place place = {
        .mesh = session->mesh,
        .has_experts = yoke_letter_extent(session->train.graph, 'e') > 0,
        .masks_tokens = model->objective == YOKE_MASKED_TOKENS,
    };
    const char *idle[YOKE_MOST_IDLE_OPTIONS];
    int n = yoke_config_find_idle(&session->config, &place, idle);
    for (int i = 0; i < n; i++) {
        snprintf(notes[i].text, sizeof notes[i].text, "%s", idle[i]);
    }
    return n;
}

static const yoke_value_info *find_tokens(const yoke_graph *graph)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        const yoke_value_info *info = &graph->values[v];
        if (info->kind == YOKE_VALUE_INPUT && strcmp(info->name, "tokens") == 0) {
            return info;
        }
    }
    return NULL;
}

/* "dp=4,fsdp=2": the axes that divide a dim of the tokens; returns over how many parts. Pieces differ
 * by one at most, at each axis, so as many parts as elements hold some. */
static int64_t dividing_axes(const yoke_session *session, const yoke_value_info *tokens, int dim,
                             char text[64])
{
    yoke_mesh dividing = yoke_mesh_single();
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        bool divides = tokens->layout.place[axis] == dim;
        dividing.size[axis] = divides ? session->mesh.size[axis] : 1;
    }
    yoke_mesh_print(&dividing, text, 64);
    return yoke_mesh_n_ranks(&dividing);
}

static int note_ranks(const yoke_session *session, yoke_note *notes)
{
    static const char *const kinds[] = {"sequence", "token"}; /* by dim of the tokens [b,t] */
    const yoke_value_info *tokens = find_tokens(session->train.graph);
    int n = 0;
    for (int dim = 0; tokens && dim < 2; dim++) {
        char axes[64];
        int64_t parts = dividing_axes(session, tokens, dim, axes);
        int64_t extent = tokens->shape.extent[dim];
        if (extent < parts) {
            snprintf(notes[n++].text, sizeof notes->text,
                     "%lld of the %lld ranks of %s %s nothing to do: there %s %lld %s%s in a %s",
                     (long long)(parts - extent), (long long)parts, axes,
                     parts - extent == 1 ? "has" : "have", extent == 1 ? "is" : "are",
                     (long long)extent, kinds[dim], extent == 1 ? "" : "s",
                     dim == 0 ? "micro-batch" : "sequence");
        }
    }
    return n;
}

/* Choices of a sequence for which no expert has a slot, however evenly they fall. */
static int note_dropped(const yoke_session *session, yoke_note *notes)
{
    const yoke_graph *graph = session->train.graph;
    int64_t slots = yoke_letter_extent(graph, 'e') * yoke_letter_extent(graph, 'c');
    for (int64_t i = 0; slots > 0 && i < graph->n_nodes; i++) {
        if (graph->nodes[i].op == YOKE_OP_ROUTER) {
            int64_t choices = graph->nodes[i].attributes.n_chosen * yoke_letter_extent(graph, 't');
            snprintf(notes->text, sizeof notes->text,
                     "experts have %lld slots for the %lld choices of a sequence: at least %lld "
                     "are dropped; raise capacity_factor to keep more",
                     (long long)slots, (long long)choices, (long long)(choices - slots));
            return slots < choices;
        }
    }
    return 0;
}

/* Logits beyond their budget. */
static int note_logits(const yoke_session *session, yoke_note *notes)
{
    const yoke_graph *graph = session->train.graph;
    if (graph->n_strips_wanted <= graph->n_strips) {
        return 0;
    }
    snprintf(notes->text, sizeof notes->text,
             "logits_budget wants %lld strips of tokens and there are %lld: a strip has a token of "
             "each sequence, ranks must have equally many, and logits no dropout",
             (long long)graph->n_strips_wanted, (long long)graph->n_strips);
    return 1;
}

int yoke_session_notes(const yoke_session *session, yoke_note notes[YOKE_MOST_NOTES])
{
    int n = note_options(session, notes);
    n += note_ranks(session, notes + n);
    n += note_logits(session, notes + n);
    return n + note_dropped(session, notes + n);
}
