/*
 * The ring of slots of a group, and who does which chunk when. See collective.h and world.h; the
 * arithmetic is in chunk.c.
 */
#include "transport/collective.h"

#include <limits.h>

#include "transport/box.h"
#include "transport/chunk.h"
#include "transport/header.h"
#include "transport/rank.h"
#include "transport/wait.h"

/* Work up to this many bytes read is done by the last member to start, who has the others' data
 * waiting. all_reduce on 2 cores: 64 KiB by 4 ranks 7.7 us by one and 9 shared out, 128 KiB 11.5 and
 * 9; 8 ranks are alike up to 256 KiB; of 2 ranks 128 KiB 6.5 and 3.8. */
enum { SMALL_BYTES = 65536 };

static const yoke_ranks *group_of(const yoke_endpoint *endpoint, const yoke_request *request)
{
    return &endpoint->world->groups[request->transfer->group];
}

static yoke_work work_of(const yoke_endpoint *endpoint, const yoke_request *request)
{
    const yoke_ranks *group = group_of(endpoint, request);
    size_t index = request->sequence % (uint64_t)endpoint->world->n_slots;
    return (yoke_work){.transfer = request->transfer,
                       .n_members = group->n,
                       .slot = &group->slots[index],
                       .entries = &group->entries[index * (size_t)group->n]};
}

static uint32_t epoch_of(const yoke_endpoint *endpoint, const yoke_request *request)
{
    return (uint32_t)(request->sequence / (uint64_t)endpoint->world->n_slots);
}

static bool is_redistribution(const yoke_transfer *transfer)
{
    return transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_COPY ||
           transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_SUM;
}

/* Elements of `wanted` that the members hold together; one held twice counts twice. */
static int64_t count_sources(const yoke_shard *wanted, const yoke_shard *held, int n)
{
    int64_t elements = 0;
    for (int m = 0; m < n; m++) {
        yoke_shard common;
        if (yoke_box_intersect(wanted, &held[m], &common)) {
            elements += yoke_shard_elements(&common);
        }
    }
    return elements;
}

static yoke_status check_sources(const yoke_transfer *transfer, const yoke_ranks *group)
{
    const yoke_shard *wanted = transfer->out_shard;
    int64_t n_wanted = yoke_shard_elements(wanted);
    for (int m = 0; m < group->n; m++) {
        YOKE_ASSERT(transfer->in_shards[m].n_dims == wanted->n_dims);
    }
    if (!yoke_box_is_covered(wanted, transfer->in_shards, group->n)) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "redistribution with tag %d: of the %lld elements wanted some lie on no "
                         "member of the group of %d ranks from rank %d; convert along the other "
                         "axes first",
                         transfer->tag, (long long)n_wanted, group->n, group->rank[0]);
    }
    int64_t n_sources = count_sources(wanted, transfer->in_shards, group->n);
    if (transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_COPY && n_sources != n_wanted) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "redistribution with tag %d: %lld elements wanted have %lld sources in "
                         "the group of %d ranks from rank %d; a copy needs one for each",
                         transfer->tag, (long long)n_wanted, (long long)n_sources, group->n,
                         group->rank[0]);
    }
    return YOKE_OK;
}

/* Takes chunks until none is left, those of this member first. True if the last of all was among
 * them, and so the collective is done. */
static bool do_chunks(const yoke_work *work, int self)
{
    yoke_entry *own = &work->entries[self];
    int64_t n_done = 0;
    atomic_store_explicit(&own->works, true, memory_order_relaxed);
    for (int i = 0; i < work->n_members; i++) {
        int member = (self + i) % work->n_members;
        yoke_entry *entry = &work->entries[member];
        while (atomic_load_explicit(&entry->next_chunk, memory_order_relaxed) < entry->n_chunks) {
            /* Only shares the chunks out; what they work on was made visible by the open gate. */
            int64_t index = atomic_fetch_add_explicit(&entry->next_chunk, 1, memory_order_relaxed);
            if (index < entry->n_chunks) {
                yoke_work_run(work, member, index);
                n_done++;
            }
        }
    }
    atomic_store_explicit(&own->works, false, memory_order_relaxed);
    /* Partner: this line on other members; who finishes last has seen all their writes. */
    return n_done > 0 &&
           atomic_fetch_add_explicit(&work->slot->n_finished, n_done, memory_order_acq_rel) +
                   n_done ==
               work->slot->n_chunks;
}

static void set_word(yoke_gate *gate, uint32_t word, int n_wakes)
{
    /* Partner: yoke_collective_progress, by acquire; and yoke_gate_sleep. */
    atomic_store(&gate->word, word);
    yoke_gate_wake(gate, n_wakes);
}

