/*
 * What differs between ranks that share a program, and the groups in which ranks meet: all of it
 * follows from their coordinates on the mesh.
 */
#include "program/program.h"

const yoke_program *yoke_program_of(const yoke_program_set *set, int rank)
{
    YOKE_ASSERT(rank >= 0 && rank < set->n_ranks);
    return &set->classes[set->class_of[rank]];
}

yoke_shard yoke_program_shard(const yoke_program_set *set, int rank, yoke_value value)
{
    const yoke_value_info *info = &set->graph->values[value];
    return yoke_layout_shard(&set->mesh, info->layout, &info->shape, rank);
}

int yoke_program_peer(const yoke_program_set *set, int rank, const yoke_program_transfer *transfer)
{
    return yoke_mesh_neighbour(&set->mesh, rank, YOKE_AXIS_PP, transfer->stage);
}

bool yoke_program_keeps(const yoke_program_set *set, int rank, const yoke_node *node)
{
    return node->conversion != YOKE_CONVERT_MASK ||
           yoke_mesh_coordinate(&set->mesh, rank, node->axis) == 0;
}

/* --- Groups ----------------------------------------------------------------------------------- */

static bool takes_part(const yoke_grouping *grouping, int coordinate)
{
    return grouping->axis != YOKE_AXIS_PP || (grouping->stages >> coordinate & 1);
}

int yoke_grouping_size(const yoke_program_set *set, const yoke_grouping *grouping)
{
    int size = 0;
    for (int c = 0; c < set->mesh.size[grouping->axis]; c++) {
        size += takes_part(grouping, c);
    }
    return size;
}

int yoke_grouping_n_groups(const yoke_program_set *set, const yoke_grouping *grouping)
{
    return set->n_ranks / set->mesh.size[grouping->axis];
}

/* How far apart ranks are that stand next to each other along the axis. */
static int stride_of(const yoke_mesh *mesh, yoke_axis axis)
{
    return mesh->size[axis] > 1 ? yoke_mesh_neighbour(mesh, 0, axis, 1) : 1;
}

int yoke_grouping_find(const yoke_program_set *set, const yoke_grouping *grouping, int rank)
{
    int stride = stride_of(&set->mesh, grouping->axis);
    return rank / (stride * set->mesh.size[grouping->axis]) * stride + rank % stride;
}

void yoke_grouping_members(const yoke_program_set *set, const yoke_grouping *grouping, int group,
                           int *members)
{
    int stride = stride_of(&set->mesh, grouping->axis), size = set->mesh.size[grouping->axis];
    int first = group / stride * stride * size + group % stride;
    int n = 0;
    for (int c = 0; c < size; c++) {
        if (takes_part(grouping, c)) {
            members[n++] = first + c * stride;
        }
    }
}
