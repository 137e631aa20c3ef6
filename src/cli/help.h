/*
 * Help: made from the tables of commands, options, keys and models; nothing in it is written twice.
 */
#ifndef YOKE_CLI_HELP_H
#define YOKE_CLI_HELP_H

#include <stdio.h>
#include "cli/command.h"

void yoke_help_print_all(FILE *file);
void yoke_help_print_command(const yoke_command *command); /* to standard output */
void yoke_help_print_models(void);
void yoke_help_print_markdown(void); /* the generated part of docs/cli.md */

/* What is typed most, in the order of the help; NULL ends it. */
extern const char *const yoke_help_common_keys[];
bool yoke_help_is_common(const char *key);

/* The default of an option or key as the help shows it: "1000 steps", "" for none. Returns buffer. */
const char *yoke_help_default(const char *value, const char *unit, char *buffer, int buffer_bytes);

#endif
