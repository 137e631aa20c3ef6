/*
 * Layout inference: gives every value of a graph its layout on a mesh, and inserts the
 * redistributions that follow.
 */
#ifndef YOKE_LAYOUT_INFER_H
#define YOKE_LAYOUT_INFER_H

#include "graph/graph.h"
#include "layout/policy.h"

/* Rewrites the graph: layouts everywhere, convert nodes where layouts change. Once a graph. */
yoke_status yoke_layout_infer(yoke_graph *graph, const yoke_mesh *mesh,
                              const yoke_policies *policies) YOKE_MUST_USE;

/* Checks, node by node, that the layouts of operands and outputs are one legal division of the
 * operator along each axis. */
yoke_status yoke_layout_verify(const yoke_graph *graph,
                               const yoke_policies *policies) YOKE_MUST_USE;

/* Cuts the rank's piece of the logits into as many strips as keep each within `most_bytes`, as far as
 * tokens allow: strips.c. Once a graph, with layouts, whose logits nobody asks for; sets n_strips. */
void yoke_layout_cut_logits(yoke_graph *graph, int64_t most_bytes);

/* Lets the two terms of a parameter's gradient be one sum: share.c. For graphs that run as one
 * micro-batch on one stage. After layouts, and after strips. */
void yoke_layout_share_sums(yoke_graph *graph);

/* Joins small gradients of a block that are reduced alike, up to `most_bytes` together: buckets.c. At
 * most once a graph, after sums are shared, before what travels is rounded. */
void yoke_layout_join_gradients(yoke_graph *graph, int64_t most_bytes);

/* Layout of each parameter, and every redistribution with its cost. */
void yoke_layout_table_print(const yoke_graph *graph, FILE *file);

#endif
