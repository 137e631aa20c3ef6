/*
 * Llama without its feed-forward halves, as HuggingFace's LlamaForCausalLM computes it; the sources
 * of the formulas stand in llama.c.
 *
 * Relies on the builders of yoke/graph.h. HuggingFace keeps a matrix as [outputs, inputs]; so do
 * the parameters here.
 */
#include "model/llama_parts.h"
#include <stdio.h>

/* The config, under the letters of the formulas: vocabulary, width, layers, query heads, key heads,
 * head width. */
typedef struct sizes {
    int64_t V, D, L, N, K, H;
    bool tied;
} sizes;

static sizes sizes_of(const yoke_model_config *config)
{
    sizes s = {
        .V = yoke_model_int(config, "vocab_size"),
        .D = yoke_model_int(config, "hidden_size"),
        .L = yoke_model_int(config, "num_hidden_layers"),
        .N = yoke_model_int(config, "num_attention_heads"),
        .K = yoke_model_int(config, "num_key_value_heads"),
        .H = yoke_model_int(config, "head_dim"),
        .tied = yoke_model_value(config, "tie_word_embeddings") != 0.0,
    };
    s.K = s.K == (int64_t)YOKE_KEY_DERIVED ? s.N : s.K;
    s.H = s.H == (int64_t)YOKE_KEY_DERIVED ? s.D / s.N : s.H;
    return s;
}

/* RMSNorm(x) [b,t,d] */
static yoke_value norm(const yoke_llama_network *net, const yoke_scope *scope, const char *name,
                       yoke_value x)
{
    return yoke_rms_norm(net->graph, x, yoke_scope_gain(scope, name, "d"), net->epsilon);
}

/* Attention(rope(Wq x), rope(Wk x), Wv x), then Wo [b,t,d] */
static yoke_value attention(const yoke_llama_network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_graph *g = net->graph;
    float deviation = net->deviation;
    const char *kv_dims = net->grouped ? "kxd" : "hxd";
    const char *kv_rule = net->grouped ? "btd,kxd->btkx" : "btd,hxd->bthx";
    yoke_value wq = yoke_scope_weight(layer, "self_attn.q_proj.weight", "hxd", deviation);
    yoke_value wk = yoke_scope_weight(layer, "self_attn.k_proj.weight", kv_dims, deviation);
    yoke_value wv = yoke_scope_weight(layer, "self_attn.v_proj.weight", kv_dims, deviation);
    yoke_value q = yoke_matmul(g, "btd,hxd->bthx", x, wq);
    yoke_value k = yoke_matmul(g, kv_rule, x, wk);
    yoke_value v = yoke_matmul(g, kv_rule, x, wv);
    const yoke_value qkv[3] = {yoke_rope(g, q, net->positions, net->theta),
                               yoke_rope(g, k, net->positions, net->theta), v};
    yoke_value y = yoke_scope_attention(layer, "attention", qkv, 0.0f, true);
    yoke_value wo = yoke_scope_weight(layer, "self_attn.o_proj.weight", "dhx", deviation);
    return yoke_matmul(g, "bthx,dhx->btd", y, wo);
}

/* x + Attention(RMSNorm(x)), then the same with the feed-forward half [b,t,d] */
static yoke_value transform(const yoke_llama_network *net, const yoke_scope *layer, yoke_value x,
                            yoke_llama_half feed_forward)
{
    yoke_value y = attention(net, layer, norm(net, layer, "input_layernorm.weight", x));
    x = yoke_add(net->graph, x, y);
    y = feed_forward(net, layer, norm(net, layer, "post_attention_layernorm.weight", x));
    return yoke_add(net->graph, x, y);
}

static void set_letters(yoke_graph *g, const sizes *s, const yoke_model_config *config)
{
    yoke_letter(g, 'v', s->V);
    yoke_letter(g, 'd', s->D);
    yoke_letter(g, 'h', s->N);
    yoke_letter(g, 'x', s->H);
    yoke_letter(g, 'f', yoke_model_int(config, "intermediate_size"));
    if (s->K != s->N) {
        yoke_letter(g, 'k', s->K);
    }
}

