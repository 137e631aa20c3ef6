/*
 * The keys of a run as a table: made from the one list in yoke/config.h, so that nothing can be
 * forgotten.
 */
#include "run/config_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const yoke_config_key keys[YOKE_N_CONFIG_KEYS] = {
#define KEY(type, key, fallback, unit_text, help_text)                                             \
    {.name = #key,                                                                                 \
     .kind = YOKE_CONFIG_KIND_##type,                                                              \
     .offset = offsetof(yoke_config, key),                                                         \
     .unit = (unit_text),                                                                          \
     .help = (help_text)},
    YOKE_CONFIG_LIST(KEY)
#undef KEY
};

const yoke_config_key *yoke_config_key_get(int index)
{
    YOKE_ASSERT(index >= 0 && index < YOKE_N_CONFIG_KEYS);
    return &keys[index];
}

static bool same_name(const char *a, const char *b)
{
    while (*a && (*a == *b || (*a == '-' && *b == '_') || (*a == '_' && *b == '-'))) {
        a++;
        b++;
    }
    return *a == *b;
}

const yoke_config_key *yoke_config_key_find(const char *name)
{
    for (int i = 0; i < YOKE_N_CONFIG_KEYS; i++) {
        if (same_name(name, keys[i].name)) {
            return &keys[i];
        }
    }
    return NULL;
}

yoke_status yoke_config_set(yoke_config *config, const yoke_config_key *key, const char *text)
{
    void *field = (char *)config + key->offset;
    switch (key->kind) {
    case YOKE_CONFIG_KIND_INT:
        return yoke_number_parse_int(key->name, text, field);
    case YOKE_CONFIG_KIND_REAL:
        return yoke_number_parse_real(key->name, text, field);
    case YOKE_CONFIG_KIND_BOOL:
        return yoke_number_parse_bool(key->name, text, field);
    case YOKE_CONFIG_KIND_TEXT:
        memcpy(field, &text, sizeof text);
        break;
    }
    return YOKE_OK;
}

const char *yoke_config_print(const yoke_config *config, const yoke_config_key *key, char *buffer,
                              int buffer_bytes)
{
    const void *field = (const char *)config + key->offset;
    const char *text = buffer;
    switch (key->kind) {
    case YOKE_CONFIG_KIND_INT:
        (void)snprintf(buffer, (size_t)buffer_bytes, "%" PRId64, *(const int64_t *)field);
        break;
    case YOKE_CONFIG_KIND_REAL:
        text = yoke_number_print_real(*(const double *)field, buffer, buffer_bytes);
        break;
    case YOKE_CONFIG_KIND_BOOL:
        text = *(const bool *)field ? "true" : "false";
        break;
    case YOKE_CONFIG_KIND_TEXT:
        memcpy(&text, field, sizeof text);
        break;
    }
    return text;
}
