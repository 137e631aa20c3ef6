/*
 * Sampling: from the logits of one position to the next token.
 */
#ifndef YOKE_CLI_SAMPLE_H
#define YOKE_CLI_SAMPLE_H

#include <stdint.h>
#include "yoke/status.h"

typedef struct yoke_sampling {
    double temperature; /* 0: the likeliest token */
    int64_t top_k;      /* of the likeliest only; 0: of all */
} yoke_sampling;

/* The token at which the cumulated probability passes `uniform`, in [0, 1). `order` [n] is scratch. Of equal logits the lower
 * token comes first. YOKE_CHECK if a logit is not finite. */
yoke_status yoke_sample(const yoke_sampling *sampling, const float *logits, int32_t *order,
                        int64_t n, double uniform, int32_t *token) YOKE_MUST_USE;

#endif
