/*
 * config.json: read and written, over jansson.
 *
 * Each key of the file is one of three: a key of the family, a key that HuggingFace writes and that
 * changes nothing in the mathematics of training, or a mistake. Nothing that could change a result
 * is passed over.
 */
#include "yoke/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/memory.h"
#include "model/keys.h"
#include "model/preset.h"

/* Keys without effect on the mathematics; those that end in '*' stand for all that begin so. */
static const char *const without_effect[] = {
    "_*",
    "architectures",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "directionality",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_*",
    "gradient_checkpointing",
    "id2label",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "n_ctx",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam*",
    "num_return_sequences",
    "output_*",
    "pad_token_id",
    "pooler_*",
    "predict_special_tokens",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "return_dict*",
    "sep_token_id",
    "summary_*",
    "suppress_tokens",
    "begin_suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
};

static bool is_without_effect(const char *key)
{
    for (size_t i = 0; i < sizeof without_effect / sizeof without_effect[0]; i++) {
        const char *pattern = without_effect[i];
        size_t length = strlen(pattern);
        bool same = pattern[length - 1] == '*' ? strncmp(key, pattern, length - 1) == 0
                                               : strcmp(key, pattern) == 0;
        if (same) {
            return true;
        }
    }
    return false;
}

/* The value as config_set takes it: strings bare, everything else as it stands in the file. */
static yoke_status value_text(const json_t *value, char *text, size_t text_bytes)
{
    if (json_is_string(value)) {
        (void)snprintf(text, text_bytes, "%s", json_string_value(value));
        return YOKE_OK;
    }
    size_t length = json_dumpb(value, text, text_bytes - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    if (length == 0) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for a value of config.json");
    }
    text[length < text_bytes ? length : text_bytes - 1] = '\0';
    return YOKE_OK;
}

static yoke_status set_from_json(yoke_model_config *config, const char *key, const json_t *value)
{
    char text[256];
    YOKE_TRY(value_text(value, text, sizeof text));
    const yoke_model_key *found = yoke_model_key_find(config->model, key);
    if (json_is_string(value) && found && found->kind != YOKE_KEY_WORD) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s is the text \"%s\"; write %s without quotes", key,
                         text, found->kind == YOKE_KEY_BOOL ? "true or false" : "a number");
    }
    return yoke_model_config_set(config, key, text);
}

static yoke_status read_object(yoke_model_config *config, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "model_type") == 0 || is_without_effect(key)) {
            continue;
        }
        /* Since version 5 of transformers, the keys of the rotary embedding lie one level
         * deeper. */
        if (strcmp(key, "rope_parameters") == 0 && json_is_object(value)) {
            YOKE_TRY(read_object(config, value));
            continue;
        }
        YOKE_TRY(set_from_json(config, key, value));
    }
    return YOKE_OK;
}

static yoke_status unknown_family(const char *name)
{
#define MODEL_WORD(name) " " #name
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "model_type \"%s\" is unknown; the families are" YOKE_MODEL_LIST(MODEL_WORD),
                     name);
#undef MODEL_WORD
}

static yoke_status read_root(json_t *root, yoke_model_config *config)
{
    if (!json_is_object(root)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "not a JSON object; give a HuggingFace config.json");
    }
    const char *family = json_string_value(json_object_get(root, "model_type"));
    if (!family) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "no \"model_type\"; add one, such as \"gpt2\"");
    }
    const yoke_model *model = yoke_model_find(family);
    if (!model) {
        return unknown_family(family);
    }
    *config = yoke_model_config_default(model);
    YOKE_TRY(read_object(config, root));
    return yoke_model_config_check(config);
}

static yoke_status read_text(const char *text, size_t bytes, yoke_model_config *config)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "no valid JSON: line %d, column %d: %s", error.line,
                         error.column, error.text);
    }
    yoke_status status = read_root(root, config);
    json_decref(root);
    return status;
}

static yoke_status read_file(const char *path, yoke_model_config *config)
{
    const void *text;
    size_t bytes;
    YOKE_TRY(yoke_file_map(path, &text, &bytes));
    yoke_status status = read_text(text, bytes, config);
    yoke_file_unmap(text, bytes);
    return yoke_status_prefix(status, "'%s'", path);
}

