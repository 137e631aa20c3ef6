/*
 * Philox 4x32-10: 128 bits of counter and 64 bits of key in, 128 random bits out (Salmon et al., SC 2011).
 *
 * Inline, because kernels draw millions. It holds no state; which counter means which element is random.c's business.
 */
#ifndef YOKE_BASE_PHILOX_H
#define YOKE_BASE_PHILOX_H

#include <stdint.h>
#include "yoke/random.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_philox_block {
    uint32_t word[4];
} yoke_philox_block;

static inline yoke_philox_block yoke_philox(yoke_philox_block counter, yoke_random_key key)
{
    uint32_t *c = counter.word;
    for (int round = 0; round < 10; round++) {
        uint64_t low = (uint64_t)0xD2511F53u * c[0];
        uint64_t high = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t c0 = (uint32_t)(high >> 32) ^ c[1] ^ key.word[0];
        uint32_t c2 = (uint32_t)(low >> 32) ^ c[3] ^ key.word[1];
        c[1] = (uint32_t)high;
        c[3] = (uint32_t)low;
        c[0] = c0;
        c[2] = c2;
        key.word[0] += 0x9E3779B9u;
        key.word[1] += 0xBB67AE85u;
    }
    return counter;
}

/* The block that holds words 4 `block` to 4 `block` + 3 of a stream, as yoke_random_u32 numbers them. */
static inline yoke_philox_block yoke_philox_words(yoke_random_key key, uint64_t block)
{
    yoke_philox_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), 0, 0}};
    return yoke_philox(counter, key);
}

#ifdef __cplusplus
}
#endif
#endif
