/*
 * Layouts: pieces of tensors, against plain counting, and the rows and costs of the redistribution
 * table. What the rows do to data is in test_redistribute.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "layout_cases.h"
#include "yoke/layout.h"

static void test_split_is_ceil_then_floor(void **state)
{
    (void)state;
    for (int n_parts = 1; n_parts <= 7; n_parts++) {
        for (int64_t n = 0; n <= 23; n++) {
            int64_t end = 0;
            for (int i = 0; i < n_parts; i++) {
                int64_t offset;
                int64_t extent;
                yoke_split(n, n_parts, i, &offset, &extent);
                assert_int_equal(offset, end);
                assert_int_equal(extent, i < n % n_parts ? n / n_parts + 1 : n / n_parts);
                end = offset + extent;
            }
            assert_int_equal(end, n);
        }
    }
    int64_t offset;
    int64_t extent;
    yoke_split(INT64_C(1) << 40, 3, 2, &offset, &extent);
    assert_int_equal(extent, (INT64_C(1) << 40) / 3);
    assert_int_equal(offset + extent, INT64_C(1) << 40);
}

/* 11 rows, dp cuts 6 + 5, then tp cuts those into 2 + 2 + 2 and 2 + 2 + 1. */
static void test_outer_axis_cuts_first(void **state)
{
    (void)state;
    yoke_mesh mesh = mesh_of(1, 2, 3);
    yoke_shape shape = {.n_dims = 2, .extent = {4, 11}};
    yoke_layout layout = yoke_layout_replicated();
    layout.place[YOKE_AXIS_DP] = 1;
    layout.place[YOKE_AXIS_TP] = 1;
    static const int64_t offsets[] = {0, 2, 4, 6, 8, 10};
    static const int64_t extents[] = {2, 2, 2, 2, 2, 1};
    for (int rank = 0; rank < 6; rank++) {
        yoke_shard shard = yoke_layout_shard(&mesh, layout, &shape, rank);
        assert_int_equal(shard.offset[0], 0);
        assert_int_equal(shard.extent[0], 4);
        assert_int_equal(shard.offset[1], offsets[rank]);
        assert_int_equal(shard.extent[1], extents[rank]);
    }
}

static void test_scalar(void **state)
{
    (void)state;
    yoke_mesh mesh = mesh_of(1, 3, 1);
    yoke_shape scalar = {.n_dims = 0, .extent = {0}};
    yoke_layout layout = yoke_layout_replicated();
    layout.place[YOKE_AXIS_DP] = YOKE_PARTIAL_SUM;
    yoke_shard shard = yoke_layout_shard(&mesh, layout, &scalar, 2);
    assert_int_equal(yoke_shape_elements(&scalar), 1);
    assert_int_equal(yoke_shard_elements(&shard), 1);
    assert_false(yoke_layout_is_first_holder(&mesh, layout, 2));
    assert_true(yoke_layout_is_first_holder(&mesh, layout, 0));
}

static void test_print(void **state)
{
    (void)state;
    char buffer[64];
    yoke_layout layout = yoke_layout_replicated();
    assert_string_equal(yoke_layout_print(layout, buffer, sizeof buffer), "R");
    layout.place[YOKE_AXIS_TP] = YOKE_PARTIAL_SUM;
    assert_string_equal(yoke_layout_print(layout, buffer, sizeof buffer), "tp:P");
    layout.place[YOKE_AXIS_DP] = 0;
    assert_string_equal(yoke_layout_print(layout, buffer, sizeof buffer), "dp:S0 tp:P");
    layout.place[YOKE_AXIS_PP] = YOKE_PARTIAL_MAX;
    assert_string_equal(yoke_layout_print(layout, buffer, sizeof buffer), "pp:Pmax dp:S0 tp:P");
    assert_string_equal(yoke_layout_print(layout, buffer, 5), "pp:P");
}

