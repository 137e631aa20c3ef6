/*
 * The mesh: parsing and its messages, printing, coordinates, neighbours and groups, against plain loops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "yoke/mesh.h"

static yoke_mesh mesh_of(int pp, int dp, int tp)
{
    yoke_mesh mesh = yoke_mesh_single();
    mesh.size[YOKE_AXIS_PP] = pp;
    mesh.size[YOKE_AXIS_DP] = dp;
    mesh.size[YOKE_AXIS_TP] = tp;
    return mesh;
}

static yoke_mesh parse(const char *text)
{
    yoke_mesh mesh = yoke_mesh_single();
    yoke_status status = yoke_mesh_parse(text, &mesh);
    if (status) {
        fail_msg("'%s': %s", text, yoke_status_message(status));
    }
    return mesh;
}

static void test_parse_accepts_any_order(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int pp, dp, tp;
        const char *printed;
    } cases[] = {
        {"", 1, 1, 1, "1 rank"},
        {"dp=1", 1, 1, 1, "1 rank"},
        {"tp=3", 1, 1, 3, "tp=3"},
        {"dp=2,tp=4,pp=5", 5, 2, 4, "pp=5,dp=2,tp=4"},
        {"pp=2,tp=2", 2, 1, 2, "pp=2,tp=2"},
        {"tp=65536", 1, 1, 65536, "tp=65536"},
        {"tp=32,dp=32", 1, 32, 32, "dp=32,tp=32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_mesh mesh = parse(cases[i].text);
        assert_int_equal(mesh.size[YOKE_AXIS_PP], cases[i].pp);
        assert_int_equal(mesh.size[YOKE_AXIS_DP], cases[i].dp);
        assert_int_equal(mesh.size[YOKE_AXIS_TP], cases[i].tp);
        assert_int_equal(yoke_mesh_n_ranks(&mesh), cases[i].pp * cases[i].dp * cases[i].tp);
        char buffer[64];
        assert_string_equal(yoke_mesh_print(&mesh, buffer, sizeof buffer), cases[i].printed);
    }
}

static void test_parse_refuses_with_the_way_out(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"xtp=2",
         "mesh: unknown axis 'xtp'; the axes are pp, dp, fsdp, ep, cp, tp; did you mean tp?"},
        {"wide=2", "mesh: unknown axis 'wide'; the axes are pp, dp, fsdp, ep, cp, tp"},
        {"=2", "mesh: unknown axis ''; the axes are pp, dp, fsdp, ep, cp, tp"},
        {"dp2", "mesh: 'dp2' is not an axis with its size; write for instance dp=2,tp=2"},
        {"dp=2 tp=2", "mesh: dp=2 tp=2 is no size; use a whole number from 1 to 65536"},
        {"dp=0", "mesh: dp=0 is no size; use a whole number from 1 to 65536"},
        {"dp=-2", "mesh: dp=-2 is no size; use a whole number from 1 to 65536"},
        {"dp=+2", "mesh: dp=+2 is no size; use a whole number from 1 to 65536"},
        {"dp=2.0", "mesh: dp=2.0 is no size; use a whole number from 1 to 65536"},
        {"dp=", "mesh: dp= is no size; use a whole number from 1 to 65536"},
        {"dp=99999999999999999999",
         "mesh: dp=99999999999999999999 is no size; use a whole number from 1 to 65536"},
        {"tp=65537", "mesh: tp=65537 is no size; use a whole number from 1 to 65536"},
        {"dp=2,tp=2,dp=3", "mesh: axis dp is named twice (dp=2 and dp=3); keep one"},
        {"dp=1,dp=1", "mesh: axis dp is named twice (dp=1 and dp=1); keep one"},
        {"dp=1024,tp=128",
         "mesh: dp=1024,tp=128 has 131072 ranks and the most is 65536; make an axis smaller"},
        {"pp=1024,dp=1024,tp=1024",
         "mesh: pp=1024,dp=1024,tp=1024 has 1073741824 ranks and the most is 65536; "
         "make an axis smaller"},
        {"dp=2,", "mesh: entry 2 of 'dp=2,' is empty; write for instance dp=2,tp=2"},
        {",dp=2", "mesh: entry 1 of ',dp=2' is empty; write for instance dp=2,tp=2"},
        {"dp=2,,tp=2", "mesh: entry 2 of 'dp=2,,tp=2' is empty; write for instance dp=2,tp=2"},
        {"dp=0000000000000000000000000000000000000000000000000000000000000000002",
         "mesh: entry 1 has 70 characters and no entry needs more than 63; "
         "write for instance dp=2,tp=2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_mesh mesh = mesh_of(7, 7, 7);
        yoke_status status = yoke_mesh_parse(cases[i].text, &mesh);
        assert_non_null(status);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        assert_string_equal(yoke_status_message(status), cases[i].says);
        assert_int_equal(mesh.size[YOKE_AXIS_DP], 7);
        yoke_status_free(status);
    }
}

static void test_print_stays_inside_the_buffer(void **state)
{
    (void)state;
    yoke_mesh mesh = mesh_of(8, 16, 4);
    for (int bytes = 1; bytes < 20; bytes++) {
        char buffer[24];
        memset(buffer, '#', sizeof buffer);
        yoke_mesh_print(&mesh, buffer, bytes);
        assert_true((int)strlen(buffer) < bytes);
        assert_memory_equal(buffer, "pp=8,dp=16,tp=4", strlen(buffer));
        assert_int_equal(buffer[bytes], '#');
    }
}

static void test_axis_names(void **state)
{
    (void)state;
    assert_string_equal(yoke_axis_name(YOKE_AXIS_PP), "pp");
    assert_string_equal(yoke_axis_name(YOKE_AXIS_DP), "dp");
    assert_string_equal(yoke_axis_name(YOKE_AXIS_TP), "tp");
}

/* Ranks count up with tp fastest and pp slowest; that is the definition, written as three loops. */
static void check_coordinates(const yoke_mesh *mesh)
{
    int rank = 0;
    for (int p = 0; p < mesh->size[YOKE_AXIS_PP]; p++) {
        for (int d = 0; d < mesh->size[YOKE_AXIS_DP]; d++) {
            for (int t = 0; t < mesh->size[YOKE_AXIS_TP]; t++, rank++) {
                assert_int_equal(yoke_mesh_coordinate(mesh, rank, YOKE_AXIS_PP), p);
                assert_int_equal(yoke_mesh_coordinate(mesh, rank, YOKE_AXIS_DP), d);
                assert_int_equal(yoke_mesh_coordinate(mesh, rank, YOKE_AXIS_TP), t);
            }
        }
    }
    assert_int_equal(rank, yoke_mesh_n_ranks(mesh));
}

