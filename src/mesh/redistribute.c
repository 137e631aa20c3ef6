/*
 * Redistribution along several axes: the order in which the rows of the table may be applied.
 *
 * Where one dim is cut by several axes the cuts nest, outermost first. A row along an outer axis
 * therefore needs the inner cuts of the same dim undone. What is planned is right, not always
 * cheapest: with one axis a dim, which is what the policies of dp and tp give, the steps are the
 * rows themselves.
 */
#include "yoke/layout.h"

/* Whether an axis further in than `axis` cuts `dim`. */
static bool is_cut_further_in(const yoke_mesh *mesh, yoke_layout layout, int axis, int dim)
{
    for (int a = axis + 1; a < YOKE_N_AXES; a++) {
        if (mesh->size[a] > 1 && layout.place[a] == dim) {
            return true;
        }
    }
    return false;
}

static bool holds(yoke_layout layout, int place)
{
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (layout.place[a] == place) {
            return true;
        }
    }
    return false;
}

/* Sum and maximum in one layout, or in those before and after, have no order that is right. */
static bool mixes_partials(yoke_layout from, yoke_layout to)
{
    bool sum = holds(from, YOKE_PARTIAL_SUM) || holds(to, YOKE_PARTIAL_SUM);
    bool max = holds(from, YOKE_PARTIAL_MAX) || holds(to, YOKE_PARTIAL_MAX);
    return sum && max;
}

bool yoke_layout_is_convertible(const yoke_mesh *mesh, yoke_layout layout, yoke_axis axis, int to)
{
    int from = layout.place[axis];
    yoke_layout after = layout;
    after.place[axis] = (int8_t)to;
    if (yoke_conversion_find(from, to) == YOKE_CONVERT_ILLEGAL || mixes_partials(layout, after)) {
        return false;
    }
    if (from == to || mesh->size[axis] == 1) {
        return true;
    }
    return !(from >= 0 && is_cut_further_in(mesh, layout, (int)axis, from)) &&
           !(to >= 0 && is_cut_further_in(mesh, layout, (int)axis, to));
}

/* Whether the cut along `axis` hinders an axis further out that joins or cuts the same dim. */
static bool is_in_the_way(const yoke_mesh *mesh, yoke_layout from, yoke_layout to, int axis)
{
    int dim = from.place[axis];
    if (dim < 0 || mesh->size[axis] == 1) {
        return false;
    }
    for (int a = 0; a < axis; a++) {
        bool changes = mesh->size[a] > 1 && from.place[a] != to.place[a];
        if (changes && (from.place[a] == dim || to.place[a] == dim)) {
            return true;
        }
    }
    return false;
}

int yoke_layout_plan(const yoke_mesh *mesh, yoke_layout from, yoke_layout to,
                     yoke_layout_step steps[YOKE_MAX_LAYOUT_STEPS])
{
    if (mixes_partials(from, to)) {
        return -1;
    }
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (yoke_conversion_find(from.place[a], to.place[a]) == YOKE_CONVERT_ILLEGAL) {
            return -1;
        }
    }
    int n = 0;
    yoke_layout at = from;
    /* Innermost first, cuts that are in the way are undone: nothing further in cuts their dim. */
    for (int a = YOKE_N_AXES - 1; a >= 0; a--) {
        if (is_in_the_way(mesh, from, to, a)) {
            steps[n++] = (yoke_layout_step){.axis = (yoke_axis)a,
                                            .from = at.place[a],
                                            .to = YOKE_REPLICATED,
                                            .conversion = YOKE_CONVERT_ALL_GATHER};
            at.place[a] = YOKE_REPLICATED;
        }
    }
    /* Outermost first, every axis goes to its place: cuts are made as they nest. */
    for (int a = 0; a < YOKE_N_AXES; a++) {
        yoke_conversion conversion = yoke_conversion_find(at.place[a], to.place[a]);
        if (mesh->size[a] > 1 && conversion != YOKE_CONVERT_NONE) {
            steps[n++] = (yoke_layout_step){.axis = (yoke_axis)a,
                                            .from = at.place[a],
                                            .to = to.place[a],
                                            .conversion = conversion};
            at.place[a] = to.place[a];
        }
    }
    return n;
}
