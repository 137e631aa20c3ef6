/*
 * Division: one way in which an operator may be computed along one axis.
 *
 * Either a letter of its rule is divided (with it perhaps a companion letter), or the operator is
 * linear in some inputs and lets partial sums through, or every rank computes all of it.
 */
#ifndef YOKE_LAYOUT_DIVISION_H
#define YOKE_LAYOUT_DIVISION_H

#include "graph/graph.h"
#include "layout/policy.h"

typedef struct yoke_division {
    char letter;    /* divided; 0: none */
    char companion; /* divided with it; 0: none */
    int linear;     /* mask of inputs that are partial, or YOKE_ALL_INPUTS; 0: none */
} yoke_division;

enum { YOKE_MAX_DIVISIONS = 16 };

/* What is divided, along one axis: among `n` ranks, by the axis's policy. */
typedef struct yoke_parts {
    const yoke_policy *policy;
    int n;

    /* How the axes further out divide the node, and among how many ranks: a letter that they divide
     * is cut once more. */
    int n_outer;
    const yoke_division *outer;
    const int *outer_n;
} yoke_parts;

/* All that operator and policy allow, those that divide the work first, computing all of it last.
 * Returns their number. */
int yoke_division_list(const yoke_graph *graph, const yoke_node *node, const yoke_parts *parts,
                       yoke_division *list);

/* The place that input or output `i` must have, or gets. */
int yoke_division_input(const yoke_division *division, const yoke_node *node, int i);
int yoke_division_output(const yoke_division *division, const yoke_node *node, int i);

#endif
