/*
 * BERT: Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
 * understanding", 2019, as HuggingFace's BertForMaskedLM computes it: every token sees all others,
 * LayerNorm behind each half of a layer, and a head that fills in the tokens that were masked.
 * Pooler and next-sentence head are no part of it.
 *
 * Relies on the builders of yoke/graph.h. HuggingFace keeps a matrix as [outputs, inputs]; so do
 * the parameters here. Letters of its own: g token types, w width of the head, which is d. What
 * HuggingFace does with pad_token_id (its row learns nothing from the input) is left out: sequences
 * here are full.
 */
#include <stdio.h>
#include <string.h>
#include "model/keys.h"
#include "model/scope.h"

static const yoke_model_key keys[] = {
    {"vocab_size", YOKE_KEY_INT, 30522, "token ids"},
    {"hidden_size", YOKE_KEY_INT, 768, "width"},
    {"num_hidden_layers", YOKE_KEY_INT, 12, "layers"},
    {"num_attention_heads", YOKE_KEY_INT, 12, "attention heads"},
    {"intermediate_size", YOKE_KEY_INT, 3072, "feed-forward width"},
    {"hidden_act", YOKE_KEY_WORD, 0, "gelu (exact) or gelu_new (tanh form)"},
    {"max_position_embeddings", YOKE_KEY_INT, 512, "longest sequence"},
    {"type_vocab_size", YOKE_KEY_INT, 2, "token types; a run has the first alone"},
    {"layer_norm_eps", YOKE_KEY_REAL, 1e-12, "added to the variance"},
    {"initializer_range", YOKE_KEY_REAL, 0.02, "deviation of the initial weights"},
    {"hidden_dropout_prob", YOKE_KEY_REAL, 0.1, "dropout of embedding and halves of a layer"},
    {"attention_probs_dropout_prob", YOKE_KEY_REAL, 0.1, "dropout of attention probabilities"},
    {"tie_word_embeddings", YOKE_KEY_BOOL, 1, "the head shares the table of the embedding"},
};

static const yoke_model_constant constants[] = {
    {"hidden_act", "gelu gelu_new gelu_pytorch_tanh"}, /* the last two are one function */
    {"position_embedding_type", "absolute"},
    {"is_decoder", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"pruned_heads", "{}"},
};

/* The config, under the letters of the formulas. */
typedef struct sizes {
    int64_t V, P, G, D, L, N, F; /* vocabulary, positions, token types, width, layers, heads,
                                    feed-forward width */
    bool tied;
} sizes;

static sizes sizes_of(const yoke_model_config *config)
{
    return (sizes){
        .V = yoke_model_int(config, "vocab_size"),
        .P = yoke_model_int(config, "max_position_embeddings"),
        .G = yoke_model_int(config, "type_vocab_size"),
        .D = yoke_model_int(config, "hidden_size"),
        .L = yoke_model_int(config, "num_hidden_layers"),
        .N = yoke_model_int(config, "num_attention_heads"),
        .F = yoke_model_int(config, "intermediate_size"),
        .tied = yoke_model_value(config, "tie_word_embeddings") != 0.0,
    };
}

/* One model in the making. */
typedef struct network {
    yoke_graph *graph;
    float epsilon, deviation;
    float attention_rate, hidden_rate;
    bool exact; /* GELU, not its tanh form */
} network;

static network network_of(yoke_graph *graph, const yoke_model_config *config)
{
    return (network){
        .graph = graph,
        .epsilon = (float)yoke_model_value(config, "layer_norm_eps"),
        .deviation = (float)yoke_model_value(config, "initializer_range"),
        .attention_rate = (float)yoke_model_value(config, "attention_probs_dropout_prob"),
        .hidden_rate = (float)yoke_model_value(config, "hidden_dropout_prob"),
        .exact = yoke_model_int(config, "hidden_act") == 0,
    };
}

static const char *join(char text[64], const char *name, const char *ending)
{
    (void)snprintf(text, 64, "%s.%s", name, ending);
    return text;
}

/* LayerNorm(x), over the last dim, whose letter is `width`. */
static yoke_value norm(const network *net, const yoke_scope *scope, const char *name,
                       const char *width, yoke_value x)
{
    char text[64];
    yoke_value gain = yoke_scope_gain(scope, join(text, name, "weight"), width);
    yoke_value bias = yoke_scope_bias(scope, join(text, name, "bias"), width);
    return yoke_layer_norm(net->graph, x, gain, bias, net->epsilon);
}