static yoke_status unknown_preset(const char *name)
{
    const char *near = yoke_preset_nearest(name);
    char list[256] = "";
    size_t length = 0;
    for (int i = 0; i < yoke_model_n_presets() && length < sizeof list; i++) {
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "",
                                   yoke_model_preset_name(i));
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "model=%s is neither a preset nor the path of a config.json; %s%s%s"
                     "the presets are %s",
                     name, near ? "did you mean " : "", near ? near : "", near ? "? " : "", list);
}

yoke_status yoke_model_config_load(const char *preset_or_path, yoke_model_config *config)
{
    const yoke_preset *preset = yoke_preset_find(preset_or_path);
    if (preset) {
        return read_text(preset->json, strlen(preset->json), config);
    }
    /* A bare word is a mistyped preset more often than a file without a name's ending. */
    if (!strpbrk(preset_or_path, "/.")) {
        return unknown_preset(preset_or_path);
    }
    return read_file(preset_or_path, config);
}

/* --- Writing --------------------------------------------------------------------------------- */

static json_t *key_json(const yoke_model *model, const yoke_model_key *key, double value)
{
    char word[64];
    if (key->fallback == YOKE_KEY_DERIVED && value == YOKE_KEY_DERIVED) {
        return json_null();
    }
    switch (key->kind) {
    case YOKE_KEY_INT:
        return json_integer((json_int_t)value);
    case YOKE_KEY_BOOL:
        return json_boolean(value != 0.0);
    case YOKE_KEY_WORD:
        return json_string(yoke_model_word(model, key, value, word, sizeof word));
    case YOKE_KEY_REAL:
        break;
    }
    return json_real(value);
}

/* The first accepted value, as JSON where it is JSON, else as a string. */
static json_t *constant_json(const yoke_model_constant *constant)
{
    size_t length = strcspn(constant->accepted, " ");
    json_t *value = json_loadb(constant->accepted, length, JSON_DECODE_ANY, NULL);
    return value ? value : json_stringn(constant->accepted, length);
}

/* NULL without memory. */
static json_t *config_json(const yoke_model_config *config)
{
    const yoke_model *model = config->model;
    json_t *root = json_object();
    int failed = json_object_set_new(root, "model_type", json_string(model->name));
    if (model->architecture) {
        failed |= json_object_set_new(root, "architectures", json_pack("[s]", model->architecture));
    }
    failed |= json_object_set_new(root, "torch_dtype", json_string("float32"));
    for (int i = 0; i < model->n_keys; i++) {
        json_t *value = key_json(model, &model->keys[i], config->value[i]);
        failed |= json_object_set_new(root, model->keys[i].name, value);
    }
    for (int i = 0; i < model->n_constants; i++) {
        if (yoke_model_key_find(model, model->constants[i].name)) {
            continue;
        }
        json_t *value = constant_json(&model->constants[i]);
        failed |= json_object_set_new(root, model->constants[i].name, value);
    }
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* Digits that bring every value back exactly: 15 read well, 17 always suffice. */
static size_t digits_needed(const yoke_model_config *config)
{
    for (size_t digits = 15; digits < 17; digits++) {
        bool exact = true;
        for (int i = 0; i < config->model->n_keys && exact; i++) {
            char text[32];
            (void)snprintf(text, sizeof text, "%.*g", (int)digits, config->value[i]);
            exact = strtod(text, NULL) == config->value[i];
        }
        if (exact) {
            return digits;
        }
    }
    return 17;
}

static yoke_status write_text(const char *path, char *text, size_t bytes)
{
    yoke_file *file;
    YOKE_TRY(yoke_file_create(path, &file));
    text[bytes] = '\n';
    yoke_status status = yoke_file_write(file, text, bytes + 1);
    if (status) {
        yoke_file_abandon(file);
        return status;
    }
    return yoke_file_commit(file);
}

yoke_status yoke_model_config_save(const yoke_model_config *config, const char *path)
{
    enum { MOST_BYTES = 1 << 16 };
    json_t *root = config_json(config);
    char *text = yoke_block_alloc(MOST_BYTES + 1);
    size_t flags = JSON_INDENT(2) | JSON_REAL_PRECISION(digits_needed(config));
    size_t bytes = root && text ? json_dumpb(root, text, MOST_BYTES, flags) : 0;
    YOKE_ASSERT(bytes <= MOST_BYTES);
    yoke_status status = bytes ? write_text(path, text, bytes)
                               : YOKE_FAIL(YOKE_NO_MEMORY, "no memory to write '%s'", path);
    yoke_block_free(text);
    json_decref(root);
    return status;
}
