/*
 * Status: how yoke says that the world failed.
 *
 * A function that can fail returns a `yoke_status`: NULL when it went well, else an error object with a code and one
 * message that holds the numbers and the way out. Whoever handles a status frees it; whoever cannot handle it returns
 * it. A fault of yoke itself is not a status: it is a failed YOKE_ASSERT, which ends the whole job.
 */
#ifndef YOKE_STATUS_H
#define YOKE_STATUS_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yoke_code {
    YOKE_GOOD = 0,
    YOKE_BAD_INPUT, /* a key, size, mesh or file that the user can mend; the command ends with 2 */
    YOKE_NO_MEMORY, /* the machine has less than the plan needs */
    YOKE_IO,        /* a file or system call failed */
    YOKE_CHECK,     /* a check ran and found something: a verifier, parity, a non-finite loss */
    YOKE_RANK_LOST, /* a rank died, hung or was stopped */
    YOKE_INTERRUPTED, /* the user asked to stop */
} yoke_code;

typedef struct yoke_error yoke_error;
typedef yoke_error *yoke_status;

#define YOKE_OK ((yoke_status)0)

#if defined(__GNUC__)
#define YOKE_MUST_USE          __attribute__((warn_unused_result))
#define YOKE_FORMAT(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define YOKE_MUST_USE
#define YOKE_FORMAT(fmt, args)
#endif

/* Makes an error. Never NULL: without memory it returns a constant error of code YOKE_NO_MEMORY. */
yoke_status yoke_status_create(yoke_code code, const char *file, int line, const char *format, ...)
    YOKE_FORMAT(4, 5) YOKE_MUST_USE;

/* Puts "context: " before the message of `status` and returns it; YOKE_OK stays YOKE_OK. */
yoke_status yoke_status_prefix(yoke_status status, const char *format, ...)
    YOKE_FORMAT(2, 3) YOKE_MUST_USE;

yoke_code yoke_status_code(const yoke_error *status);
const char *yoke_status_message(const yoke_error *status); /* "" when good */
const char *yoke_status_file(const yoke_error *status); /* source file that made it, "" when good */
int yoke_status_line(const yoke_error *status);
void yoke_status_free(yoke_status status); /* NULL is fine */

#define YOKE_FAIL(code, ...) yoke_status_create((code), __FILE__, __LINE__, __VA_ARGS__)

#if defined(__clang_analyzer__)
/* clang's analyzer has to be shown that a failure is not NULL, or it follows callers past YOKE_TRY. */
extern yoke_error yoke_some_error;
#undef YOKE_FAIL
#define YOKE_FAIL(code, ...)                                                                       \
    ((void)yoke_status_create((code), __FILE__, __LINE__, __VA_ARGS__), &yoke_some_error)
#endif

/* Runs a call and, if it failed, returns its status from the function around it. */
#define YOKE_TRY(call)                                                                             \
    do {                                                                                           \
        yoke_status try_status_ = (call);                                                          \
        if (try_status_) {                                                                         \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

/* Always on. A failed assert is a fault of yoke: it prints where, and ends every rank of the job. */
#define YOKE_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : yoke_assert_failed(#condition, __FILE__, __LINE__))

#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void yoke_assert_failed(const char *condition, const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif
