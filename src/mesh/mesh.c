/*
 * Mesh: names and sizes of axes, coordinates of ranks, groups.
 *
 * A rank is the mixed-radix number of its coordinates, the last axis of YOKE_AXIS_LIST being the
 * fastest digit. Integers only; nothing here knows what an axis is used for.
 */
#include "yoke/mesh.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const char *const axis_names[YOKE_N_AXES] = {
#define AXIS_NAME(upper, lower, help) #lower,
    YOKE_AXIS_LIST(AXIS_NAME)
#undef AXIS_NAME
};

#define AXIS_JOINED(upper, lower, help) ", " #lower
/* ", pp, dp, fsdp, ep, cp, tp": messages skip the first two characters. */
static const char axes_joined[] = YOKE_AXIS_LIST(AXIS_JOINED);
#undef AXIS_JOINED

enum { LONGEST_ENTRY = 63 };

const char *yoke_axis_name(yoke_axis axis)
{
    YOKE_ASSERT((int)axis >= 0 && axis < YOKE_N_AXES);
    return axis_names[axis];
}

yoke_mesh yoke_mesh_single(void)
{
    yoke_mesh mesh;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        mesh.size[a] = 1;
    }
    return mesh;
}

static int axis_index(const char *name)
{
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (strcmp(name, axis_names[a]) == 0) {
            return a;
        }
    }
    return -1;
}

static yoke_status fail_unknown(const char *name)
{
    const char *nearest = yoke_text_nearest(name, axis_names, YOKE_N_AXES);
    if (!nearest) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "mesh: unknown axis '%s'; the axes are %s", name,
                         axes_joined + 2);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "mesh: unknown axis '%s'; the axes are %s; did you mean %s?",
                     name, axes_joined + 2, nearest);
}

/* Decimal digits only, so that "+2", "2.0" and "2k" are refused; -1 for anything outside
 * 1..YOKE_MAX_RANKS. */
static int parse_size(const char *text)
{
    int size = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9') {
            return -1;
        }
        size = size * 10 + (*c - '0');
        if (size > YOKE_MAX_RANKS) {
            return -1;
        }
    }
    return size > 0 ? size : -1;
}

/* One "dp=2" of the list; `seen` has a bit for each axis that was named before. */
static yoke_status parse_entry(char *entry, yoke_mesh *mesh, unsigned *seen)
{
    char *equals = strchr(entry, '=');
    if (!equals) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mesh: '%s' is not an axis with its size; write for instance dp=2,tp=2",
                         entry);
    }
    *equals = '\0';
    const char *value = equals + 1;
    int axis = axis_index(entry);
    if (axis < 0) {
        return fail_unknown(entry);
    }
    int size = parse_size(value);
    if (size < 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "mesh: %s=%s is no size; use a whole number from 1 to %d",
                         entry, value, YOKE_MAX_RANKS);
    }
    if (*seen & 1u << axis) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "mesh: axis %s is named twice (%s=%d and %s=%d); keep one",
                         entry, entry, mesh->size[axis], entry, size);
    }
    *seen |= 1u << axis;
    mesh->size[axis] = size;
    return YOKE_OK;
}

static yoke_status check_ranks(const char *text, const yoke_mesh *mesh)
{
    long long n_ranks = 1;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        n_ranks = n_ranks > LLONG_MAX / mesh->size[a] ? LLONG_MAX : n_ranks * mesh->size[a];
    }
    if (n_ranks > YOKE_MAX_RANKS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mesh: %s has %lld ranks and the most is %d; make an axis smaller", text,
                         n_ranks, YOKE_MAX_RANKS);
    }
    return YOKE_OK;
}

static yoke_status check_length(const char *text, size_t length, int n_before)
{
    if (length == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mesh: entry %d of '%.80s' is empty; write for instance dp=2,tp=2",
                         n_before + 1, text);
    }
    if (length > LONGEST_ENTRY) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mesh: entry %d has %zu characters and no entry needs more than %d; "
                         "write for instance dp=2,tp=2",
                         n_before + 1, length, LONGEST_ENTRY);
    }
    return YOKE_OK;
}

yoke_status yoke_mesh_parse(const char *text, yoke_mesh *mesh)
{
    yoke_mesh parsed = yoke_mesh_single();
    unsigned seen = 0;
    const char *at = text;
    bool more = *text != '\0';
    for (int n_before = 0; more; n_before++) {
        char entry[LONGEST_ENTRY + 1];
        size_t length = strcspn(at, ",");
        YOKE_TRY(check_length(text, length, n_before));
        memcpy(entry, at, length);
        entry[length] = '\0';
        YOKE_TRY(parse_entry(entry, &parsed, &seen));
        more = at[length] == ',';
        at += length + 1;
    }
    YOKE_TRY(check_ranks(text, &parsed));
    *mesh = parsed;
    return YOKE_OK;
}

const char *yoke_mesh_print(const yoke_mesh *mesh, char *buffer, int buffer_bytes)
{
    YOKE_ASSERT(buffer_bytes > 0);
    int used = 0;
    buffer[0] = '\0';
    for (int a = 0; a < YOKE_N_AXES && used < buffer_bytes; a++) {
        if (mesh->size[a] > 1) {
            used += snprintf(buffer + used, (size_t)(buffer_bytes - used), "%s%s=%d",
                             used ? "," : "", axis_names[a], mesh->size[a]);
        }
    }
    if (used == 0) {
        snprintf(buffer, (size_t)buffer_bytes, "1 rank");
    }
    return buffer;
}

int yoke_mesh_n_ranks(const yoke_mesh *mesh)
{
    int n_ranks = 1;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        n_ranks *= mesh->size[a];
    }
    return n_ranks;
}

/* How far apart in rank two neighbours along `axis` are. */
static int axis_stride(const yoke_mesh *mesh, int axis)
{
    int stride = 1;
    for (int a = axis + 1; a < YOKE_N_AXES; a++) {
        stride *= mesh->size[a];
    }
    return stride;
}

int yoke_mesh_coordinate(const yoke_mesh *mesh, int rank, yoke_axis axis)
{
    YOKE_ASSERT(rank >= 0 && rank < yoke_mesh_n_ranks(mesh));
    return rank / axis_stride(mesh, (int)axis) % mesh->size[axis];
}

int yoke_mesh_neighbour(const yoke_mesh *mesh, int rank, yoke_axis axis, int coordinate)
{
    YOKE_ASSERT(coordinate >= 0 && coordinate < mesh->size[axis]);
    return rank +
           (coordinate - yoke_mesh_coordinate(mesh, rank, axis)) * axis_stride(mesh, (int)axis);
}

int yoke_mesh_group(const yoke_mesh *mesh, int rank, unsigned axes, int *members)
{
    YOKE_ASSERT(axes < 1u << YOKE_N_AXES);
    members[0] = rank;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (axes & 1u << a) {
            members[0] = yoke_mesh_neighbour(mesh, members[0], (yoke_axis)a, 0);
        }
    }
    /* Innermost axis first: each axis repeats the members so far at its larger stride, so they stay
     * ascending. */
    int n = 1;
    for (int a = YOKE_N_AXES - 1; a >= 0; a--) {
        int n_before = n;
        for (int c = 1; (axes & 1u << a) && c < mesh->size[a]; c++) {
            for (int i = 0; i < n_before; i++) {
                members[n++] = members[i] + c * axis_stride(mesh, a);
            }
        }
    }
    return n;
}
