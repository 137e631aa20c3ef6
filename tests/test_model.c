/*
 * The families of models: what their configs accept and refuse, how many parameters they have, and
 * that they write themselves into a graph without an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "graph/graph.h"
#include "yoke/model.h"

enum { PATH_BYTES = 512 };

static char folder[PATH_BYTES / 2];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/yoke-test-model-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void check_good(yoke_status status)
{
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
}

/* Loads a config.json with this text. */
static yoke_status load_text(const char *text, yoke_model_config *config)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    yoke_status status = yoke_model_config_load(path, config);
    assert_int_equal(unlink(path), 0);
    return status;
}

/* The status is bad input, and its message holds all of the words. */
static void check_refused(yoke_status status, const char *what, const char *const words[3])
{
    if (!status) {
        fail_msg("accepted: %s", what);
    }
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    for (int i = 0; i < 3 && words[i]; i++) {
        if (!strstr(yoke_status_message(status), words[i])) {
            fail_msg("no \"%s\" in: %s", words[i], yoke_status_message(status));
        }
    }
    yoke_status_free(status);
}

/* The file that HuggingFace serves for openai-community/gpt2. */
static const char published_gpt2[] =
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],"
    "\"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256,"
    "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\","
    "\"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024,"
    "\"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1,"
    "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary_use_proj\": true,"
    "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}},"
    "\"vocab_size\": 50257}";

/* Of the form of TinyLlama-1.1B, with the rotary keys where newer versions put them. */
static const char published_llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1,"
    "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 2048,"
    "\"initializer_range\": 0.02, \"intermediate_size\": 5632, \"max_position_embeddings\": 2048,"
    "\"model_type\": \"llama\", \"num_attention_heads\": 32, \"num_hidden_layers\": 22,"
    "\"num_key_value_heads\": 4, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05,"
    "\"rope_scaling\": null, \"tie_word_embeddings\": false, \"dtype\": \"float32\","
    "\"rope_parameters\": {\"rope_theta\": 50000.0, \"rope_type\": \"default\"},"
    "\"transformers_version\": \"5.0.0\", \"use_cache\": true, \"vocab_size\": 32000}";

/* The file of google-bert/bert-base-uncased, and what the multilingual ones add. */
static const char published_bert[] =
    "{\"architectures\": [\"BertForMaskedLM\"], \"attention_probs_dropout_prob\": 0.1,"
    "\"gradient_checkpointing\": false, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1,"
    "\"hidden_size\": 768, \"initializer_range\": 0.02, \"intermediate_size\": 3072,"
    "\"layer_norm_eps\": 1e-12, \"max_position_embeddings\": 512, \"model_type\": \"bert\","
    "\"num_attention_heads\": 12, \"num_hidden_layers\": 12, \"pad_token_id\": 0,"
    "\"position_embedding_type\": \"absolute\", \"transformers_version\": \"4.6.0.dev0\","
    "\"type_vocab_size\": 2, \"use_cache\": true, \"vocab_size\": 30522,"
    "\"classifier_dropout\": null, \"directionality\": \"bidi\", \"pooler_fc_size\": 768,"
    "\"pooler_type\": \"first_token_transform\"}";

/* The file of mistralai/Mixtral-8x7B-v0.1. */
static const char published_mixtral[] =
    "{\"architectures\": [\"MixtralForCausalLM\"], \"attention_dropout\": 0.0, \"bos_token_id\": 1,"
    "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 4096,"
    "\"initializer_range\": 0.02, \"intermediate_size\": 14336,"
    "\"max_position_embeddings\": 32768, \"model_type\": \"mixtral\","
    "\"num_attention_heads\": 32, \"num_experts_per_tok\": 2, \"num_hidden_layers\": 32,"
    "\"num_key_value_heads\": 8, \"num_local_experts\": 8, \"output_router_logits\": false,"
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.02,"
    "\"sliding_window\": null, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\","
    "\"transformers_version\": \"4.36.0.dev0\", \"use_cache\": true, \"vocab_size\": 32000}";

