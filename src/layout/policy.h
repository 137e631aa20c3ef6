/*
 * Axis policies: the one table in which parallel strategies are defined.
 *
 * A policy says what may be divided along an axis and what must be. Everything else, every
 * collective included, follows by inference (infer.c). pp has no policy: it cuts the graph.
 */
#ifndef YOKE_LAYOUT_POLICY_H
#define YOKE_LAYOUT_POLICY_H

#include "yoke/config.h"
#include "yoke/layout.h"

/* How long a parameter that is stored in pieces is whole. */
typedef enum yoke_storing {
    YOKE_STORE_WHOLE,           /* it is not stored in pieces */
    YOKE_STORE_GATHER_FOR_STEP, /* gathered once, at the start of the step */
    YOKE_STORE_GATHER_FOR_USE   /* gathered by each block, forward and again backward */
} yoke_storing;

typedef struct yoke_policy {
    const char *compute; /* letters that operators may divide along the axis; NULL: no policy */

    /* A parameter is divided on the first of these letters that it has, and stays so; else it is
     * replicated. Those that are also in `even` count only where the ranks divide the extent. */
    const char *parameter;
    const char *even;

    /* Inputs and the residual stream are divided on the first of these that they have, or not at
     * all. */
    const char *stream;

    /* This letter, along which the stream is divided, stands in balanced chunks, two for each rank
     * (mesh/order.h); 0: as it is. */
    char balanced;

    /* Parameters are stored in pieces, of a dim that no other axis divides, and so are gradients
     * and the optimizer's state. */
    yoke_storing storing;
    bool scatters_early; /* pieces of gradients: once a micro-batch, not once a step */
} yoke_policy;

typedef struct yoke_policies {
    yoke_policy axis[YOKE_N_AXES];
} yoke_policies;

/* The policies that a config, which has been checked, chooses. */
yoke_policies yoke_policies_choose(const yoke_config *config);

#endif
