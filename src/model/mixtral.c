/*
 * Mixtral: Jiang et al., "Mixtral of experts", 2024, as HuggingFace's MixtralForCausalLM computes it.
 * Llama's layer with several feed-forward halves, the experts, of which each token takes the few that
 * a router chooses for it.
 *
 * Relies on llama_parts.c for all but that half. Two keys are yoke's own: capacity_factor, since the
 * experts of the original take whatever comes, and router_z_loss_coef (Zoph et al., "ST-MoE", 2022).
 * The balance loss is the mean over layers and sequences of what HuggingFace computes from the shares
 * of all of them at once: the same where they are routed alike. An expert's matrices are parts of one
 * parameter here.
 */
#include <stdio.h>
#include <string.h>
#include "model/llama_parts.h"

static const yoke_model_key keys[] = {
    {"vocab_size", YOKE_KEY_INT, 32000, "token ids"},
    {"hidden_size", YOKE_KEY_INT, 4096, "width"},
    {"intermediate_size", YOKE_KEY_INT, 14336, "feed-forward width of an expert"},
    {"num_hidden_layers", YOKE_KEY_INT, 32, "layers"},
    {"num_attention_heads", YOKE_KEY_INT, 32, "query heads"},
    {"num_key_value_heads", YOKE_KEY_INT, 8, "heads of keys and values"},
    {"head_dim", YOKE_KEY_INT, YOKE_KEY_DERIVED,
     "width of a head; null: hidden_size / num_attention_heads"},
    {"num_local_experts", YOKE_KEY_INT, 8, "experts of a layer"},
    {"num_experts_per_tok", YOKE_KEY_INT, 2, "experts that a token takes"},
    {"capacity_factor", YOKE_KEY_REAL, 0,
     "slots of an expert, as a multiple of its equal share of a sequence; 0: one for each token"},
    {"router_aux_loss_coef", YOKE_KEY_REAL, 0.001,
     "weight of the balance loss, a mean over layers; summed over all tokens and divided, as the "
     "loss is, by the labels that count"},
    {"router_z_loss_coef", YOKE_KEY_REAL, 0,
     "weight of the router's z-loss, summed and divided likewise"},
    {"router_jitter_noise", YOKE_KEY_REAL, 0,
     "training: what experts see is multiplied by 1 - this to 1 + this"},
    {"max_position_embeddings", YOKE_KEY_INT, 131072, "longest sequence"},
    {"sliding_window", YOKE_KEY_INT, YOKE_KEY_DERIVED,
     "tokens that attention sees; null: all, and no less is supported"},
    {"rms_norm_eps", YOKE_KEY_REAL, 1e-5, "added to the mean square"},
    {"rope_theta", YOKE_KEY_REAL, 1e6, "base of the rotary embedding"},
    {"initializer_range", YOKE_KEY_REAL, 0.02, "deviation of the initial weights"},
    {"tie_word_embeddings", YOKE_KEY_BOOL, 0, "the head shares the table of the embedding"},
};

static const yoke_model_constant constants[] = {
    {"hidden_act", "silu"},   {"attention_bias", "false"},      {"attention_dropout", "0.0 0"},
    {"rope_scaling", "null"}, {"rope_type", "default"},         {"rope_interleaved", "false"},
    {"pruned_heads", "{}"},   {"add_cross_attention", "false"}, {"is_encoder_decoder", "false"},
};

static float real(const yoke_llama_network *net, const char *key)
{
    return (float)yoke_model_value(net->config, key);
}

/* W2 (silu(W1 u) * W3 u) of each expert, of the tokens in its slots [e,b,c,d] */
static yoke_value experts(const yoke_llama_network *net, const yoke_scope *layer, yoke_value u)
{
    yoke_graph *g = net->graph;
    float deviation = net->deviation;
    yoke_value w1 =
        yoke_scope_weight(layer, "block_sparse_moe.experts.w1.weight", "efd", deviation);
    yoke_value w3 =
        yoke_scope_weight(layer, "block_sparse_moe.experts.w3.weight", "efd", deviation);
    yoke_value h = yoke_swiglu(g, yoke_matmul(g, "ebcd,efd->ebcf", u, w1),
                               yoke_matmul(g, "ebcd,efd->ebcf", u, w3));
    yoke_value w2 =
        yoke_scope_weight(layer, "block_sparse_moe.experts.w2.weight", "edf", deviation);
    return yoke_matmul(g, "ebcf,edf->ebcd", h, w2);
}

