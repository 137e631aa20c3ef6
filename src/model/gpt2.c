/*
 * GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019, as
 * HuggingFace's GPT2LMHeadModel computes it. Learned positions, LayerNorm before each half of a
 * layer, biases, GELU (tanh form), and a head that shares the table of the token embedding.
 *
 * Relies on the builders of yoke/graph.h. HuggingFace keeps the projections of q, k and v in one
 * matrix; here they are three, so that heads are a dim of their own.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/keys.h"
#include "model/scope.h"

static const yoke_model_key keys[] = {
    {"vocab_size", YOKE_KEY_INT, 50257, "token ids"},
    {"n_positions", YOKE_KEY_INT, 1024, "longest sequence"},
    {"n_embd", YOKE_KEY_INT, 768, "width"},
    {"n_layer", YOKE_KEY_INT, 12, "layers"},
    {"n_head", YOKE_KEY_INT, 12, "attention heads"},
    {"n_inner", YOKE_KEY_INT, YOKE_KEY_DERIVED, "feed-forward width; null: 4 * n_embd"},
    {"layer_norm_epsilon", YOKE_KEY_REAL, 1e-5, "added to the variance"},
    {"initializer_range", YOKE_KEY_REAL, 0.02, "deviation of the initial weights"},
    {"embd_pdrop", YOKE_KEY_REAL, 0.1, "dropout of the embedding"},
    {"attn_pdrop", YOKE_KEY_REAL, 0.1, "dropout of attention probabilities"},
    {"resid_pdrop", YOKE_KEY_REAL, 0.1, "dropout of what joins the residual stream"},
    {"tie_word_embeddings", YOKE_KEY_BOOL, 1, "the head shares the table of the embedding"},
};

static const yoke_model_constant constants[] = {
    {"activation_function", "gelu_new gelu_pytorch_tanh"}, /* one function under two names */
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"pruned_heads", "{}"},
};

/* The config, under the letters of the formulas. */
typedef struct sizes {
    int64_t V, P, D, L, N, F; /* vocabulary, positions, width, layers, heads, feed-forward width */
    bool tied;
} sizes;

static sizes sizes_of(const yoke_model_config *config)
{
    sizes s = {
        .V = yoke_model_int(config, "vocab_size"),
        .P = yoke_model_int(config, "n_positions"),
        .D = yoke_model_int(config, "n_embd"),
        .L = yoke_model_int(config, "n_layer"),
        .N = yoke_model_int(config, "n_head"),
        .F = yoke_model_int(config, "n_inner"),
        .tied = yoke_model_value(config, "tie_word_embeddings") != 0.0,
    };
    if (s.F == (int64_t)YOKE_KEY_DERIVED) {
        s.F = 4 * s.D;
    }
    return s;
}

/* One model in the making. */
typedef struct network {
    yoke_graph *graph;
    float epsilon;
    float deviation;          /* of weights */
    float residual_deviation; /* of weights whose product joins the residual stream */
    float attention_rate, residual_rate;
} network;

/* LayerNorm(x) [b,t,d] */
static yoke_value norm(const network *net, const yoke_scope *scope, const char *name, yoke_value x)
{
    char gain[32];
    char bias[32];
    (void)snprintf(gain, sizeof gain, "%s.weight", name);
    (void)snprintf(bias, sizeof bias, "%s.bias", name);
    return yoke_layer_norm(net->graph, x, yoke_scope_gain(scope, gain, "d"),
                           yoke_scope_bias(scope, bias, "d"), net->epsilon);
}