/* W x + b, by a rule such as "btd,fd->btf", of which `weight` and `bias` are the dims. */
typedef struct linear {
    const char *name, *rule, *weight, *bias;
} linear;

static yoke_value apply(const network *net, const yoke_scope *scope, linear l, yoke_value x)
{
    char text[64];
    yoke_graph *g = net->graph;
    yoke_value w = yoke_scope_weight(scope, join(text, l.name, "weight"), l.weight, net->deviation);
    yoke_value b = yoke_scope_bias(scope, join(text, l.name, "bias"), l.bias);
    return yoke_add_bias(g, yoke_matmul(g, l.rule, x, w), b);
}

static yoke_value gelu(const network *net, yoke_value x)
{
    return net->exact ? yoke_gelu_erf(net->graph, x) : yoke_gelu(net->graph, x);
}

/* Wo Attention(Wq x + bq, Wk x + bk, Wv x + bv) + bo [b,t,d] */
static yoke_value attention(const network *net, const yoke_scope *layer, yoke_value x)
{
    static const char *const names[3] = {"query", "key", "value"};
    yoke_graph *g = net->graph;
    yoke_value qkv[3]; /* [b,t,h,x] */
    for (int i = 0; i < 3; i++) {
        char text[64], name[48];
        (void)snprintf(name, sizeof name, "attention.self.%s", names[i]);
        yoke_value w = yoke_scope_weight(layer, join(text, name, "weight"), "hxd", net->deviation);
        yoke_value b = yoke_scope_bias(layer, join(text, name, "bias"), "hx");
        qkv[i] = yoke_add_bias(g, yoke_matmul(g, "btd,hxd->bthx", x, w), b);
        if (i == 1) {
            /* Its gradient is zero; gpt2.c says why it is not left to rounding errors. */
            yoke_freeze(g, b);
        }
    }
    yoke_value y =
        yoke_scope_attention(layer, "attention.probabilities", qkv, net->attention_rate, false);
    const linear out = {"attention.output.dense", "bthx,dhx->btd", "dhx", "d"};
    return apply(net, layer, out, y);
}

/* W2 GELU(W1 x + b1) + b2 [b,t,d] */
static yoke_value feed_forward(const network *net, const yoke_scope *layer, yoke_value x)
{
    const linear up = {"intermediate.dense", "btd,fd->btf", "fd", "f"};
    const linear down = {"output.dense", "btf,df->btd", "df", "d"};
    return apply(net, layer, down, gelu(net, apply(net, layer, up, x)));
}

/* LayerNorm(x + Attention(x)), then the same with the feed-forward half [b,t,d] */
static yoke_value transform(const network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_value y = attention(net, layer, x);
    y = yoke_scope_dropout(layer, "attention.output", y, net->hidden_rate);
    x = norm(net, layer, "attention.output.LayerNorm", "d", yoke_add(net->graph, x, y));
    y = feed_forward(net, layer, x);
    y = yoke_scope_dropout(layer, "output", y, net->hidden_rate);
    return norm(net, layer, "output.LayerNorm", "d", yoke_add(net->graph, x, y));
}

/* LayerNorm(word + position + token type) [b,t,d] */
static yoke_value embed(const network *net, const yoke_scope *top, yoke_value words,
                        const yoke_build *build)
{
    yoke_graph *g = net->graph;
    yoke_scope scope = *top;
    (void)snprintf(scope.block, sizeof scope.block, "embeddings.");
    yoke_value places =
        yoke_scope_weight(&scope, "position_embeddings.weight", "pd", net->deviation);
    yoke_value types =
        yoke_scope_weight(&scope, "token_type_embeddings.weight", "gd", net->deviation);
    yoke_value x = yoke_add(g, yoke_embedding(g, words, build->tokens),
                            yoke_embedding(g, places, build->positions));
    x = yoke_add(g, x, yoke_embedding(g, types, yoke_input(g, "token_types", "bt")));
    x = norm(net, &scope, "LayerNorm", "d", x);
    return yoke_scope_dropout(&scope, "embedding", x, net->hidden_rate);
}

