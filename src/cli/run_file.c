/*
 * Run file: libyaml's events, taken strictly. Aliases, lists and second documents are refused, because each of them
 * would be a value that somebody meant and nobody reads.
 */
#include "cli/run_file.h"

#include <string.h>
#include <yaml.h>
#include "base/file.h"
#include "base/text.h"
#include "run/config_keys.h"

static const size_t most_bytes = (size_t)1 << 20;

typedef struct yaml_reader {
    yaml_parser_t parser;
    yoke_arena *arena;
    const char *path;
    yoke_settings *settings;
    int64_t first;  /* settings before this one are not of this file */
    int model_line; /* where `model` stands; 0 before */
} yaml_reader;

static yoke_status fail_syntax(const yaml_reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "%s:%d: this is not YAML: %s; write lines such as `steps: 100`", reader->path,
                     (int)parser->problem_mark.line + 1,
                     parser->problem ? parser->problem : "out of memory");
}

static yoke_status next_event(yaml_reader *reader, yaml_event_t *event)
{
    return yaml_parser_parse(&reader->parser, event) ? YOKE_OK : fail_syntax(reader);
}

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

static const char *kind_of(const yaml_event_t *event)
{
    switch ((int)event->type) {
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_MAPPING_START_EVENT:
        return "a mapping";
    case YAML_ALIAS_EVENT:
        return "an alias";
    default:
        return "something else";
    }
}

/* One of YAML's ways to write nothing. */
static bool is_null(const yaml_event_t *event)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    bool plain =
        event->type == YAML_SCALAR_EVENT && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    for (size_t i = 0; plain && i < sizeof nulls / sizeof *nulls; i++) {
        if (strcmp((const char *)event->data.scalar.value, nulls[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A scalar as a text in the arena. `what` is "a key" or the key whose value this is. */
static yoke_status take_scalar(yaml_reader *reader, const yaml_event_t *event, const char *what,
                               const char **text)
{
    if (event->type != YAML_SCALAR_EVENT) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s:%d: %.80s is %s; write one plain value", reader->path,
                         line_of(event), what, kind_of(event));
    }
    if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s:%d: %.80s holds a zero byte; write plain text",
                         reader->path, line_of(event), what);
    }
    if (is_null(event)) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "%s:%d: %.80s has no value; give it one, or take the line out for the default",
            reader->path, line_of(event), what);
    }
    *text = yoke_arena_copy_text(reader->arena, (const char *)event->data.scalar.value);
    return YOKE_OK;
}

static yoke_status add(yaml_reader *reader, const char *key, const char *value, int line)
{
    for (int64_t i = reader->first; i < reader->settings->n; i++) {
        const yoke_setting *before = &reader->settings->item[i];
        if (strcmp(before->key, key) == 0) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%s:%d: %.80s is given twice, first in %s; keep one",
                             reader->path, line, key, before->where);
        }
    }
    const char *where = yoke_arena_print(reader->arena, "%s:%d", reader->path, line);
    yoke_settings_add(reader->settings, reader->arena,
                      &(yoke_setting){.key = key, .value = value, .where = where});
    return YOKE_OK;
}

/* The name under which the key of a mapping is known: "n_layer" below model is "model.n_layer". */
static const char *full_key(yaml_reader *reader, const char *prefix, const char *name)
{
    if (*prefix) {
        bool base = strcmp(name, "preset") == 0 || strcmp(name, "path") == 0;
        return base ? "model" : yoke_arena_print(reader->arena, "%s%s", prefix, name);
    }
    const yoke_config_key *key = yoke_config_key_find(name);
    return key ? key->name : name;
}

static yoke_status read_mapping(yaml_reader *reader, const char *prefix);

