/*
 * The keys of a run as a table, and how their values are read from and written to text.
 *
 * Made from YOKE_CONFIG_LIST; run files, flags, help and the resolved config all go through it. It
 * relies on nothing but yoke/config.h. It knows no files: where a value came from is said by the
 * caller, with yoke_status_prefix.
 */
#ifndef YOKE_RUN_CONFIG_KEYS_H
#define YOKE_RUN_CONFIG_KEYS_H

#include <stddef.h>
#include "yoke/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yoke_config_kind {
    YOKE_CONFIG_KIND_INT,
    YOKE_CONFIG_KIND_REAL,
    YOKE_CONFIG_KIND_BOOL,
    YOKE_CONFIG_KIND_TEXT
} yoke_config_kind;

typedef struct yoke_config_key {
    const char *name;
    yoke_config_kind kind;
    size_t offset; /* of the field in yoke_config */
    const char *unit;
    const char *help;
} yoke_config_key;

#define YOKE_CONFIG_COUNT(type, key, fallback, unit, help) +1
enum { YOKE_N_CONFIG_KEYS = 0 YOKE_CONFIG_LIST(YOKE_CONFIG_COUNT) };
#undef YOKE_CONFIG_COUNT

const yoke_config_key *
yoke_config_key_get(int index); /* index in [0, YOKE_N_CONFIG_KEYS), in the order of the list */
const yoke_config_key *
yoke_config_key_find(const char *name); /* '-' and '_' are equal; NULL if unknown */

/* Sets the field of one key. YOKE_BAD_INPUT, naming key and value, if the text is not wholly of the
 * key's type. A text is borrowed: it must live as long as the config. */
yoke_status yoke_config_set(yoke_config *config, const yoke_config_key *key,
                            const char *text) YOKE_MUST_USE;

/* Writes the value of one key so that yoke_config_set reads back the same bits; a text is returned
 * as it is, everything else stands in buffer, for which 32 bytes are enough. */
const char *yoke_config_print(const yoke_config *config, const yoke_config_key *key, char *buffer,
                              int buffer_bytes);

enum { YOKE_MOST_IDLE_OPTIONS = 8 };

/* What decides whether an option has anything to work on. */
typedef struct yoke_config_place {
    yoke_mesh mesh;
    bool has_experts, masks_tokens; /* the model */
} yoke_config_place;

/* One sentence for each option that is not at its default and changes nothing there; returns how
 * many. */
int yoke_config_find_idle(const yoke_config *config, const yoke_config_place *place,
                          const char *idle[YOKE_MOST_IDLE_OPTIONS]);

/* Whole texts as numbers: no blanks, no tail, no hexadecimal, nothing out of range, not infinite.
 * `name` is for the message of the YOKE_BAD_INPUT. */
yoke_status yoke_number_parse_int(const char *name, const char *text, int64_t *value) YOKE_MUST_USE;
yoke_status yoke_number_parse_real(const char *name, const char *text, double *value) YOKE_MUST_USE;
/* "600MiB": from 1KiB on. */
yoke_status yoke_number_parse_bytes(const char *name, const char *text,
                                    int64_t *bytes) YOKE_MUST_USE;
/* The same, or "0". */
yoke_status yoke_number_parse_bytes_or_none(const char *name, const char *text,
                                            int64_t *bytes) YOKE_MUST_USE;
yoke_status yoke_number_parse_bool(const char *name, const char *text, bool *value) YOKE_MUST_USE;

/* The shortest decimal that reads back as the same double; 32 bytes are enough. Returns buffer. */
const char *yoke_number_print_real(double value, char *buffer, int buffer_bytes);

#ifdef __cplusplus
}
#endif
#endif
