/*
 * Transfers: numbering them, and waiting. What a transfer does is in message.c and collective.c.
 */
#include "transport/message.h"

#include "transport/collective.h"
#include "transport/header.h"
#include "transport/rank.h"
#include "transport/wait.h"

static bool is_message(const yoke_request *request)
{
    yoke_transfer_kind kind = request->transfer->kind;
    return kind == YOKE_TRANSFER_SEND || kind == YOKE_TRANSFER_RECV;
}

static yoke_lane *lane_of(const yoke_endpoint *endpoint, const yoke_transfer *transfer)
{
    const yoke_world *world = endpoint->world;
    if (transfer->kind == YOKE_TRANSFER_SEND) {
        return &endpoint->lanes[world->n_groups + transfer->peer];
    }
    if (transfer->kind == YOKE_TRANSFER_RECV) {
        return &endpoint->lanes[world->n_groups + world->n_ranks + transfer->peer];
    }
    return &endpoint->lanes[transfer->group];
}

/* The word of a lane that has the bit of a transfer, and that bit. */
static uint64_t *busy_word(const yoke_endpoint *endpoint, yoke_lane *lane, uint64_t sequence)
{
    return &lane->busy[sequence % (uint64_t)endpoint->world->depth / 64];
}

static uint64_t busy_bit(const yoke_endpoint *endpoint, uint64_t sequence)
{
    return UINT64_C(1) << sequence % (uint64_t)endpoint->world->depth % 64;
}

static yoke_status check_start(const yoke_endpoint *endpoint, const yoke_transfer *transfer)
{
    const yoke_world *world = endpoint->world;
    YOKE_ASSERT((int)transfer->kind >= 0 && transfer->kind < YOKE_N_TRANSFER_KINDS);
    if (transfer->kind == YOKE_TRANSFER_SEND || transfer->kind == YOKE_TRANSFER_RECV) {
        YOKE_ASSERT(transfer->peer >= 0 && transfer->peer < world->n_ranks);
    } else {
        YOKE_ASSERT(transfer->group >= 0 && transfer->group < world->n_groups);
    }
    YOKE_ASSERT(transfer->elements >= 0);
    yoke_lane *lane = lane_of(endpoint, transfer);
    uint64_t next = lane->n_started;
    if (*busy_word(endpoint, lane, next) & busy_bit(endpoint, next)) {
        return YOKE_FAIL(YOKE_CHECK,
                         "rank %d starts %s %llu before it has waited for %llu; at most %d may be "
                         "outstanding in one channel or group",
                         endpoint->rank, yoke_transfer_kind_name(transfer->kind),
                         (unsigned long long)next,
                         (unsigned long long)next - (unsigned long long)world->depth, world->depth);
    }
    return YOKE_OK;
}

yoke_status yoke_transfer_start(yoke_endpoint *endpoint, const yoke_transfer *transfer,
                                yoke_request *request)
{
    YOKE_TRY(check_start(endpoint, transfer));
    yoke_lane *lane = lane_of(endpoint, transfer);
    *request = (yoke_request){.transfer = transfer, .sequence = lane->n_started};
    yoke_endpoint_beat(endpoint);
    YOKE_TRY(is_message(request) ? yoke_message_start(endpoint, request)
                                 : yoke_collective_start(endpoint, request));
    *busy_word(endpoint, lane, request->sequence) |= busy_bit(endpoint, request->sequence);
    lane->n_started++;
    return YOKE_OK;
}

static int find_missing(const yoke_endpoint *endpoint, const yoke_request *request, int preferred)
{
    return is_message(request) ? yoke_message_missing(endpoint, request)
                               : yoke_collective_missing(endpoint, request, preferred);
}

/* Nothing can be done until the word leaves `seen`. Tells now and then for whom it waits: what has
 * been told was true after the count of looks before it. */
static yoke_status sleep_once(yoke_endpoint *endpoint, const yoke_request *request, uint32_t seen)
{
    yoke_rank_state *self = endpoint->self;
    yoke_gate *gate = is_message(request) ? yoke_message_gate(endpoint, request)
                                          : yoke_collective_gate(endpoint, request);
    if (yoke_gate_look(gate, seen, endpoint->spins) != seen) {
        return YOKE_OK;
    }
    if (yoke_job_is_aborted(endpoint->world)) {
        int cause = endpoint->world->control->cause.rank;
        return yoke_endpoint_lost(endpoint, find_missing(endpoint, request, cause));
    }
    if (yoke_gate_sleep(gate, seen, YOKE_NAP_S, &self->sleeps_on)) {
        uint32_t n_looks = atomic_load_explicit(&self->n_looks, memory_order_relaxed);
        atomic_store_explicit(&self->waits_for, find_missing(endpoint, request, -1),
                              memory_order_relaxed);
        /* Partner: the launcher, which by acquire sees waits_for at least as new. */
        atomic_store_explicit(&self->n_looks, n_looks + 1, memory_order_release);
    }
    return YOKE_OK;
}

yoke_status yoke_transfer_wait(yoke_endpoint *endpoint, yoke_request *request)
{
    yoke_lane *lane = lane_of(endpoint, request->transfer);
    uint64_t bit = busy_bit(endpoint, request->sequence);
    uint64_t *busy = busy_word(endpoint, lane, request->sequence);
    YOKE_ASSERT(request->sequence < lane->n_started && (*busy & bit) != 0);
    uint32_t seen;
    while (!(is_message(request) ? yoke_message_progress(endpoint, request, &seen)
                                 : yoke_collective_progress(endpoint, request, &seen))) {
        YOKE_TRY(sleep_once(endpoint, request, seen));
    }
    *busy &= ~bit;
    atomic_store_explicit(&endpoint->self->waits_for, -1, memory_order_relaxed);
    return is_message(request) ? yoke_message_verdict(endpoint, request)
                               : yoke_collective_verdict(endpoint, request);
}
