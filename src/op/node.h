/*
 * Node and value: what an operator sees of a graph.
 *
 * Relies on the public letters of yoke/graph.h. The functions at the end are the graph's side of
 * the bargain: src/graph implements them, operators call them to write themselves and their
 * gradients.
 */
#ifndef YOKE_OP_NODE_H
#define YOKE_OP_NODE_H

#include "op/attributes.h"
#include "op/list.h"

enum { YOKE_MAX_OUTPUTS = 4, YOKE_NO_NODE = -1, YOKE_NO_BLOCK = -1 };

/* When a node runs. Forward and backward: for every micro-batch, in its block's place. Head and
 * tail: once a step, around them, except that what accumulates over micro-batches in the head (the
 * count of labels) runs for each. */
typedef enum yoke_region {
    YOKE_REGION_HEAD,
    YOKE_REGION_FORWARD,
    YOKE_REGION_BACKWARD,
    YOKE_REGION_TAIL
} yoke_region;

typedef enum yoke_value_kind {
    YOKE_VALUE_INPUT,       /* loaded for each micro-batch */
    YOKE_VALUE_PARAMETER,   /* lives between steps */
    YOKE_VALUE_STATE,       /* lives between steps: the optimizer's */
    YOKE_VALUE_ACTIVATION,  /* one for each micro-batch */
    YOKE_VALUE_ACCUMULATOR, /* a sum over the micro-batches of a step */
    YOKE_VALUE_STEP         /* one for each step */
} yoke_value_kind;

typedef struct yoke_value_info {
    const char *name;
    char dims[YOKE_MAX_DIMS + 1]; /* letters */
    yoke_shape shape;             /* global */
    yoke_dtype dtype;
    yoke_value_kind kind;
    int producer;           /* node, or YOKE_NO_NODE */
    int n_uses;             /* operands that read it */
    int n_makers;           /* nodes that add to it in turn; 0: one makes it */
    bool stream;            /* lies as the policy's stream says */
    bool output;            /* kept to the end of the step for whoever asks */
    bool bucket;            /* gradients of several parameters, one behind the other */
    yoke_value gradient_of; /* the parameter whose gradient this is, or a part of; or the activation
                               whose whole gradient it is */
    yoke_value gathered_of; /* the parameter that this is, gathered for use */
    float deviation;        /* parameters: of the normal initial values, or else */
    float fill;             /* the constant they start at */
    bool decays;            /* parameters: by weight decay */
    bool frozen;            /* parameters: not trained */
    yoke_layout layout;     /* after inference */
} yoke_value_info;

typedef struct yoke_node {
    yoke_op op;
    yoke_region region;
    int block;
    int n_in, n_out;
    yoke_value *in;
    yoke_value out[YOKE_MAX_OUTPUTS];
    const char **in_rule; /* letters of each operand in the operator's index rule */
    const char *out_rule[YOKE_MAX_OUTPUTS];
    yoke_attributes attributes;
    yoke_axis axis;             /* convert: along this axis, */
    yoke_conversion conversion; /* this row of the table */
    bool recomputed;            /* repeats in the backward pass a node of the forward pass: */
    yoke_value repeats;         /* the one whose first output this is */
} yoke_node;

/* False for an input that the node only names. */
bool yoke_node_reads(const yoke_node *node, int i);

/* A node to be added. Rules left NULL are the dims of the values. */
typedef struct yoke_node_spec {
    yoke_op op;
    int n_in;
    const yoke_value *in;
    const char *const *in_rules;            /* NULL, or [n_in] */
    const char *out_dims[YOKE_MAX_OUTPUTS]; /* NULL after the last output */
    const char *out_rules[YOKE_MAX_OUTPUTS];
    yoke_attributes attributes;
} yoke_node_spec;

/* Adds a node at the graph's current place and returns its first output; YOKE_NO_VALUE if the graph
 * has failed before. */
yoke_value yoke_node_add(yoke_graph *graph, const yoke_node_spec *spec,
                         yoke_value out[YOKE_MAX_OUTPUTS]);

const yoke_value_info *yoke_value_get(const yoke_graph *graph, yoke_value value);

/* The parameter whose gradient a value is, or a part of; YOKE_NO_VALUE for others. */
yoke_value yoke_value_parameter(const yoke_graph *graph, yoke_value value);

/* True for the gradient of a parameter, a part of it, or several joined. */
bool yoke_value_is_gradient(const yoke_graph *graph, yoke_value value);

int64_t yoke_letter_extent(const yoke_graph *graph, char letter); /* 0 if never set */

/* True if every value is good; otherwise the caller returns YOKE_NO_VALUE. */
bool yoke_values_good(const yoke_graph *graph, const yoke_value *values, int n);

/* Keeps the first error of the graph; the message is put behind the current block's name. */
void yoke_graph_fail(yoke_graph *graph, const char *format, ...) YOKE_FORMAT(2, 3);

/* Checks that a value has these dims, and fails the graph naming `what` if not. */
bool yoke_value_expect(yoke_graph *graph, const char *what, yoke_value value, const char *dims);

#endif
