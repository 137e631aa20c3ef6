/*
 * What a rank tells about itself while it runs and when it ends. Relies on nothing but the shared
 * mapping, so that it works alike for threads and processes.
 */
#include "transport/rank.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/float.h"
#include "transport/wait.h"

int yoke_endpoint_rank(const yoke_endpoint *endpoint)
{
    return endpoint->rank;
}

void yoke_endpoint_beat(yoke_endpoint *endpoint)
{
    _Atomic uint32_t *n_beats = &endpoint->self->n_beats;
    /* Only this rank writes, so no locked instruction is needed. The launcher reads. */
    uint32_t n = atomic_load_explicit(n_beats, memory_order_relaxed);
    atomic_store_explicit(n_beats, n + 1, memory_order_relaxed);
}

void yoke_endpoint_mark(yoke_endpoint *endpoint, int64_t instruction)
{
    /* The launcher reads; nothing else is told by it. */
    atomic_store_explicit(&endpoint->self->instruction, instruction, memory_order_relaxed);
    yoke_endpoint_beat(endpoint);
}

bool yoke_job_is_aborted(const yoke_world *world)
{
    /* Partner: yoke_job_abort; who sees it also sees the cause. */
    return atomic_load_explicit(&world->control->aborted, memory_order_acquire);
}

void yoke_job_abort(yoke_world *world, const yoke_cause *cause)
{
    yoke_control *control = world->control;
    /* Partner: this line on another rank; it only decides who is first. */
    if (atomic_exchange_explicit(&control->aborting, true, memory_order_relaxed)) {
        return;
    }
    control->cause = *cause;
    /* Partner: yoke_job_is_aborted. Sequentially consistent, so that who goes to sleep after this
     * sees it, or has told the word that is woken below; what slips between ends with the nap. */
    atomic_store(&control->aborted, true);
    for (int r = 0; r < world->n_ranks; r++) {
        /* Partner: yoke_gate_sleep and yoke_endpoint_sleep. */
        uintptr_t word = atomic_load(&world->states[r].sleeps_on);
        if (word) {
            yoke_word_wake((_Atomic uint32_t *)word, INT_MAX);
        }
    }
}

const char *yoke_place_print(const yoke_launch *launch, int rank, int64_t instruction, char *buffer,
                             size_t buffer_bytes)
{
    if (instruction < 0) {
        (void)snprintf(buffer, buffer_bytes, "before its first instruction");
        return buffer;
    }
    char name[128] = "";
    const char *text = "";
    if (launch->describe) {
        text = launch->describe(launch->user, rank, instruction, name, (int)sizeof name);
    }
    (void)snprintf(buffer, buffer_bytes, "in #%lld%s%s", (long long)instruction, *text ? " " : "",
                   text);
    return buffer;
}

static const char *own_place(const yoke_endpoint *endpoint, char *buffer, size_t buffer_bytes)
{
    int64_t instruction = atomic_load_explicit(&endpoint->self->instruction, memory_order_relaxed);
    return yoke_place_print(endpoint->launch, endpoint->rank, instruction, buffer, buffer_bytes);
}

yoke_status yoke_endpoint_lost(yoke_endpoint *endpoint, int waits_for)
{
    const yoke_cause *cause = &endpoint->world->control->cause;
    int rank = endpoint->rank;
    char place[192];
    own_place(endpoint, place, sizeof place);
    atomic_store_explicit(&endpoint->self->waits_for, waits_for, memory_order_relaxed);
    if (waits_for >= 0 && waits_for == cause->rank) {
        return YOKE_FAIL(YOKE_RANK_LOST, "rank %d ended: it waited %s for rank %d, which %s", rank,
                         place, waits_for, cause->text);
    }
    char subject[32] = "";
    if (cause->rank >= 0) {
        (void)snprintf(subject, sizeof subject, "rank %d ", cause->rank);
    }
    if (waits_for >= 0) {
        return YOKE_FAIL(YOKE_RANK_LOST, "rank %d ended: it waited %s for rank %d; %s%s", rank,
                         place, waits_for, subject, cause->text);
    }
    return YOKE_FAIL(YOKE_RANK_LOST, "rank %d ended %s: %s%s", rank, place, subject, cause->text);
}

yoke_status yoke_endpoint_check(yoke_endpoint *endpoint)
{
    return yoke_job_is_aborted(endpoint->world) ? yoke_endpoint_lost(endpoint, -1) : YOKE_OK;
}

yoke_status yoke_endpoint_sleep(yoke_endpoint *endpoint, const uint32_t *word, uint32_t value,
                                double seconds)
{
    const _Atomic uint32_t *shared = (const _Atomic uint32_t *)word;
    double end = yoke_clock_s() + seconds;
    /* Partner: whoever changed the word, by a store with release, before yoke_world_wake. */
    while (atomic_load_explicit(shared, memory_order_acquire) == value) {
        double left = end - yoke_clock_s();
        if (left <= 0) {
            return YOKE_OK;
        }
        /* Partner: yoke_job_abort reads it. */
        atomic_store(&endpoint->self->sleeps_on, (uintptr_t)word);
        if (yoke_job_is_aborted(endpoint->world)) {
            return yoke_endpoint_lost(endpoint, -1);
        }
        (void)yoke_word_sleep(shared, value, left < YOKE_NAP_S ? left : YOKE_NAP_S);
        atomic_store_explicit(&endpoint->self->sleeps_on, 0, memory_order_relaxed);
    }
    return YOKE_OK;
}

void yoke_world_wake(yoke_world *world, uint32_t *word)
{
    (void)world;
    yoke_word_wake((_Atomic uint32_t *)word, INT_MAX);
}

static void write_report(yoke_endpoint *endpoint, const yoke_error *status)
{
    yoke_rank_state *self = endpoint->self;
    yoke_rank_report *report = &self->report;
    yoke_code code = yoke_status_code(status);
    report->code = code;
    report->instruction = atomic_load_explicit(&self->instruction, memory_order_relaxed);
    (void)snprintf(report->message, sizeof report->message, "%s", yoke_status_message(status));
    if (!status) {
        report->end = YOKE_RANK_GOOD;
    } else if (code == YOKE_RANK_LOST && yoke_job_is_aborted(endpoint->world)) {
        report->end = YOKE_RANK_ABORTED;
        report->waits_for = atomic_load_explicit(&self->waits_for, memory_order_relaxed);
    } else {
        report->end = YOKE_RANK_FAILED;
    }
}

void yoke_rank_run(yoke_endpoint *endpoint)
{
    yoke_rank_state *self = endpoint->self;
    yoke_control *control = endpoint->world->control;
    yoke_float_flush_denormals();
    yoke_status status = endpoint->launch->run(endpoint, endpoint->launch->user);
    write_report(endpoint, status);
    if (self->report.end == YOKE_RANK_FAILED) {
        yoke_cause cause = {.kind = YOKE_CAUSE_FAILED, .rank = endpoint->rank};
        char place[192];
        (void)snprintf(cause.text, sizeof cause.text, "failed %s: %s",
                       own_place(endpoint, place, sizeof place), yoke_status_message(status));
        yoke_job_abort(endpoint->world, &cause);
    }
    yoke_status_free(status);
    /* Partner: the launcher, which reads the report after it. */
    atomic_store_explicit(&self->ended, true, memory_order_release);
    atomic_fetch_add(&control->n_ended.word, 1);
    yoke_gate_wake(&control->n_ended, 1);
}