/* The sum of the chosen experts' results, weighted by the router [b,t,d] */
static yoke_value feed_forward(const yoke_llama_network *net, const yoke_scope *layer, yoke_value x)
{
    yoke_graph *g = net->graph;
    x = yoke_scope_jitter(layer, "router_jitter", x, real(net, "router_jitter_noise"));
    yoke_value wg = yoke_scope_weight(layer, "block_sparse_moe.gate.weight", "rd", net->deviation);
    yoke_value logits = yoke_matmul(g, "btd,rd->btr", x, wg);
    yoke_routing routing =
        yoke_router(g, logits, yoke_model_int(net->config, "num_experts_per_tok"));
    yoke_value slots =
        yoke_expert_slots(g, &routing, yoke_model_value(net->config, "capacity_factor"));
    yoke_value o = experts(net, layer, yoke_expert_dispatch(g, x, slots));
    if (layer->training) {
        float n_layers = (float)yoke_model_int(net->config, "num_hidden_layers");
        yoke_expert_balance(g, &routing, real(net, "router_aux_loss_coef") / n_layers);
        yoke_router_z_loss(g, logits, real(net, "router_z_loss_coef"));
    }
    return yoke_expert_combine(g, o, slots, routing.gates);
}

static yoke_value logits(yoke_graph *graph, const yoke_model_config *config,
                         const yoke_build *build)
{
    yoke_letter(graph, 'e', yoke_model_int(config, "num_local_experts"));
    yoke_letter(graph, 'r', yoke_model_int(config, "num_local_experts"));
    return yoke_llama_logits(graph, config, build, feed_forward);
}

static yoke_status check_experts(const yoke_model_config *config)
{
    int64_t E = yoke_model_int(config, "num_local_experts");
    int64_t chosen = yoke_model_int(config, "num_experts_per_tok");
    int64_t F = yoke_model_int(config, "intermediate_size");
    if (chosen > E) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "num_experts_per_tok=%lld is more than num_local_experts=%lld; use 1 to %lld",
            (long long)chosen, (long long)E, (long long)E);
    }
    if (E * F > YOKE_MOST_FEED_FORWARD) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "num_local_experts=%lld times intermediate_size=%lld is more than %d; use "
                         "smaller experts or fewer",
                         (long long)E, (long long)F, YOKE_MOST_FEED_FORWARD);
    }
    return YOKE_OK;
}

static yoke_status check_window(const yoke_model_config *config)
{
    int64_t window = yoke_model_int(config, "sliding_window");
    int64_t positions = yoke_model_int(config, "max_position_embeddings");
    if (window != (int64_t)YOKE_KEY_DERIVED && window < positions) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "sliding_window=%lld is less than max_position_embeddings=%lld, which is not "
            "supported; use null, or max_position_embeddings=%lld",
            (long long)window, (long long)positions, (long long)window);
    }
    return YOKE_OK;
}

static yoke_status check(const yoke_model_config *config)
{
    static const yoke_key_range ranges[] = {
        {"num_local_experts", 1, YOKE_MOST_EXPERTS},
        {"num_experts_per_tok", 1, YOKE_MOST_EXPERTS},
        {"capacity_factor", 0, 1e6},
        {"router_aux_loss_coef", 0, 1e3},
        {"router_z_loss_coef", 0, 1e3},
        {"router_jitter_noise", 0, 0.999},
        {"sliding_window", 1, YOKE_MOST_POSITIONS},
    };
    YOKE_TRY(yoke_model_check_ranges(config, ranges, sizeof ranges / sizeof ranges[0]));
    YOKE_TRY(yoke_llama_check(config));
    YOKE_TRY(check_experts(config));
    return check_window(config);
}

static int64_t n_parameters(const yoke_model_config *config)
{
    int64_t E = yoke_model_int(config, "num_local_experts");
    int64_t D = yoke_model_int(config, "hidden_size");
    int64_t matrix = D * yoke_model_int(config, "intermediate_size");
    return yoke_llama_n_parameters(config) +
           yoke_model_int(config, "num_hidden_layers") * E * (D + 3 * matrix);
}

/* HuggingFace has a tensor for each expert: "...experts.w1.weight" is "...experts.3.w1.weight". */
static void hf_name(const char *name, char *hf, int hf_bytes, int *part, int *n_parts)
{
    static const char before[] = ".experts.";
    const char *found = strstr(name, before);
    int kept = found ? (int)(found - name) + (int)strlen(before) : (int)strlen(name);
    (void)snprintf(hf, (size_t)hf_bytes, "%.*s%s%s", kept, name, found ? "#." : "", name + kept);
    *part = 0;
    *n_parts = 1;
}

const yoke_model yoke_model_mixtral = {
    .name = "mixtral",
    .help = "Mixtral: Llama with experts, of which a router chooses some for each token",
    .architecture = "MixtralForCausalLM",
    .keys = keys,
    .n_keys = sizeof keys / sizeof keys[0],
    .constants = constants,
    .n_constants = sizeof constants / sizeof constants[0],
    .check = check,
    .vocab_size = yoke_llama_vocab_size,
    .max_tokens = yoke_llama_max_tokens,
    .logits = logits,
    .hf_name = hf_name,
    .n_parameters = n_parameters,
};
