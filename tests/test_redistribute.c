/*
 * The redistribution table, without a transport: all ranks live in this process.
 *
 * A world is the local pieces of every rank. Each row of the table is carried out by the definition
 * of its collective, on local extents alone, and the outcome is held against the slow twin: the
 * global tensor, cut by the layout. Values are small whole numbers, so sums are exact.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "layout_cases.h"
#include "yoke/layout.h"

/* A rank's buffer: room for the whole tensor, of which a box of `extent` is in use. */
typedef struct piece {
    int64_t extent[YOKE_MAX_DIMS];
    double value[MOST_ELEMENTS];
} piece;

typedef struct world {
    const yoke_mesh *mesh;
    const yoke_shape *shape;
    yoke_layout layout;
    piece rank[MOST_RANKS];
} world;

static uint32_t random_state = 1;

/* A whole number in [0, n). */
static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

static bool is_partial(int place)
{
    return place == YOKE_PARTIAL_SUM || place == YOKE_PARTIAL_MAX;
}

static double combine(int place, double a, double b)
{
    return place == YOKE_PARTIAL_MAX ? fmax(a, b) : a + b;
}

static int64_t count(int n_dims, const int64_t *extent)
{
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++) {
        n *= extent[d];
    }
    return n;
}

/* Copies the box of `extent` from `from_at` in one piece to `to_at` in another, combining by
 * `place` where that is partial. */
typedef struct box {
    int64_t from_at[YOKE_MAX_DIMS];
    int64_t to_at[YOKE_MAX_DIMS];
    int64_t extent[YOKE_MAX_DIMS];
} box;

static void copy_box(int n_dims, const piece *from, piece *to, const box *part, int place)
{
    if (count(n_dims, part->extent) == 0) {
        return;
    }
    int64_t index[YOKE_MAX_DIMS] = {0};
    do {
        int64_t a[YOKE_MAX_DIMS];
        int64_t b[YOKE_MAX_DIMS];
        for (int d = 0; d < n_dims; d++) {
            a[d] = part->from_at[d] + index[d];
            b[d] = part->to_at[d] + index[d];
            assert_true(a[d] < from->extent[d] && b[d] < to->extent[d]);
        }
        double value = from->value[position(n_dims, from->extent, a)];
        double *out = &to->value[position(n_dims, to->extent, b)];
        *out = is_partial(place) ? combine(place, *out, value) : value;
    } while (next_index(n_dims, part->extent, index));
}

static void set_extent(piece *out, int n_dims, const int64_t *extent)
{
    memset(out, 0, sizeof *out);
    memcpy(out->extent, extent, sizeof(int64_t) * (size_t)n_dims);
}

/* The piece of the global tensor that the layout gives to a rank, true values. */
static void cut(const world *w, const piece *global, yoke_layout layout, int rank, piece *out)
{
    yoke_shard shard = yoke_layout_shard(w->mesh, layout, w->shape, rank);
    set_extent(out, shard.n_dims, shard.extent);
    box part = {{0}, {0}, {0}};
    memcpy(part.from_at, shard.offset, sizeof part.from_at);
    memcpy(part.extent, shard.extent, sizeof part.extent);
    copy_box(shard.n_dims, global, out, &part, YOKE_REPLICATED);
}

static unsigned partial_axes(yoke_layout layout, int *place)
{
    unsigned axes = 0;
    *place = YOKE_REPLICATED;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (is_partial(layout.place[a])) {
            axes |= 1u << a;
            *place = layout.place[a];
        }
    }
    return axes;
}

/* Gives the members of a partial group values whose sum (maximum) is the true one. The random parts
 * are the same on every call for one group, so that replicas of a partial value agree. */
static void spread_partial(world *w, const int *members, int n, int place, int64_t element)
{
    double truth = w->rank[members[0]].value[element];
    int chosen = random_below(n);
    double rest = truth;
    for (int i = 0; i < n; i++) {
        double part = place == YOKE_PARTIAL_SUM ? random_below(9) - 4 : truth - random_below(5);
        if (i != chosen) {
            w->rank[members[i]].value[element] = part;
            rest -= part;
        }
    }
    w->rank[members[chosen]].value[element] = place == YOKE_PARTIAL_SUM ? rest : truth;
}

