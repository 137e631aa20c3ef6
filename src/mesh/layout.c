/*
 * Layout: places of a tensor along the axes, and the arithmetic of shards.
 *
 * Relies on coordinates of the mesh. Integers only: what a piece holds, and moving it, is done
 * elsewhere.
 */
#include "yoke/layout.h"

#include <stdio.h>

int64_t yoke_shape_elements(const yoke_shape *shape)
{
    int64_t elements = 1;
    for (int d = 0; d < shape->n_dims; d++) {
        bool overflow = __builtin_mul_overflow(elements, shape->extent[d], &elements);
        YOKE_ASSERT(!overflow);
    }
    return elements;
}

int64_t yoke_shard_elements(const yoke_shard *shard)
{
    int64_t elements = 1;
    for (int d = 0; d < shard->n_dims; d++) {
        elements *= shard->extent[d];
    }
    return elements;
}

yoke_layout yoke_layout_replicated(void)
{
    yoke_layout layout;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        layout.place[a] = YOKE_REPLICATED;
        layout.turn[a] = 0;
    }
    return layout;
}

bool yoke_layout_equal(yoke_layout a, yoke_layout b)
{
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (a.place[axis] != b.place[axis] || a.turn[axis] != b.turn[axis]) {
            return false;
        }
    }
    return true;
}

const char *yoke_layout_print(yoke_layout layout, char *buffer, int buffer_bytes)
{
    YOKE_ASSERT(buffer_bytes > 0);
    int used = 0;
    buffer[0] = '\0';
    for (int a = 0; a < YOKE_N_AXES && used < buffer_bytes; a++) {
        int place = layout.place[a];
        const char *gap = used ? " " : "";
        char *at = buffer + used;
        size_t room = (size_t)(buffer_bytes - used);
        if (place >= 0) {
            char turn[16] = "";
            if (layout.turn[a]) {
                snprintf(turn, sizeof turn, "+%d", layout.turn[a]);
            }
            used +=
                snprintf(at, room, "%s%s:S%d%s", gap, yoke_axis_name((yoke_axis)a), place, turn);
        } else if (place != YOKE_REPLICATED) {
            used += snprintf(at, room, "%s%s:%s", gap, yoke_axis_name((yoke_axis)a),
                             place == YOKE_PARTIAL_MAX ? "Pmax" : "P");
        }
    }
    if (used == 0) {
        snprintf(buffer, (size_t)buffer_bytes, "R");
    }
    return buffer;
}

void yoke_split(int64_t n, int n_parts, int index, int64_t *offset, int64_t *extent)
{
    YOKE_ASSERT(n >= 0 && n_parts >= 1 && index >= 0 && index < n_parts);
    int64_t floor = n / n_parts;
    int64_t n_larger = n % n_parts;
    *offset = index * floor + (index < n_larger ? index : n_larger);
    *extent = floor + (index < n_larger ? 1 : 0);
}

yoke_shard yoke_layout_shard(const yoke_mesh *mesh, yoke_layout layout, const yoke_shape *shape,
                             int rank)
{
    YOKE_ASSERT(shape->n_dims >= 0 && shape->n_dims <= YOKE_MAX_DIMS);
    yoke_shard shard = {.n_dims = shape->n_dims};
    for (int d = 0; d < shape->n_dims; d++) {
        shard.extent[d] = shape->extent[d];
    }
    for (int a = 0; a < YOKE_N_AXES; a++) {
        int d = layout.place[a];
        if (d < 0) {
            continue;
        }
        YOKE_ASSERT(d < shape->n_dims);
        int64_t offset;
        int piece = yoke_mesh_coordinate(mesh, rank, (yoke_axis)a) + layout.turn[a];
        yoke_split(shard.extent[d], mesh->size[a], piece % mesh->size[a], &offset,
                   &shard.extent[d]);
        shard.offset[d] += offset;
    }
    return shard;
}

bool yoke_layout_is_first_holder(const yoke_mesh *mesh, yoke_layout layout, int rank)
{
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (layout.place[a] < 0 && yoke_mesh_coordinate(mesh, rank, (yoke_axis)a) != 0) {
            return false;
        }
    }
    return true;
}
