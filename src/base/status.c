/*
 * Status objects: one heap block each, the message behind the header.
 *
 * Relies on malloc and nothing else of yoke, so that a failing allocator can still be reported. It does not print:
 * whoever handles a status decides where its message goes. The one exception is a failed assert, which has no caller
 * to return to.
 */
#include "yoke/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct yoke_error {
    yoke_code code;
    int line;
    const char *file;
    const char *message;
};

static const yoke_error no_memory = {
    .code = YOKE_NO_MEMORY,
    .line = __LINE__,
    .file = __FILE__,
    .message = "no memory is left, not even for the message that would say what failed; "
               "take a smaller model or more ranks",
};

/* The constant error in the type that callers hold. Nothing writes through it: every function here tests for it. */
static yoke_status constant_error(void)
{
    return (yoke_status)(uintptr_t)&no_memory;
}

/* A block for a status whose message has `bytes` bytes with its end; the text is the caller's to write. */
static yoke_status error_alloc(yoke_code code, const char *file, int line, size_t bytes,
                               char **text)
{
    yoke_status status = malloc(sizeof(*status) + bytes);
    if (!status) {
        return NULL;
    }
    *text = (char *)(status + 1);
    *status = (yoke_error){.code = code, .line = line, .file = file, .message = *text};
    return status;
}

yoke_status yoke_status_create(yoke_code code, const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t bytes = length < 0 ? 1 : (size_t)length + 1;
    char *text;
    yoke_status status = error_alloc(code, file, line, bytes, &text);
    if (status) {
        text[0] = '\0';
        (void)vsnprintf(text, bytes, format, again);
    }
    va_end(again);
    return status ? status : constant_error();
}

yoke_status yoke_status_prefix(yoke_status status, const char *format, ...)
{
    if (!status || status == constant_error()) {
        return status;
    }
    char context[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(context, sizeof context, format, args);
    va_end(args);
    if (length < 0) {
        return status;
    }
    size_t bytes = strlen(context) + sizeof ": " + strlen(status->message);
    char *text;
    yoke_status longer = error_alloc(status->code, status->file, status->line, bytes, &text);
    if (!longer) {
        return status;
    }
    (void)snprintf(text, bytes, "%s: %s", context, status->message);
    yoke_status_free(status);
    return longer;
}

yoke_code yoke_status_code(const yoke_error *status)
{
    return status ? status->code : YOKE_GOOD;
}

const char *yoke_status_message(const yoke_error *status)
{
    return status ? status->message : "";
}

const char *yoke_status_file(const yoke_error *status)
{
    return status ? status->file : "";
}

int yoke_status_line(const yoke_error *status)
{
    return status ? status->line : 0;
}

void yoke_status_free(yoke_status status)
{
    if (status != constant_error()) {
        free(status);
    }
}

void yoke_assert_failed(const char *condition, const char *file, int line)
{
    char text[512];
    int length =
        snprintf(text, sizeof text,
                 "yoke: fault at %s:%d: expected (%s). This is a fault of yoke, not of your "
                 "run; please report it with this line.\n",
                 file, line, condition);
    size_t bytes = length < 0 ? 0 : (size_t)length;
    if (bytes > sizeof text - 1) {
        bytes = sizeof text - 1;
    }
    ssize_t written = write(STDERR_FILENO, text, bytes);
    (void)written;
    /* The launcher sees SIGABRT, says which rank it was, and ends the others: one rank alone cannot. */
    abort();
}
