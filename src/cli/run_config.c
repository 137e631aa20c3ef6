/*
 * Run config: settings from file and command line applied in order, each checked where it was given.
 *
 * Relies on the tables of keys in run/config_keys.h and of the model's family. The model's own keys are applied after all others, to
 * the base that was named last.
 */
#include "cli/run_config.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/run_file.h"
#include "run/config_keys.h"

#define MODEL_PREFIX "model."
#define FAMILY_KEY   "model.model_type"

static bool is_model_key(const char *key)
{
    return strncmp(key, MODEL_PREFIX, strlen(MODEL_PREFIX)) == 0;
}

static yoke_status fail_unknown_key(const yoke_setting *setting)
{
    const char *names[YOKE_N_CONFIG_KEYS];
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        names[i] = yoke_config_key_get(i)->name;
    }
    const char *nearest = yoke_text_nearest(setting->key, names, YOKE_N_CONFIG_KEYS);
    if (nearest) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "unknown key '%.80s'; did you mean '%s'?", setting->key,
                         nearest);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "unknown key '%.80s'; `yoke train --help` lists the keys, those of the model "
                     "begin with 'model.'",
                     setting->key);
}

/* Says where a setting was given. A flag bears the name that the message begins with. */
static yoke_status locate(yoke_status status, const yoke_setting *setting)
{
    bool flag = strncmp(setting->where, "--", 2) == 0 && strcmp(setting->where, "--set") != 0;
    return flag ? status : yoke_status_prefix(status, "%s", setting->where);
}

static yoke_status apply_key(yoke_config *config, const yoke_setting *setting)
{
    const yoke_config_key *key = yoke_config_key_find(setting->key);
    if (!key) {
        return locate(fail_unknown_key(setting), setting);
    }
    return locate(yoke_config_set(config, key, setting->value), setting);
}

static yoke_status apply_keys(yoke_config *config, const yoke_settings *settings)
{
    for (int64_t i = 0; i < settings->n; i++) {
        if (!is_model_key(settings->item[i].key)) {
            YOKE_TRY(apply_key(config, &settings->item[i]));
        }
    }
    return YOKE_OK;
}

static yoke_status apply_model_keys(yoke_model_config *model, const yoke_settings *settings)
{
    for (int64_t i = 0; i < settings->n; i++) {
        const yoke_setting *setting = &settings->item[i];
        if (!is_model_key(setting->key) || strcmp(setting->key, FAMILY_KEY) == 0) {
            continue;
        }
        const char *key = setting->key + strlen(MODEL_PREFIX);
        if (strcmp(key, "preset") == 0 || strcmp(key, "path") == 0) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "%s: %s is not a key; write --model %.80s on the command line, or "
                             "%s below `model:` in a run file",
                             setting->where, setting->key, setting->value, key);
        }
        YOKE_TRY(locate(yoke_model_config_set(model, key, setting->value), setting));
    }
    return YOKE_OK;
}

/* The last setting of `key`, or NULL. */
static const yoke_setting *last_of(const yoke_settings *settings, const char *key)
{
    for (int64_t i = settings->n - 1; i >= 0; i--) {
        if (strcmp(settings->item[i].key, key) == 0) {
            return &settings->item[i];
        }
    }
    return NULL;
}

static yoke_status find_family(const yoke_setting *setting, yoke_model_config *model)
{
    static const char *const families[] = {
#define NAME(name) #name,
        YOKE_MODEL_LIST(NAME)
#undef NAME
    };
    const int n = (int)(sizeof families / sizeof *families);
    const yoke_model *family = yoke_model_find(setting->value);
    if (family) {
        *model = yoke_model_config_default(family);
        return YOKE_OK;
    }
    const char *nearest = yoke_text_nearest(setting->value, families, n);
    return YOKE_FAIL(YOKE_BAD_INPUT, "%s: unknown model_type '%.80s'; did you mean '%s'?",
                     setting->where, setting->value, nearest ? nearest : families[0]);
}

/* A model with a path is named by its family: the path is of no use in a folder's name. */
static const char *name_model(const char *given, const yoke_model_config *model)
{
    size_t length = strlen(given);
    bool file = strchr(given, '/') || (length > 5 && strcmp(given + length - 5, ".json") == 0);
    return file ? model->model->name : given;
}

/* Where the values of the model begin: a family's defaults, or a preset or file. */
static yoke_status find_base(yoke_run_config *run, const yoke_settings *file,
                             const yoke_settings *line)
{
    const yoke_setting *named = last_of(line, "model");
    const yoke_setting *family = last_of(line, FAMILY_KEY);
    if (!named && !family) {
        named = last_of(file, "model");
        family = last_of(file, FAMILY_KEY);
    }
    if (named && family) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s: model_type %.80s is given beside the model '%.80s'; use one of them",
                         family->where, family->value, named->value);
    }
    if (family) {
        YOKE_TRY(find_family(family, &run->model));
        run->config.model = run->model.model->name;
        run->model_name = run->config.model;
        return YOKE_OK;
    }
    yoke_status status = yoke_model_config_load(run->config.model, &run->model);
    YOKE_TRY(named ? yoke_status_prefix(status, "%s", named->where) : status);
    run->model_name = name_model(run->config.model, &run->model);
    return YOKE_OK;
}

static yoke_status resolve_model(yoke_run_config *run, const yoke_settings *file,
                                 const yoke_settings *line)
{
    if (!*run->config.model) {
        return yoke_config_check(&run->config);
    }
    bool replaced = last_of(line, "model") || last_of(line, FAMILY_KEY);
    YOKE_TRY(find_base(run, file, line));
    if (!replaced) {
        YOKE_TRY(apply_model_keys(&run->model, file));
    }
    YOKE_TRY(apply_model_keys(&run->model, line));
    return yoke_model_config_check(&run->model);
}

static yoke_status check_ignored(const yoke_run_config *run)
{
    int64_t vocab_size = run->model.model->vocab_size(&run->model);
    if (run->config.ignore_token < vocab_size) {
        return YOKE_OK;
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "ignore_token is %" PRId64 ", but the model's vocabulary has %" PRId64
                     " tokens; use 0 to %" PRId64 ", or -1 to ignore none",
                     run->config.ignore_token, vocab_size, vocab_size - 1);
}

yoke_status yoke_run_config_resolve(const yoke_invocation *invocation, yoke_run_config *out)
{
    yoke_settings file = {0};
    *out = (yoke_run_config){.config = yoke_config_default()};
    if (invocation->run_file) {
        YOKE_TRY(yoke_run_file_read(invocation->arena, invocation->run_file, &file));
    }
    YOKE_TRY(apply_keys(&out->config, &file));
    YOKE_TRY(apply_keys(&out->config, &invocation->line));
    YOKE_TRY(resolve_model(out, &file, &invocation->line));
    YOKE_TRY(yoke_config_check(&out->config));
    return check_ignored(out);
}
