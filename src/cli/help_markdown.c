/*
 * The tables of docs/cli.md. A test compares the file with this output, so the two cannot drift apart.
 */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "run/config_keys.h"
#include "yoke/model.h"

/* A cell of a table: '|' would end it. */
static void print_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '<') {
            (void)putchar('\\');
        }
        (void)putchar(*text);
    }
}

static void print_row(const char *name, const char *fallback, const char *help)
{
    (void)printf("| `%s` | ", name);
    if (*fallback) {
        (void)printf("`%s`", fallback);
    }
    (void)printf(" | ");
    print_cell(help);
    (void)printf(" |\n");
}

static void print_table_head(const char *name)
{
    (void)printf("| %s | default | |\n|---|---|---|\n", name);
}

static void print_command(const yoke_command *command)
{
    (void)printf("### yoke %s\n\n`yoke %s %s`\n\n%s.", command->name, command->name, command->usage,
                 command->summary);
    (void)printf("%s%s\n\n", command->details ? " " : "", command->details ? command->details : "");
    if (command->n_options == 0) {
        return;
    }
    print_table_head("option");
    for (int i = 0; i < command->n_options; i++) {
        const yoke_option *option = &command->options[i];
        char name[64];
        char fallback[64];
        (void)snprintf(name, sizeof name, "--%s", option->name);
        print_row(name,
                  yoke_help_default(option->fallback, option->unit ? option->unit : "", fallback,
                                    sizeof fallback),
                  option->help);
    }
    (void)putchar('\n');
}

static void print_key(const yoke_config_key *key)
{
    char number[32];
    char fallback[64];
    yoke_config defaults = yoke_config_default();
    const char *value = yoke_config_print(&defaults, key, number, sizeof number);
    print_row(key->name, yoke_help_default(value, key->unit, fallback, sizeof fallback), key->help);
}

static void print_keys(void)
{
    (void)printf("### Keys of a run\n\nThe most used first.\n\n");
    print_table_head("key");
    for (int i = 0; yoke_help_common_keys[i]; i++) {
        print_key(yoke_config_key_find(yoke_help_common_keys[i]));
    }
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        if (!yoke_help_is_common(yoke_config_key_get(i)->name)) {
            print_key(yoke_config_key_get(i));
        }
    }
    (void)putchar('\n');
}

void yoke_help_print_markdown(void)
{
    for (int i = 0; i < YOKE_N_COMMANDS; i++) {
        print_command(yoke_command_get(i));
    }
    (void)printf("Every command also takes `--json` and `--help`.\n\n");
    print_keys();
    (void)printf("### Keys of the models\n\n```\n");
    yoke_help_print_models();
    (void)printf("```\n");
}
