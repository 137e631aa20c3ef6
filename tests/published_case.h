/*
 * Plans beside the published formulas: a plan at hand, its rows, and what they must say. Included by one test program each,
 * after cmocka.h.
 */
#ifndef PUBLISHED_CASE_H
#define PUBLISHED_CASE_H

#include "session_case.h"
#include "sim/published.h"

enum { WIDTH = 64, LAYERS = 4, HEADS = 8, VOCAB = 256, POSITIONS = 32, BATCH = 16, TOKENS = 32 };

#define GPT2                                                                                       \
    "vocab_size=256 n_positions=32 n_embd=64 n_layer=4 n_head=8 tie_word_embeddings=false "        \
    "resid_pdrop=0.1"
#define LLAMA                                                                                      \
    "vocab_size=256 hidden_size=64 intermediate_size=192 num_hidden_layers=4 "                     \
    "num_attention_heads=8 num_key_value_heads=4 max_position_embeddings=32"

#define LLAMA2                                                                                     \
    "vocab_size=256 hidden_size=64 intermediate_size=192 num_hidden_layers=4 "                     \
    "num_attention_heads=8 num_key_value_heads=2 max_position_embeddings=32"

static const double STREAM = (double)BATCH * TOKENS * WIDTH; /* elements of [b,t,d], a whole step */

typedef struct plan {
    const char *preset, *keys, *mesh, *options, *schedule;
    int64_t microbatches;
} plan;

static scene at;
static yoke_arena *arena;
static yoke_published_list list;

static void open_plan(const plan *p)
{
    session_case c = {.preset = p->preset,
                      .keys = p->keys,
                      .mesh = p->mesh,
                      .options = p->options,
                      .schedule = p->schedule,
                      .batch = BATCH,
                      .microbatches = p->microbatches,
                      .seq_len = TOKENS};
    scene_open(&at, &c);
    bool told = p->options && strstr(p->options, "recompute");
    at.config.recompute = told ? at.config.recompute : "none";
    scene_plan(&at);
    assert_ok(yoke_arena_create(&arena, 0), "arena");
    yoke_policies policies = yoke_policies_choose(&at.config);
    list = yoke_published_build(&(yoke_published_request){
        .set = yoke_session_programs(at.session),
        .policies = &policies,
        .recompute = at.config.recompute,
        .dtype = at.config.dtype,
        .reduce_dtype = at.config.reduce_dtype,
        .arena = arena,
    });
}

static void close_plan(void)
{
    yoke_arena_destroy(arena);
    scene_close(&at);
}

static plan gpt2_on(const char *mesh, const char *options, int64_t microbatches)
{
    return (plan){"gpt2-tiny", GPT2, mesh, options, NULL, microbatches};
}

static plan llama_on(const char *mesh, const char *options, int64_t microbatches)
{
    return (plan){"llama-tiny", LLAMA, mesh, options, NULL, microbatches};
}

/* NULL where there is none. */
static const yoke_published *find_row(const char *quantity, int where, const char *part,
                                      const char *formula)
{
    for (int64_t i = 0; i < list.n; i++) {
        const yoke_published *row = &list.row[i];
        bool here = row->axis == where || row->stage == where;
        if (strcmp(row->quantity, quantity) == 0 && here && strcmp(row->part, part) == 0 &&
            (!formula || strcmp(row->formula, formula) == 0)) {
            return row;
        }
    }
    return NULL;
}

static const yoke_published *row_of(const char *quantity, int where, const char *part,
                                    const char *formula)
{
    const yoke_published *row = find_row(quantity, where, part, formula);
    if (!row) {
        fail_msg("%s: no row for %s %d %s %s", at.config.mesh, quantity, where, part,
                 formula ? formula : "");
    }
    return row;
}

static void assert_number(const char *what, double value, double wanted)
{
    if (fabs(value - wanted) > 1e-9 * fabs(wanted)) {
        fail_msg("%s, %s, %s: %.17g, not %.17g", at.config.mesh, at.options, what, value, wanted);
    }
}

static void assert_both(const yoke_published *row, double wanted)
{
    assert_number(row->formula, row->published, wanted);
    assert_number("plan", row->plan, wanted);
}

static void assert_traffic(yoke_axis axis, const char *part, const char *formula, double bytes)
{
    assert_both(row_of("traffic", (int)axis, part, formula), bytes);
}

#endif