yoke_value yoke_llama_logits(yoke_graph *g, const yoke_model_config *config,
                             const yoke_build *build, yoke_llama_half feed_forward)
{
    sizes s = sizes_of(config);
    yoke_llama_network net = {
        .graph = g,
        .config = config,
        .positions = build->positions,
        .epsilon = (float)yoke_model_value(config, "rms_norm_eps"),
        .theta = (float)yoke_model_value(config, "rope_theta"),
        .deviation = (float)yoke_model_value(config, "initializer_range"),
        .grouped = s.K != s.N,
    };
    set_letters(g, &s, config);
    yoke_scope top = {.graph = g, .training = build->training, .root = "model."};

    yoke_block(g, "embed");
    yoke_value table = yoke_scope_weight(&top, "embed_tokens.weight", "vd", net.deviation);
    yoke_value x = yoke_embedding(g, table, build->tokens);

    for (int layer = 0; layer < s.L; layer++) {
        yoke_scope scope = top;
        (void)snprintf(scope.block, sizeof scope.block, "layers.%d.", layer);
        yoke_block(g, "layers.%d", layer);
        x = transform(&net, &scope, x, feed_forward);
    }

    yoke_block(g, "head");
    x = norm(&net, &top, "norm.weight", x);
    yoke_value head = s.tied ? table : yoke_weight(g, "lm_head.weight", "vd", net.deviation);
    return yoke_matmul(g, "btd,vd->btv", x, head);
}

static yoke_status check_heads(const yoke_model_config *config)
{
    sizes s = sizes_of(config);
    if (yoke_model_int(config, "num_key_value_heads") != (int64_t)YOKE_KEY_DERIVED) {
        YOKE_TRY(yoke_model_check_divides(config, "num_attention_heads", "num_key_value_heads"));
    }
    if (yoke_model_int(config, "head_dim") == (int64_t)YOKE_KEY_DERIVED) {
        YOKE_TRY(yoke_model_check_divides(config, "hidden_size", "num_attention_heads"));
    }
    if (s.H % 2 != 0) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "heads of width %lld (hidden_size=%lld, num_attention_heads=%lld) are odd, "
            "but the rotary embedding turns pairs; use head_dim=%lld",
            (long long)s.H, (long long)s.D, (long long)s.N, (long long)s.H + 1);
    }
    return YOKE_OK;
}

yoke_status yoke_llama_check(const yoke_model_config *config)
{
    static const yoke_key_range ranges[] = {
        {"vocab_size", 2, YOKE_MOST_TOKEN_IDS},
        {"hidden_size", 1, YOKE_MOST_WIDTH},
        {"intermediate_size", 1, YOKE_MOST_FEED_FORWARD},
        {"num_hidden_layers", 1, YOKE_MOST_LAYERS},
        {"num_attention_heads", 1, YOKE_MOST_HEADS},
        {"num_key_value_heads", 1, YOKE_MOST_HEADS},
        {"head_dim", 2, YOKE_MOST_HEAD_WIDTH},
        {"max_position_embeddings", 1, YOKE_MOST_POSITIONS},
        {"rms_norm_eps", 1e-30, 1},
        {"rope_theta", 1, 1e12},
        {"initializer_range", 1e-10, 100},
    };
    YOKE_TRY(yoke_model_check_ranges(config, ranges, sizeof ranges / sizeof ranges[0]));
    return check_heads(config);
}

int64_t yoke_llama_vocab_size(const yoke_model_config *config)
{
    return yoke_model_int(config, "vocab_size");
}

int64_t yoke_llama_max_tokens(const yoke_model_config *config)
{
    return yoke_model_int(config, "max_position_embeddings");
}

int64_t yoke_llama_n_parameters(const yoke_model_config *config)
{
    sizes s = sizes_of(config);
    int64_t norms = 2 * s.D;
    int64_t heads = 2 * s.D * s.N * s.H + 2 * s.D * s.K * s.H;
    int64_t tables = s.V * s.D * (s.tied ? 1 : 2);
    return tables + s.L * (norms + heads) + s.D;
}
