/*
 * Mesh: the ranks of a run, arranged along named axes.
 *
 * The order of the axes is fixed, outermost first, so that the innermost joins neighbours. A rank
 * is a mixed-radix number whose digits are its coordinates. A group is the set of ranks that differ
 * only along given axes.
 */
#ifndef YOKE_MESH_H
#define YOKE_MESH_H

#include <stdbool.h>
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, name, help), outermost first. How tensors lie along an axis is its policy:
 * src/layout/policy.c. */
#define YOKE_AXIS_LIST(X)                                                                          \
    X(PP, pp, "pipeline: the layers are cut into stages")                                          \
    X(DP, dp, "data: the batch is divided, parameters are replicated")                             \
    X(FSDP, fsdp, "data: the batch is divided, parameters are too and gathered for use")           \
    X(EP, ep, "expert: the experts of a layer are divided")                                        \
    X(CP, cp, "context: the sequence is divided")                                                  \
    X(TP, tp, "tensor: heads, feed-forward width and vocabulary are divided")

typedef enum yoke_axis {
#define YOKE_AXIS_ENUM(upper, lower, help) YOKE_AXIS_##upper,
    YOKE_AXIS_LIST(YOKE_AXIS_ENUM)
#undef YOKE_AXIS_ENUM
        YOKE_N_AXES
} yoke_axis;

enum { YOKE_MAX_RANKS = 65536 }; /* to plan for; a transport may take fewer */

typedef struct yoke_mesh {
    int size[YOKE_N_AXES]; /* ranks along each axis, at least 1 */
} yoke_mesh;

const char *yoke_axis_name(yoke_axis axis);

yoke_mesh yoke_mesh_single(void); /* one rank */

/* "dp=2,tp=2,pp=2", in any order; axes left out have size 1; "" is one rank. YOKE_BAD_INPUT for an
 * unknown axis, an axis named twice, a size below 1, or more than YOKE_MAX_RANKS ranks. */
yoke_status yoke_mesh_parse(const char *text, yoke_mesh *mesh) YOKE_MUST_USE;

/* Writes "dp=2,tp=2" (axes of size 1 left out; "1 rank" if all are) to buffer and returns it. */
const char *yoke_mesh_print(const yoke_mesh *mesh, char *buffer, int buffer_bytes);

int yoke_mesh_n_ranks(const yoke_mesh *mesh);
int yoke_mesh_coordinate(const yoke_mesh *mesh, int rank, yoke_axis axis);

/* The rank with the same coordinates as `rank`, except `coordinate` along `axis`. */
int yoke_mesh_neighbour(const yoke_mesh *mesh, int rank, yoke_axis axis, int coordinate);

/* Members of the group of `rank` along the axes in `axes` (bit `1u << axis`), ascending; returns
 * their number. `members` has room for yoke_mesh_n_ranks. */
int yoke_mesh_group(const yoke_mesh *mesh, int rank, unsigned axes, int *members);

#ifdef __cplusplus
}
#endif
#endif
