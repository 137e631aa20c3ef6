/*
 * Comparing headers is the cheap check that runs always. Whole programs are compared before a run
 * by their verifier; what is caught here is what got past it.
 */
#include "transport/header.h"

#include <stdio.h>

static const char *const kind_names[YOKE_N_TRANSFER_KINDS] = {
    [YOKE_TRANSFER_SEND] = "send",
    [YOKE_TRANSFER_RECV] = "recv",
    [YOKE_TRANSFER_ALL_REDUCE_SUM] = "all_reduce (sum)",
    [YOKE_TRANSFER_ALL_REDUCE_MAX] = "all_reduce (max)",
    [YOKE_TRANSFER_REDISTRIBUTE_COPY] = "redistribute (copy)",
    [YOKE_TRANSFER_REDISTRIBUTE_SUM] = "redistribute (sum)",
    [YOKE_TRANSFER_BROADCAST] = "broadcast",
    [YOKE_TRANSFER_BARRIER] = "barrier",
};

const char *yoke_transfer_kind_name(yoke_transfer_kind kind)
{
    YOKE_ASSERT((int)kind >= 0 && kind < YOKE_N_TRANSFER_KINDS);
    return kind_names[kind];
}

/* FNV-1a over 64-bit words, with a shift so that high bits reach low ones. */
static uint64_t mix(uint64_t digest, int64_t value)
{
    digest = (digest ^ (uint64_t)value) * UINT64_C(0x100000001b3);
    return digest ^ (digest >> 29);
}

static uint64_t shards_digest(const yoke_shard *shards, int n)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (int m = 0; m < n; m++) {
        digest = mix(digest, shards[m].n_dims);
        for (int d = 0; d < shards[m].n_dims; d++) {
            digest = mix(mix(digest, shards[m].offset[d]), shards[m].extent[d]);
        }
    }
    return digest;
}

yoke_header yoke_header_of(const yoke_transfer *transfer, int n_members)
{
    yoke_header header = {.kind = transfer->kind, .tag = transfer->tag, .dtype = transfer->dtype};
    if (transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_COPY ||
        transfer->kind == YOKE_TRANSFER_REDISTRIBUTE_SUM) {
        header.digest = shards_digest(transfer->in_shards, n_members);
        for (int m = 0; m < n_members; m++) {
            header.elements += yoke_shard_elements(&transfer->in_shards[m]);
        }
    } else if (transfer->kind != YOKE_TRANSFER_BARRIER) {
        header.elements = transfer->elements;
    }
    if (transfer->kind == YOKE_TRANSFER_BROADCAST) {
        header.root = transfer->peer;
    }
    return header;
}

static bool agrees(const yoke_header *a, const yoke_header *b)
{
    return a->kind == b->kind && a->root == b->root && a->tag == b->tag && a->dtype == b->dtype &&
           a->elements == b->elements && a->digest == b->digest;
}

static int count_agreeing(const yoke_entry *entries, int n_members, int member)
{
    int n = 0;
    for (int m = 0; m < n_members; m++) {
        n += agrees(&entries[m].header, &entries[member].header) ? 1 : 0;
    }
    return n;
}

/* The first member of the largest party. */
static int find_usual(const yoke_entry *entries, int n_members)
{
    int best = 0;
    int n_best = 0;
    for (int m = 0; m < n_members; m++) {
        int n = count_agreeing(entries, n_members, m);
        if (n > n_best) {
            best = m;
            n_best = n;
        }
    }
    return best;
}

static int find_other(const yoke_entry *entries, int n_members, int member)
{
    for (int m = 0; m < n_members; m++) {
        if (!agrees(&entries[m].header, &entries[member].header)) {
            return m;
        }
    }
    return -1;
}

int yoke_header_find_odd(const yoke_entry *entries, int n_members)
{
    if (find_other(entries, n_members, 0) < 0) {
        return -1;
    }
    return find_other(entries, n_members, find_usual(entries, n_members));
}

static const char *print_header(const yoke_header *header, bool with_digest, char *buffer,
                                size_t buffer_bytes)
{
    char root[32] = "";
    char digest[32] = "";
    if (header->kind == YOKE_TRANSFER_BROADCAST) {
        (void)snprintf(root, sizeof root, " from member %d", header->root);
    }
    if (with_digest) {
        (void)snprintf(digest, sizeof digest, ", shards %016llx",
                       (unsigned long long)header->digest);
    }
    (void)snprintf(buffer, buffer_bytes, "%s%s of %lld %selements with tag %d%s",
                   kind_names[header->kind], root, (long long)header->elements,
                   header->dtype == YOKE_BF16 ? "bf16 " : "", header->tag, digest);
    return buffer;
}

yoke_status yoke_header_mismatch(const yoke_entry *entries, const yoke_ranks *group, int odd,
                                 uint64_t sequence)
{
    int usual = find_usual(entries, group->n);
    const yoke_header *a = &entries[odd].header;
    const yoke_header *b = &entries[usual].header;
    char brought[160];
    char expected[160];
    bool with_digest = a->digest != b->digest;
    return YOKE_FAIL(YOKE_CHECK,
                     "collective %llu of the group of %d ranks from rank %d: rank %d starts %s, "
                     "but rank %d %s (%d of %d agree with it); all members must start the same "
                     "collective (yoke verify finds this before a run)",
                     (unsigned long long)sequence, group->n, group->rank[0], group->rank[odd],
                     print_header(a, with_digest, brought, sizeof brought), group->rank[usual],
                     print_header(b, with_digest, expected, sizeof expected),
                     count_agreeing(entries, group->n, usual), group->n);
}