/* Attention(x Wq + bq, x Wk + bk, x Wv + bv) Wo + bo [b,t,d] */
static yoke_value attention(const network *net, const yoke_scope *layer, yoke_value x)
{
    static const char *const weights[3] = {"attn.c_attn.weight.q", "attn.c_attn.weight.k",
                                           "attn.c_attn.weight.v"};
    static const char *const biases[3] = {"attn.c_attn.bias.q", "attn.c_attn.bias.k",
                                          "attn.c_attn.bias.v"};
    yoke_graph *g = net->graph;
    yoke_value qkv[3]; /* [b,t,h,x] */
    for (int i = 0; i < 3; i++) {
        yoke_value w = yoke_scope_weight(layer, weights[i], "dhx", net->deviation);
        yoke_value b = yoke_scope_bias(layer, biases[i], "hx");
        qkv[i] = yoke_add_bias(g, yoke_matmul(g, "btd,dhx->bthx", x, w), b);
        if (i == 1) {
            /* A bias of the keys adds the same to every score of a query, which softmax does not
             * see: its gradient is zero, and AdamW would turn rounding errors into full steps. */
            yoke_freeze(g, b);
        }
    }
    yoke_value y =
        yoke_scope_attention(layer, "attn.probabilities", qkv, net->attention_rate, true);
    yoke_value wo = yoke_scope_weight(layer, "attn.c_proj.weight", "hxd", net->residual_deviation);
    yoke_value bo = yoke_scope_bias(layer, "attn.c_proj.bias", "d");
    return yoke_add_bias(g, yoke_matmul(g, "bthx,hxd->btd", y, wo), bo);
}

/* GELU(x W1 + b1) W2 + b2 [b,t,d] */
static yoke_value feed_forward(const network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_graph *g = net->graph;
    yoke_value w1 = yoke_scope_weight(layer, "mlp.c_fc.weight", "df", net->deviation);
    yoke_value b1 = yoke_scope_bias(layer, "mlp.c_fc.bias", "f");
    yoke_value y = yoke_gelu(g, yoke_add_bias(g, yoke_matmul(g, "btd,df->btf", x, w1), b1));
    yoke_value w2 = yoke_scope_weight(layer, "mlp.c_proj.weight", "fd", net->residual_deviation);
    yoke_value b2 = yoke_scope_bias(layer, "mlp.c_proj.bias", "d");
    return yoke_add_bias(g, yoke_matmul(g, "btf,fd->btd", y, w2), b2);
}

/* x + Attention(LayerNorm(x)), then the same with the feed-forward half [b,t,d] */
static yoke_value transform(const network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_value y = attention(net, layer, norm(net, layer, "ln_1", x));
    y = yoke_scope_dropout(layer, "attn.resid", y, net->residual_rate);
    x = yoke_add(net->graph, x, y);
    y = feed_forward(net, layer, norm(net, layer, "ln_2", x));
    y = yoke_scope_dropout(layer, "mlp.resid", y, net->residual_rate);
    return yoke_add(net->graph, x, y);
}

static network network_of(yoke_graph *graph, const yoke_model_config *config)
{
    double deviation = yoke_model_value(config, "initializer_range");
    double n_layers = yoke_model_value(config, "n_layer");
    return (network){
        .graph = graph,
        .epsilon = (float)yoke_model_value(config, "layer_norm_epsilon"),
        .deviation = (float)deviation,
        /* Two terms a layer join the stream; scaled so, its variance does not grow with depth. */
        .residual_deviation = (float)(deviation / sqrt(2.0 * n_layers)),
        .attention_rate = (float)yoke_model_value(config, "attn_pdrop"),
        .residual_rate = (float)yoke_model_value(config, "resid_pdrop"),
    };
}