/* All members have started. */
static void open_slot(const yoke_endpoint *endpoint, const yoke_work *work, uint32_t epoch)
{
    yoke_slot *slot = work->slot;
    int self = endpoint->member[work->transfer->group];
    uint32_t done = 2 * epoch + 2;
    slot->odd_member = yoke_header_find_odd(work->entries, work->n_members);
    int64_t bytes = slot->odd_member < 0 ? yoke_work_plan(work) : 0;
    if (bytes == 0) {
        set_word(&slot->gate, done, INT_MAX);
        return;
    }
    /* Nobody else touches these before the gate is open. */
    atomic_store_explicit(&slot->n_finished, 0, memory_order_relaxed);
    for (int m = 0; m < work->n_members; m++) {
        atomic_store_explicit(&work->entries[m].next_chunk, 0, memory_order_relaxed);
    }
    if (bytes <= SMALL_BYTES && do_chunks(work, self)) {
        set_word(&slot->gate, done, INT_MAX);
        return;
    }
    /* No more helpers than cores: the others sleep on until the work is done. */
    int n_cores = endpoint->world->n_cores;
    set_word(&slot->gate, 2 * epoch + 1, n_cores > 1 ? n_cores - 1 : 1);
}

yoke_status yoke_collective_start(yoke_endpoint *endpoint, const yoke_request *request)
{
    const yoke_transfer *transfer = request->transfer;
    YOKE_ASSERT(transfer->group >= 0 && transfer->group < endpoint->world->n_groups);
    int self = endpoint->member[transfer->group];
    YOKE_ASSERT(self >= 0);
    const yoke_ranks *group = group_of(endpoint, request);
    YOKE_ASSERT(transfer->kind != YOKE_TRANSFER_BROADCAST ||
                (transfer->peer >= 0 && transfer->peer < group->n));
    if (is_redistribution(transfer)) {
        YOKE_TRY(check_sources(transfer, group));
    }
    yoke_work work = work_of(endpoint, request);
    yoke_entry *entry = &work.entries[self];
    entry->header = yoke_header_of(transfer, group->n);
    entry->in = transfer->in;
    entry->out = transfer->out;
    entry->out_shard = is_redistribution(transfer) ? *transfer->out_shard : (yoke_shard){0};
    /* For yoke_collective_missing only. */
    atomic_store_explicit(&entry->n_started, request->sequence + 1, memory_order_relaxed);
    uint32_t epoch = epoch_of(endpoint, request);
    uint32_t n = (uint32_t)group->n;
    /* Partner: this line on the last member to start, who thereby sees all entries. */
    uint32_t before = atomic_fetch_add_explicit(&work.slot->n_arrived, 1, memory_order_acq_rel);
    if (before + 1 == (epoch + 1) * n) {
        open_slot(endpoint, &work, epoch);
    }
    return YOKE_OK;
}

yoke_gate *yoke_collective_gate(const yoke_endpoint *endpoint, const yoke_request *request)
{
    return &work_of(endpoint, request).slot->gate;
}

bool yoke_collective_progress(yoke_endpoint *endpoint, const yoke_request *request, uint32_t *seen)
{
    yoke_work work = work_of(endpoint, request);
    yoke_gate *gate = &work.slot->gate;
    uint32_t open = 2 * epoch_of(endpoint, request) + 1;
    /* Partner: set_word. */
    *seen = atomic_load_explicit(&gate->word, memory_order_acquire);
    if (*seen == open) {
        if (do_chunks(&work, endpoint->member[request->transfer->group])) {
            set_word(gate, open + 1, INT_MAX);
        }
        *seen = atomic_load_explicit(&gate->word, memory_order_acquire);
    }
    return *seen == open + 1;
}

int yoke_collective_missing(const yoke_endpoint *endpoint, const yoke_request *request,
                            int preferred)
{
    yoke_work work = work_of(endpoint, request);
    const yoke_ranks *group = group_of(endpoint, request);
    uint32_t open = 2 * epoch_of(endpoint, request) + 1;
    bool is_open = atomic_load_explicit(&work.slot->gate.word, memory_order_acquire) == open;
    int found = -1;
    for (int m = 0; m < group->n; m++) {
        const yoke_entry *entry = &work.entries[m];
        int rank = group->rank[m];
        bool works = atomic_load_explicit(&entry->works, memory_order_relaxed);
        bool started =
            atomic_load_explicit(&entry->n_started, memory_order_relaxed) > request->sequence;
        bool missing = rank != endpoint->rank && (is_open ? works : !started);
        if (missing && (found < 0 || rank == preferred)) {
            found = rank;
        }
    }
    return found;
}

yoke_status yoke_collective_verdict(const yoke_endpoint *endpoint, const yoke_request *request)
{
    yoke_work work = work_of(endpoint, request);
    if (work.slot->odd_member < 0) {
        return YOKE_OK;
    }
    return yoke_header_mismatch(work.entries, group_of(endpoint, request), work.slot->odd_member,
                                request->sequence);
}