static void test_published_configs_are_read(void **state)
{
    (void)state;
    yoke_model_config config;
    check_good(load_text(published_gpt2, &config));
    assert_ptr_equal(config.model, yoke_model_find("gpt2"));
    assert_int_equal(config.model->vocab_size(&config), 50257);
    assert_int_equal(config.model->max_tokens(&config), 1024);
    assert_int_equal(config.model->n_parameters(&config), 124439808);
    assert_true(yoke_model_value(&config, "layer_norm_epsilon") == 1e-5);
    check_good(load_text(published_llama, &config));
    assert_ptr_equal(config.model, yoke_model_find("llama"));
    assert_int_equal(yoke_model_int(&config, "num_key_value_heads"), 4);
    assert_int_equal(yoke_model_int(&config, "rope_theta"), 50000);
    assert_int_equal(config.model->n_parameters(&config), 1100048384);
    check_good(load_text(published_bert, &config));
    assert_ptr_equal(config.model, yoke_model_find("bert"));
    assert_true(yoke_model_value(&config, "hidden_act") == 0.0);
    assert_int_equal(config.model->n_parameters(&config), 109514298);
    check_good(load_text(published_mixtral, &config));
    assert_ptr_equal(config.model, yoke_model_find("mixtral"));
    assert_int_equal(config.model->n_parameters(&config), INT64_C(46702792704));
}

static void test_presets_have_their_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t n_parameters, vocab_size;
    } cases[] = {
        {"gpt2", 124439808, 50257},         {"gpt2-mini", 1288320, 257},
        {"llama-mini", 1140480, 257},       {"bert-mini", 1305730, 258},
        {"bert-tiny", 37218, 258},          {"gpt2-tiny", 35744, 257},
        {"llama-tiny", 39648, 257},         {"llama2-7b", 6738415616, 32000},
        {"llama2-70b", 68976648192, 32000}, {"mixtral-mini", 3579648, 257},
        {"mixtral-tiny", 56800, 257},
    };
    int n_cases = sizeof cases / sizeof cases[0];
    assert_int_equal(yoke_model_n_presets(), n_cases);
    for (int i = 0; i < n_cases; i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(cases[i].name, &config));
        assert_int_equal(config.model->n_parameters(&config), cases[i].n_parameters);
        assert_int_equal(config.model->vocab_size(&config), cases[i].vocab_size);
    }
    for (int i = 0; i < yoke_model_n_presets(); i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(yoke_model_preset_name(i), &config));
        assert_true(strlen(yoke_model_preset_help(i)) > 0);
    }
}

static void test_counts_follow_the_options(void **state)
{
    (void)state;
    yoke_model_config config;
    check_good(yoke_model_config_load("gpt2-tiny", &config));
    int64_t tied = config.model->n_parameters(&config);
    check_good(yoke_model_config_set(&config, "tie_word_embeddings", "false"));
    assert_int_equal(config.model->n_parameters(&config), tied + 257 * 32);
    check_good(yoke_model_config_set(&config, "n_inner", "40"));
    /* Two matrices and one bias shrink by 128 - 40 columns in each of two layers. */
    assert_int_equal(config.model->n_parameters(&config),
                     tied + 257 * 32 - 2 * (2 * 32 + 1) * (128 - 40));
    check_good(yoke_model_config_set(&config, "n_inner", "null"));
    assert_int_equal(config.model->n_parameters(&config), tied + 257 * 32);
    check_good(yoke_model_config_load("mixtral-tiny", &config));
    int64_t four = config.model->n_parameters(&config);
    check_good(yoke_model_config_set(&config, "num_local_experts", "5"));
    assert_int_equal(config.model->n_parameters(&config), four + 2 * (32 + 3 * 32 * 44));
    check_good(yoke_model_config_load("llama-tiny", &config));
    int64_t grouped = config.model->n_parameters(&config);
    check_good(yoke_model_config_set(&config, "num_key_value_heads", "null"));
    assert_int_equal(config.model->n_parameters(&config), grouped + 2 * 2 * 2 * 8 * 32);
    check_good(yoke_model_config_set(&config, "head_dim", "16"));
    assert_int_equal(config.model->n_parameters(&config),
                     grouped + 2 * 2 * 2 * 8 * 32 + 2 * 4 * 4 * 8 * 32);
}

