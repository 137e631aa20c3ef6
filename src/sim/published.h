/*
 * Published formulas beside a plan: what the literature says that a mesh holds, moves and idles,
 * and what this plan does.
 *
 * The formulas know a policy's letters and no axis by name: what is said of an axis follows from
 * how its policy divides. Each stands only where it applies; docs/published.md derives them. A plan
 * that needs more or less than its formula is not wrong; the ratio says by how much.
 */
#ifndef YOKE_SIM_PUBLISHED_H
#define YOKE_SIM_PUBLISHED_H

#include "layout/policy.h"
#include "sim/measure.h"

/* One quantity of the plan and one formula for it. */
typedef struct yoke_published {
    const char *quantity; /* "state", "activations", "traffic" or "bubble" */
    const char *part;     /* "layers" and the like, of traffic; "" for others */
    int stage;            /* -1: not of one stage */
    int axis;             /* yoke_axis, or -1: not of one axis */
    double plan;          /* bytes; bubble: a share */
    double published;     /* the same by the formula; NaN where there is none */
    const char *formula;  /* "" where there is none */
    const char *source;   /* who published it, or "" */
} yoke_published;

typedef struct yoke_published_request {
    const yoke_program_set *set;
    const yoke_policies *policies;
    const char *recompute, *dtype, *reduce_dtype; /* keys of the config; types NULL: f32 */
    yoke_arena *arena;                            /* for the rows and their texts */
} yoke_published_request;

typedef struct yoke_published_list {
    yoke_plan_measures measures;
    yoke_published *row;
    int64_t n, capacity;
} yoke_published_list;

yoke_published_list yoke_published_build(const yoke_published_request *request);

#endif