static void scatter(world *w, const piece *global, yoke_layout layout)
{
    int place;
    unsigned axes = partial_axes(layout, &place);
    w->layout = layout;
    for (int rank = 0; rank < yoke_mesh_n_ranks(w->mesh); rank++) {
        cut(w, global, layout, rank, &w->rank[rank]);
    }
    for (int rank = 0; axes && rank < yoke_mesh_n_ranks(w->mesh); rank++) {
        int members[MOST_RANKS];
        int n = yoke_mesh_group(w->mesh, rank, axes, members);
        int64_t n_elements = count(w->shape->n_dims, w->rank[rank].extent);
        random_state = 77;
        for (int64_t e = 0; members[0] == rank && e < n_elements; e++) {
            spread_partial(w, members, n, place, e);
        }
    }
}

/* Every rank's piece, combined over the axes along which it is partial, is its piece of the global
 * tensor; ranks that differ only along replicated axes hold the same. */
static void check_world(const world *w, const piece *global)
{
    int place;
    unsigned axes = partial_axes(w->layout, &place);
    int n_dims = w->shape->n_dims;
    for (int rank = 0; rank < yoke_mesh_n_ranks(w->mesh); rank++) {
        static piece wanted;
        cut(w, global, w->layout, rank, &wanted);
        assert_memory_equal(w->rank[rank].extent, wanted.extent, sizeof(int64_t) * (size_t)n_dims);
        int members[MOST_RANKS];
        int n = yoke_mesh_group(w->mesh, rank, axes, members);
        for (int64_t e = 0; e < count(n_dims, wanted.extent); e++) {
            double value = w->rank[members[0]].value[e];
            for (int i = 1; i < n; i++) {
                value = combine(place, value, w->rank[members[i]].value[e]);
            }
            if (value != wanted.value[e]) {
                char text[64];
                fail_msg("%s: rank %d element %d is %g, not %g",
                         yoke_layout_print(w->layout, text, sizeof text), rank, (int)e, value,
                         wanted.value[e]);
            }
        }
    }
}

/* One collective in one group: what its members held, what `self` makes of it. */
typedef struct call {
    const piece *held[MOST_RANKS];
    int n_ranks, self, n_dims;
    int from, to; /* places */
} call;

static void run_all_reduce(const call *c, piece *out)
{
    *out = *c->held[0];
    for (int m = 1; m < c->n_ranks; m++) {
        box whole = {{0}, {0}, {0}};
        memcpy(whole.extent, out->extent, sizeof whole.extent);
        copy_box(c->n_dims, c->held[m], out, &whole, c->from);
    }
}

/* The part of `member`'s buffer that goes to `self`, cut on dim `to`. */
static box own_part(const call *c, int member)
{
    box part = {{0}, {0}, {0}};
    memcpy(part.extent, c->held[member]->extent, sizeof part.extent);
    yoke_split(part.extent[c->to], c->n_ranks, c->self, &part.from_at[c->to], &part.extent[c->to]);
    return part;
}

static void run_reduce_scatter(const call *c, piece *out)
{
    box part = own_part(c, 0);
    set_extent(out, c->n_dims, part.extent);
    for (int m = 0; m < c->n_ranks; m++) {
        copy_box(c->n_dims, c->held[m], out, &part, m ? c->from : YOKE_REPLICATED);
    }
}

static void run_slice(const call *c, piece *out)
{
    box part = own_part(c, c->self);
    set_extent(out, c->n_dims, part.extent);
    copy_box(c->n_dims, c->held[c->self], out, &part, YOKE_REPLICATED);
}

/* Puts the members' parts one after the other along dim `from`. */
static void join(const call *c, const box *parts, piece *out)
{
    int64_t extent[YOKE_MAX_DIMS];
    memcpy(extent, parts[0].extent, sizeof extent);
    extent[c->from] = 0;
    for (int m = 0; m < c->n_ranks; m++) {
        extent[c->from] += parts[m].extent[c->from];
    }
    set_extent(out, c->n_dims, extent);
    int64_t at = 0;
    for (int m = 0; m < c->n_ranks; m++) {
        box part = parts[m];
        part.to_at[c->from] = at;
        at += part.extent[c->from];
        copy_box(c->n_dims, c->held[m], out, &part, YOKE_REPLICATED);
    }
}

