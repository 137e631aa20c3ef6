/*
 * Small models, written with the public builders, for the tests of what comes after the graph.
 */
#ifndef GRAPH_CASES_H
#define GRAPH_CASES_H

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "layout/infer.h"
#include "run/config_keys.h"

/* Extents; n_kv 0 stands for as many key/value heads as query heads. */
typedef struct graph_case {
    bool llama; /* else GPT-2 */
    bool tied;
    int64_t n_layers, batch, tokens, width, n_heads, n_kv, head_width, feed_forward, vocabulary;
    float rate;          /* of dropout; GPT-2 only */
    const char *options; /* keys of a run that choose policies, "zero=1"; may be NULL */
} graph_case;

/* Those of a run with these options. */
static inline yoke_status case_choose(const char *options, yoke_policies *policies)
{
    yoke_config config = yoke_config_default();
    char text[128], *rest = NULL;
    snprintf(text, sizeof text, "%s", options ? options : "");
    for (char *key = strtok_r(text, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        YOKE_ASSERT(value);
        *value = '\0';
        const yoke_config_key *known = yoke_config_key_find(key);
        YOKE_ASSERT(known);
        YOKE_TRY(yoke_config_set(&config, known, value + 1));
    }
    YOKE_TRY(yoke_config_check(&config));
    *policies = yoke_policies_choose(&config);
    return YOKE_OK;
}

/* Those of a run without options. */
static inline yoke_policies case_policies(void)
{
    yoke_config config = yoke_config_default();
    return yoke_policies_choose(&config);
}

static inline graph_case gpt2_case(int64_t n_layers)
{
    return (graph_case){.tied = true,
                        .n_layers = n_layers,
                        .batch = 6,
                        .tokens = 5,
                        .width = 12,
                        .n_heads = 4,
                        .head_width = 3,
                        .feed_forward = 20,
                        .vocabulary = 33,
                        .rate = 0.1f};
}

static inline graph_case llama_case(int64_t n_layers)
{
    graph_case c = gpt2_case(n_layers);
    c.llama = true;
    c.tied = false;
    c.n_kv = 2;
    c.head_width = 4;
    return c;
}

static inline const char *case_name(char text[64], const char *format, int64_t layer)
{
    snprintf(text, 64, "h.%lld.%s", (long long)layer, format);
    return text;
}

/* One layer's parameter, such as "h.3.wq". */
static inline yoke_value case_weight(yoke_graph *g, const char *name, int64_t layer,
                                     const char *dims)
{
    char text[64];
    return yoke_weight(g, case_name(text, name, layer), dims, 0.02f);
}

static inline yoke_value case_bias(yoke_graph *g, const char *name, int64_t layer, const char *dims)
{
    char text[64];
    return yoke_bias(g, case_name(text, name, layer), dims);
}

static inline yoke_value case_gain(yoke_graph *g, const char *name, int64_t layer)
{
    char text[64];
    return yoke_gain(g, case_name(text, name, layer), "d");
}

static inline yoke_value gpt2_layer(yoke_graph *g, const graph_case *c, int64_t i, yoke_value x)
{
    static const char *const weights[] = {"wq", "wk", "wv"};
    static const char *const biases[] = {"bq", "bk", "bv"};
    char text[64];
    yoke_value a = yoke_layer_norm(g, x, case_gain(g, "n1", i), case_bias(g, "c1", i, "d"), 1e-5f);
    yoke_value qkv[3];
    for (int k = 0; k < 3; k++) {
        yoke_value w = case_weight(g, weights[k], i, "dhx");
        qkv[k] = yoke_add_bias(g, yoke_matmul(g, "btd,dhx->bthx", a, w),
                               case_bias(g, biases[k], i, "hx"));
    }
    yoke_value y = yoke_attention(g, case_name(text, "attention", i), qkv, c->rate, true);
    y = yoke_matmul(g, "bthx,hxd->btd", y, case_weight(g, "wo", i, "hxd"));
    y = yoke_add_bias(g, y, case_bias(g, "bo", i, "d"));
    x = yoke_add(g, x, yoke_dropout(g, case_name(text, "drop1", i), y, c->rate));
    a = yoke_layer_norm(g, x, case_gain(g, "n2", i), case_bias(g, "c2", i, "d"), 1e-5f);
    yoke_value h = yoke_matmul(g, "btd,df->btf", a, case_weight(g, "w1", i, "df"));
    h = yoke_gelu(g, yoke_add_bias(g, h, case_bias(g, "b1", i, "f")));
    y = yoke_matmul(g, "btf,fd->btd", h, case_weight(g, "w2", i, "fd"));
    y = yoke_add_bias(g, y, case_bias(g, "b2", i, "d"));
    return yoke_add(g, x, yoke_dropout(g, case_name(text, "drop2", i), y, c->rate));
}

static inline yoke_value llama_layer(yoke_graph *g, const graph_case *c, int64_t i, yoke_value x,
                                     yoke_value positions)
{
    char text[64];
    yoke_value a = yoke_rms_norm(g, x, case_gain(g, "n1", i), 1e-6f);
    const char *dims = c->n_kv ? "kxd" : "hxd";
    const char *rule = c->n_kv ? "btd,kxd->btkx" : "btd,hxd->bthx";
    yoke_value q = yoke_matmul(g, "btd,hxd->bthx", a, case_weight(g, "wq", i, "hxd"));
    yoke_value k = yoke_matmul(g, rule, a, case_weight(g, "wk", i, dims));
    yoke_value v = yoke_matmul(g, rule, a, case_weight(g, "wv", i, dims));
    const yoke_value qkv[3] = {yoke_rope(g, q, positions, 10000), yoke_rope(g, k, positions, 10000),
                               v};
    yoke_value y = yoke_attention(g, case_name(text, "attention", i), qkv, 0, true);
    x = yoke_add(g, x, yoke_matmul(g, "bthx,dhx->btd", y, case_weight(g, "wo", i, "dhx")));
    a = yoke_rms_norm(g, x, case_gain(g, "n2", i), 1e-6f);
    yoke_value h = yoke_swiglu(g, yoke_matmul(g, "btd,fd->btf", a, case_weight(g, "w1", i, "fd")),
                               yoke_matmul(g, "btd,fd->btf", a, case_weight(g, "w3", i, "fd")));
    return yoke_add(g, x, yoke_matmul(g, "btf,df->btd", h, case_weight(g, "w2", i, "df")));
}

static inline void case_letters(yoke_graph *g, const graph_case *c)
{
    yoke_letter(g, 'b', c->batch);
    yoke_letter(g, 't', c->tokens);
    yoke_letter(g, 'p', c->tokens);
    yoke_letter(g, 'd', c->width);
    yoke_letter(g, 'h', c->n_heads);
    yoke_letter(g, 'x', c->head_width);
    yoke_letter(g, 'f', c->feed_forward);
    yoke_letter(g, 'v', c->vocabulary);
    if (c->n_kv) {
        yoke_letter(g, 'k', c->n_kv);
    }
}

/* The forward pass with its loss. */
static inline void case_model(yoke_graph *g, const graph_case *c)
{
    case_letters(g, c);
    yoke_value tokens = yoke_input(g, "tokens", "bt");
    yoke_value labels = yoke_input(g, "labels", "bt");
    yoke_value positions = yoke_input(g, "positions", "bt");
    yoke_block(g, "embed");
    yoke_value wte = yoke_weight(g, "wte", "vd", 0.02f);
    yoke_value x = yoke_embedding(g, wte, tokens);
    if (!c->llama) {
        x = yoke_add(g, x, yoke_embedding(g, yoke_weight(g, "wpe", "pd", 0.02f), positions));
        x = yoke_dropout(g, "drop", x, c->rate);
    }
    for (int64_t i = 0; i < c->n_layers; i++) {
        yoke_block(g, "h.%lld", (long long)i);
        x = c->llama ? llama_layer(g, c, i, x, positions) : gpt2_layer(g, c, i, x);
    }
    yoke_block(g, "head");
    x = c->llama ? yoke_rms_norm(g, x, yoke_gain(g, "nf", "d"), 1e-6f)
                 : yoke_layer_norm(g, x, yoke_gain(g, "nf", "d"), yoke_bias(g, "cf", "d"), 1e-5f);
    yoke_value head = c->tied ? wte : yoke_weight(g, "head", "vd", 0.02f);
    yoke_cross_entropy(g, yoke_matmul(g, "btd,vd->btv", x, head), labels);
}

/* Forward, and if `training` backward and updates, with layouts on the mesh. */
static inline yoke_status case_build(const graph_case *c, const char *mesh_text, bool training,
                                     yoke_graph **graph)
{
    static const yoke_optimizer optimizer = {
        .lr = 1e-3, .total_steps = 10, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 1};
    yoke_mesh mesh;
    YOKE_TRY(yoke_mesh_parse(mesh_text, &mesh));
    YOKE_TRY(yoke_graph_create(graph));
    case_model(*graph, c);
    YOKE_TRY(yoke_graph_finish(*graph));
    if (training) {
        YOKE_TRY(yoke_graph_differentiate(*graph));
        YOKE_TRY(yoke_graph_optimize(*graph, &optimizer));
    }
    YOKE_TRY(yoke_graph_verify(*graph));
    yoke_policies policies;
    YOKE_TRY(case_choose(c->options, &policies));
    return yoke_layout_infer(*graph, &mesh, &policies);
}

#endif
