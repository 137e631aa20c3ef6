/*
 * Axis policies: the one table in which parallel strategies are defined.
 *
 * A policy says what may be divided along an axis and what must be. Everything else, every collective included, follows by
 * inference (infer.c). pp has no policy: it cuts the graph.
 */
#ifndef YOKE_LAYOUT_POLICY_H
#define YOKE_LAYOUT_POLICY_H

#include "yoke/layout.h"

typedef struct yoke_policy {
    const char *compute; /* letters that operators may divide along the axis */
    const char *
        parameter; /* a parameter is divided on the first of these letters that it has, and stays so; else replicated */
    const char *
        even; /* of those, letters divided only if the ranks divide the extent: else they stay whole */
    const char *
        stream; /* inputs and the residual stream are divided on the first of these that they have; else replicated */
} yoke_policy;

const yoke_policy *yoke_policy_get(yoke_axis axis); /* NULL: the axis divides no tensor */

#endif