static void run_all_gather(const call *c, piece *out)
{
    box parts[MOST_RANKS] = {{{0}, {0}, {0}}};
    for (int m = 0; m < c->n_ranks; m++) {
        memcpy(parts[m].extent, c->held[m]->extent, sizeof parts[m].extent);
    }
    join(c, parts, out);
}

static void run_all_to_all(const call *c, piece *out)
{
    box parts[MOST_RANKS];
    for (int m = 0; m < c->n_ranks; m++) {
        parts[m] = own_part(c, m);
    }
    join(c, parts, out);
}

static void run_mask(const call *c, piece *out)
{
    *out = *c->held[c->self];
    if (c->self != 0) {
        memset(out->value, 0, sizeof out->value);
    }
}

static void run_conversion(yoke_conversion conversion, const call *c, piece *out)
{
    switch (conversion) {
    case YOKE_CONVERT_NONE:
        *out = *c->held[c->self];
        return;
    case YOKE_CONVERT_ALL_REDUCE:
        run_all_reduce(c, out);
        return;
    case YOKE_CONVERT_REDUCE_SCATTER:
        run_reduce_scatter(c, out);
        return;
    case YOKE_CONVERT_ALL_GATHER:
        run_all_gather(c, out);
        return;
    case YOKE_CONVERT_ALL_TO_ALL:
        run_all_to_all(c, out);
        return;
    case YOKE_CONVERT_SLICE:
        run_slice(c, out);
        return;
    case YOKE_CONVERT_MASK:
        run_mask(c, out);
        return;
    case YOKE_CONVERT_ROTATE:
    case YOKE_CONVERT_ILLEGAL:
        break;
    }
    fail_msg("a conversion was planned that no place asks for");
}

/* All ranks change their place along one axis. */
static void convert(world *w, yoke_axis axis, int to)
{
    static piece before[MOST_RANKS];
    memcpy(before, w->rank, sizeof before);
    for (int rank = 0; rank < yoke_mesh_n_ranks(w->mesh); rank++) {
        int members[MOST_RANKS];
        call c = {.n_ranks = yoke_mesh_group(w->mesh, rank, 1u << axis, members),
                  .self = yoke_mesh_coordinate(w->mesh, rank, axis),
                  .n_dims = w->shape->n_dims,
                  .from = w->layout.place[axis],
                  .to = to};
        for (int m = 0; m < c.n_ranks; m++) {
            c.held[m] = &before[members[m]];
        }
        run_conversion(yoke_conversion_find(c.from, to), &c, &w->rank[rank]);
    }
    w->layout.place[axis] = (int8_t)to;
}

static void fill_global(const yoke_shape *shape, piece *global)
{
    set_extent(global, shape->n_dims, shape->extent);
    assert_true(yoke_shape_elements(shape) <= MOST_ELEMENTS);
    for (int64_t e = 0; e < yoke_shape_elements(shape); e++) {
        global->value[e] = (double)(e * 37 % 101 - 50);
    }
}

/* For each pair of layouts on every mesh and shape. */
typedef int (*pair_check)(world *w, const piece *global, yoke_layout from, yoke_layout to);

static int for_each_pair(pair_check check)
{
    static world w;
    static piece global;
    static yoke_layout layouts[MOST_LAYOUTS];
    int n_meshes;
    int n_checked = 0;
    const yoke_mesh *meshes = all_meshes(&n_meshes);
    for (int i = 0; i < n_meshes * N_SHAPES; i++) {
        w = (world){.mesh = &meshes[i / N_SHAPES], .shape = &shapes[i % N_SHAPES]};
        fill_global(w.shape, &global);
        int n = list_layouts(w.mesh, w.shape->n_dims, layouts);
        for (int pair = 0; pair < n * n; pair++) {
            n_checked += check(&w, &global, layouts[pair / n], layouts[pair % n]);
        }
    }
    return n_checked;
}

static bool differ_along_one(yoke_layout a, yoke_layout b, int *axis)
{
    int n = 0;
    for (int i = 0; i < YOKE_N_AXES; i++) {
        if (a.place[i] != b.place[i]) {
            *axis = i;
            n++;
        }
    }
    return n == 1;
}

static int check_one_row(world *w, const piece *global, yoke_layout from, yoke_layout to)
{
    int axis;
    if (!differ_along_one(from, to, &axis) ||
        !yoke_layout_is_convertible(w->mesh, from, (yoke_axis)axis, to.place[axis])) {
        return 0;
    }
    scatter(w, global, from);
    check_world(w, global);
    convert(w, (yoke_axis)axis, to.place[axis]);
    assert_true(yoke_layout_equal(w->layout, to));
    check_world(w, global);
    return 1;
}

