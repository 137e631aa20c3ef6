/*
 * Meshes, shapes and layouts that the tests of layouts run over, and walking through a box.
 */
#ifndef LAYOUT_CASES_H
#define LAYOUT_CASES_H

#include "yoke/layout.h"

enum { MOST_RANKS = 6, MOST_ELEMENTS = 160, MOST_LAYOUTS = 256 };

static inline yoke_mesh mesh_of(int pp, int dp, int tp)
{
    yoke_mesh mesh = yoke_mesh_single();
    mesh.size[YOKE_AXIS_PP] = pp;
    mesh.size[YOKE_AXIS_DP] = dp;
    mesh.size[YOKE_AXIS_TP] = tp;
    return mesh;
}

static inline const yoke_mesh *all_meshes(int *n)
{
    static yoke_mesh meshes[10];
    static const int sizes[][3] = {{1, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 3}, {1, 4, 1},
                                   {1, 2, 2}, {1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 2, 1}};
    *n = (int)(sizeof sizes / sizeof sizes[0]);
    for (int i = 0; i < *n; i++) {
        meshes[i] = mesh_of(sizes[i][0], sizes[i][1], sizes[i][2]);
    }
    return meshes;
}

/* Extents that divide by 2, 3, 4 and 6, that do not, that are smaller than the ranks, and none. */
static const yoke_shape shapes[] = {
    {.n_dims = 1, .extent = {12}},      {.n_dims = 1, .extent = {7}},
    {.n_dims = 1, .extent = {1}},       {.n_dims = 2, .extent = {12, 12}},
    {.n_dims = 2, .extent = {5, 7}},    {.n_dims = 2, .extent = {2, 11}},
    {.n_dims = 2, .extent = {1, 3}},    {.n_dims = 2, .extent = {0, 4}},
    {.n_dims = 3, .extent = {3, 5, 2}}, {.n_dims = 3, .extent = {1, 4, 7}},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Layouts that one tensor may have: no sum beside a maximum, and axes of size 1 stay R, since every
 * place means the same there. */
static inline int list_layouts(const yoke_mesh *mesh, int n_dims, yoke_layout *out)
{
    int n = 1;
    out[0] = yoke_layout_replicated();
    for (int a = 0; a < YOKE_N_AXES; a++) {
        int n_before = n;
        for (int place = YOKE_PARTIAL_MAX; mesh->size[a] > 1 && place < n_dims; place++) {
            for (int i = 0; place != YOKE_REPLICATED && i < n_before; i++) {
                YOKE_ASSERT(n < MOST_LAYOUTS);
                out[n] = out[i];
                out[n++].place[a] = (int8_t)place;
            }
        }
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
        bool sum = false;
        bool max = false;
        for (int a = 0; a < YOKE_N_AXES; a++) {
            sum = sum || out[i].place[a] == YOKE_PARTIAL_SUM;
            max = max || out[i].place[a] == YOKE_PARTIAL_MAX;
        }
        if (!(sum && max)) {
            out[kept++] = out[i];
        }
    }
    return kept;
}

/* Row-major position of `index` in `extent`. */
static inline int64_t position(int n_dims, const int64_t *extent, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < n_dims; d++) {
        at = at * extent[d] + index[d];
    }
    return at;
}

/* The next index in row-major order; false after the last. Start from zeros, extents all above 0.
 * */
static inline bool next_index(int n_dims, const int64_t *extent, int64_t *index)
{
    for (int d = n_dims - 1; d >= 0; d--) {
        if (++index[d] < extent[d]) {
            return true;
        }
        index[d] = 0;
    }
    return false;
}

#endif