static void test_bad_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *key, *value;
        const char *words[3];
    } cases[] = {
        {"gpt2-tiny", "n_layers", "2", {"'n_layers'", "gpt2", "did you mean n_layer?"}},
        {"gpt2-tiny", "hidden_size", "2", {"'hidden_size'", "the keys are vocab_size,", NULL}},
        {"gpt2-tiny", "activation_functio", "x", {"did you mean activation_function?", NULL, NULL}},
        {"gpt2-tiny", "n_layer", "two", {"n_layer=two", "no number", "layers"}},
        {"gpt2-tiny", "n_layer", "", {"n_layer=", "no number", NULL}},
        {"gpt2-tiny", "n_layer", "2x", {"n_layer=2x", "no number", NULL}},
        {"gpt2-tiny", "n_layer", " 2", {"no number", NULL, NULL}},
        {"gpt2-tiny", "n_layer", "0x10", {"no number", NULL, NULL}},
        {"gpt2-tiny", "n_layer", "2.5", {"n_layer=2.5", "not whole", "use 2 or 3"}},
        {"gpt2-tiny", "n_layer", "1e300", {"n_layer=1e300", "too large", NULL}},
        {"gpt2-tiny", "attn_pdrop", "nan", {"attn_pdrop=nan", "no number", NULL}},
        {"gpt2-tiny", "attn_pdrop", "1e999", {"attn_pdrop=1e999", "no number", NULL}},
        {"gpt2-tiny", "tie_word_embeddings", "1", {"neither true nor false", NULL, NULL}},
        {"gpt2-tiny", "activation_function", "relu", {"=relu", "gelu_new", "gpt2"}},
        {"gpt2-tiny", "activation_function", "gelu", {"=gelu is", "gelu_new", NULL}},
        {"gpt2-tiny", "scale_attn_by_inverse_layer_idx", "true", {"supported: false", NULL, NULL}},
        {"llama-tiny", "attention_bias", "true", {"attention_bias=true", "false", NULL}},
        {"llama-tiny", "hidden_act", "gelu", {"hidden_act=gelu", "silu", NULL}},
        {"bert-tiny", "hidden_act", "relu", {"hidden_act=relu", "gelu gelu_new", "bert"}},
        {"bert-tiny",
         "position_embedding_type",
         "relative_key",
         {"relative_key", "absolute", NULL}},
        {"bert-tiny", "is_decoder", "true", {"is_decoder=true", "supported: false", NULL}},
        {"bert-tiny", "add_cross_attention", "true", {"supported: false", NULL, NULL}},
        {"llama-tiny", "n_embd", "8", {"'n_embd'", "llama", "hidden_size"}},
        {"mixtral-tiny", "hidden_act", "gelu", {"hidden_act=gelu", "silu", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(cases[i].preset, &config));
        yoke_model_config before = config;
        check_refused(yoke_model_config_set(&config, cases[i].key, cases[i].value), cases[i].value,
                      cases[i].words);
        assert_memory_equal(&config, &before, sizeof config);
    }
}

typedef struct setting {
    const char *key, *value;
} setting;

typedef struct refusal {
    const char *preset;
    setting set[2];
    const char *words[3];
} refusal;