static void test_each_row_of_the_table(void **state)
{
    (void)state;
    assert_true(for_each_pair(check_one_row) > 1000);
}

static int check_plan(world *w, const piece *global, yoke_layout from, yoke_layout to)
{
    yoke_layout_step steps[YOKE_MAX_LAYOUT_STEPS];
    int n = yoke_layout_plan(w->mesh, from, to, steps);
    if (n < 0) {
        return 0;
    }
    assert_true(n <= YOKE_MAX_LAYOUT_STEPS);
    assert_int_equal(n == 0, yoke_layout_equal(from, to));
    scatter(w, global, from);
    for (int i = 0; i < n; i++) {
        yoke_axis axis = steps[i].axis;
        assert_int_equal(steps[i].from, w->layout.place[axis]);
        assert_int_equal(steps[i].conversion, yoke_conversion_find(steps[i].from, steps[i].to));
        assert_true(yoke_layout_is_convertible(w->mesh, w->layout, axis, steps[i].to));
        convert(w, axis, steps[i].to);
        check_world(w, global);
    }
    assert_true(yoke_layout_equal(w->layout, to));
    return 1;
}

static void test_every_pair_axis_by_axis(void **state)
{
    (void)state;
    assert_true(for_each_pair(check_plan) > 5000);
}

/* A pair is refused exactly where an axis would go from S to P, to P(max), from P(max) to S, or from
 * one kind of partial to the other. */
static int check_refusal(world *w, const piece *global, yoke_layout from, yoke_layout to)
{
    (void)global;
    yoke_layout_step steps[YOKE_MAX_LAYOUT_STEPS];
    int kind_from;
    int kind_to;
    partial_axes(from, &kind_from);
    partial_axes(to, &kind_to);
    bool legal = !(is_partial(kind_from) && is_partial(kind_to) && kind_from != kind_to);
    for (int a = 0; a < YOKE_N_AXES; a++) {
        legal = legal && !(from.place[a] == YOKE_PARTIAL_MAX && to.place[a] >= 0);
        if (is_partial(to.place[a]) && from.place[a] != to.place[a]) {
            legal = legal && from.place[a] == YOKE_REPLICATED && to.place[a] == YOKE_PARTIAL_SUM;
        }
    }
    assert_int_equal(yoke_layout_plan(w->mesh, from, to, steps) >= 0, legal);
    return legal ? 0 : 1;
}

static void test_illegal_pairs_are_refused(void **state)
{
    (void)state;
    assert_true(for_each_pair(check_refusal) > 1000);
}

/* The nesting rule is needed, not only cautious: where it refuses a row that the table has, that
 * row gives wrong pieces for the extent 8 on 2x2 ranks. */
static void test_outer_axis_needs_inner_cut_undone(void **state)
{
    (void)state;
    yoke_mesh mesh = mesh_of(1, 2, 2);
    yoke_shape shape = {.n_dims = 1, .extent = {8}};
    static world w;
    static piece global;
    w = (world){.mesh = &mesh, .shape = &shape};
    fill_global(&shape, &global);
    yoke_layout both = yoke_layout_replicated();
    both.place[YOKE_AXIS_DP] = 0;
    both.place[YOKE_AXIS_TP] = 0;
    assert_false(yoke_layout_is_convertible(&mesh, both, YOKE_AXIS_DP, YOKE_REPLICATED));
    assert_true(yoke_layout_is_convertible(&mesh, both, YOKE_AXIS_TP, YOKE_REPLICATED));
    scatter(&w, &global, both);
    convert(&w, YOKE_AXIS_DP, YOKE_REPLICATED);
    static piece wanted;
    cut(&w, &global, w.layout, 0, &wanted);
    assert_int_equal(w.rank[0].extent[0], wanted.extent[0]);
    assert_memory_not_equal(w.rank[0].value, wanted.value, sizeof(double) * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_of_the_table),
        cmocka_unit_test(test_outer_axis_needs_inner_cut_undone),
        cmocka_unit_test(test_every_pair_axis_by_axis),
        cmocka_unit_test(test_illegal_pairs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
