/*
 * all_reduce and broadcast cut the index range: a chunk is computed once and written into all
 * buffers, while it is in the cache from being read. A redistribution cuts each member's wanted box
 * and pulls each part from those who have it. Sums run over members in ascending order, whoever
 * computes them.
 */
#include "transport/chunk.h"

#include "transport/box.h"
#include "transport/element.h"

enum {
    /* 64 KiB: some 10 us of work against 0.1 us to take a chunk. All_reduce of 64 KB to 16 MB by 2, 4
     * and 8 ranks on 2 cores took the same within the noise with a quarter and four times as many;
     * likewise with a quarter and four times the least. */
    MOST_CHUNK_ELEMENTS = 16384,
    LEAST_CHUNK_ELEMENTS = 1024,
    /* 1 KiB: a piece of each of 8 members and their sum stay in the first-level cache. */
    BLOCK_ELEMENTS = 256,
    /* A cache line, in four. */
    LINE_FLOATS = YOKE_CACHE_LINE / 4,
};

/* In registers on any processor that has vectors: gcc 12 keeps arrays of floats in memory. Aligned
 * as the floats of a buffer are. */
typedef float four_floats __attribute__((vector_size(16), aligned(4), may_alias));

/* Both are 0, but -0 leaves every number as it is when added, +0 turns -0 into +0. */
static const float neutral = -0.0f;

static bool is_range(yoke_transfer_kind kind)
{
    return kind == YOKE_TRANSFER_ALL_REDUCE_SUM || kind == YOKE_TRANSFER_ALL_REDUCE_MAX ||
           kind == YOKE_TRANSFER_BROADCAST;
}

/* Chunks of a range are whole cache lines, and at least one a member where there is enough. */
static int64_t range_chunk(int64_t elements, int n_members)
{
    int64_t share = (elements / n_members + LINE_FLOATS) / LINE_FLOATS * LINE_FLOATS;
    if (share > MOST_CHUNK_ELEMENTS) {
        return MOST_CHUNK_ELEMENTS;
    }
    return share < LEAST_CHUNK_ELEMENTS ? LEAST_CHUNK_ELEMENTS : share;
}

static int64_t plan_range(const yoke_work *work, int64_t elements)
{
    yoke_slot *slot = work->slot;
    slot->chunk_elements = range_chunk(elements, work->n_members);
    slot->n_chunks = (elements + slot->chunk_elements - 1) / slot->chunk_elements;
    for (int m = 0; m < work->n_members; m++) {
        int64_t first;
        yoke_split(slot->n_chunks, work->n_members, m, &first, &work->entries[m].n_chunks);
    }
    return elements * work->n_members * yoke_dtype_bytes(work->transfer->dtype);
}

static int64_t plan_boxes(const yoke_work *work)
{
    int64_t elements = 0;
    work->slot->chunk_elements = MOST_CHUNK_ELEMENTS;
    work->slot->n_chunks = 0;
    for (int m = 0; m < work->n_members; m++) {
        yoke_entry *entry = &work->entries[m];
        entry->n_chunks = yoke_box_n_parts(&entry->out_shard, MOST_CHUNK_ELEMENTS);
        work->slot->n_chunks += entry->n_chunks;
        elements += yoke_shard_elements(&entry->out_shard);
    }
    bool sums = work->transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_SUM;
    return elements * (sums ? work->n_members : 1) * yoke_dtype_bytes(work->transfer->dtype);
}

int64_t yoke_work_plan(const yoke_work *work)
{
    yoke_transfer_kind kind = work->transfer->kind;
    if (kind == YOKE_TRANSFER_REDISTRIBUTE_COPY || kind == YOKE_TRANSFER_REDISTRIBUTE_SUM) {
        return plan_boxes(work);
    }
    /* A member alone has its result already. */
    bool moves = is_range(kind) && work->n_members > 1;
    return plan_range(work, moves ? work->transfer->elements : 0);
}

static void reduce_block(const yoke_work *work, int64_t start, int64_t n)
{
    float result[BLOCK_ELEMENTS];
    yoke_dtype dtype = work->transfer->dtype;
    bool sums = work->transfer->kind == YOKE_TRANSFER_ALL_REDUCE_SUM;
    yoke_elements_copy(result, YOKE_F32, yoke_element_of(work->entries[0].out, dtype, start), dtype,
                       n);
    for (int m = 1; m < work->n_members; m++) {
        const void *from = yoke_element_of(work->entries[m].out, dtype, start);
        if (sums) {
            yoke_elements_add(result, from, dtype, n);
        } else {
            yoke_elements_max(result, from, dtype, n);
        }
    }
    for (int m = 0; m < work->n_members; m++) {
        yoke_elements_copy(yoke_element_at(work->entries[m].out, dtype, start), dtype, result,
                           YOKE_F32, n);
    }
}

static four_floats *floats_of(const yoke_work *work, int member, int64_t at)
{
    return (four_floats *)(void *)((float *)work->entries[member].out + at);
}

/* Floats in place: every buffer becomes the sum of all, a line of each at a time, so that the
 * processor fetches from all buffers at once and the sum is written where a line has just been read.
 * All_reduce of 16 MB by 2, 4 and 8 ranks on 2 cores: 0.57, 1.9 and 5.1 ms; by blocks of 4 KiB
 * 0.69, 3.4 and 8.6. Stores past the caches and prefetching were slower. Returns where it ends: what
 * is left is less than a line. */
