/*
 * Measures of a plan: what the programs of all ranks hold and move, added up in the parts of which
 * the literature speaks.
 *
 * Relies on programs that have been planned. It runs nothing, and knows no formula: those are in
 * published.h.
 */
#ifndef YOKE_SIM_MEASURE_H
#define YOKE_SIM_MEASURE_H

#include "program/program.h"

/* X(enumerator, name, help): parts of what is moved in a step. */
#define YOKE_TRAFFIC_LIST(X)                                                                       \
    X(LAYERS, layers, "activations and their gradients, inside the layers")                        \
    X(PARAMS, params, "parameters and their gradients")                                            \
    X(BOUNDARIES, boundaries, "activations and their gradients, from stage to stage")              \
    X(REST, rest, "embedding, head, loss, norm")

typedef enum yoke_traffic {
#define YOKE_TRAFFIC_ENUM(upper, lower, help) YOKE_TRAFFIC_##upper,
    YOKE_TRAFFIC_LIST(YOKE_TRAFFIC_ENUM)
#undef YOKE_TRAFFIC_ENUM
        YOKE_N_TRAFFICS
} yoke_traffic;

/* Memory of the fullest rank of a stage, bytes, each number for itself. */
typedef struct yoke_stage_bytes {
    double kind[YOKE_N_BUFFER_KINDS];
    double state;       /* parameters, also those gathered for the step; gradients, optimizer */
    double layer_stash; /* most that is kept at once of activations for the backward of layers */
} yoke_stage_bytes;

typedef struct yoke_plan_measures {
    yoke_stage_bytes *stage;                    /* [n_stages] */
    double moved[YOKE_N_AXES][YOKE_N_TRAFFICS]; /* bytes received in a step, all ranks */
} yoke_plan_measures;

yoke_plan_measures yoke_plan_measure(const yoke_program_set *set, yoke_arena *arena);

/* Bytes received along an axis in a step, all parts together. */
double yoke_plan_moved(const yoke_plan_measures *measures, yoke_axis axis);

/* [blocks] true for the layers of the model: blocks that attend. In the arena. */
const bool *yoke_plan_layers(const yoke_graph *graph, yoke_arena *arena);

#endif
