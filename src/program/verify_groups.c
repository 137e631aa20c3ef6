/*
 * Matches the collectives of all groups.
 *
 * Every group of the mesh is looked at. What its members do follows from their classes, so groups
 * whose members are, one by one, of the same classes are compared once; the first of them speaks
 * for all. The pieces of a redistribution do depend on where a group is, and are checked for each
 * group, once for each sort of tensor (verify_pieces.c).
 */
#include "program/verify.h"

#include <string.h>

/* Groups whose members are of the same classes. */
typedef struct bunch {
    const int *classes; /* [size] */
    int first;          /* the first group; others by `next` */
    int last;
} bunch;

typedef struct sorting {
    yoke_verify_matching *m;
    const yoke_grouping *grouping;
    int index, size, n_groups; /* index: of the grouping */
    int *next;                 /* [n_groups] the next group of the same bunch, or -1 */
    bunch *bunches;
    int n_bunches;
    int *slots; /* [n_slots] table of bunches by digest, -1 where empty */
    int64_t n_slots;
} sorting;

/* --- Bunches of groups ------------------------------------------------------------------------ */

static uint64_t digest(const int *classes, int n)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a, a number at a time */
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t)classes[i]) * UINT64_C(1099511628211);
    }
    return hash ^ hash >> 32;
}

static void add_group(sorting *s, int group, const int *classes)
{
    size_t bytes = sizeof *classes * (size_t)s->size;
    int64_t slot = (int64_t)(digest(classes, s->size) & (uint64_t)(s->n_slots - 1));
    while (s->slots[slot] >= 0 && memcmp(s->bunches[s->slots[slot]].classes, classes, bytes) != 0) {
        slot = (slot + 1) & (s->n_slots - 1);
    }
    s->next[group] = -1;
    if (s->slots[slot] < 0) {
        s->slots[slot] = s->n_bunches;
        s->bunches[s->n_bunches++] = (bunch){.classes = classes, .first = group, .last = group};
        return;
    }
    bunch *b = &s->bunches[s->slots[slot]];
    s->next[b->last] = group;
    b->last = group;
}

static sorting sort_groups(yoke_verify_matching *m, int index)
{
    yoke_arena *arena = m->verify->arena;
    const yoke_program_set *set = m->verify->set;
    const yoke_grouping *grouping = &set->groupings[index];
    sorting s = {.m = m, .grouping = grouping, .index = index, .n_slots = 2};
    s.size = yoke_grouping_size(set, grouping);
    s.n_groups = yoke_grouping_n_groups(set, grouping);
    while (s.n_slots < 2 * (int64_t)s.n_groups) {
        s.n_slots *= 2;
    }
    s.next = YOKE_ARENA_NEW(arena, int, s.n_groups);
    s.bunches = YOKE_ARENA_NEW(arena, bunch, s.n_groups);
    s.slots = YOKE_ARENA_NEW(arena, int, s.n_slots);
    for (int64_t i = 0; i < s.n_slots; i++) {
        s.slots[i] = -1;
    }
    for (int group = 0; group < s.n_groups; group++) {
        int *classes = YOKE_ARENA_NEW(arena, int, s.size);
        yoke_grouping_members(set, grouping, group, classes);
        for (int i = 0; i < s.size; i++) {
            classes[i] = set->class_of[classes[i]];
        }
        add_group(&s, group, classes);
    }
    return s;
}

/* --- Programs --------------------------------------------------------------------------------- */

static bool has_pieces(yoke_exchange kind)
{
    return kind == YOKE_EXCHANGE_COPY || kind == YOKE_EXCHANGE_SUM;
}

static yoke_value source_of(const yoke_verify *verify, yoke_verify_end end)
{
    const yoke_program_transfer *t = yoke_verify_transfer(verify, end);
    return yoke_program_of(verify->set, end.rank)->buffers[t->in].value;
}

/* `b` takes part in the same collective as `a`. What is redistributed follows from what it becomes
 * (verify_shape.c). */
static yoke_status check_collective(const yoke_verify *verify, yoke_verify_end a, yoke_verify_end b)
{
    const yoke_program_transfer *x = yoke_verify_transfer(verify, a);
    const yoke_program_transfer *y = yoke_verify_transfer(verify, b);
    if (x->kind != y->kind || x->conversion != y->conversion || x->axis != y->axis) {
        return yoke_verify_fail_pair(verify, b, a, "kind");
    }
    if (x->value != y->value || x->microbatch != y->microbatch) {
        return yoke_verify_fail_pair(verify, b, a, "tensor");
    }
    if (x->tag != y->tag) {
        return yoke_verify_fail_pair(verify, b, a, "tag");
    }
    bool same_size = has_pieces(x->kind) || x->elements == y->elements;
    return same_size ? YOKE_OK : yoke_verify_fail_pair(verify, b, a, "size");
}

