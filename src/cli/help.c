/*
 * yoke help, and the texts behind every --help.
 */
#include "cli/help.h"

#include <string.h>
#include "model/keys.h"
#include "run/config_keys.h"
#include "yoke/model.h"

const char *const yoke_help_common_keys[] = {"mesh",    "model", "data", "steps",   "batch_size",
                                             "seq_len", "lr",    "seed", "run_dir", NULL};

bool yoke_help_is_common(const char *key)
{
    for (int i = 0; yoke_help_common_keys[i]; i++) {
        if (strcmp(key, yoke_help_common_keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *yoke_help_default(const char *value, const char *unit, char *buffer, int buffer_bytes)
{
    /* A path has no unit that a number could be measured in. */
    bool counted = value && *value && *unit && strcmp(unit, "path") != 0;
    bool one = counted && (strcmp(value, "1") == 0 || strcmp(value, "-1") == 0);
    size_t length = strlen(unit);
    if (one && length > 1 && unit[length - 1] == 's') {
        length--;
    }
    (void)snprintf(buffer, (size_t)buffer_bytes, "%s%s%.*s", value ? value : "", counted ? " " : "",
                   counted ? (int)length : 0, unit);
    return buffer;
}

static void print_option(const char *name, const char *value, const char *help,
                         const char *fallback)
{
    char left[64];
    (void)snprintf(left, sizeof left, "--%s%s%s", name, *value ? " " : "", value);
    (void)printf("  %-24s %s", left, help);
    if (*fallback) {
        (void)printf(" [%s]", fallback);
    }
    (void)putchar('\n');
}

static const char *option_value_name(yoke_option_kind kind)
{
    switch (kind) {
    case YOKE_OPTION_INT:
        return "N";
    case YOKE_OPTION_REAL:
        return "X";
    case YOKE_OPTION_TEXT:
        return "TEXT";
    case YOKE_OPTION_SWITCH:
        break;
    }
    return "";
}

static const char *key_value_name(const yoke_config_key *key)
{
    switch (key->kind) {
    case YOKE_CONFIG_KIND_INT:
        return "N";
    case YOKE_CONFIG_KIND_REAL:
        return "X";
    case YOKE_CONFIG_KIND_BOOL:
        return "true|false";
    case YOKE_CONFIG_KIND_TEXT:
        break;
    }
    return strcmp(key->unit, "path") == 0 ? "PATH" : "TEXT";
}

static void print_key(const yoke_config_key *key)
{
    char number[32];
    char fallback[64];
    yoke_config defaults = yoke_config_default();
    const char *value = yoke_config_print(&defaults, key, number, sizeof number);
    print_option(key->name, key_value_name(key), key->help,
                 yoke_help_default(value, key->unit, fallback, sizeof fallback));
}

static void print_keys(void)
{
    (void)printf("\nThe run: keys of the run file, or options\n");
    for (int i = 0; yoke_help_common_keys[i]; i++) {
        print_key(yoke_config_key_find(yoke_help_common_keys[i]));
    }
    (void)printf("\nFurther keys\n");
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        if (!yoke_help_is_common(yoke_config_key_get(i)->name)) {
            print_key(yoke_config_key_get(i));
        }
    }
    (void)printf("\nThe model: `yoke help model` lists its keys\n");
    print_option("model.KEY", "VALUE", "a key of the model, such as --model.n_layer 4", "");
    print_option("set", "KEY=VALUE", "any key, also of the model: --set model.n_layer=4", "");
}

/* Breaks a paragraph at blanks. */
static void print_wrapped(const char *text)
{
    const size_t width = 96;
    while (strlen(text) > width) {
        size_t end = width;
        while (end > 0 && text[end] != ' ') {
            end--;
        }
        end = end > 0 ? end : width;
        (void)printf("%.*s\n", (int)end, text);
        text += end;
        text += strspn(text, " ");
    }
    (void)printf("%s\n", text);
}

void yoke_help_print_command(const yoke_command *command)
{
    (void)printf("usage: yoke %s %s\n\n%s.\n", command->name, command->usage, command->summary);
    if (command->details) {
        print_wrapped(command->details);
    }
    (void)printf("\nOptions\n");
    for (int i = 0; i < command->n_options; i++) {
        const yoke_option *option = &command->options[i];
        char fallback[64];
        const char *unit = option->unit ? option->unit : "";
        print_option(option->name, option_value_name(option->kind), option->help,
                     yoke_help_default(option->fallback, unit, fallback, sizeof fallback));
    }
    print_option("json", "", "end standard output with one line of JSON (docs/cli.md)", "");
    print_option("help", "", "this text", "");
    if (command->takes_run) {
        print_keys();
    }
}

void yoke_help_print_all(FILE *file)
{
    (void)fprintf(
        file, "usage: yoke COMMAND [arguments]\n\n"
              "Trains a transformer on many processes and proves that they do what one would.\n\n");
    for (int i = 0; i < YOKE_N_COMMANDS; i++) {
        const yoke_command *command = yoke_command_get(i);
        (void)fprintf(file, "  %-10s %s\n", command->name, command->summary);
    }
    (void)fprintf(
        file, "\n`yoke COMMAND --help` tells more, `yoke --version` the version. For example:\n\n"
              "  yoke train --data book.txt --mesh dp=2,tp=2 --steps 500\n");
}

static void print_model_key(const yoke_model *family, const yoke_model_key *key)
{
    char fallback[64];
    if (key->fallback == YOKE_KEY_DERIVED) {
        (void)snprintf(fallback, sizeof fallback, "derived");
    } else if (key->kind == YOKE_KEY_BOOL) {
        (void)snprintf(fallback, sizeof fallback, "%s", key->fallback != 0.0 ? "true" : "false");
    } else if (key->kind == YOKE_KEY_WORD) {
        (void)yoke_model_word(family, key, key->fallback, fallback, sizeof fallback);
    } else {
        yoke_number_print_real(key->fallback, fallback, sizeof fallback);
    }
    (void)printf("  %-28s %s [%s]\n", key->name, key->help, fallback);
}

static void print_presets(void)
{
    (void)printf("Presets, for --model NAME\n");
    for (int i = 0; i < yoke_model_n_presets(); i++) {
        (void)printf("  %-28s %s\n", yoke_model_preset_name(i), yoke_model_preset_help(i));
    }
}

void yoke_help_print_models(void)
{
    static const char *const families[] = {
#define NAME(name) #name,
        YOKE_MODEL_LIST(NAME)
#undef NAME
    };
    print_presets();
    (void)printf("\nKeys of a model, named as in HuggingFace's config.json: --model.KEY VALUE or "
                 "--set model.KEY=VALUE,\n"
                 "or below `model:` in the run file, beside `preset`, `path` or `model_type`\n");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const yoke_model *family = yoke_model_find(families[i]);
        (void)printf("\nmodel_type %s: %s\n", family->name, family->help);
        for (int k = 0; k < family->n_keys; k++) {
            print_model_key(family, &family->keys[k]);
        }
    }
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    const yoke_command *command = NULL;
    (void)result;
    if (yoke_invocation_switch(invocation, "markdown")) {
        yoke_help_print_markdown();
    } else if (!invocation->subject) {
        yoke_help_print_all(stdout);
    } else if (strcmp(invocation->subject, "model") == 0) {
        yoke_help_print_models();
    } else {
        YOKE_TRY(yoke_command_find(invocation->subject, &command));
        yoke_help_print_command(command);
    }
    return YOKE_OK;
}

static const char *const subjects[] = {
#define NAME(name) #name,
    YOKE_COMMAND_LIST(NAME)
#undef NAME
        "model",
};

static const yoke_option options[] = {
    {.name = "markdown",
     .kind = YOKE_OPTION_SWITCH,
     .help = "the tables of options that stand in docs/cli.md"},
};

const yoke_command yoke_command_help = {
    .name = "help",
    .summary = "explain a command, or list presets and keys of the models",
    .usage = "[COMMAND|model]",
    .subjects = subjects,
    .n_subjects = YOKE_N_COMMANDS + 1,
    .subject_optional = true,
    .options = options,
    .n_options = 1,
    .run = run,
};