static void check_refusals(const refusal *cases, int n)
{
    for (int i = 0; i < n; i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(cases[i].preset, &config));
        for (int k = 0; k < 2 && cases[i].set[k].key; k++) {
            check_good(yoke_model_config_set(&config, cases[i].set[k].key, cases[i].set[k].value));
        }
        check_refused(yoke_model_config_check(&config), cases[i].set[0].key, cases[i].words);
    }
}

static void test_experts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"mixtral-tiny",
         {{"num_experts_per_tok", "5"}},
         {"num_experts_per_tok=5", "num_local_experts=4", "1 to 4"}},
        {"mixtral-tiny",
         {{"sliding_window", "63"}},
         {"sliding_window=63", "max_position_embeddings=64", "null"}},
        {"mixtral-tiny", {{"router_jitter_noise", "1"}}, {"router_jitter_noise=1", "0 to", NULL}},
        {"mixtral-tiny", {{"capacity_factor", "-1"}}, {"capacity_factor=-1", "0 to", NULL}},
        {"mixtral-tiny", {{"num_key_value_heads", "3"}}, {"num_attention_heads=4", "=3", "4"}},
        {"mixtral-tiny",
         {{"num_local_experts", "4096"}, {"intermediate_size", "1025"}},
         {"num_local_experts=4096", "intermediate_size=1025", "4194304"}},
    };
    check_refusals(cases, sizeof cases / sizeof cases[0]);
}

/* Fault A12 and its kind: sizes that do not fit together, refused before anything is built. */
static void test_sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"gpt2-tiny", {{"n_head", "5"}}, {"n_embd=32", "n_head=5", "1, 2, 4, 8, 16 or 32"}},
        {"gpt2-tiny", {{"n_head", "0"}}, {"n_head=0", "1 to 16384", NULL}},
        {"gpt2-tiny", {{"n_head", "-4"}}, {"n_head=-4", "1 to", NULL}},
        {"gpt2-tiny", {{"n_layer", "0"}}, {"n_layer=0", "1 to", "layers"}},
        {"gpt2-tiny", {{"n_inner", "0"}}, {"n_inner=0", "1 to", "null"}},
        {"gpt2-tiny", {{"vocab_size", "1"}}, {"vocab_size=1", "2 to", NULL}},
        {"gpt2-tiny", {{"vocab_size", "-1"}}, {"vocab_size=-1", "2 to", NULL}},
        {"gpt2-tiny", {{"n_positions", "0"}}, {"n_positions=0", "1 to", NULL}},
        {"gpt2-tiny", {{"n_embd", "100000000"}}, {"n_embd=100000000", "1048576", NULL}},
        {"gpt2-tiny", {{"resid_pdrop", "1"}}, {"resid_pdrop=1", "below 1", NULL}},
        {"gpt2-tiny", {{"attn_pdrop", "-0.1"}}, {"attn_pdrop=-0.1", "below 1", NULL}},
        {"gpt2-tiny", {{"embd_pdrop", "1.5"}}, {"embd_pdrop=1.5", "below 1", NULL}},
        {"gpt2-tiny", {{"layer_norm_epsilon", "0"}}, {"layer_norm_epsilon=0", "use", NULL}},
        {"gpt2-tiny", {{"initializer_range", "0"}}, {"initializer_range=0", "use", NULL}},
        {"llama-tiny",
         {{"num_attention_heads", "32"}, {"num_key_value_heads", "5"}},
         {"num_attention_heads=32", "num_key_value_heads=5", "1, 2, 4, 8, 16 or 32"}},
        {"llama-tiny",
         {{"num_attention_heads", "32"}, {"num_key_value_heads", "0"}},
         {"num_key_value_heads=0", "1 to", "null"}},
        {"llama-tiny",
         {{"num_attention_heads", "3"}, {"num_key_value_heads", "2"}},
         {"num_attention_heads=3", "num_key_value_heads=2", "1 or 3"}},
        {"llama-tiny",
         {{"num_attention_heads", "33"}, {"num_key_value_heads", "2"}},
         {"num_attention_heads=33", "num_key_value_heads=2", "1, 3, 11 or 33"}},
        {"llama-tiny",
         {{"num_attention_heads", "4"}, {"num_key_value_heads", "8"}},
         {"num_attention_heads=4", "num_key_value_heads=8", "1, 2 or 4"}},
        {"bert-tiny", {{"num_attention_heads", "5"}}, {"hidden_size=32", "=5", "16 or 32"}},
        {"bert-tiny", {{"type_vocab_size", "0"}}, {"type_vocab_size=0", "1 to", NULL}},
        {"bert-tiny", {{"hidden_dropout_prob", "1"}}, {"hidden_dropout_prob=1", "below 1", NULL}},
        {"llama-tiny", {{"num_hidden_layers", "0"}}, {"num_hidden_layers=0", "1 to", NULL}},
        {"llama-tiny", {{"head_dim", "5"}}, {"width 5", "odd", "head_dim=6"}},
        {"llama-tiny", {{"hidden_size", "36"}}, {"width 9", "odd", "head_dim=10"}},
        {"llama-tiny", {{"hidden_size", "34"}}, {"hidden_size=34", "=4", "hidden_size=36"}},
        {"llama-tiny", {{"rms_norm_eps", "-1"}}, {"rms_norm_eps=-1", "use", NULL}},
        {"llama-tiny", {{"rope_theta", "0"}}, {"rope_theta=0", "1 to", NULL}},
    };
    check_refusals(cases, sizeof cases / sizeof cases[0]);
}

