/*
 * Finds who meets whom. Messages between two ranks match in the order of their starts, and so do the
 * collectives of a group; tags, sizes and pieces are then compared, as a transport would have to
 * find them different at run time.
 */
#include "program/verify.h"

#include <stdlib.h>
#include <string.h>

/* One rank's end of a transfer, ordered by channel: sender and receiver, or group and member. */
typedef struct end {
    int channel[2];
    int64_t start;
    yoke_verify_end at;
} end;

typedef struct ends {
    end *end;
    int64_t n;
} ends;

static int compare_channels(const end *a, const end *b)
{
    int first = a->channel[0] - b->channel[0];
    return first ? first : a->channel[1] - b->channel[1];
}

static int compare_ends(const void *a, const void *b)
{
    const end *x = (const end *)a;
    const end *y = (const end *)b;
    int channels = compare_channels(x, y);
    return channels ? channels : (x->start < y->start ? -1 : x->start > y->start);
}

static const yoke_program_transfer *transfer_of(const yoke_verify *verify, yoke_verify_end at)
{
    return &verify->set->programs[at.rank].transfers[at.transfer];
}

static yoke_status fail_at(const yoke_verify *verify, const end *e, const char *reason)
{
    return yoke_verify_fail(verify, e->at.rank, e->start, "%s", reason);
}

/* Two ends that ought to be of one transfer are not. */
static yoke_status fail_pair(const yoke_verify *verify, const end *a, const end *b,
                             const char *what)
{
    yoke_verify_text other;
    return yoke_verify_fail(verify, a->at.rank, a->start, "meets rank %d %s, which differs in %s",
                            b->at.rank,
                            yoke_verify_instruction(verify, b->at.rank, b->start, &other), what);
}

/* --- Collecting ----------------------------------------------------------------------------------- */

static yoke_status check_partners(const yoke_verify *verify, const end *e)
{
    const yoke_program_set *set = verify->set;
    const yoke_program_transfer *transfer = transfer_of(verify, e->at);
    if (transfer->kind == YOKE_EXCHANGE_SEND || transfer->kind == YOKE_EXCHANGE_RECV) {
        bool good =
            transfer->peer >= 0 && transfer->peer < set->n_ranks && transfer->peer != e->at.rank;
        return good ? YOKE_OK : fail_at(verify, e, "has no other rank as its peer");
    }
    bool good = transfer->group >= 0 && transfer->group < set->n_groups;
    return good ? YOKE_OK : fail_at(verify, e, "names a group that is not there");
}

static end end_of(const yoke_verify *verify, int rank, int transfer)
{
    const yoke_program_transfer *t = &verify->set->programs[rank].transfers[transfer];
    end e = {.start = verify->ranks[rank].start[transfer], .at = {rank, transfer}};
    e.channel[0] = t->kind == YOKE_EXCHANGE_SEND ? rank : t->peer;
    e.channel[1] = t->kind == YOKE_EXCHANGE_SEND ? t->peer : rank;
    if (t->kind != YOKE_EXCHANGE_SEND && t->kind != YOKE_EXCHANGE_RECV) {
        e.channel[0] = t->group;
        e.channel[1] = rank;
    }
    return e;
}

/* The ends of one sort: sends, receives, or collectives (YOKE_EXCHANGE_ALL_REDUCE_SUM and above). */
static yoke_status collect(const yoke_verify *verify, yoke_exchange sort, ends *found)
{
    const yoke_program_set *set = verify->set;
    int64_t n = 0;
    for (int rank = 0; rank < set->n_ranks; rank++) {
        n += set->programs[rank].n_transfers;
    }
    *found = (ends){.end = YOKE_ARENA_NEW(verify->arena, end, n)};
    for (int rank = 0; rank < set->n_ranks; rank++) {
        for (int i = 0; i < set->programs[rank].n_transfers; i++) {
            yoke_exchange kind = set->programs[rank].transfers[i].kind;
            yoke_exchange its =
                kind > YOKE_EXCHANGE_ALL_REDUCE_SUM ? YOKE_EXCHANGE_ALL_REDUCE_SUM : kind;
            if (its == sort) {
                end e = end_of(verify, rank, i);
                YOKE_TRY(check_partners(verify, &e));
                found->end[found->n++] = e;
            }
        }
    }
    qsort(found->end, (size_t)found->n, sizeof *found->end, compare_ends);
    return YOKE_OK;
}

/* A transport may count on this: a transfer is started only once the one `depth` before it in its
 * channel has been waited for. */