static yoke_value logits(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    sizes s = sizes_of(config);
    network net = network_of(g, config);
    yoke_letter(g, 'v', s.V);
    yoke_letter(g, 'p', s.P);
    yoke_letter(g, 'd', s.D);
    yoke_letter(g, 'h', s.N);
    yoke_letter(g, 'x', s.D / s.N);
    yoke_letter(g, 'f', s.F);
    yoke_scope top = {.graph = g, .training = build->training, .root = "transformer."};

    yoke_block(g, "embed");
    yoke_value wte = yoke_scope_weight(&top, "wte.weight", "vd", net.deviation);
    yoke_value wpe = yoke_scope_weight(&top, "wpe.weight", "pd", net.deviation);
    yoke_value x = yoke_add(g, yoke_embedding(g, wte, build->tokens),
                            yoke_embedding(g, wpe, build->positions));
    x = yoke_scope_dropout(&top, "embed", x, (float)yoke_model_value(config, "embd_pdrop"));

    for (int layer = 0; layer < s.L; layer++) {
        yoke_scope scope = top;
        (void)snprintf(scope.block, sizeof scope.block, "h.%d.", layer);
        yoke_block(g, "h.%d", layer);
        x = transform(&net, &scope, x);
    }

    yoke_block(g, "head");
    x = norm(&net, &top, "ln_f", x);
    yoke_value head = s.tied ? wte : yoke_weight(g, "lm_head.weight", "vd", net.deviation);
    return yoke_matmul(g, "btd,vd->btv", x, head);
}

static yoke_status check(const yoke_model_config *config)
{
    static const yoke_key_range ranges[] = {
        {"vocab_size", 2, YOKE_MOST_TOKEN_IDS}, {"n_positions", 1, YOKE_MOST_POSITIONS},
        {"n_embd", 1, YOKE_MOST_WIDTH},         {"n_layer", 1, YOKE_MOST_LAYERS},
        {"n_head", 1, YOKE_MOST_HEADS},         {"n_inner", 1, YOKE_MOST_FEED_FORWARD},
        {"layer_norm_epsilon", 1e-30, 1},       {"initializer_range", 1e-10, 100},
    };
    YOKE_TRY(yoke_model_check_ranges(config, ranges, sizeof ranges / sizeof ranges[0]));
    YOKE_TRY(yoke_model_check_divides(config, "n_embd", "n_head"));
    YOKE_TRY(yoke_model_check_rate(config, "embd_pdrop"));
    YOKE_TRY(yoke_model_check_rate(config, "attn_pdrop"));
    return yoke_model_check_rate(config, "resid_pdrop");
}

static int64_t vocab_size(const yoke_model_config *config)
{
    return yoke_model_int(config, "vocab_size");
}

static int64_t max_tokens(const yoke_model_config *config)
{
    return yoke_model_int(config, "n_positions");
}

static int64_t n_parameters(const yoke_model_config *config)
{
    sizes s = sizes_of(config);
    int64_t norms = 4 * s.D;
    int64_t heads = 4 * (s.D * s.D + s.D);
    int64_t feed_forward = 2 * s.D * s.F + s.F + s.D;
    int64_t tables = (s.V + s.P) * s.D + (s.tied ? 0 : s.V * s.D);
    return tables + s.L * (norms + heads + feed_forward) + 2 * s.D;
}

/* "....c_attn.weight.k" is the second third of "....c_attn.weight"; every other name is
 * HuggingFace's already. */
static void hf_name(const char *name, char *hf, int hf_bytes, int *part, int *n_parts)
{
    static const char letters[] = "qkv";
    size_t length = strlen(name);
    const char *which =
        length >= 2 && name[length - 2] == '.' ? strchr(letters, name[length - 1]) : NULL;
    *part = which ? (int)(which - letters) : 0;
    *n_parts = which ? 3 : 1;
    (void)snprintf(hf, (size_t)hf_bytes, "%.*s", (int)(which ? length - 2 : length), name);
}

const yoke_model yoke_model_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2: learned positions, LayerNorm, biases, tied head",
    .architecture = "GPT2LMHeadModel",
    .keys = keys,
    .n_keys = sizeof keys / sizeof keys[0],
    .constants = constants,
    .n_constants = sizeof constants / sizeof constants[0],
    .check = check,
    .vocab_size = vocab_size,
    .max_tokens = max_tokens,
    .logits = logits,
    .hf_name = hf_name,
    .n_parameters = n_parameters,
};
