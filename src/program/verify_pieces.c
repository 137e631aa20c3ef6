/*
 * The pieces of a redistribution in one group: whether what every member wants can be made of what
 * all have.
 *
 * Along one axis a tensor is cut on one dim, so pieces to be copied from must stand side by side on
 * it. Then each element is in exactly one of them, and one comparison a member is enough. To be
 * summed, an element must be in all of them.
 */
#include "program/verify.h"

static bool differs(const yoke_shard *a, const yoke_shard *b, int dim)
{
    return a->offset[dim] != b->offset[dim] || a->extent[dim] != b->extent[dim];
}

/* The dim on which the pieces are cut; n_dims if they are all the same. */
static int find_cut(const yoke_shard *pieces, int n)
{
    int dim = 0;
    while (dim < pieces->n_dims) {
        for (int i = 1; i < n; i++) {
            if (differs(&pieces[0], &pieces[i], dim)) {
                return dim;
            }
        }
        dim++;
    }
    return dim;
}

/* The member with the first piece: not the first of them where the pieces are turned. */
static int find_first(const yoke_shard *pieces, int n, int cut)
{
    int first = 0;
    for (int i = 1; cut < pieces->n_dims && i < n; i++) {
        first = pieces[i].offset[cut] < pieces[first].offset[cut] ? i : first;
    }
    return first;
}

/* True if the pieces stand side by side; `all` is what they make up. Empty pieces may be one and the
 * same: what an outer axis left empty is cut in nothing. */
static bool join(const yoke_shard *pieces, int n, yoke_shard *all)
{
    int cut = find_cut(pieces, n);
    int first = find_first(pieces, n, cut);
    *all = pieces[first];
    if (cut == all->n_dims) {
        return n == 1 || yoke_shard_elements(all) == 0;
    }
    for (int i = 1; i < n; i++) {
        const yoke_shard *piece = &pieces[(first + i) % n];
        for (int d = 0; d < all->n_dims; d++) {
            if (d != cut && differs(all, piece, d)) {
                return false;
            }
        }
        if (piece->offset[cut] != all->offset[cut] + all->extent[cut]) {
            return false;
        }
        all->extent[cut] += piece->extent[cut];
    }
    return true;
}

/* What is in all of the pieces; extents below 0 where nothing is. */
static yoke_shard intersect(const yoke_shard *pieces, int n)
{
    yoke_shard both = pieces[0];
    for (int i = 1; i < n; i++) {
        for (int d = 0; d < both.n_dims; d++) {
            int64_t end = both.offset[d] + both.extent[d];
            int64_t its_end = pieces[i].offset[d] + pieces[i].extent[d];
            both.offset[d] =
                pieces[i].offset[d] > both.offset[d] ? pieces[i].offset[d] : both.offset[d];
            both.extent[d] = (its_end < end ? its_end : end) - both.offset[d];
        }
    }
    return both;
}

static bool contains(const yoke_shard *outer, const yoke_shard *inner)
{
    bool in = outer->n_dims == inner->n_dims;
    for (int d = 0; in && d < outer->n_dims; d++) {
        in = inner->offset[d] >= outer->offset[d] &&
             inner->offset[d] + inner->extent[d] <= outer->offset[d] + outer->extent[d];
    }
    return in || yoke_shard_elements(inner) == 0;
}

static yoke_status fail(const yoke_verify *verify, const yoke_verify_redistribution *r, int member,
                        const char *reason)
{
    /* A member of another class than the first starts it elsewhere, which only the class knows. */
    int64_t start = yoke_verify_start(verify, r->end);
    bool same = verify->set->class_of[r->members[member]] == verify->set->class_of[r->end.rank];
    return same ? yoke_verify_fail(verify, r->members[member], start, "%s", reason)
                : yoke_verify_fail(verify, r->end.rank, start, "rank %d of its group: %s",
                                   r->members[member], reason);
}

yoke_status yoke_verify_pieces(const yoke_verify *verify, const yoke_verify_redistribution *r)
{
    const yoke_program_transfer *t = yoke_verify_transfer(verify, r->end);
    bool copies = t->kind == YOKE_EXCHANGE_COPY;
    yoke_shard all;
    for (int i = 0; i < r->n; i++) {
        r->pieces[i] = yoke_program_shard(verify->set, r->members[i], r->source);
    }
    if (!copies) {
        all = intersect(r->pieces, r->n);
    } else if (!join(r->pieces, r->n, &all)) {
        return fail(verify, r, 0, "the pieces of its members overlap or leave a gap");
    }
    for (int i = 0; i < r->n; i++) {
        yoke_shard wanted = yoke_program_shard(verify->set, r->members[i], t->value);
        if (!contains(&all, &wanted)) {
            return fail(verify, r, i, "wants elements that no member has");
        }
    }
    return YOKE_OK;
}