static void test_head_width_may_be_given(void **state)
{
    (void)state;
    yoke_model_config config;
    check_good(yoke_model_config_load("llama-tiny", &config));
    check_good(yoke_model_config_set(&config, "hidden_size", "34"));
    check_good(yoke_model_config_set(&config, "head_dim", "6"));
    check_good(yoke_model_config_check(&config));
}

static void test_bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words[3];
    } cases[] = {
        {"", {"config.json", "no valid JSON", NULL}},
        {"{\"model_type\": \"gpt2\",\n \"n_layer\": }", {"line 2", "config.json", NULL}},
        {"[1, 2]", {"not a JSON object", "config.json", NULL}},
        {"{\"n_layer\": 2}", {"no \"model_type\"", "gpt2", NULL}},
        {"{\"model_type\": 3}", {"no \"model_type\"", NULL, NULL}},
        {"{\"model_type\": \"t5\"}", {"\"t5\" is unknown", "gpt2", "llama"}},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_layer\": 3}", {"duplicate", NULL, NULL}},
        {"{\"model_type\": \"gpt2\", \"n_layer\": \"2\"}", {"n_layer", "\"2\"", "quotes"}},
        {"{\"model_type\": \"gpt2\", \"n_layer\": [2]}", {"n_layer=[2]", "no number", NULL}},
        {"{\"model_type\": \"gpt2\", \"n_layer\": 2.5}", {"n_layer=2.5", "not whole", NULL}},
        {"{\"model_type\": \"gpt2\", \"n_layer\": true}", {"n_layer=true", "no number", NULL}},
        {"{\"model_type\": \"gpt2\", \"n_head\": 5}", {"n_embd=768", "n_head=5", "config.json"}},
        {"{\"model_type\": \"gpt2\", \"n_heads\": 4}", {"'n_heads'", "did you mean n_head?", NULL}},
        {"{\"model_type\": \"gpt2\", \"quantization_config\": {}}",
         {"'quantization_config'", "the keys are", NULL}},
        {"{\"model_type\": \"gpt2\", \"scale_attn_weights\": false}",
         {"scale_attn_weights=false", "supported: true", NULL}},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}",
         {"rope_scaling=", "supported: null", NULL}},
        {"{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"yarn\"}}",
         {"rope_type=yarn", "default", NULL}},
        {"{\"model_type\": \"llama\", \"attention_dropout\": 0.1}",
         {"attention_dropout=0.1", "supported: 0", NULL}},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"relu\"}",
         {"hidden_act=relu", "silu", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config;
        check_refused(load_text(cases[i].text, &config), cases[i].text, cases[i].words);
    }
}