/* Wd LayerNorm(GELU(W x + b)) + bd [b,t,v] */
static yoke_value head(const network *net, const yoke_scope *top, yoke_value words, yoke_value x)
{
    yoke_graph *g = net->graph;
    yoke_scope scope = *top;
    (void)snprintf(scope.root, sizeof scope.root, "cls.");
    (void)snprintf(scope.block, sizeof scope.block, "predictions.");
    const linear dense = {"transform.dense", "btd,wd->btw", "wd", "w"};
    x = norm(net, &scope, "transform.LayerNorm", "w", gelu(net, apply(net, &scope, dense, x)));
    yoke_value decoder = words != YOKE_NO_VALUE
                             ? words
                             : yoke_scope_weight(&scope, "decoder.weight", "vd", net->deviation);
    return yoke_add_bias(g, yoke_matmul(g, "btw,vw->btv", x, decoder),
                         yoke_scope_bias(&scope, "bias", "v"));
}

static void set_letters(yoke_graph *g, const sizes *s)
{
    yoke_letter(g, 'v', s->V);
    yoke_letter(g, 'p', s->P);
    yoke_letter(g, 'g', s->G);
    yoke_letter(g, 'd', s->D);
    yoke_letter(g, 'w', s->D);
    yoke_letter(g, 'h', s->N);
    yoke_letter(g, 'x', s->D / s->N);
    yoke_letter(g, 'f', s->F);
}

static yoke_value logits(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    sizes s = sizes_of(config);
    network net = network_of(g, config);
    set_letters(g, &s);
    yoke_scope top = {.graph = g, .training = build->training, .root = "bert."};

    yoke_block(g, "embed");
    yoke_value words =
        yoke_scope_weight(&top, "embeddings.word_embeddings.weight", "vd", net.deviation);
    yoke_value x = embed(&net, &top, words, build);

    for (int layer = 0; layer < s.L; layer++) {
        yoke_scope scope = top;
        (void)snprintf(scope.block, sizeof scope.block, "encoder.layer.%d.", layer);
        yoke_block(g, "layer.%d", layer);
        x = transform(&net, &scope, x);
    }

    yoke_block(g, "head");
    return head(&net, &top, s.tied ? words : YOKE_NO_VALUE, x);
}

static yoke_status check(const yoke_model_config *config)
{
    static const yoke_key_range ranges[] = {
        {"vocab_size", 2, YOKE_MOST_TOKEN_IDS},
        {"hidden_size", 1, YOKE_MOST_WIDTH},
        {"num_hidden_layers", 1, YOKE_MOST_LAYERS},
        {"num_attention_heads", 1, YOKE_MOST_HEADS},
        {"intermediate_size", 1, YOKE_MOST_FEED_FORWARD},
        {"max_position_embeddings", 1, YOKE_MOST_POSITIONS},
        {"type_vocab_size", 1, YOKE_MOST_TOKEN_IDS},
        {"layer_norm_eps", 1e-30, 1},
        {"initializer_range", 1e-10, 100},
    };
    YOKE_TRY(yoke_model_check_ranges(config, ranges, sizeof ranges / sizeof ranges[0]));
    YOKE_TRY(yoke_model_check_divides(config, "hidden_size", "num_attention_heads"));
    YOKE_TRY(yoke_model_check_rate(config, "hidden_dropout_prob"));
    return yoke_model_check_rate(config, "attention_probs_dropout_prob");
}

static int64_t vocab_size(const yoke_model_config *config)
{
    return yoke_model_int(config, "vocab_size");
}

static int64_t max_tokens(const yoke_model_config *config)
{
    return yoke_model_int(config, "max_position_embeddings");
}

static int64_t n_parameters(const yoke_model_config *config)
{
    sizes s = sizes_of(config);
    int64_t norm_and_dense = 2 * s.D + s.D * s.D + s.D;
    int64_t heads = 4 * (s.D * s.D + s.D);
    int64_t feed_forward = 2 * s.D * s.F + s.F + s.D;
    int64_t tables = (s.V + s.P + s.G) * s.D + 2 * s.D;
    int64_t decoder = s.V + (s.tied ? 0 : s.V * s.D);
    return tables + s.L * (4 * s.D + heads + feed_forward) + norm_and_dense + decoder;
}

/* Parameters bear HuggingFace's names, so there is no hf_name. */
const yoke_model yoke_model_bert = {
    .name = "bert",
    .help = "BERT: an encoder that fills in masked tokens; LayerNorm behind, biases, tied head",
    .architecture = "BertForMaskedLM",
    .keys = keys,
    .n_keys = sizeof keys / sizeof keys[0],
    .constants = constants,
    .n_constants = sizeof constants / sizeof constants[0],
    .check = check,
    .objective = YOKE_MASKED_TOKENS,
    .vocab_size = vocab_size,
    .max_tokens = max_tokens,
    .logits = logits,
    .n_parameters = n_parameters,
};
