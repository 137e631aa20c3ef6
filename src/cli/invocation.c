/*
 * Invocation: argv against the options of a command and the keys of a run.
 *
 * Every option is written `--name value` or `--name=value`, with '-' or '_'. A value never begins with "--" unless it is written
 * with '=': so a forgotten value is found where it was forgotten.
 */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "run/config_keys.h"

enum { MAX_NAMES = YOKE_N_CONFIG_KEYS + YOKE_MAX_OPTIONS + 8 };

void yoke_settings_add(yoke_settings *settings, yoke_arena *arena, const yoke_setting *setting)
{
    settings->item = yoke_arena_grow(arena, settings->item, settings->n, &settings->capacity,
                                     sizeof *settings->item);
    settings->item[settings->n++] = (yoke_setting){
        .key = yoke_arena_copy_text(arena, setting->key),
        .value = yoke_arena_copy_text(arena, setting->value),
        .where = yoke_arena_copy_text(arena, setting->where),
    };
}

static bool same_option(const char *typed, const char *name)
{
    while (*typed && (*typed == *name || (*typed == '_' && *name == '-'))) {
        typed++;
        name++;
    }
    return *typed == *name;
}

static int find_option(const yoke_command *command, const char *name)
{
    for (int i = 0; i < command->n_options; i++) {
        if (same_option(name, command->options[i].name)) {
            return i;
        }
    }
    return -1;
}

/* Options as they are typed, for the nearest one. */
static int collect_names(const yoke_command *command, const char *names[MAX_NAMES])
{
    int n = 0;
    names[n++] = "help";
    names[n++] = "json";
    for (int i = 0; i < command->n_options; i++) {
        names[n++] = command->options[i].name;
    }
    if (command->takes_run) {
        names[n++] = "set";
        for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
            names[n++] = yoke_config_key_get(i)->name;
        }
    }
    return n;
}

static yoke_status fail_unknown_option(const yoke_command *command, const char *name)
{
    const char *names[MAX_NAMES];
    const char *nearest = yoke_text_nearest(name, names, collect_names(command, names));
    if (nearest) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "unknown option --%.80s; did you mean --%s?", name,
                         nearest);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "unknown option --%.80s; `yoke %s --help` lists them", name,
                     command->name);
}

/* What is left of argv, and the option in hand. */
typedef struct argv_reader {
    yoke_invocation *invocation;
    char **argv;
    int n, next;
    const char *name;     /* without dashes and value */
    const char *attached; /* what stands after '=', or NULL */
} argv_reader;

static yoke_status take_value(argv_reader *reader, const char **value)
{
    *value = reader->attached;
    if (*value) {
        return YOKE_OK;
    }
    if (reader->next >= reader->n) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--%s needs a value; write --%s VALUE", reader->name,
                         reader->name);
    }
    *value = reader->argv[reader->next];
    if (strncmp(*value, "--", 2) == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--%s needs a value, but %.80s follows; write --%s VALUE",
                         reader->name, *value, reader->name);
    }
    reader->next++;
    return YOKE_OK;
}

static yoke_status refuse_value(const argv_reader *reader)
{
    return reader->attached
               ? YOKE_FAIL(YOKE_BAD_INPUT, "--%s takes no value, but '%.80s' was given",
                           reader->name, reader->attached)
               : YOKE_OK;
}

static yoke_status check_option_value(const yoke_option *option, const char *value)
{
    char name[64];
    int64_t whole;
    double real;
    (void)snprintf(name, sizeof name, "--%s", option->name);
    switch (option->kind) {
    case YOKE_OPTION_INT:
        return yoke_number_parse_int(name, value, &whole);
    case YOKE_OPTION_REAL:
        return yoke_number_parse_real(name, value, &real);
    case YOKE_OPTION_SWITCH:
    case YOKE_OPTION_TEXT:
        break;
    }
    return YOKE_OK;
}

static yoke_status read_option(argv_reader *reader, int index)
{
    yoke_invocation *invocation = reader->invocation;
    const yoke_option *option = &invocation->command->options[index];
    if (option->kind == YOKE_OPTION_SWITCH) {
        invocation->option[index] = "true";
        return refuse_value(reader);
    }
    YOKE_TRY(take_value(reader, &invocation->option[index]));
    return check_option_value(option, invocation->option[index]);
}

/* --set key=value */
static yoke_status read_set(argv_reader *reader)
{
    const char *text;
    YOKE_TRY(take_value(reader, &text));
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "--set %.80s: there is no key=value in it; write, for example, "
                         "--set steps=100",
                         text);
    }
    yoke_arena *arena = reader->invocation->arena;
    char *key = yoke_arena_print(arena, "%.*s", (int)(equals - text), text);
    yoke_settings_add(&reader->invocation->line, arena,
                      &(yoke_setting){.key = key, .value = equals + 1, .where = "--set"});
    return YOKE_OK;
}

