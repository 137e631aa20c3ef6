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
 *   f feed-forward width   v vocabulary   p positions   e experts   c slots of an expert
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

typedef enum yoke_dtype { YOKE_F32, YOKE_I32, YOKE_BF16 } yoke_dtype;

static inline int64_t yoke_dtype_bytes(yoke_dtype dtype)
{
    return dtype == YOKE_BF16 ? 2 : 4;
}

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

/* Mixture of experts. The router's logits are [b,t,r]: experts have a letter of their own there, since
 * an axis that divides them by `e` leaves the router whole. */

/* A token's way: weights of the experts that it chose, 0 for the others; the softmax over all
 * experts, for the balance loss; how many it chose. */
typedef struct yoke_routing {
    yoke_value gates, probabilities; /* [b,t,r] */
    int64_t n_chosen;
} yoke_routing;

/* Gates: the softmax over the `n_chosen` largest logits of each token, ties to the lower expert. */
yoke_routing yoke_router(yoke_graph *graph, yoke_value logits, int64_t n_chosen);

/* The place of each token in the slots of each expert, in the order of its sequence; -1 if it has not
 * chosen it, or finds all taken. [b,t,r]. An expert has `capacity_factor` times its equal share of a
 * sequence's choices, rounded up, or a slot for each token if that is 0 or would be more: this sets
 * the letter c. */
yoke_value yoke_expert_slots(yoke_graph *graph, const yoke_routing *routing,
                             double capacity_factor);

/* The tokens x [b,t,d] in their slots, 0 in empty ones: [e,b,c,d]; and back, each token the sum of
 * its experts' results o [e,b,c,d] weighted by its gates: [b,t,d]. */
yoke_value yoke_expert_dispatch(yoke_graph *graph, yoke_value x, yoke_value slots);
yoke_value yoke_expert_combine(yoke_graph *graph, yoke_value o, yoke_value slots, yoke_value gates);

/* Losses beside the model's result, for training, a token: coefficient times the balance loss of a
 * layer (n_chosen where its experts are equally busy), and times log(sum(exp(logits)))^2. The first also
 * counts the tokens of each expert for the metrics, with a coefficient of 0 too. */
void yoke_expert_balance(yoke_graph *graph, const yoke_routing *routing, float coefficient);
void yoke_router_z_loss(yoke_graph *graph, yoke_value logits, float coefficient);

/* Multiplies elements by random numbers even in [1 - epsilon, 1 + epsilon); `name` keys them. */
yoke_value yoke_jitter(yoke_graph *graph, const char *name, yoke_value a, float epsilon);

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