static bool differ_only_along(const yoke_mesh *mesh, int a, int b, unsigned axes)
{
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        bool same = yoke_mesh_coordinate(mesh, a, (yoke_axis)axis) ==
                    yoke_mesh_coordinate(mesh, b, (yoke_axis)axis);
        if (!same && !(axes & 1u << axis)) {
            return false;
        }
    }
    return true;
}

static void check_group(const yoke_mesh *mesh, int rank, unsigned axes)
{
    int members[64];
    int n = yoke_mesh_group(mesh, rank, axes, members);
    int n_expected = 0;
    for (int other = 0; other < yoke_mesh_n_ranks(mesh); other++) {
        if (differ_only_along(mesh, rank, other, axes)) {
            assert_true(n_expected < n);
            assert_int_equal(members[n_expected], other);
            n_expected++;
        }
    }
    assert_int_equal(n, n_expected);
}

static void check_neighbours(const yoke_mesh *mesh, int rank, int axis)
{
    for (int c = 0; c < mesh->size[axis]; c++) {
        int other = yoke_mesh_neighbour(mesh, rank, (yoke_axis)axis, c);
        assert_in_range(other, 0, yoke_mesh_n_ranks(mesh) - 1);
        assert_int_equal(yoke_mesh_coordinate(mesh, other, (yoke_axis)axis), c);
        assert_true(differ_only_along(mesh, rank, other, 1u << axis));
    }
}

static void test_coordinates_neighbours_groups(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1}, {1, 1, 3}, {1, 5, 1}, {2, 1, 3},
                                   {2, 3, 1}, {3, 2, 5}, {2, 2, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        yoke_mesh mesh = mesh_of(sizes[i][0], sizes[i][1], sizes[i][2]);
        check_coordinates(&mesh);
        for (int rank = 0; rank < yoke_mesh_n_ranks(&mesh); rank++) {
            for (unsigned axes = 0; axes < 1u << YOKE_N_AXES; axes++) {
                check_group(&mesh, rank, axes);
            }
            for (int axis = 0; axis < YOKE_N_AXES; axis++) {
                check_neighbours(&mesh, rank, axis);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_accepts_any_order),
        cmocka_unit_test(test_parse_refuses_with_the_way_out),
        cmocka_unit_test(test_print_stays_inside_the_buffer),
        cmocka_unit_test(test_axis_names),
        cmocka_unit_test(test_coordinates_neighbours_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
