/*
 * Numbers as texts: read strictly, written in the shortest form that reads back the same.
 *
 * Relies on strtoll and strtod in the C locale, which yoke never changes.
 */
#include "run/config_keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits, a sign in front, and for reals a point and an exponent: strtod alone would take blanks,
 * "nan" and "0x1p3". */
static bool holds_only(const char *text, const char *letters)
{
    return *text && strspn(text, letters) == strlen(text);
}

yoke_status yoke_number_parse_int(const char *name, const char *text, int64_t *value)
{
    char *end = NULL;
    if (!holds_only(text, "+-0123456789")) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s: '%s' is not a whole number; write digits only, such as 16", name,
                         text);
    }
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s: '%s' is not a whole number; write digits only, such as 16", name,
                         text);
    }
    if (errno == ERANGE) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s: %s does not fit into 64 bits; use at most %lld", name,
                         text, (long long)INT64_MAX);
    }
    *value = parsed;
    return YOKE_OK;
}

yoke_status yoke_number_parse_real(const char *name, const char *text, double *value)
{
    char *end = NULL;
    double parsed = holds_only(text, "+-.0123456789eE") ? strtod(text, &end) : 0.0;
    if (!end || end == text || *end) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s: '%s' is not a number; write one such as 0.1 or 3e-4",
                         name, text);
    }
    if (!isfinite(parsed)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s: %s is too large for a double; use at most 1.7e308",
                         name, text);
    }
    *value = parsed;
    return YOKE_OK;
}

yoke_status yoke_number_parse_bytes(const char *name, const char *text, int64_t *bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    char number[32];
    size_t length = strspn(text, "0123456789.");
    double factor = 0, value;
    for (int i = 0; i < 4; i++) {
        factor = strcmp(text + length, units[i]) == 0 ? ldexp(1, 10 * (i + 1)) : factor;
    }
    if (length == 0 || length >= sizeof number || factor <= 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s: '%.80s' is not a number of bytes; write one such as 600MiB or 2GiB",
                         name, text);
    }
    memcpy(number, text, length);
    number[length] = 0;
    YOKE_TRY(yoke_number_parse_real(name, number, &value));
    value *= factor;
    if (value < 1024 || value > 0x1p60) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s is %.80s; use at least 1KiB, at most 1000000TiB", name,
                         text);
    }
    *bytes = (int64_t)value;
    return YOKE_OK;
}

yoke_status yoke_number_parse_bytes_or_none(const char *name, const char *text, int64_t *bytes)
{
    *bytes = 0;
    if (strcmp(text, "0") == 0) {
        return YOKE_OK;
    }
    return yoke_status_prefix(yoke_number_parse_bytes(name, text, bytes), "neither 0 nor a size");
}

yoke_status yoke_number_parse_bool(const char *name, const char *text, bool *value)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s: '%s' is neither true nor false; write one of them",
                         name, text);
    }
    *value = yes;
    return YOKE_OK;
}

const char *yoke_number_print_real(double value, char *buffer, int buffer_bytes)
{
    /* Whole numbers that people would write out stay written out: 600, not 6e+02. */
    if (value == rint(value) && fabs(value) < 1e9) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%.0f", value);
        return buffer;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(buffer, (size_t)buffer_bytes, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) {
            break;
        }
    }
    return buffer;
}