static void test_table_and_costs(void **state)
{
    (void)state;
    static const struct {
        int from, to;
        const char *name;
        double elements; /* received when 12 elements are converted over 4 ranks */
    } rows[] = {
        {YOKE_REPLICATED, YOKE_REPLICATED, "none", 0},
        {2, 2, "none", 0},
        {YOKE_PARTIAL_MAX, YOKE_PARTIAL_MAX, "none", 0},
        {YOKE_PARTIAL_SUM, YOKE_REPLICATED, "all_reduce", 18},
        {YOKE_PARTIAL_MAX, YOKE_REPLICATED, "all_reduce", 18},
        {YOKE_PARTIAL_SUM, 0, "reduce_scatter", 9},
        {YOKE_PARTIAL_MAX, 4, "illegal", (double)INFINITY},
        {1, YOKE_REPLICATED, "all_gather", 9},
        {0, 1, "all_to_all", 2.25},
        {YOKE_REPLICATED, 3, "slice", 0},
        {YOKE_REPLICATED, YOKE_PARTIAL_SUM, "mask", 0},
        {YOKE_REPLICATED, YOKE_PARTIAL_MAX, "illegal", (double)INFINITY},
        {0, YOKE_PARTIAL_SUM, "illegal", (double)INFINITY},
        {0, YOKE_PARTIAL_MAX, "illegal", (double)INFINITY},
        {YOKE_PARTIAL_SUM, YOKE_PARTIAL_MAX, "illegal", (double)INFINITY},
        {YOKE_PARTIAL_MAX, YOKE_PARTIAL_SUM, "illegal", (double)INFINITY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_conversion found = yoke_conversion_find(rows[i].from, rows[i].to);
        assert_string_equal(yoke_conversion_name(found), rows[i].name);
        assert_true(yoke_conversion_elements(found, 12, 4) == rows[i].elements);
        if (found != YOKE_CONVERT_ILLEGAL) {
            assert_true(yoke_conversion_elements(found, 12, 1) == 0);
        }
    }
}

/* Each element is held once for each rank along the axes that do not cut, and once by a first
 * holder. */
static void check_tiling(const yoke_mesh *mesh, const yoke_shape *shape, yoke_layout layout)
{
    int holders[MOST_ELEMENTS] = {0};
    int first_holders[MOST_ELEMENTS] = {0};
    for (int rank = 0; rank < yoke_mesh_n_ranks(mesh); rank++) {
        yoke_shard shard = yoke_layout_shard(mesh, layout, shape, rank);
        int64_t index[YOKE_MAX_DIMS] = {0};
        bool more = yoke_shard_elements(&shard) > 0;
        while (more) {
            int64_t at[YOKE_MAX_DIMS];
            for (int d = 0; d < shard.n_dims; d++) {
                at[d] = shard.offset[d] + index[d];
            }
            int64_t element = position(shard.n_dims, shape->extent, at);
            holders[element]++;
            first_holders[element] += yoke_layout_is_first_holder(mesh, layout, rank);
            more = next_index(shard.n_dims, shard.extent, index);
        }
    }
    int n_copies = 1;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        n_copies *= layout.place[a] < 0 ? mesh->size[a] : 1;
    }
    for (int64_t e = 0; e < yoke_shape_elements(shape); e++) {
        assert_int_equal(holders[e], n_copies);
        assert_int_equal(first_holders[e], 1);
    }
}

static void test_pieces_tile_the_tensor(void **state)
{
    (void)state;
    static yoke_layout layouts[MOST_LAYOUTS];
    int n_meshes;
    int n_checked = 0;
    const yoke_mesh *meshes = all_meshes(&n_meshes);
    for (int i = 0; i < n_meshes * N_SHAPES; i++) {
        const yoke_shape *shape = &shapes[i % N_SHAPES];
        int n = list_layouts(&meshes[i / N_SHAPES], shape->n_dims, layouts);
        for (int k = 0; k < n; k++, n_checked++) {
            check_tiling(&meshes[i / N_SHAPES], shape, layouts[k]);
        }
    }
    assert_true(n_checked > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_is_ceil_then_floor),
        cmocka_unit_test(test_outer_axis_cuts_first),
        cmocka_unit_test(test_scalar),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_table_and_costs),
        cmocka_unit_test(test_pieces_tile_the_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
