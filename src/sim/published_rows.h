/*
 * Published formulas, from the inside: what the files that make the rows share.
 */
#ifndef YOKE_SIM_PUBLISHED_ROWS_H
#define YOKE_SIM_PUBLISHED_ROWS_H

#include "sim/published.h"

void yoke_published_add(yoke_published_list *list, yoke_arena *arena, yoke_published row);

/* Whether an axis with this policy divides the tokens of a batch, or each layer's inner part. */
bool yoke_published_divides_tokens(const yoke_policy *policy);
bool yoke_published_divides_layers(const yoke_policy *policy);

/* In how many pieces the residual stream lies. */
double yoke_published_stream_parts(const yoke_published_request *request);

/* published_stage.c */
void yoke_published_add_activations(const yoke_published_request *request,
                                    yoke_published_list *list, int stage);
void yoke_published_add_bubble(const yoke_published_request *request, yoke_published_list *list);

#endif
