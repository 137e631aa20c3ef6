/*
 * What travels in bf16: passes over a graph that has its layouts. They give types to values and insert casts; no layout
 * changes, and which axis a value travels along is the same to them.
 */
#ifndef YOKE_LAYOUT_TRAVEL_H
#define YOKE_LAYOUT_TRAVEL_H

#include "graph/graph.h"

/* Weights of matrix products, and tables, are gathered in bf16 where all that read what is gathered can: each piece is
 * rounded once a step. At most once a graph. */
void yoke_travel_weights(yoke_graph *graph);

/* Gradients of parameters are rounded to bf16 for each reduction and widened behind it; sums over micro-batches stay f32.
 * At most once a graph. */
void yoke_travel_gradients(yoke_graph *graph);

/* --- For both passes ------------------------------------------------------------------------------------ */

/* A value as `like`, in another type and named as it. */
yoke_value yoke_travel_value_add(yoke_graph *graph, yoke_value like, yoke_dtype dtype);

/* Appends out = cast(in), in the place of `at`. */
void yoke_travel_cast(yoke_graph *graph, yoke_value in, yoke_value out, const yoke_node *at);
/* The same, where the output may take the storage of `lender`. */
void yoke_travel_cast_into(yoke_graph *graph, const yoke_value in_lender[2], yoke_value out,
                           const yoke_node *at);

#endif
