/*
 * Masks: which tokens of a sequence are to be found, and what stands in their place.
 */
#ifndef YOKE_DATA_MASK_H
#define YOKE_DATA_MASK_H

#include "yoke/data.h"
#include "yoke/random.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_masked {
    int32_t seen;  /* by the model */
    int32_t label; /* the token if it is to be found, else -1 */
} yoke_masked;

/* The key of the masks of one sample of a run. */
yoke_random_key yoke_mask_key(const yoke_sampler *sampler, int64_t sample);

/* What becomes of the token at index `t` of that sample. */
yoke_masked yoke_mask_apply(const yoke_sampler *sampler, yoke_random_key key, int64_t t,
                            int32_t token);

#ifdef __cplusplus
}
#endif
#endif
