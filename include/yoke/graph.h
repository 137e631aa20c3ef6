/*
 * Graph: a training step written once, as if for one device.
 *
 * A value is a tensor whose dims are different letters ("btd"); each letter has one extent in a
 * graph. A node applies an operator to values; the loss must depend on each. Model code calls the
 * builders below and reads as formulas: they return value ids, never a status. The graph keeps the
 * first error, and yoke_graph_finish reports it. There is no rank, axis or collective here.
 *
 * The letters (a model may use others, which no axis will shard):
 *   b batch   t tokens   s key tokens   d width   h query heads   k key/value heads   x head width
 *   f feed-forward width   v vocabulary   p positions
 *
 * A graph describes one micro-batch forward and backward, and what surrounds it once a step. Local;
 * one thread.
 */
#ifndef YOKE_GRAPH_H
#define YOKE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "yoke/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_graph yoke_graph;
typedef int yoke_value; /* id in its graph; YOKE_NO_VALUE after an error */

enum { YOKE_NO_VALUE = -1 };

typedef enum yoke_dtype { YOKE_F32, YOKE_I32 } yoke_dtype;

yoke_status yoke_graph_create(yoke_graph **graph) YOKE_MUST_USE;
void yoke_graph_destroy(yoke_graph *graph); /* NULL is fine */

/* Says that the letter has this extent in the graph: at least 1, once a letter. */
void yoke_letter(yoke_graph *graph, char letter, int64_t extent);

/* Starts the next block: the unit that a pipeline cut keeps whole. Nodes made from here on belong
 * to it; those made before any are a block of their own, "model". */
void yoke_block(yoke_graph *graph, const char *format, ...) YOKE_FORMAT(2, 3);

/* Inputs, filled for each micro-batch. Known names: "tokens" and "labels" (label -1: does not
 * count), "positions" (index in the sequence) and "token_types" (0: the only segment), all int32
 * [b, t]. */
yoke_value yoke_input(yoke_graph *graph, const char *name, const char *dims);

/* Parameters. The initial value is a function of (seed, name, element index). */
yoke_value yoke_weight(yoke_graph *graph, const char *name, const char *dims,
                       float deviation);                                     /* normal; decays */
yoke_value yoke_bias(yoke_graph *graph, const char *name, const char *dims); /* 0; no decay */
yoke_value yoke_gain(yoke_graph *graph, const char *name, const char *dims); /* 1; no decay */

/* Says that training leaves a parameter as it is: it has no gradient, no moments and no update. One
 * at least must be left to train. */
void yoke_freeze(yoke_graph *graph, yoke_value parameter);

/* Operators. Shapes are given by letters; the sources of the formulas stand in src/op/. */

/* "vd,bt->btd" rows of a table. */
yoke_value yoke_embedding(yoke_graph *graph, yoke_value table, yoke_value ids);

/* Einstein sum of two operands, such as "btd,dhx->bthx": letters shared and not in the output are
 * summed. Letters with which both and the output begin are products of their own: "ebcd,efd->ebcf". */
yoke_value yoke_matmul(yoke_graph *graph, const char *rule, yoke_value a, yoke_value b);

/* a + bias, whose dims are the last dims of a. */
yoke_value yoke_add_bias(yoke_graph *graph, yoke_value a, yoke_value bias);

/* a + b of equal dims: the residual stream. */
yoke_value yoke_add(yoke_graph *graph, yoke_value a, yoke_value b);

/* Normalises over the last dim. */
yoke_value yoke_layer_norm(yoke_graph *graph, yoke_value a, yoke_value gain, yoke_value bias,
                           float epsilon);
yoke_value yoke_rms_norm(yoke_graph *graph, yoke_value a, yoke_value gain, float epsilon);

/* Rotary embedding of [b,t,heads,x] at int32 positions [b,t]; HuggingFace's halves rotated. */
yoke_value yoke_rope(yoke_graph *graph, yoke_value a, yoke_value positions, float base);

/* Attention of q [b,t,h,x] over k and v [b,t,h,x] or, with grouped queries, [b,t,k,x]; scale
 * 1/sqrt(x). A token sees those up to itself if causal, else all. Probabilities are dropped with
 * `rate` at the site `name`. */
yoke_value yoke_attention(yoke_graph *graph, const char *name, const yoke_value qkv[3], float rate,
                          bool causal);

yoke_value yoke_gelu(yoke_graph *graph, yoke_value a);                     /* tanh form */
yoke_value yoke_gelu_erf(yoke_graph *graph, yoke_value a);                 /* exact */
yoke_value yoke_swiglu(yoke_graph *graph, yoke_value gate, yoke_value up); /* silu(gate) * up */

/* Zeroes elements with probability `rate` and scales the rest by 1/(1-rate); `name` keys the random
 * numbers. */
yoke_value yoke_dropout(yoke_graph *graph, const char *name, yoke_value a, float rate);

/* Mean over the valid labels of the whole step of -log softmax(logits)[label]; logits [b,t,v],
 * labels [b,t]. The model's result. */
yoke_value yoke_cross_entropy(yoke_graph *graph, yoke_value logits, yoke_value labels);

/* The first error of the builders, or YOKE_OK. */
yoke_status yoke_graph_finish(yoke_graph *graph) YOKE_MUST_USE;

/* One line a node: name, rule, layouts if inferred. */
void yoke_graph_print(const yoke_graph *graph, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
