/*
 * Which of 16 neighbours dropout keeps: the numbers of yoke_random_uniform, four from each Philox block.
 */
#ifndef YOKE_KERNEL_VECTOR_RANDOM_H
#define YOKE_KERNEL_VECTOR_RANDOM_H

#include "base/philox.h"
#include "kernel/vector/vector.h"

typedef struct dropout {
    yoke_random_key key;
    float rate;
    float scale; /* 1 / (1 - rate) */
} dropout;

static inline dropout dropout_get(const yoke_kernel_call *call)
{
    return (dropout){
        .key = yoke_random_stream_hashed(call->seed, call->attributes->site, call->step,
                                         call->microbatch),
        .rate = call->attributes->rate,
        .scale = (float)(1.0 / (1.0 - (double)call->attributes->rate)),
    };
}

/* What the elements with the indices [first, first + 16) are multiplied by: 0 or the scale. */
static inline lanes dropout_keep(const dropout *d, uint64_t first)
{
    float keep[LANES + 4];
    int skip = (int)(first & 3);
    for (int block = 0; block < LANES / 4 + (skip > 0); block++) {
        yoke_philox_block words = yoke_philox_words(d->key, (first >> 2) + (uint64_t)block);
        for (int i = 0; i < 4; i++) {
            float uniform = (float)(int32_t)(words.word[i] >> 8) * 0x1p-24f;
            keep[block * 4 + i] = uniform >= d->rate ? d->scale : 0.0f;
        }
    }
    return lanes_load(keep + skip);
}

static inline vec vec_drop(vec keep, vec a)
{
    return vec_select((vec_bits)(keep > vec_set(0.0f)), a * keep, vec_set(0.0f));
}

/* a keep, and 0 where it is dropped whatever a is. */
static inline lanes dropout_apply(lanes keep, lanes a)
{
    a.low = vec_drop(keep.low, a.low);
    IF_TWO(a.high = vec_drop(keep.high, a.high);)
    return a;
}

#endif