static void test_unknown_models_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *words[3];
    } cases[] = {
        {"gpt2-mimi", {"model=gpt2-mimi", "did you mean gpt2-mini?", "llama-mini"}},
        {"mixtral",
         {"model=mixtral", "neither a preset nor the path", "the presets are gpt2-mini"}},
        {"", {"neither a preset", NULL, NULL}},
        {"no/such/config.json", {"no/such/config.json", "No such file", NULL}},
        {"/", {"is a directory", NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config;
        check_refused(yoke_model_config_load(cases[i].name, &config), cases[i].name,
                      cases[i].words);
    }
    assert_null(yoke_model_find("gpt"));
}

static void check_round_trip(const yoke_model_config *config)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    check_good(yoke_model_config_save(config, path));
    yoke_model_config back;
    check_good(yoke_model_config_load(path, &back));
    assert_ptr_equal(back.model, config->model);
    for (int i = 0; i < config->model->n_keys; i++) {
        if (back.value[i] != config->value[i]) {
            fail_msg("%s: wrote %.17g, read %.17g", config->model->keys[i].name, config->value[i],
                     back.value[i]);
        }
    }
    assert_int_equal(unlink(path), 0);
}

static void test_config_json_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_model_n_presets(); i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(yoke_model_preset_name(i), &config));
        check_round_trip(&config);
    }
    yoke_model_config config;
    check_good(yoke_model_config_load("gpt2-tiny", &config));
    check_good(yoke_model_config_set(&config, "layer_norm_epsilon", "1.2345678901234567e-05"));
    check_good(yoke_model_config_set(&config, "n_inner", "40"));
    check_round_trip(&config);
    check_good(yoke_model_config_load("bert-tiny", &config));
    check_good(yoke_model_config_set(&config, "hidden_act", "gelu_new"));
    assert_true(yoke_model_value(&config, "hidden_act") == 1.0);
    check_round_trip(&config);
    check_good(yoke_model_config_set(&config, "hidden_act", "null"));
    assert_true(yoke_model_value(&config, "hidden_act") == 0.0);
}

/* What HuggingFace needs to find in the file. */
static void test_config_json_is_huggingfaces(void **state)
{
    (void)state;
    yoke_model_config config;
    char path[PATH_BYTES];
    char text[4096] = "";
    check_good(yoke_model_config_load("llama-tiny", &config));
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    check_good(yoke_model_config_save(&config, path));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_in_range(fread(text, 1, sizeof text - 1, file), 100, sizeof text - 2);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(path), 0);
    static const char *const lines[] = {
        "\"model_type\": \"llama\"", "\"LlamaForCausalLM\"",       "\"torch_dtype\": \"float32\"",
        "\"head_dim\": null",        "\"num_key_value_heads\": 2", "\"rope_theta\": 10000.0",
        "\"rope_scaling\": null",    "\"hidden_act\": \"silu\"",   "\"attention_bias\": false",
        "\"rms_norm_eps\": 1e-6",    "\"attention_dropout\": 0.0", "\"tie_word_embeddings\": false",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (!strstr(text, lines[i])) {
            fail_msg("no %s in:\n%s", lines[i], text);
        }
    }
    yoke_status status = yoke_model_config_save(&config, "/no/such/folder/config.json");
    assert_int_equal(yoke_status_code(status), YOKE_IO);
    yoke_status_free(status);
}

