/*
 * What Llama shares with families that differ from it in the feed-forward half of a layer: rotary
 * positions, RMSNorm, attention with grouped queries, and the names of their keys.
 */
#ifndef YOKE_MODEL_LLAMA_PARTS_H
#define YOKE_MODEL_LLAMA_PARTS_H

#include "model/keys.h"
#include "model/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One model in the making. */
typedef struct yoke_llama_network {
    yoke_graph *graph;
    const yoke_model_config *config;
    yoke_value positions; /* [b,t] */
    float epsilon, theta, deviation;
    bool grouped; /* fewer key heads than query heads: they have a letter of their own, k */
} yoke_llama_network;

/* The feed-forward half of a layer, of the normed stream: [b,t,d] to [b,t,d]. */
typedef yoke_value (*yoke_llama_half)(const yoke_llama_network *net, const yoke_scope *layer,
                                      yoke_value x);

/* Sets the letters of all but what `feed_forward` has of its own, and returns the logits. */
yoke_value yoke_llama_logits(yoke_graph *graph, const yoke_model_config *config,
                             const yoke_build *build, yoke_llama_half feed_forward);

/* Refuses sizes that do not fit together, of the keys that all of these families have. */
yoke_status yoke_llama_check(const yoke_model_config *config) YOKE_MUST_USE;

/* Parameters without those of the feed-forward halves. */
int64_t yoke_llama_n_parameters(const yoke_model_config *config);

int64_t yoke_llama_vocab_size(const yoke_model_config *config);
int64_t yoke_llama_max_tokens(const yoke_model_config *config);

#ifdef __cplusplus
}
#endif
#endif
