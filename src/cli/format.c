/*
 * Numbers as people read them, and as JSON takes them.
 */
#include "cli/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *yoke_format_count(int64_t value, char *buffer, int buffer_bytes)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value);
    int used = 0;
    for (int i = 0; i < length && used + 2 < buffer_bytes; i++) {
        int left = length - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') {
            buffer[used++] = ',';
        }
        buffer[used++] = digits[i];
    }
    buffer[used] = '\0';
    return buffer;
}

const char *yoke_format_duration(double seconds, char *buffer, int buffer_bytes)
{
    size_t bytes = (size_t)buffer_bytes;
    if (!isfinite(seconds) || seconds < 0.0 || seconds > 1e12) {
        (void)snprintf(buffer, bytes, "?");
    } else if (seconds < 9.95) {
        (void)snprintf(buffer, bytes, "%.1f s", seconds);
    } else if (seconds < 59.5) {
        (void)snprintf(buffer, bytes, "%.0f s", seconds);
    } else if (seconds < 3599.5) {
        int64_t whole = llround(seconds);
        (void)snprintf(buffer, bytes, "%" PRId64 " min %02" PRId64 " s", whole / 60, whole % 60);
    } else {
        int64_t minutes = llround(seconds / 60.0);
        (void)snprintf(buffer, bytes, "%" PRId64 " h %02" PRId64 " min", minutes / 60,
                       minutes % 60);
    }
    return buffer;
}

json_t *yoke_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *yoke_json_text(const char *text)
{
    char plain[4096];
    json_t *json = json_string(text);
    if (json) {
        return json;
    }
    (void)snprintf(plain, sizeof plain, "%s", text);
    for (char *letter = plain; *letter; letter++) {
        if ((unsigned char)*letter >= 0x80) {
            *letter = '?';
        }
    }
    return json_string(plain);
}