static int64_t sum_lines(const yoke_work *work, int64_t start, int64_t end)
{
    int64_t at = start;
    for (; at + LINE_FLOATS <= end; at += LINE_FLOATS) {
        const four_floats *from = floats_of(work, 0, at);
        four_floats a = from[0];
        four_floats b = from[1];
        four_floats c = from[2];
        four_floats d = from[3];
        for (int m = 1; m < work->n_members; m++) {
            from = floats_of(work, m, at);
            a += from[0];
            b += from[1];
            c += from[2];
            d += from[3];
        }
        for (int m = 0; m < work->n_members; m++) {
            four_floats *to = floats_of(work, m, at);
            to[0] = a;
            to[1] = b;
            to[2] = c;
            to[3] = d;
        }
    }
    return at;
}

static void broadcast_block(const yoke_work *work, int64_t start, int64_t n)
{
    int root = work->transfer->peer;
    yoke_dtype dtype = work->transfer->dtype;
    const void *from = yoke_element_of(work->entries[root].out, dtype, start);
    for (int m = 0; m < work->n_members; m++) {
        if (m != root) {
            yoke_elements_copy(yoke_element_at(work->entries[m].out, dtype, start), dtype, from,
                               dtype, n);
        }
    }
}

static bool adds_floats(const yoke_transfer *transfer)
{
    return transfer->kind == YOKE_TRANSFER_ALL_REDUCE_SUM && transfer->dtype == YOKE_F32;
}

static void run_range(const yoke_work *work, int member, int64_t index)
{
    int64_t first;
    int64_t n_chunks;
    yoke_split(work->slot->n_chunks, work->n_members, member, &first, &n_chunks);
    int64_t start = (first + index) * work->slot->chunk_elements;
    int64_t end = start + work->slot->chunk_elements;
    if (end > work->transfer->elements) {
        end = work->transfer->elements;
    }
    int64_t at = adds_floats(work->transfer) ? sum_lines(work, start, end) : start;
    for (; at < end; at += BLOCK_ELEMENTS) {
        int64_t n = end - at < BLOCK_ELEMENTS ? end - at : BLOCK_ELEMENTS;
        if (work->transfer->kind == YOKE_TRANSFER_BROADCAST) {
            broadcast_block(work, at, n);
        } else {
            reduce_block(work, at, n);
        }
    }
}

/* Whether each member that has any of the part has all of it: then the first can be copied, which
 * saves a pass. */
static bool is_whole_everywhere(const yoke_work *work, const yoke_shard *part)
{
    yoke_shard common;
    for (int m = 0; m < work->n_members; m++) {
        if (yoke_box_intersect(part, &work->transfer->in_shards[m], &common) &&
            !yoke_box_equal(part, &common)) {
            return false;
        }
    }
    return true;
}

/* What `member` has of the part goes to `to`; false if it has none of it. */
static bool take_box(const yoke_work *work, int member, const yoke_shard *part,
                     const yoke_box_move *to)
{
    const yoke_shard *from_shard = &work->transfer->in_shards[member];
    yoke_shard common;
    if (!yoke_box_intersect(part, from_shard, &common)) {
        return false;
    }
    yoke_box_move move = *to;
    move.box = &common;
    move.from_shard = from_shard;
    move.from = work->entries[member].in;
    move.from_dtype = work->transfer->dtype;
    yoke_box_run(&move);
    return true;
}

static void copy_box(const yoke_work *work, const yoke_shard *part, const yoke_box_move *to)
{
    for (int m = 0; m < work->n_members; m++) {
        (void)take_box(work, m, part, to);
    }
}

static void sum_box(const yoke_work *work, const yoke_shard *part, const yoke_box_move *to)
{
    yoke_box_move move = *to;
    if (!is_whole_everywhere(work, part)) {
        yoke_box_fill(part, to->to_shard, to->to, neutral);
        move.adds = true;
    }
    for (int m = 0; m < work->n_members; m++) {
        bool took = take_box(work, m, part, &move);
        move.adds = move.adds || took;
    }
}

/* A sum of bf16 elements is made in floats first. */
static void sum_narrow_box(const yoke_work *work, const yoke_shard *part, const yoke_box_move *to)
{
    float sum[MOST_CHUNK_ELEMENTS];
    sum_box(work, part, &(yoke_box_move){.to_shard = part, .to = sum});
    yoke_box_move move = *to;
    move.box = move.from_shard = part;
    move.from = sum;
    yoke_box_run(&move);
}

static void run_box(const yoke_work *work, int member, int64_t index)
{
    const yoke_entry *own = &work->entries[member];
    yoke_shard part = yoke_box_part(&own->out_shard, work->slot->chunk_elements, index);
    const yoke_box_move to = {
        .to_shard = &own->out_shard, .to = own->out, .to_dtype = work->transfer->dtype};
    if (work->transfer->kind != YOKE_TRANSFER_REDISTRIBUTE_SUM) {
        copy_box(work, &part, &to);
    } else if (to.to_dtype == YOKE_BF16) {
        sum_narrow_box(work, &part, &to);
    } else {
        sum_box(work, &part, &to);
    }
}

void yoke_work_run(const yoke_work *work, int member, int64_t index)
{
    if (is_range(work->transfer->kind)) {
        run_range(work, member, index);
    } else {
        run_box(work, member, index);
    }
}
