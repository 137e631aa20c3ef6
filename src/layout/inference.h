/*
 * Inference, shared by its files: what is fixed by policies (fixed.c), what a node costs in one
 * division or another (choose.c), and the graph that is written anew (infer.c).
 */
#ifndef YOKE_LAYOUT_INFERENCE_H
#define YOKE_LAYOUT_INFERENCE_H

#include "layout/division.h"
#include "layout/infer.h"

/* A converted version of a value. */
typedef struct yoke_version {
    yoke_value value;
    yoke_region region;
    int block;
    bool gathered;
    int next; /* older version of the same source; -1: none */
} yoke_version;

enum { YOKE_NO_PIN = -100 };

typedef struct yoke_inference {
    yoke_graph *graph;
    const yoke_policies *policies;
    yoke_rewriting nodes;
    yoke_value *now; /* [values] what a value was replaced by when it was settled elsewhere */
    int64_t now_capacity;
    int *latest; /* [values] newest version, or -1 */
    int64_t latest_capacity;
    yoke_version *versions;
    int64_t n_versions, versions_capacity;
    int8_t (*pins)[YOKE_N_AXES]; /* [values at the start] */
    /* [values at the start] of the node whose first output it is */
    yoke_division (*made_by)[YOKE_N_AXES];
} yoke_inference;

/* True if tensors can be divided along the axis. */
bool yoke_inference_divides(const yoke_inference *in, int axis);

/* Gives parameters and inputs the layouts of their policies, and finds the pins. */
void yoke_inference_fix(yoke_inference *in);

/* Where the value must lie along the axis, or YOKE_NO_PIN. */
int yoke_inference_pin(const yoke_inference *in, yoke_value value, int axis);
/* The same, or where its readers will want it. */
int yoke_inference_pin_seen(const yoke_inference *in, yoke_value value, int axis);

/* True if `node` may use a version that is there: one of its own block, or of the whole step. */
bool yoke_version_is_visible(const yoke_version *made, const yoke_node *node);

/* Finds division[axis] of a node, given those of the axes further out; YOKE_BAD_INPUT if there is
 * none. */
yoke_status yoke_inference_choose(const yoke_inference *in, const yoke_node *node, int axis,
                                  yoke_division division[YOKE_N_AXES]) YOKE_MUST_USE;

/* --- order.c: tokens in balanced chunks ------------------------------------------------------- */

/* Finds the order of the graph; YOKE_BAD_INPUT where its letter does not divide into the chunks. */
yoke_status yoke_inference_order(yoke_inference *in) YOKE_MUST_USE;
/* Gives it to a node that depends on it; YOKE_BAD_INPUT for one that cannot have it. */
yoke_status yoke_inference_order_node(const yoke_inference *in, yoke_node *node) YOKE_MUST_USE;

/* --- infer.c: writing the graph --------------------------------------------------------------- */

yoke_value yoke_inference_value_add(yoke_inference *in, const yoke_value_info *info);
/* A node of one input and one output with its dims, for the use of `node`; output, axis and
 * conversion are yet to be set. */
yoke_node yoke_inference_convert_node(yoke_graph *graph, yoke_value value, const yoke_node *node);

/* The sum of n values that lie alike; its output is yet to be set. */
yoke_node yoke_inference_sum_node(yoke_graph *graph, const yoke_value *values, int n,
                                  const yoke_node *node);

/* --- ring.c: attention whose keys are passed round -------------------------------------------- */

bool yoke_ring_applies(const yoke_node *node, const yoke_division *division);
/* Appends the nodes that compute `node`, whose operands lie as its division says. */
void yoke_ring_append(yoke_inference *in, const yoke_node *node, int axis);

#endif
