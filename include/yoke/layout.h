/*
 * Layout: how a tensor lies on a mesh.
 *
 * Along each axis a tensor is replicated (every rank holds the same), sharded on one of its dims,
 * or partial (the true value is the sum, or the maximum, over the axis). One dim may be sharded by
 * several axes: the outer axis cuts first. Shards may be uneven and empty: of extent n over k
 * ranks, the first n % k ranks get one element more.
 *
 * The pieces of a shard may be turned by some ranks, for algorithms that pass them round a ring.
 *
 * Changing a layout is a *redistribution*; along one axis it is one row of a table, and apart from
 * pipeline messages that table is the only source of communication in yoke.
 */
#ifndef YOKE_LAYOUT_H
#define YOKE_LAYOUT_H

#include <stdint.h>
#include "yoke/mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { YOKE_MAX_DIMS = 5 };

/* Global or local extents of a tensor; n_dims 0 is a scalar. Row-major, compact. */
typedef struct yoke_shape {
    int n_dims;
    int64_t extent[YOKE_MAX_DIMS];
} yoke_shape;

int64_t yoke_shape_elements(const yoke_shape *shape); /* 1 for a scalar */

/* A place: how a tensor lies along one axis. One that is 0 or more is the sharded dim. */
enum { YOKE_REPLICATED = -1, YOKE_PARTIAL_SUM = -2, YOKE_PARTIAL_MAX = -3 };

/* The place along each axis. Sum and maximum do not commute: no layout holds both. Where the axis
 * cuts a dim, the rank with coordinate c has piece c + turn, modulo the ranks; turn is mostly 0. */
typedef struct yoke_layout {
    int8_t place[YOKE_N_AXES];
    int16_t turn[YOKE_N_AXES];
} yoke_layout;

yoke_layout yoke_layout_replicated(void);
bool yoke_layout_equal(yoke_layout a, yoke_layout b);

/* Writes "dp:S0 tp:P", or "R" if replicated everywhere, to buffer and returns it. */
const char *yoke_layout_print(yoke_layout layout, char *buffer, int buffer_bytes);

/* The piece [offset, offset + extent) of each dim. */
typedef struct yoke_shard {
    int n_dims;
    int64_t offset[YOKE_MAX_DIMS];
    int64_t extent[YOKE_MAX_DIMS];
} yoke_shard;

/* Piece `index` of `n` elements dealt to `n_parts`, sizes ceil then floor. */
void yoke_split(int64_t n, int n_parts, int index, int64_t *offset, int64_t *extent);

yoke_shard yoke_layout_shard(const yoke_mesh *mesh, yoke_layout layout, const yoke_shape *shape,
                             int rank);
int64_t yoke_shard_elements(const yoke_shard *shard);

/* True where `rank` is the first of those that hold the same piece (coordinate 0 along every
 * replicated or partial axis). */
bool yoke_layout_is_first_holder(const yoke_mesh *mesh, yoke_layout layout, int rank);

/* X(enumerator, name) */
#define YOKE_CONVERSION_LIST(X)                                                                    \
    X(NONE, none)                     /* same place */                                             \
    X(ALL_REDUCE, all_reduce)         /* P -> R */                                                 \
    X(REDUCE_SCATTER, reduce_scatter) /* P -> S */                                                 \
    X(ALL_GATHER, all_gather)         /* S -> R */                                                 \
    X(ALL_TO_ALL, all_to_all)         /* S(i) -> S(j) */                                           \
    X(ROTATE, rotate)                 /* S(i) -> S(i) turned by one rank */                        \
    X(SLICE, slice)                   /* R -> S, local */                                          \
    X(MASK, mask)                     /* R -> P, local: coordinate 0 keeps it, others hold 0 */    \
    X(ILLEGAL, illegal)               /* S -> P, and P(max) -> S, between sum and max */

typedef enum yoke_conversion {
#define YOKE_CONVERSION_ENUM(upper, lower) YOKE_CONVERT_##upper,
    YOKE_CONVERSION_LIST(YOKE_CONVERSION_ENUM)
#undef YOKE_CONVERSION_ENUM
} yoke_conversion;

const char *yoke_conversion_name(yoke_conversion conversion);

/* The row of the table for one axis: `from` and `to` are places. R -> P(max) is illegal: nothing
 * needs it, and the zeros of MASK are not neutral to a maximum. P(max) -> S is: no exchange scatters
 * maxima. */
yoke_conversion yoke_conversion_find(int from, int to);

/* Elements that a rank receives when a tensor of `elements` (the rank's global view) is converted
 * over `n_ranks`, bandwidth-optimal algorithm (Thakur, Rabenseifner, Gropp 2005); 0 for local ones,
 * infinity if illegal. */
double yoke_conversion_elements(yoke_conversion conversion, double elements, int n_ranks);

/*
 * Whether one row of the table, along `axis` alone, takes a tensor in `layout` to place `to`.
 *
 * Besides the table it needs that no axis further in cuts a dim that this row joins or cuts: the
 * outer axis cuts first, so with dp:S0 tp:S0 the pieces of the ranks that differ along dp are not
 * neighbours, and an all_gather over dp would interleave them wrongly. Axes of size 1 cut nothing.
 */
bool yoke_layout_is_convertible(const yoke_mesh *mesh, yoke_layout layout, yoke_axis axis, int to);

typedef struct yoke_layout_step {
    yoke_axis axis;
    int8_t from, to;
    yoke_conversion conversion;
} yoke_layout_step;

enum { YOKE_MAX_LAYOUT_STEPS = 2 * YOKE_N_AXES };

/*
 * The rows that, one after the other, take a tensor from one layout to another; returns their
 * number, or -1 if there are none such (S -> P, or sum against maximum). Where an axis further in
 * is in the way, it is gathered first and sliced again at the end. Along axes of size 1 every place
 * means the same, so they give no step; an illegal row stays illegal there, so that what plans on
 * one rank plans on all.
 */
int yoke_layout_plan(const yoke_mesh *mesh, yoke_layout from, yoke_layout to,
                     yoke_layout_step steps[YOKE_MAX_LAYOUT_STEPS]);

#ifdef __cplusplus
}
#endif
#endif
