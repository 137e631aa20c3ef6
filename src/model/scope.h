/*
 * Scope: the tensors of one layer, under the prefix of their names, so that a model reads as
 * formulas.
 */
#ifndef YOKE_MODEL_SCOPE_H
#define YOKE_MODEL_SCOPE_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_scope {
    yoke_graph *graph;
    bool training;
    char root[16];  /* of parameters, "transformer." */
    char block[32]; /* of parameters and dropout sites, "h.3." */
} yoke_scope;

/* Parameters are called root, block and then `name`. */
yoke_value yoke_scope_weight(const yoke_scope *scope, const char *name, const char *dims,
                             float deviation);
yoke_value yoke_scope_bias(const yoke_scope *scope, const char *name, const char *dims);
yoke_value yoke_scope_gain(const yoke_scope *scope, const char *name, const char *dims);

/* Sites are called block and then `name`. Dropout and jitter are the identity outside training and at rate
 * 0. */
yoke_value yoke_scope_dropout(const yoke_scope *scope, const char *name, yoke_value a, float rate);
yoke_value yoke_scope_jitter(const yoke_scope *scope, const char *name, yoke_value a,
                             float epsilon);
yoke_value yoke_scope_attention(const yoke_scope *scope, const char *name, const yoke_value qkv[3],
                                float rate, bool causal);

#ifdef __cplusplus
}
#endif
#endif
