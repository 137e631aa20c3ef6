/*
 * Masks: Devlin et al., "BERT", 2019, section 3.1.
 *
 * Each token has a block of random words of its own: one decides whether it is to be found, one
 * what is seen instead, one which random token. Relies on the counters of base/philox.h; the sample
 * numbers the sequences of a whole run, so that a text met again is masked anew.
 */
#include "data/mask.h"

#include "base/philox.h"

yoke_random_key yoke_mask_key(const yoke_sampler *sampler, int64_t sample)
{
    return yoke_random_stream(sampler->seed, "data.mask", sample, 0);
}

/* True for `share` of all words. */
static bool falls_below(uint32_t word, double share)
{
    return (double)word < share * 0x1p32;
}

yoke_masked yoke_mask_apply(const yoke_sampler *sampler, yoke_random_key key, int64_t t,
                            int32_t token)
{
    const yoke_masking *masking = &sampler->masking;
    yoke_philox_block drawn = yoke_philox_words(key, (uint64_t)t);
    bool never = token == masking->token || token == sampler->ignore_token;
    if (never || !falls_below(drawn.word[0], masking->rate)) {
        return (yoke_masked){.seen = token, .label = -1};
    }
    if (falls_below(drawn.word[1], 0.8)) {
        return (yoke_masked){.seen = masking->token, .label = token};
    }
    if (falls_below(drawn.word[1], 0.9)) {
        uint64_t random = (uint64_t)drawn.word[2] * (uint64_t)masking->vocab_size >> 32;
        return (yoke_masked){.seen = (int32_t)random, .label = token};
    }
    return (yoke_masked){.seen = token, .label = token};
}