static yoke_status check_depth(const yoke_verify *verify, const ends *found)
{
    int depth = verify->set->depth;
    for (int64_t i = depth; i < found->n; i++) {
        const end *now = &found->end[i];
        const end *before = &found->end[i - depth];
        const yoke_verify_rank *rank = &verify->ranks[before->at.rank];
        if (compare_channels(now, before) == 0 && rank->wait[before->at.transfer] > now->start) {
            yoke_verify_text text;
            return yoke_verify_fail(
                verify, now->at.rank, now->start,
                "is started before %s has been waited for; the set's depth is %d",
                yoke_verify_instruction(verify, before->at.rank, before->start, &text), depth);
        }
    }
    return YOKE_OK;
}

static void add_meeting(yoke_verify *verify, const yoke_verify_end *at, int n)
{
    verify->meetings = yoke_arena_grow(verify->arena, verify->meetings, verify->n_meetings,
                                       &verify->meetings_capacity, sizeof *verify->meetings);
    verify->meetings[verify->n_meetings] = (yoke_verify_meeting){.ends = at, .n = n};
    for (int i = 0; i < n; i++) {
        verify->ranks[at[i].rank].meeting[at[i].transfer] = (int)verify->n_meetings;
    }
    verify->n_meetings++;
}

/* --- Messages ------------------------------------------------------------------------------------- */

static yoke_status check_message(const yoke_verify *verify, const end *send, const end *recv)
{
    const yoke_program_transfer *s = transfer_of(verify, send->at);
    const yoke_program_transfer *r = transfer_of(verify, recv->at);
    if (s->value != r->value || s->microbatch != r->microbatch) {
        return fail_pair(verify, recv, send, "tensor");
    }
    if (s->tag != r->tag) {
        return fail_pair(verify, recv, send, "tag");
    }
    if (s->elements != r->elements) {
        return fail_pair(verify, recv, send, "size");
    }
    const yoke_shard *sent = &verify->set->programs[send->at.rank].buffers[s->in].shard;
    const yoke_shard *wanted = &verify->set->programs[recv->at.rank].buffers[r->out].shard;
    return yoke_shards_equal(sent, wanted) ? YOKE_OK : fail_pair(verify, recv, send, "piece");
}

static yoke_status match_messages(yoke_verify *verify)
{
    ends sends;
    ends recvs;
    YOKE_TRY(collect(verify, YOKE_EXCHANGE_SEND, &sends));
    YOKE_TRY(collect(verify, YOKE_EXCHANGE_RECV, &recvs));
    int64_t s = 0;
    int64_t r = 0;
    while (s < sends.n || r < recvs.n) {
        const end *send = &sends.end[s];
        const end *recv = &recvs.end[r];
        int order = s == sends.n ? 1 : (r == recvs.n ? -1 : compare_channels(send, recv));
        if (order != 0) {
            return order < 0 ? fail_at(verify, send, "is never received")
                             : fail_at(verify, recv, "is never sent");
        }
        YOKE_TRY(check_message(verify, send, recv));
        yoke_verify_end *at = YOKE_ARENA_NEW(verify->arena, yoke_verify_end, 2);
        at[0] = send->at;
        at[1] = recv->at;
        add_meeting(verify, at, 2);
        s++;
        r++;
    }
    YOKE_TRY(check_depth(verify, &sends));
    return check_depth(verify, &recvs);
}

/* --- Collectives ---------------------------------------------------------------------------------- */

/* The group is the ranks that differ along the axis alone; along pp, those whose stage has the value. */
static yoke_status check_group(const yoke_verify *verify, const end *first)
{
    const yoke_program_set *set = verify->set;
    const yoke_program_transfer *t = transfer_of(verify, first->at);
    int members[YOKE_MAX_RANKS];
    int n = 0;
    for (int c = 0; c < set->mesh.size[t->axis]; c++) {
        if (t->axis != YOKE_AXIS_PP || (set->stages[t->value] >> c & 1u)) {
            members[n++] = yoke_mesh_neighbour(&set->mesh, first->at.rank, t->axis, c);
        }
    }
    bool equal = n == set->group_size[t->group] &&
                 memcmp(members, set->group_ranks[t->group], sizeof(int) * (size_t)n) == 0;
    return equal ? YOKE_OK
                 : yoke_verify_fail(verify, first->at.rank, first->start,
                                    "is over a group of %d ranks that is not its group along %s, "
                                    "of %d",
                                    set->group_size[t->group], yoke_axis_name(t->axis), n);
}

