/*
 * Axis policies: the one table in which parallel strategies are defined.
 *
 * A policy says what may be divided along an axis and what must be. Everything else, every
 * collective included, follows by inference (infer.c). pp has no policy: it cuts the graph.
 */
#ifndef YOKE_LAYOUT_POLICY_H
#define YOKE_LAYOUT_POLICY_H

#include "yoke/layout.h"

typedef struct yoke_policy {
    const char *compute; /* letters that operators may divide along the axis */

    /* A parameter is divided on the first of these letters that it has, and stays so; else it is
     * replicated. Those that are also in `even` count only where the ranks divide the extent. */
    const char *parameter;
    const char *even;

    /* Inputs and the residual stream are divided on the first of these that they have, or not at
     * all. */
    const char *stream;
} yoke_policy;

const yoke_policy *yoke_policy_get(yoke_axis axis); /* NULL: the axis divides no tensor */

#endif
