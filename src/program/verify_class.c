/*
 * Classes: why it is enough to look at one rank of each.
 *
 * A program names no rank. What it says depends on who runs it only through pieces of tensors,
 * peers and groups, and those are computed from the mesh for whoever asks. So let every rank of a
 * class be on the same pipeline stage and have pieces of the same extents as the first, of every
 * tensor of which the program has a buffer; that is checked here for each rank, from layouts and
 * mesh alone. Then what verify.c and verify_flow.c prove of the first rank's buffers, operands and
 * sizes is true word for word of the others: not one of their checks reads a rank or an offset. How
 * ranks meet is checked for every pair and every group there is (verify_match.c), only that those
 * of equal classes are compared once, since what is compared are programs.
 *
 * Layouts must not cut along pp: so the two ends of a message, which differ along pp alone, have
 * the same piece of every tensor.
 */
#include "program/lower.h"
#include "program/verify.h"

static yoke_status check_table(yoke_verify *verify)
{
    const yoke_program_set *set = verify->set;
    int *n_ranks = YOKE_ARENA_NEW(verify->arena, int, set->n_classes);
    int *last = YOKE_ARENA_NEW(verify->arena, int, set->n_classes);
    verify->next_rank = YOKE_ARENA_NEW(verify->arena, int, set->n_ranks);
    for (int rank = 0; rank < set->n_ranks; rank++) {
        int class_id = set->class_of[rank];
        if (class_id < 0 || class_id >= set->n_classes) {
            return YOKE_FAIL(YOKE_CHECK, "rank %d is of class %d of %d", rank, class_id,
                             set->n_classes);
        }
        if (n_ranks[class_id]++ == 0 && set->classes[class_id].rank != rank) {
            return YOKE_FAIL(YOKE_CHECK, "rank %d: the first of its class, which says rank %d",
                             rank, set->classes[class_id].rank);
        }
        verify->next_rank[rank] = -1;
        if (n_ranks[class_id] > 1) {
            verify->next_rank[last[class_id]] = rank;
        }
        last[class_id] = rank;
    }
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        if (n_ranks[class_id] != set->classes[class_id].n_ranks || n_ranks[class_id] == 0) {
            return YOKE_FAIL(YOKE_CHECK, "class %d has %d ranks and says %d", class_id,
                             n_ranks[class_id], set->classes[class_id].n_ranks);
        }
    }
    return YOKE_OK;
}

static yoke_status check_layouts(const yoke_verify *verify)
{
    const yoke_graph *graph = verify->set->graph;
    for (int64_t v = 0; v < graph->n_values; v++) {
        if (graph->values[v].layout.place[YOKE_AXIS_PP] != YOKE_REPLICATED) {
            return YOKE_FAIL(YOKE_CHECK, "%s is divided along pp, which only cuts the graph",
                             graph->values[v].name);
        }
    }
    return YOKE_OK;
}

static bool extents_equal(const yoke_shard *a, const yoke_shard *b)
{
    bool equal = a->n_dims == b->n_dims;
    for (int d = 0; equal && d < a->n_dims; d++) {
        equal = a->extent[d] == b->extent[d];
    }
    return equal;
}

/* All ranks of the class have as large a piece of the value as its first. */
static yoke_status check_value(const yoke_verify *verify, const yoke_program *program,
                               yoke_value value)
{
    yoke_shard first = yoke_program_shard(verify->set, program->rank, value);
    for (int rank = program->rank; rank >= 0; rank = verify->next_rank[rank]) {
        yoke_shard piece = yoke_program_shard(verify->set, rank, value);
        if (!extents_equal(&first, &piece)) {
            return yoke_verify_fail(verify, rank, YOKE_NOT_YET,
                                    "is of the class of rank %d, but its piece of %s has %lld "
                                    "elements instead of %lld",
                                    program->rank, verify->set->graph->values[value].name,
                                    (long long)yoke_shard_elements(&piece),
                                    (long long)yoke_shard_elements(&first));
        }
    }
    return YOKE_OK;
}

static bool are_of_one_sort(const yoke_graph *graph, yoke_value a, yoke_value b)
{
    const yoke_value_info *x = &graph->values[a], *y = &graph->values[b];
    bool alike = yoke_layout_equal(x->layout, y->layout) && x->shape.n_dims == y->shape.n_dims;
    for (int d = 0; alike && d < x->shape.n_dims; d++) {
        alike = x->shape.extent[d] == y->shape.extent[d];
    }
    return alike;
}

/* Values of one shape and layout are looked at once, those that all ranks divide evenly not at all:
 * their pieces have equal extents everywhere. */
static yoke_status check_values(const yoke_verify *verify, const yoke_program *program)
{
    const yoke_graph *graph = verify->set->graph;
    yoke_value *seen = NULL;
    int64_t n_seen = 0, capacity = 0;
    for (int64_t b = 0; program->n_ranks > 1 && b < program->n_buffers; b++) {
        yoke_value value = program->buffers[b].value;
        bool known = value >= 0 && value < graph->n_values; /* else refused later, by verify.c */
        if (!known || yoke_layout_is_even(&graph->mesh, graph->values[value].layout,
                                          &graph->values[value].shape)) {
            continue;
        }
        int64_t i = 0;
        while (i < n_seen && !are_of_one_sort(graph, seen[i], value)) {
            i++;
        }
        if (i == n_seen) {
            YOKE_TRY(check_value(verify, program, value));
            seen = yoke_arena_grow(verify->arena, seen, n_seen, &capacity, sizeof *seen);
            seen[n_seen++] = value;
        }
    }
    return YOKE_OK;
}

static yoke_status check_stages(const yoke_verify *verify, const yoke_program *program)
{
    const yoke_mesh *mesh = &verify->set->mesh;
    int stage = yoke_mesh_coordinate(mesh, program->rank, YOKE_AXIS_PP);
    for (int rank = program->rank; rank >= 0; rank = verify->next_rank[rank]) {
        int its = yoke_mesh_coordinate(mesh, rank, YOKE_AXIS_PP);
        if (its != stage) {
            return yoke_verify_fail(verify, rank, YOKE_NOT_YET,
                                    "is of the class of rank %d, but on stage %d instead of %d",
                                    program->rank, its, stage);
        }
    }
    return YOKE_OK;
}

yoke_status yoke_verify_classes(yoke_verify *verify)
{
    YOKE_TRY(check_table(verify));
    YOKE_TRY(check_layouts(verify));
    for (int class_id = 0; class_id < verify->set->n_classes; class_id++) {
        YOKE_TRY(check_stages(verify, &verify->set->classes[class_id]));
        YOKE_TRY(check_values(verify, &verify->set->classes[class_id]));
    }
    return YOKE_OK;
}