static void test_gpt2_names_are_mapped_to_thirds(void **state)
{
    (void)state;
    static const struct {
        const char *name, *hf;
        int part, n_parts;
    } cases[] = {
        {"transformer.h.0.attn.c_attn.weight.q", "transformer.h.0.attn.c_attn.weight", 0, 3},
        {"transformer.h.11.attn.c_attn.weight.k", "transformer.h.11.attn.c_attn.weight", 1, 3},
        {"transformer.h.3.attn.c_attn.bias.v", "transformer.h.3.attn.c_attn.bias", 2, 3},
        {"transformer.h.3.attn.c_proj.bias", "transformer.h.3.attn.c_proj.bias", 0, 1},
        {"transformer.wte.weight", "transformer.wte.weight", 0, 1},
        {"lm_head.weight", "lm_head.weight", 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hf[128];
        int part = -1;
        int n_parts = -1;
        yoke_model_gpt2.hf_name(cases[i].name, hf, sizeof hf, &part, &n_parts);
        assert_string_equal(hf, cases[i].hf);
        assert_int_equal(part, cases[i].part);
        assert_int_equal(n_parts, cases[i].n_parts);
    }
}

static int64_t count_parameters(const yoke_graph *graph)
{
    int64_t n = 0;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        n += yoke_shape_elements(&yoke_value_get(graph, graph->parameters[i])->shape);
    }
    return n;
}

/* The family writes itself and its loss into a graph, the graph has no complaint, and it has as
 * many parameters as the formula says. */
static void build(const yoke_model_config *config, bool training)
{
    yoke_graph *graph;
    check_good(yoke_graph_create(&graph));
    yoke_letter(graph, 'b', 3);
    yoke_letter(graph, 't', 5);
    yoke_build parts = {
        .training = training,
        .tokens = yoke_input(graph, "tokens", "bt"),
        .positions = yoke_input(graph, "positions", "bt"),
    };
    yoke_value logits = config->model->logits(graph, config, &parts);
    yoke_value loss = yoke_cross_entropy(graph, logits, yoke_input(graph, "labels", "bt"));
    check_good(yoke_graph_finish(graph));
    assert_true(loss != YOKE_NO_VALUE);
    assert_int_equal(count_parameters(graph), config->model->n_parameters(config));
    yoke_graph_destroy(graph);
}

static void test_families_build(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        setting set[2];
    } cases[] = {
        {"gpt2-tiny", {{NULL, NULL}}},
        {"gpt2-tiny", {{"tie_word_embeddings", "false"}, {"n_inner", "40"}}},
        {"gpt2-tiny", {{"resid_pdrop", "0.1"}, {"attn_pdrop", "0.2"}}},
        {"gpt2-tiny", {{"embd_pdrop", "0.1"}, {"n_layer", "1"}}},
        {"llama-tiny", {{NULL, NULL}}},
        {"mixtral-tiny", {{NULL, NULL}}},
        {"mixtral-tiny", {{"capacity_factor", "0.5"}, {"router_jitter_noise", "0.1"}}},
        {"llama-tiny", {{"num_key_value_heads", "null"}, {"tie_word_embeddings", "true"}}},
        {"llama-tiny", {{"hidden_size", "34"}, {"head_dim", "6"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config;
        check_good(yoke_model_config_load(cases[i].preset, &config));
        for (int k = 0; k < 2 && cases[i].set[k].key; k++) {
            check_good(yoke_model_config_set(&config, cases[i].set[k].key, cases[i].set[k].value));
        }
        check_good(yoke_model_config_check(&config));
        build(&config, true);
        build(&config, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_configs_are_read),
        cmocka_unit_test(test_presets_have_their_sizes),
        cmocka_unit_test(test_counts_follow_the_options),
        cmocka_unit_test(test_bad_values_are_refused),
        cmocka_unit_test(test_sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(test_experts_that_do_not_fit_are_refused),
        cmocka_unit_test(test_head_width_may_be_given),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_unknown_models_are_refused),
        cmocka_unit_test(test_config_json_round_trip),
        cmocka_unit_test(test_config_json_is_huggingfaces),
        cmocka_unit_test(test_gpt2_names_are_mapped_to_thirds),
        cmocka_unit_test(test_families_build),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
