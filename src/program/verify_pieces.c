/*
 * The pieces of a redistribution: whether what every member wants can be made of what all have.
 *
 * Along one axis a tensor is cut on one dim, so pieces to be copied from must stand side by side on
 * it. Then each element is in exactly one of them, and one comparison a member is enough.
 */
#include "program/verify.h"

static yoke_status fail_at(const yoke_verify *verify, yoke_verify_end at, const char *reason)
{
    return yoke_verify_fail(verify, at.rank, verify->ranks[at.rank].start[at.transfer], "%s",
                            reason);
}

static const yoke_program_transfer *transfer_of(const yoke_verify *verify, yoke_verify_end at)
{
    return &verify->set->programs[at.rank].transfers[at.transfer];
}

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

/* True if the pieces stand side by side; `all` is what they make up. */
static bool join(const yoke_shard *pieces, int n, yoke_shard *all)
{
    int cut = find_cut(pieces, n);
    int first = find_first(pieces, n, cut);
    *all = pieces[first];
    for (int i = 1; i < n; i++) {
        const yoke_shard *piece = &pieces[(first + i) % n];
        for (int d = 0; d < all->n_dims; d++) {
            if (d != cut && differs(all, piece, d)) {
                return false;
            }
        }
        if (cut == all->n_dims || piece->offset[cut] != all->offset[cut] + all->extent[cut]) {
            return false;
        }
        all->extent[cut] += piece->extent[cut];
    }
    return true;
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

/* What the members say that they have and want is what their buffers are. */
static yoke_status check_buffers(const yoke_verify *verify, const yoke_verify_end *members, int n)
{
    for (int i = 0; i < n; i++) {
        const yoke_program_transfer *t = transfer_of(verify, members[i]);
        const yoke_program *program = &verify->set->programs[members[i].rank];
        if (!yoke_shards_equal(&t->in_shards[i], &program->buffers[t->in].shard)) {
            return fail_at(verify, members[i], "its piece is not what its input holds");
        }
        if (!yoke_shards_equal(t->out_shard, &program->buffers[t->out].shard)) {
            return fail_at(verify, members[i], "the piece that it wants is not its output");
        }
    }
    return YOKE_OK;
}

yoke_status yoke_verify_pieces(const yoke_verify *verify, const yoke_verify_end *members, int n)
{
    YOKE_TRY(check_buffers(verify, members, n));
    const yoke_program_transfer *first = transfer_of(verify, members[0]);
    bool copies = first->kind == YOKE_EXCHANGE_COPY;
    yoke_shard all;
    if (copies && !join(first->in_shards, n, &all)) {
        return fail_at(verify, members[0], "the pieces of its members overlap or leave a gap");
    }
    for (int i = 0; i < n; i++) {
        const yoke_program_transfer *t = transfer_of(verify, members[i]);
        bool covered = !copies || contains(&all, t->out_shard);
        for (int j = 0; !copies && covered && j < n; j++) {
            covered = contains(&t->in_shards[j], t->out_shard);
        }
        if (!covered) {
            return fail_at(verify, members[i], "wants elements that no member has");
        }
    }
    return YOKE_OK;
}
