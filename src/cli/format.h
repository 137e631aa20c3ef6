/*
 * Numbers as people read them, and as JSON takes them.
 */
#ifndef YOKE_CLI_FORMAT_H
#define YOKE_CLI_FORMAT_H

#include <jansson.h>
#include <stdint.h>

/* "4,025,035"; 32 bytes are enough. Returns buffer, as do the others. */
const char *yoke_format_count(int64_t value, char *buffer, int buffer_bytes);

/* "1 h 02 min", "3 min 20 s", "12 s", "0.4 s"; 32 bytes are enough. */
const char *yoke_format_duration(double seconds, char *buffer, int buffer_bytes);

/* A JSON number, or null for one that is not finite: JSON has no NaN. */
json_t *yoke_json_real(double value);

/* A JSON text; bytes that are no UTF-8 become '?'. */
json_t *yoke_json_text(const char *text);

#endif