static bool has_pieces(yoke_exchange kind)
{
    return kind == YOKE_EXCHANGE_COPY || kind == YOKE_EXCHANGE_SUM;
}

/* `b` takes part in the same collective as the group's first member, `a`. */
static yoke_status check_collective(const yoke_verify *verify, const end *a, const end *b)
{
    const yoke_program_transfer *x = transfer_of(verify, a->at);
    const yoke_program_transfer *y = transfer_of(verify, b->at);
    if (x->kind != y->kind || x->conversion != y->conversion || x->axis != y->axis) {
        return fail_pair(verify, b, a, "kind");
    }
    if (x->value != y->value || x->microbatch != y->microbatch) {
        return fail_pair(verify, b, a, "tensor");
    }
    if (x->tag != y->tag) {
        return fail_pair(verify, b, a, "tag");
    }
    if (!has_pieces(x->kind)) {
        return x->elements == y->elements ? YOKE_OK : fail_pair(verify, b, a, "size");
    }
    for (int i = 0; x->in_shards != y->in_shards && i < verify->set->group_size[x->group]; i++) {
        if (!yoke_shards_equal(&x->in_shards[i], &y->in_shards[i])) {
            return fail_pair(verify, b, a, "pieces");
        }
    }
    return YOKE_OK;
}

/* The collectives of one group: member i has ends[first[i]] to ends[first[i + 1]]. */
typedef struct group_ends {
    const end *end;
    int group, n;
    int64_t *first; /* [n + 1] */
} group_ends;

static bool has_round(const group_ends *g, int member, int64_t round)
{
    return g->first[member] + round < g->first[member + 1];
}

/* The `round`th collective of the group; at least one member has it. */
static yoke_status match_round(yoke_verify *verify, const group_ends *g, int64_t round)
{
    const int *ranks = verify->set->group_ranks[g->group];
    yoke_verify_end *at = YOKE_ARENA_NEW(verify->arena, yoke_verify_end, g->n);
    int present = 0;
    while (!has_round(g, present, round)) {
        present++;
    }
    const end *first = &g->end[g->first[present] + round];
    for (int i = 0; i < g->n; i++) {
        if (!has_round(g, i, round)) {
            return yoke_verify_fail(verify, first->at.rank, first->start,
                                    "rank %d of its group takes no part", ranks[i]);
        }
        const end *e = &g->end[g->first[i] + round];
        YOKE_TRY(check_collective(verify, first, e));
        at[i] = e->at;
    }
    YOKE_TRY(check_group(verify, first));
    if (has_pieces(transfer_of(verify, first->at)->kind)) {
        YOKE_TRY(yoke_verify_pieces(verify, at, g->n));
    }
    add_meeting(verify, at, g->n);
    return YOKE_OK;
}

/* The collectives of the group whose ends begin at `*from`, which moves behind them. */
static yoke_status match_group(yoke_verify *verify, const ends *all, int64_t *from)
{
    const yoke_program_set *set = verify->set;
    int group = all->end[*from].channel[0];
    int n = set->group_size[group];
    group_ends g = {.end = all->end,
                    .group = group,
                    .n = n,
                    .first = YOKE_ARENA_NEW(verify->arena, int64_t, n + 1)};
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        g.first[i] = *from;
        while (*from < all->n && all->end[*from].channel[0] == group &&
               all->end[*from].channel[1] == set->group_ranks[group][i]) {
            ++*from;
        }
        most = *from - g.first[i] > most ? *from - g.first[i] : most;
    }
    g.first[n] = *from;
    if (*from < all->n && all->end[*from].channel[0] == group) {
        return fail_at(verify, &all->end[*from],
                       "is over a group to which its rank does not belong");
    }
    for (int64_t round = 0; round < most; round++) {
        YOKE_TRY(match_round(verify, &g, round));
    }
    return YOKE_OK;
}

static yoke_status match_collectives(yoke_verify *verify)
{
    ends all;
    YOKE_TRY(collect(verify, YOKE_EXCHANGE_ALL_REDUCE_SUM, &all));
    for (int64_t at = 0; at < all.n;) {
        YOKE_TRY(match_group(verify, &all, &at));
    }
    return check_depth(verify, &all);
}

yoke_status yoke_verify_match(yoke_verify *verify)
{
    if (verify->set->depth < 1) {
        return YOKE_FAIL(YOKE_CHECK, "the set's depth is %d; wants at least 1", verify->set->depth);
    }
    YOKE_TRY(match_messages(verify));
    return match_collectives(verify);
}
