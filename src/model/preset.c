/*
 * The presets. Adding one is one entry in the table.
 *
 * The mini ones are for texts read as bytes: 256 and the end of text, and for BERT the mask behind
 * them. They have no dropout, since a run that fits on a small machine sees each byte about once.
 */
#include "model/preset.h"

#include <string.h>
#include "base/text.h"
#include "yoke/model.h"

static const yoke_preset presets[] = {
    {
        .name = "gpt2-mini",
        .help = "GPT-2 for bytes: 6 layers of width 128, 1.3 M parameters",
        .json = "{\"model_type\": \"gpt2\", \"vocab_size\": 257, \"n_positions\": 512, "
                "\"n_embd\": 128, \"n_layer\": 6, \"n_head\": 4, "
                "\"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0}",
    },
    {
        .name = "gpt2",
        .help = "GPT-2 as published: 12 layers of width 768, 124 M parameters",
        .json = "{\"model_type\": \"gpt2\"}",
    },
    {
        .name = "gpt2-tiny",
        .help = "GPT-2 for tests: 2 layers of width 32",
        .json = "{\"model_type\": \"gpt2\", \"vocab_size\": 257, \"n_positions\": 64, "
                "\"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, "
                "\"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0}",
    },
    {
        .name = "bert-mini",
        .help = "BERT for bytes: 6 layers of width 128, 1.3 M parameters",
        .json = "{\"model_type\": \"bert\", \"vocab_size\": 258, \"hidden_size\": 128, "
                "\"intermediate_size\": 512, \"num_hidden_layers\": 6, "
                "\"num_attention_heads\": 4, \"max_position_embeddings\": 512, "
                "\"hidden_dropout_prob\": 0, \"attention_probs_dropout_prob\": 0}",
    },
    {
        .name = "bert-tiny",
        .help = "BERT for tests: 2 layers of width 32",
        .json = "{\"model_type\": \"bert\", \"vocab_size\": 258, \"hidden_size\": 32, "
                "\"intermediate_size\": 128, \"num_hidden_layers\": 2, "
                "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, "
                "\"hidden_dropout_prob\": 0, \"attention_probs_dropout_prob\": 0}",
    },
    {
        .name = "llama-mini",
        .help = "Llama for bytes: 6 layers of width 128, 4 heads over 2 of keys, 1.1 M parameters",
        .json = "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 128, "
                "\"intermediate_size\": 352, \"num_hidden_layers\": 6, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                "\"max_position_embeddings\": 512, \"tie_word_embeddings\": true}",
    },
    {
        .name = "llama2-7b",
        .help = "Llama 2 as published: 32 layers of width 4096, 6.7 G parameters",
        .json = "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 4096, "
                "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
                "\"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
                "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5}",
    },
    {
        .name = "llama2-70b",
        .help = "Llama 2 as published: 80 layers of width 8192, 64 heads over 8 of keys, 69 G "
                "parameters",
        .json = "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 8192, "
                "\"intermediate_size\": 28672, \"num_hidden_layers\": 80, "
                "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, "
                "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5}",
    },
    {
        .name = "llama-tiny",
        .help = "Llama for tests: 2 layers of width 32, 4 heads over 2 of keys, head not tied",
        .json = "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 32, "
                "\"intermediate_size\": 88, \"num_hidden_layers\": 2, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                "\"max_position_embeddings\": 64}",
    },
    {
        .name = "mixtral-mini",
        .help = "Mixtral for bytes: 6 layers of width 128, 8 experts, 2 a token, 3.6 M parameters",
        .json = "{\"model_type\": \"mixtral\", \"vocab_size\": 257, \"hidden_size\": 128, "
                "\"intermediate_size\": 176, \"num_hidden_layers\": 6, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"capacity_factor\": 1.5, "
                "\"router_aux_loss_coef\": 0.01, \"router_z_loss_coef\": 0.001, "
                "\"max_position_embeddings\": 512, \"rope_theta\": 10000, "
                "\"tie_word_embeddings\": true}",
    },
    {
        .name = "mixtral-tiny",
        .help = "Mixtral for tests: 2 layers of width 32, 4 experts, 2 a token, head not tied",
        .json = "{\"model_type\": \"mixtral\", \"vocab_size\": 257, \"hidden_size\": 32, "
                "\"intermediate_size\": 44, \"num_hidden_layers\": 2, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                "\"router_aux_loss_coef\": 0.01, \"router_z_loss_coef\": 0.001, "
                "\"max_position_embeddings\": 64, \"rope_theta\": 10000}",
    },
};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

const yoke_preset *yoke_preset_find(const char *name)
{
    for (int i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

const char *yoke_preset_nearest(const char *name)
{
    const char *names[N_PRESETS];
    for (int i = 0; i < N_PRESETS; i++) {
        names[i] = presets[i].name;
    }
    return yoke_text_nearest(name, names, N_PRESETS);
}

int yoke_model_n_presets(void)
{
    return N_PRESETS;
}

const char *yoke_model_preset_name(int index)
{
    YOKE_ASSERT(index >= 0 && index < N_PRESETS);
    return presets[index].name;
}

const char *yoke_model_preset_help(int index)
{
    YOKE_ASSERT(index >= 0 && index < N_PRESETS);
    return presets[index].help;
}
