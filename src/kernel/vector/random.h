/*
 * Random numbers of 16 neighbours: those of yoke_random_uniform, four from each Philox block; and which dropout keeps.
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

/* The numbers of yoke_random_uniform for the indices [first, first + 16). */
static inline lanes lanes_uniform(yoke_random_key key, uint64_t first)
{
    float uniform[LANES + 4];
    int skip = (int)(first & 3);
    for (int block = 0; block < LANES / 4 + (skip > 0); block++) {
        yoke_philox_block words = yoke_philox_words(key, (first >> 2) + (uint64_t)block);
        for (int i = 0; i < 4; i++) {
            uniform[block * 4 + i] = (float)(int32_t)(words.word[i] >> 8) * 0x1p-24f;
        }
    }
    return lanes_load(uniform + skip);
}

static inline vec vec_keep(vec uniform, float rate, float scale)
{
    return vec_select((vec_bits)(uniform >= vec_set(rate)), vec_set(scale), vec_set(0.0f));
}

/* What the elements with the indices [first, first + 16) are multiplied by: 0 or the scale. */
static inline lanes dropout_keep(const dropout *d, uint64_t first)
{
    lanes keep = lanes_uniform(d->key, first);
    keep.low = vec_keep(keep.low, d->rate, d->scale);
    IF_TWO(keep.high = vec_keep(keep.high, d->rate, d->scale);)
    return keep;
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
