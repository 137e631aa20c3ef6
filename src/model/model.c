/*
 * Families and the values of their keys. It knows no file; see config_json.c.
 */
#include "yoke/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "model/keys.h"

static const yoke_model *const models[] = {
#define MODEL_POINTER(name) &yoke_model_##name,
    YOKE_MODEL_LIST(MODEL_POINTER)
#undef MODEL_POINTER
};

const yoke_model *yoke_model_find(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i]->name, name) == 0) {
            return models[i];
        }
    }
    return NULL;
}

double yoke_model_value(const yoke_model_config *config, const char *key)
{
    const yoke_model_key *found = yoke_model_key_find(config->model, key);
    YOKE_ASSERT(found != NULL);
    return config->value[found - config->model->keys];
}

int64_t yoke_model_int(const yoke_model_config *config, const char *key)
{
    return (int64_t)yoke_model_value(config, key);
}

yoke_model_config yoke_model_config_default(const yoke_model *model)
{
    YOKE_ASSERT(model->n_keys <= YOKE_MAX_MODEL_KEYS);
    yoke_model_config config = {.model = model};
    for (int i = 0; i < model->n_keys; i++) {
        config.value[i] = model->keys[i].fallback;
    }
    return config;
}

yoke_status yoke_model_config_check(const yoke_model_config *config)
{
    return config->model->check ? config->model->check(config) : YOKE_OK;
}

static yoke_status unknown_key(const yoke_model *model, const char *key)
{
    enum { MOST_NAMES = 2 * YOKE_MAX_MODEL_KEYS };
    const char *names[MOST_NAMES];
    YOKE_ASSERT(model->n_keys + model->n_constants <= MOST_NAMES);
    int n_names = 0;
    for (int i = 0; i < model->n_keys; i++) {
        names[n_names++] = model->keys[i].name;
    }
    for (int i = 0; i < model->n_constants; i++) {
        names[n_names++] = model->constants[i].name;
    }
    const char *near = yoke_text_nearest(key, names, n_names);
    if (near) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "'%s' is no key of a %s model; did you mean %s?", key,
                         model->name, near);
    }
    char list[512] = "";
    size_t length = 0;
    for (int i = 0; i < model->n_keys && length < sizeof list; i++) {
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", names[i]);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "'%s' is no key of a %s model; remove it if it does not matter; the keys are "
                     "%s",
                     key, model->name, list);
}

/* Gives the index of the word among those accepted. */
static yoke_status find_word(const yoke_model *model, const yoke_model_constant *constant,
                             const char *value, int *index)
{
    size_t length = strlen(value);
    const char *word = constant->accepted;
    for (*index = 0; *word; ++*index) {
        size_t word_length = strcspn(word, " ");
        if (word_length == length && memcmp(word, value, length) == 0) {
            return YOKE_OK;
        }
        word += word_length;
        word += strspn(word, " ");
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%s is not supported by %s; supported: %s", constant->name,
                     value, model->name, constant->accepted);
}

static yoke_status parse_bool(const yoke_model_key *key, const char *text, double *value)
{
    *value = strcmp(text, "true") == 0;
    if (*value == 0.0 && strcmp(text, "false") != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%s is neither true nor false (%s)", key->name, text,
                         key->help);
    }
    return YOKE_OK;
}

static yoke_status parse_number(const yoke_model_key *key, const char *text, double *value)
{
    /* strtod alone would take "nan", "inf", hexadecimals and leading blanks. */
    bool plain = text[0] != '\0' && strspn(text, "+-.0123456789eE") == strlen(text);
    char *end = NULL;
    errno = 0;
    *value = plain ? strtod(text, &end) : 0.0;
    if (!plain || *end != '\0' || !isfinite(*value)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%s is no number (%s)", key->name, text, key->help);
    }
    if (key->kind == YOKE_KEY_INT && *value != floor(*value)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%s is not whole; use %.0f or %.0f (%s)", key->name,
                         text, floor(*value), ceil(*value), key->help);
    }
    /* Beyond this, doubles skip whole numbers. */
    if (key->kind == YOKE_KEY_INT && fabs(*value) > 0x1p53) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s=%s is too large (%s)", key->name, text, key->help);
    }
    return YOKE_OK;
}

yoke_status yoke_model_config_set(yoke_model_config *config, const char *key, const char *value)
{
    const yoke_model *model = config->model;
    const yoke_model_constant *constant = yoke_model_constant_find(model, key);
    const yoke_model_key *found = yoke_model_key_find(model, key);
    int word = 0;
    if (!found) {
        return constant ? find_word(model, constant, value, &word) : unknown_key(model, key);
    }
    double parsed = found->fallback;
    if (strcmp(value, "null") == 0) {
        /* HuggingFace's way to say that a key is not given. */
    } else if (found->kind == YOKE_KEY_WORD) {
        YOKE_TRY(find_word(model, constant, value, &word));
        parsed = word;
    } else if (found->kind == YOKE_KEY_BOOL) {
        YOKE_TRY(parse_bool(found, value, &parsed));
    } else {
        YOKE_TRY(parse_number(found, value, &parsed));
    }
    config->value[found - model->keys] = parsed;
    return YOKE_OK;
}
