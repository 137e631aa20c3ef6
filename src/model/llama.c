/*
 * Llama: Touvron et al., "LLaMA: open and efficient foundation language models", 2023, as
 * HuggingFace's LlamaForCausalLM computes it. Rotary positions (Su et al. 2021), RMSNorm (Zhang and
 * Sennrich 2019), SwiGLU (Shazeer 2020), no biases, and queries in groups that share keys and
 * values (Ainslie et al. 2023).
 *
 * Relies on llama_parts.c for all but the feed-forward half. HuggingFace keeps a matrix as [outputs,
 * inputs]; so do the parameters here.
 */
#include "model/llama_parts.h"

static const yoke_model_key keys[] = {
    {"vocab_size", YOKE_KEY_INT, 32000, "token ids"},
    {"hidden_size", YOKE_KEY_INT, 4096, "width"},
    {"intermediate_size", YOKE_KEY_INT, 11008, "feed-forward width"},
    {"num_hidden_layers", YOKE_KEY_INT, 32, "layers"},
    {"num_attention_heads", YOKE_KEY_INT, 32, "query heads"},
    {"num_key_value_heads", YOKE_KEY_INT, YOKE_KEY_DERIVED,
     "heads of keys and values; null: num_attention_heads"},
    {"head_dim", YOKE_KEY_INT, YOKE_KEY_DERIVED,
     "width of a head; null: hidden_size / num_attention_heads"},
    {"max_position_embeddings", YOKE_KEY_INT, 2048, "longest sequence"},
    {"rms_norm_eps", YOKE_KEY_REAL, 1e-6, "added to the mean square"},
    {"rope_theta", YOKE_KEY_REAL, 10000, "base of the rotary embedding"},
    {"initializer_range", YOKE_KEY_REAL, 0.02, "deviation of the initial weights"},
    {"tie_word_embeddings", YOKE_KEY_BOOL, 0, "the head shares the table of the embedding"},
};

static const yoke_model_constant constants[] = {
    {"hidden_act", "silu"},          {"attention_bias", "false"}, {"mlp_bias", "false"},
    {"attention_dropout", "0.0 0"},  {"rope_scaling", "null"},    {"rope_type", "default"},
    {"rope_interleaved", "false"},   {"pruned_heads", "{}"},      {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
};

/* W2 (silu(W1 x) * W3 x) [b,t,d] */
static yoke_value feed_forward(const yoke_llama_network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_graph *g = net->graph;
    yoke_value w1 = yoke_scope_weight(layer, "mlp.gate_proj.weight", "fd", net->deviation);
    yoke_value w3 = yoke_scope_weight(layer, "mlp.up_proj.weight", "fd", net->deviation);
    yoke_value y =
        yoke_swiglu(g, yoke_matmul(g, "btd,fd->btf", x, w1), yoke_matmul(g, "btd,fd->btf", x, w3));
    yoke_value w2 = yoke_scope_weight(layer, "mlp.down_proj.weight", "df", net->deviation);
    return yoke_matmul(g, "btf,df->btd", y, w2);
}

static yoke_value logits(yoke_graph *graph, const yoke_model_config *config,
                         const yoke_build *build)
{
    return yoke_llama_logits(graph, config, build, feed_forward);
}

static int64_t n_parameters(const yoke_model_config *config)
{
    int64_t matrix =
        yoke_model_int(config, "hidden_size") * yoke_model_int(config, "intermediate_size");
    return yoke_llama_n_parameters(config) +
           yoke_model_int(config, "num_hidden_layers") * 3 * matrix;
}

/* Parameters bear HuggingFace's names, so there is no hf_name. */
const yoke_model yoke_model_llama = {
    .name = "llama",
    .help = "Llama: rotary positions, RMSNorm, SwiGLU, grouped queries, no biases",
    .architecture = "LlamaForCausalLM",
    .keys = keys,
    .n_keys = sizeof keys / sizeof keys[0],
    .constants = constants,
    .n_constants = sizeof constants / sizeof constants[0],
    .check = yoke_llama_check,
    .vocab_size = yoke_llama_vocab_size,
    .max_tokens = yoke_llama_max_tokens,
    .logits = logits,
    .n_parameters = n_parameters,
};
