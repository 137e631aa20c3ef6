/*
 * What the tests of schedules share: an arena, schedules built in it, and what they print.
 */
#ifndef SCHEDULE_CASE_H
#define SCHEDULE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "yoke/schedule.h"

static yoke_arena *arena;

static inline int set_up(void **state)
{
    (void)state;
    return yoke_arena_create(&arena, (size_t)1 << 28) ? -1 : 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    yoke_arena_destroy(arena);
    return 0;
}

static inline const yoke_schedule_def *find(const char *name)
{
    const yoke_schedule_def *def = NULL;
    yoke_status status = yoke_schedule_find(name, &def);
    assert_null(status);
    return def;
}

static inline yoke_schedule make_of(const yoke_schedule_def *def,
                                    const yoke_schedule_request *request)
{
    yoke_schedule schedule;
    yoke_status status = yoke_schedule_build(def, request, arena, &schedule);
    if (status) {
        fail_msg("%s p=%d m=%d: %s", def->name, request->n_stages, request->n_microbatches,
                 yoke_status_message(status));
    }
    return schedule;
}

static inline yoke_schedule make(const yoke_schedule_def *def, int p, int m, bool forward_only)
{
    yoke_schedule_request request = {
        .n_stages = p, .n_microbatches = m, .forward_only = forward_only};
    return make_of(def, &request);
}

static inline void assert_fails(yoke_status status, yoke_code code, const char *says)
{
    assert_non_null(status);
    assert_string_equal(yoke_status_message(status), says);
    assert_int_equal(yoke_status_code(status), code);
    yoke_status_free(status);
}

/* What `write` writes; freed by the next call. */
static inline const char *written(void (*write)(FILE *, const yoke_schedule *),
                                  const yoke_schedule *schedule)
{
    static char *text;
    size_t bytes;
    free(text);
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(out, schedule);
    fclose(out);
    return text;
}

#endif
