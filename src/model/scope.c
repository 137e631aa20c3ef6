/*
 * Scope: joins names and passes on to the builders of yoke/graph.h.
 */
#include "model/scope.h"

#include <stdio.h>

enum { NAME_BYTES = 128 };

static const char *parameter_name(const yoke_scope *scope, const char *name, char *full)
{
    int length = snprintf(full, NAME_BYTES, "%s%s%s", scope->root, scope->block, name);
    YOKE_ASSERT(length > 0 && length < NAME_BYTES);
    return full;
}

static const char *site_name(const yoke_scope *scope, const char *name, char *full)
{
    int length = snprintf(full, NAME_BYTES, "%s%s", scope->block, name);
    YOKE_ASSERT(length > 0 && length < NAME_BYTES);
    return full;
}

yoke_value yoke_scope_weight(const yoke_scope *scope, const char *name, const char *dims,
                             float deviation)
{
    char full[NAME_BYTES];
    return yoke_weight(scope->graph, parameter_name(scope, name, full), dims, deviation);
}

yoke_value yoke_scope_bias(const yoke_scope *scope, const char *name, const char *dims)
{
    char full[NAME_BYTES];
    return yoke_bias(scope->graph, parameter_name(scope, name, full), dims);
}

yoke_value yoke_scope_gain(const yoke_scope *scope, const char *name, const char *dims)
{
    char full[NAME_BYTES];
    return yoke_gain(scope->graph, parameter_name(scope, name, full), dims);
}

yoke_value yoke_scope_dropout(const yoke_scope *scope, const char *name, yoke_value a, float rate)
{
    char full[NAME_BYTES];
    if (!scope->training || rate <= 0.0f) {
        return a;
    }
    return yoke_dropout(scope->graph, site_name(scope, name, full), a, rate);
}

yoke_value yoke_scope_jitter(const yoke_scope *scope, const char *name, yoke_value a, float epsilon)
{
    char full[NAME_BYTES];
    if (!scope->training || epsilon <= 0.0f) {
        return a;
    }
    return yoke_jitter(scope->graph, site_name(scope, name, full), a, epsilon);
}

yoke_value yoke_scope_attention(const yoke_scope *scope, const char *name, const yoke_value qkv[3],
                                float rate, bool causal)
{
    char full[NAME_BYTES];
    return yoke_attention(scope->graph, site_name(scope, name, full), qkv,
                          scope->training ? rate : 0.0f, causal);
}