static bool has_round(const sorting *s, int rank, int64_t round)
{
    return round < yoke_verify_collectives(s->m, rank, s->index)->n;
}

static yoke_verify_end end_of(const sorting *s, int rank, int64_t round)
{
    const yoke_verify_channel *c = yoke_verify_collectives(s->m, rank, s->index);
    return (yoke_verify_end){rank, c->transfer[round]};
}

/* The `round`th collective of a group with these members; at least one has it. */
static yoke_status match_round(const sorting *s, const int *members, int64_t round)
{
    const yoke_verify *verify = s->m->verify;
    int present = 0;
    while (!has_round(s, members[present], round)) {
        present++;
    }
    yoke_verify_end first = end_of(s, members[present], round);
    for (int i = 0; i < s->size; i++) {
        if (i > 0 && verify->set->class_of[members[i]] == verify->set->class_of[members[i - 1]]) {
            continue; /* the same program again */
        }
        if (!has_round(s, members[i], round)) {
            return yoke_verify_fail(verify, first.rank, yoke_verify_start(verify, first),
                                    "rank %d of its group takes no part", members[i]);
        }
        yoke_verify_end end = end_of(s, members[i], round);
        YOKE_TRY(check_collective(verify, first, end));
        yoke_verify_join(s->m, first, end);
    }
    return YOKE_OK;
}

/* --- Pieces ----------------------------------------------------------------------------------- */

/* Redistributions whose pieces have been checked in the groups of a bunch. */
typedef struct checked {
    yoke_verify_end *end; /* one of each */
    int64_t n, capacity;
} checked;

static bool values_alike(const yoke_graph *graph, yoke_value a, yoke_value b)
{
    const yoke_value_info *x = &graph->values[a], *y = &graph->values[b];
    bool alike = yoke_layout_equal(x->layout, y->layout) && x->shape.n_dims == y->shape.n_dims;
    for (int d = 0; alike && d < x->shape.n_dims; d++) {
        alike = x->shape.extent[d] == y->shape.extent[d];
    }
    return alike;
}

/* True if the two do the same to pieces of the same sort, for the members of every group. */
static bool ends_alike(const yoke_verify *verify, yoke_verify_end a, yoke_verify_end b)
{
    const yoke_program_transfer *x = yoke_verify_transfer(verify, a);
    const yoke_program_transfer *y = yoke_verify_transfer(verify, b);
    return x->kind == y->kind && values_alike(verify->set->graph, x->value, y->value) &&
           values_alike(verify->set->graph, source_of(verify, a), source_of(verify, b));
}

static yoke_status check_pieces(const sorting *s, const bunch *b, checked *known,
                                yoke_verify_end end)
{
    yoke_verify *verify = s->m->verify;
    for (int64_t i = 0; i < known->n; i++) {
        if (ends_alike(verify, known->end[i], end)) {
            return YOKE_OK;
        }
    }
    known->end =
        yoke_arena_grow(verify->arena, known->end, known->n, &known->capacity, sizeof *known->end);
    known->end[known->n++] = end;
    int *members = YOKE_ARENA_NEW(verify->arena, int, s->size);
    yoke_shard *pieces = YOKE_ARENA_NEW(verify->arena, yoke_shard, s->size);
    for (int group = b->first; group >= 0; group = s->next[group]) {
        yoke_grouping_members(verify->set, s->grouping, group, members);
        const yoke_verify_redistribution r = {.end = end,
                                              .source = source_of(verify, end),
                                              .members = members,
                                              .pieces = pieces,
                                              .n = s->size};
        YOKE_TRY(yoke_verify_pieces(verify, &r));
    }
    return YOKE_OK;
}

/* --- The pass --------------------------------------------------------------------------------- */

static yoke_status match_bunch(const sorting *s, const bunch *b)
{
    yoke_verify *verify = s->m->verify;
    int *members = YOKE_ARENA_NEW(verify->arena, int, s->size);
    int64_t most = 0;
    checked known = {0};
    yoke_grouping_members(verify->set, s->grouping, b->first, members);
    for (int i = 0; i < s->size; i++) {
        int64_t n = yoke_verify_collectives(s->m, members[i], s->index)->n;
        most = n > most ? n : most;
    }
    for (int64_t round = 0; round < most; round++) {
        YOKE_TRY(match_round(s, members, round));
        yoke_verify_end end = end_of(s, members[0], round);
        if (has_pieces(yoke_verify_transfer(verify, end)->kind)) {
            YOKE_TRY(check_pieces(s, b, &known, end));
        }
    }
    return YOKE_OK;
}

yoke_status yoke_verify_groups(yoke_verify_matching *m)
{
    for (int g = 0; g < m->verify->set->n_groupings; g++) {
        sorting s = sort_groups(m, g);
        for (int i = 0; i < s.n_bunches; i++) {
            YOKE_TRY(match_bunch(&s, &s.bunches[i]));
        }
    }
    return YOKE_OK;
}