static yoke_status read_key(argv_reader *reader)
{
    const char *value;
    const yoke_config_key *key = yoke_config_key_find(reader->name);
    YOKE_TRY(take_value(reader, &value));
    yoke_arena *arena = reader->invocation->arena;
    yoke_settings_add(&reader->invocation->line, arena,
                      &(yoke_setting){.key = key ? key->name : reader->name,
                                      .value = value,
                                      .where = yoke_arena_print(arena, "--%s", reader->name)});
    return YOKE_OK;
}

static yoke_status read_dashed(argv_reader *reader)
{
    yoke_invocation *invocation = reader->invocation;
    const yoke_command *command = invocation->command;
    int index = find_option(command, reader->name);
    if (index >= 0) {
        return read_option(reader, index);
    }
    if (strcmp(reader->name, "help") == 0) {
        invocation->help = true;
        return refuse_value(reader);
    }
    if (strcmp(reader->name, "json") == 0) {
        invocation->json = true;
        return refuse_value(reader);
    }
    if (command->takes_run && strcmp(reader->name, "set") == 0) {
        return read_set(reader);
    }
    if (command->takes_run && (yoke_config_key_find(reader->name) ||
                               strncmp(reader->name, "model.", strlen("model.")) == 0)) {
        return read_key(reader);
    }
    return fail_unknown_option(command, reader->name);
}

static yoke_status read_subject(yoke_invocation *invocation, const char *word)
{
    const yoke_command *command = invocation->command;
    char list[160] = "";
    for (int i = 0; i < command->n_subjects; i++) {
        if (strcmp(word, command->subjects[i]) == 0) {
            invocation->subject = command->subjects[i];
            return YOKE_OK;
        }
        size_t used = strlen(list);
        (void)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "",
                       command->subjects[i]);
    }
    const char *nearest = yoke_text_nearest(word, command->subjects, command->n_subjects);
    return YOKE_FAIL(YOKE_BAD_INPUT, "yoke %s knows no '%.80s'%s%s%s There are %s", command->name,
                     word, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                     nearest ? "'?" : ".", list);
}

static yoke_status read_word(yoke_invocation *invocation, const char *word)
{
    const yoke_command *command = invocation->command;
    if (command->n_subjects > 0 && !invocation->subject) {
        return read_subject(invocation, word);
    }
    if (!command->takes_run) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "unexpected argument '%.80s'; usage: yoke %s %s", word,
                         command->name, command->usage);
    }
    if (invocation->run_file) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "unexpected argument '%.80s': the run file is already '%.80s'; one run has one", word,
            invocation->run_file);
    }
    invocation->run_file = word;
    return YOKE_OK;
}

static yoke_status read_argument(argv_reader *reader)
{
    const char *argument = reader->argv[reader->next++];
    if (strcmp(argument, "-h") == 0) {
        reader->invocation->help = true;
        return YOKE_OK;
    }
    if (strncmp(argument, "--", 2) != 0 && argument[0] == '-') {
        return YOKE_FAIL(YOKE_BAD_INPUT, "unknown option '%.80s'; options begin with two dashes",
                         argument);
    }
    if (strncmp(argument, "--", 2) != 0) {
        return read_word(reader->invocation, argument);
    }
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    reader->attached = equals ? equals + 1 : NULL;
    reader->name =
        yoke_arena_print(reader->invocation->arena, "%.*s", (int)length - 2, argument + 2);
    return read_dashed(reader);
}

yoke_status yoke_invocation_parse(yoke_invocation *invocation, int n, char **argv)
{
    const yoke_command *command = invocation->command;
    YOKE_ASSERT(command->n_options <= YOKE_MAX_OPTIONS);
    for (int i = 0; i < command->n_options; i++) {
        invocation->option[i] = command->options[i].fallback;
    }
    argv_reader reader = {.invocation = invocation, .argv = argv, .n = n};
    while (reader.next < reader.n) {
        YOKE_TRY(read_argument(&reader));
    }
    bool lacks_subject = command->n_subjects > 0 && !invocation->subject;
    if (lacks_subject && !command->subject_optional && !invocation->help) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "yoke %s needs to know what; usage: yoke %s %s",
                         command->name, command->name, command->usage);
    }
    return YOKE_OK;
}

const char *yoke_invocation_text(const yoke_invocation *invocation, const char *option)
{
    int index = find_option(invocation->command, option);
    YOKE_ASSERT(index >= 0);
    return invocation->option[index];
}

int64_t yoke_invocation_int(const yoke_invocation *invocation, const char *option)
{
    int64_t value = 0;
    yoke_status status =
        yoke_number_parse_int(option, yoke_invocation_text(invocation, option), &value);
    YOKE_ASSERT(!status);
    return value;
}

double yoke_invocation_real(const yoke_invocation *invocation, const char *option)
{
    double value = 0.0;
    yoke_status status =
        yoke_number_parse_real(option, yoke_invocation_text(invocation, option), &value);
    YOKE_ASSERT(!status);
    return value;
}

bool yoke_invocation_switch(const yoke_invocation *invocation, const char *option)
{
    return yoke_invocation_text(invocation, option) != NULL;
}
