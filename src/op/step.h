/*
 * What surrounds the micro-batches once a step: the graph's side, implemented in src/graph/step.c.
 */
#ifndef YOKE_OP_STEP_H
#define YOKE_OP_STEP_H

#include "op/node.h"

/* A node of one operand in the head of the step, with a scalar result; an input operand makes it a
 * sum over micro-batches. */
yoke_value yoke_step_head(yoke_graph *graph, yoke_op op, yoke_value a);

/* Declares the loss of the graph: `total`, a sum over a micro-batch's tokens, accumulates over the
 * step, and is worth `total * share`. Keeps both for autodiff; `n_valid` is kept for whoever asks.
 * Returns the loss. */
yoke_value yoke_step_loss(yoke_graph *graph, yoke_value total, yoke_value share,
                          yoke_value n_valid);

/* Declares a loss beside that one, before it: `total`, a sum over a micro-batch's tokens as well,
 * which the same share divides. */
void yoke_step_auxiliary_loss(yoke_graph *graph, yoke_value total);

/* Declares what the experts of a layer did in a micro-batch: tokens for each, [experts], in all
 * layers the same. Accumulates over the step. */
void yoke_step_expert_load(yoke_graph *graph, yoke_value load);

#endif
