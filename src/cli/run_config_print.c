/*
 * The resolved config as a run file: YAML written by hand, because libyaml's emitter writes no comments and every text
 * here is one quoted scalar.
 */
#include "cli/run_config.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#include "model/keys.h"
#include "run/config_keys.h"

enum { MOST_PATH = 4096 };

/* A double-quoted YAML scalar. Bytes from 128 on are UTF-8 and stand for themselves. */
static const char *quote(yoke_arena *arena, const char *text)
{
    char *quoted = yoke_arena_alloc(arena, 4 * strlen(text) + 3);
    char *end = quoted;
    *end++ = '"';
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') {
            *end++ = '\\';
            *end++ = *text;
        } else if (letter < 0x20 || letter == 0x7f) {
            end += snprintf(end, 5, "\\x%02X", letter);
        } else {
            *end++ = *text;
        }
    }
    *end++ = '"';
    *end = '\0';
    return quoted;
}

static const char *absolute(yoke_arena *arena, const char *path)
{
    char folder[MOST_PATH];
    if (path[0] == '/' || !*path || !getcwd(folder, sizeof folder)) {
        return path;
    }
    return yoke_arena_print(arena, "%s/%s", folder, path);
}

static const char *print_value(const yoke_run_config *run, const yoke_config_key *key,
                               yoke_arena *arena)
{
    char buffer[32];
    const char *text = yoke_config_print(&run->config, key, buffer, sizeof buffer);
    if (key->kind != YOKE_CONFIG_KIND_TEXT) {
        return yoke_arena_copy_text(arena, text);
    }
    if (strcmp(key->name, "run_dir") == 0) {
        return "\"\"";
    }
    const char *ending = strrchr(text, '.');
    bool path = strcmp(key->unit, "path") == 0 || (ending && strcmp(ending, ".csv") == 0);
    return quote(arena, path ? absolute(arena, text) : text);
}

static const char *print_model_value(const yoke_model *family, const yoke_model_key *key,
                                     double value, char *buffer, int buffer_bytes)
{
    if (key->fallback == YOKE_KEY_DERIVED && value == YOKE_KEY_DERIVED) {
        return "null";
    }
    switch (key->kind) {
    case YOKE_KEY_INT:
        (void)snprintf(buffer, (size_t)buffer_bytes, "%.0f", value);
        return buffer;
    case YOKE_KEY_REAL:
        return yoke_number_print_real(value, buffer, buffer_bytes);
    case YOKE_KEY_WORD:
        return yoke_model_word(family, key, value, buffer, buffer_bytes);
    case YOKE_KEY_BOOL:
        break;
    }
    return value != 0.0 ? "true" : "false";
}

/* The family and all its values, so that neither a preset nor a file that changes later changes the repetition. */
static const char *print_model(const yoke_run_config *run, yoke_arena *arena)
{
    const yoke_model *family = run->model.model;
    char *text = yoke_arena_print(arena, "# from %s\nmodel:\n  model_type: %s\n",
                                  quote(arena, run->config.model), family->name);
    for (int i = 0; i < family->n_keys; i++) {
        char value[64];
        text = yoke_arena_print(
            arena, "%s  %s: %s\n", text, family->keys[i].name,
            print_model_value(family, &family->keys[i], run->model.value[i], value, sizeof value));
    }
    return text;
}

const char *yoke_run_config_print(const yoke_run_config *run, yoke_arena *arena)
{
    const char *text = "# Every key of the run; `yoke train` on this file repeats it.\n";
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        const yoke_config_key *key = yoke_config_key_get(i);
        text = strcmp(key->name, "model") == 0
                   ? yoke_arena_print(arena, "%s%s", text, print_model(run, arena))
                   : yoke_arena_print(arena, "%s%s: %s\n", text, key->name,
                                      print_value(run, key, arena));
    }
    return text;
}
