/*
 * A pair of ranks has a ring of messages for each direction. The word of a message counts rounds
 * through the ring (epochs) above four bits that tell how far the message of this epoch is. No one
 * resets it: the first post of a new epoch replaces the old bits.
 */
#include "transport/message.h"

#include <limits.h>
#include "transport/element.h"
#include "transport/rank.h"
#include "transport/wait.h"

enum {
    SENT = 1,    /* the sender's part is written */
    WANTED = 2,  /* the receiver's part is written */
    CLAIMED = 4, /* one end is copying */
    DONE = 8,
    EPOCH_SHIFT = 4,
    /* Copied by the last to start: 16 KiB take a microsecond or two, less than waking anyone. */
    SMALL_ELEMENTS = 4096,
};

static bool is_send(const yoke_request *request)
{
    return request->transfer->kind == YOKE_TRANSFER_SEND;
}

static yoke_message *message_of(const yoke_endpoint *endpoint, const yoke_request *request)
{
    const yoke_world *world = endpoint->world;
    size_t peer = (size_t)request->transfer->peer;
    size_t self = (size_t)endpoint->rank;
    size_t n_ranks = (size_t)world->n_ranks;
    size_t pair = is_send(request) ? self * n_ranks + peer : peer * n_ranks + self;
    size_t depth = (size_t)world->depth;
    return &world->messages[pair * depth + request->sequence % depth];
}

/* The word of this request's epoch without bits. */
static uint32_t epoch_word(const yoke_endpoint *endpoint, const yoke_request *request)
{
    return (uint32_t)(request->sequence / (uint64_t)endpoint->world->depth) << EPOCH_SHIFT;
}

/* Words of one message are at most an epoch apart, so the sign of the difference orders them even
 * when they wrap round. */
static bool is_before(uint32_t word, uint32_t other)
{
    return (int32_t)(word - other) < 0;
}

/* Adds a bit to the epoch that begins at `base`, entering it if need be; returns the new word. */
static uint32_t post(yoke_message *message, uint32_t base, uint32_t bit)
{
    uint32_t old = atomic_load_explicit(&message->gate.word, memory_order_relaxed);
    uint32_t posted;
    do {
        posted = (is_before(old, base) ? base : old) | bit;
        /* Partner: claim, which by acquire sees what the other end has written. Sequentially
         * consistent for yoke_gate_wake. */
    } while (!atomic_compare_exchange_weak(&message->gate.word, &old, posted));
    return posted;
}

static bool claim(yoke_message *message, uint32_t base)
{
    uint32_t both = base | SENT | WANTED;
    /* Partners: post of both ends. Only one end gets through. */
    return atomic_compare_exchange_strong_explicit(&message->gate.word, &both, both | CLAIMED,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Copies, or keeps in what the two ends disagree. By who has claimed the message. */
static void deliver(yoke_message *message, uint32_t base)
{
    bool agree = message->sent_elements == message->wanted_elements &&
                 message->sent_tag == message->wanted_tag &&
                 message->sent_dtype == message->wanted_dtype;
    if (agree && message->sent_elements > 0) {
        yoke_elements_copy(message->to, message->wanted_dtype, message->from, message->sent_dtype,
                           message->sent_elements);
    } else if (!agree && message->failed_epoch == 0) {
        message->failed_elements[0] = message->sent_elements;
        message->failed_elements[1] = message->wanted_elements;
        message->failed_tag[0] = message->sent_tag;
        message->failed_tag[1] = message->wanted_tag;
        message->failed_dtype[0] = message->sent_dtype;
        message->failed_dtype[1] = message->wanted_dtype;
        message->failed_epoch = 1 + (uint64_t)(base >> EPOCH_SHIFT);
    }
    /* Partner: yoke_message_progress of the other end. */
    atomic_store(&message->gate.word, base | SENT | WANTED | CLAIMED | DONE);
    yoke_gate_wake(&message->gate, INT_MAX);
}

yoke_status yoke_message_start(yoke_endpoint *endpoint, const yoke_request *request)
{
    const yoke_transfer *transfer = request->transfer;
    YOKE_ASSERT(transfer->peer >= 0 && transfer->peer < endpoint->world->n_ranks);
    YOKE_ASSERT(transfer->peer != endpoint->rank);
    yoke_message *message = message_of(endpoint, request);
    uint32_t base = epoch_word(endpoint, request);
    uint32_t bit = is_send(request) ? SENT : WANTED;
    if (is_send(request)) {
        message->sent_elements = transfer->elements;
        message->sent_tag = transfer->tag;
        message->sent_dtype = transfer->dtype;
        message->from = transfer->in;
    } else {
        message->wanted_elements = transfer->elements;
        message->wanted_tag = transfer->tag;
        message->wanted_dtype = transfer->dtype;
        message->to = transfer->out;
    }
    uint32_t word = post(message, base, bit);
    if (word != (base | SENT | WANTED)) {
        return YOKE_OK;
    }
    if (transfer->elements <= SMALL_ELEMENTS && claim(message, base)) {
        deliver(message, base);
    } else {
        yoke_gate_wake(&message->gate, INT_MAX);
    }
    return YOKE_OK;
}

yoke_gate *yoke_message_gate(const yoke_endpoint *endpoint, const yoke_request *request)
{
    return &message_of(endpoint, request)->gate;
}

bool yoke_message_progress(yoke_endpoint *endpoint, const yoke_request *request, uint32_t *seen)
{
    yoke_message *message = message_of(endpoint, request);
    uint32_t base = epoch_word(endpoint, request);
    /* Partner: deliver. A later epoch means that this one is done and the other end is ahead. */
    *seen = atomic_load_explicit(&message->gate.word, memory_order_acquire);
    if (*seen == (base | SENT | WANTED)) {
        if (claim(message, base)) {
            deliver(message, base);
            return true;
        }
        *seen = atomic_load_explicit(&message->gate.word, memory_order_acquire);
    }
    return !is_before(*seen, base | DONE);
}

int yoke_message_missing(const yoke_endpoint *endpoint, const yoke_request *request)
{
    uint32_t base = epoch_word(endpoint, request);
    uint32_t word =
        atomic_load_explicit(&message_of(endpoint, request)->gate.word, memory_order_relaxed);
    return is_before(word, base | DONE) ? request->transfer->peer : -1;
}

yoke_status yoke_message_verdict(const yoke_endpoint *endpoint, const yoke_request *request)
{
    const yoke_message *message = message_of(endpoint, request);
    uint64_t epoch = epoch_word(endpoint, request) >> EPOCH_SHIFT;
    if (message->failed_epoch != epoch + 1) {
        return YOKE_OK;
    }
    int self = endpoint->rank;
    int peer = request->transfer->peer;
    return YOKE_FAIL(YOKE_CHECK,
                     "message %llu from rank %d to rank %d: sent are %lld %selements with tag %d, "
                     "expected %lld %swith tag %d; a send and its receive must agree (yoke verify "
                     "finds such a pair before a run)",
                     (unsigned long long)request->sequence, is_send(request) ? self : peer,
                     is_send(request) ? peer : self, (long long)message->failed_elements[0],
                     message->failed_dtype[0] == YOKE_BF16 ? "bf16 " : "", message->failed_tag[0],
                     (long long)message->failed_elements[1],
                     message->failed_dtype[1] == YOKE_BF16 ? "bf16 " : "", message->failed_tag[1]);
}