static yoke_status read_value(yaml_reader *reader, const char *key, const yaml_event_t *event)
{
    const char *value;
    /* HuggingFace writes null for a key that the family derives; keys of a run have no such thing. */
    bool of_family =
        strncmp(key, "model.", strlen("model.")) == 0 && strcmp(key, "model.model_type") != 0;
    if (of_family && is_null(event)) {
        return add(reader, key, "null", line_of(event));
    }
    YOKE_TRY(take_scalar(reader, event, key, &value));
    return add(reader, key, value, line_of(event));
}

/* What stands behind `model`: a name, or a mapping of the base and the family's keys. */
static yoke_status read_model(yaml_reader *reader, const yaml_event_t *event)
{
    if (reader->model_line) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s:%d: model is given twice, first in %s:%d; keep one",
                         reader->path, line_of(event), reader->path, reader->model_line);
    }
    reader->model_line = line_of(event);
    return event->type == YAML_MAPPING_START_EVENT ? read_mapping(reader, "model.")
                                                   : read_value(reader, "model", event);
}

static yoke_status read_pair(yaml_reader *reader, const char *prefix, const yaml_event_t *event)
{
    const char *name;
    yaml_event_t value;
    YOKE_TRY(take_scalar(reader, event, "a key", &name));
    YOKE_TRY(next_event(reader, &value));
    yoke_status status = !*prefix && strcmp(name, "model") == 0
                             ? read_model(reader, &value)
                             : read_value(reader, full_key(reader, prefix, name), &value);
    yaml_event_delete(&value);
    return status;
}

/* From after the start of a mapping to its end; `prefix` is "" or "model.". */
static yoke_status read_mapping(yaml_reader *reader, const char *prefix)
{
    for (;;) {
        yaml_event_t event;
        YOKE_TRY(next_event(reader, &event));
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return YOKE_OK;
        }
        yoke_status status = read_pair(reader, prefix, &event);
        yaml_event_delete(&event);
        YOKE_TRY(status);
    }
}

static yoke_status read_node(yaml_reader *reader, const yaml_event_t *event)
{
    switch ((int)event->type) {
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    case YAML_STREAM_END_EVENT:
        return YOKE_OK;
    case YAML_DOCUMENT_START_EVENT:
        return reader->settings->n == reader->first
                   ? YOKE_OK
                   : YOKE_FAIL(YOKE_BAD_INPUT,
                               "%s:%d: a second document begins; one run file describes one run",
                               reader->path, line_of(event));
    case YAML_MAPPING_START_EVENT:
        return read_mapping(reader, "");
    default:
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s:%d: there are no keys; write lines such as `steps: 100`", reader->path,
                         line_of(event));
    }
}

static yoke_status read_stream(yaml_reader *reader)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        YOKE_TRY(next_event(reader, &event));
        yoke_status status = read_node(reader, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        YOKE_TRY(status);
    }
    if (reader->settings->n == reader->first) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "%s: the run file is empty; write lines such as `steps: 100`, or give no file",
            reader->path);
    }
    return YOKE_OK;
}

yoke_status yoke_run_file_read(yoke_arena *arena, const char *path, yoke_settings *settings)
{
    const void *start;
    size_t bytes;
    YOKE_TRY(yoke_status_prefix(yoke_file_map(path, &start, &bytes), "run file"));
    if (bytes > most_bytes) {
        char size[16];
        yoke_file_unmap(start, bytes);
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "run file %s: it has %s, a run file at most 1 MiB; a corpus is given with --data", path,
            yoke_text_bytes((double)bytes, size, sizeof size));
    }
    yaml_reader reader = {.arena = arena, .path = path, .settings = settings, .first = settings->n};
    if (!yaml_parser_initialize(&reader.parser)) {
        yoke_file_unmap(start, bytes);
        return YOKE_FAIL(YOKE_NO_MEMORY, "run file %s: no memory for the YAML parser", path);
    }
    yaml_parser_set_input_string(&reader.parser, start, bytes);
    yoke_status status = read_stream(&reader);
    yaml_parser_delete(&reader.parser);
    yoke_file_unmap(start, bytes);
    return status;
}
