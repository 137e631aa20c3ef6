/*
 * Streams of random numbers over Philox.
 *
 * Word `i` of a stream is lane i % 4 of the block with counter i / 4, so four neighbours cost one block to whoever draws
 * them together. Normals come in pairs: 2k and 2k + 1 are the cosine and sine of the words 2k and 2k + 1.
 */
#include "yoke/random.h"

#include <math.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "base/philox.h"
#include "yoke/status.h"

enum {
    FEISTEL_ROUNDS = 6,
    /* Last counter word of the permutation's rounds; that of the drawn words is 0, so the two never meet. */
    FEISTEL_TAG = 1,
};

uint64_t yoke_random_name(const char *name)
{
    return XXH64(name, strlen(name), 0);
}

yoke_random_key yoke_random_stream_hashed(uint64_t seed, uint64_t name_hash, int64_t step,
                                          int64_t part)
{
    uint64_t when = (uint64_t)step;
    uint64_t which = (uint64_t)part;
    yoke_random_key key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    yoke_philox_block block = {
        {(uint32_t)name_hash, (uint32_t)(name_hash >> 32), (uint32_t)when, (uint32_t)(when >> 32)}};
    block = yoke_philox(block, key);
    /* 256 bits of input do not fit into one block: the first one's output keys the second. */
    key = (yoke_random_key){{block.word[0], block.word[1]}};
    block.word[0] = (uint32_t)which;
    block.word[1] = (uint32_t)(which >> 32);
    block = yoke_philox(block, key);
    return (yoke_random_key){{block.word[0], block.word[1]}};
}

yoke_random_key yoke_random_stream(uint64_t seed, const char *name, int64_t step, int64_t part)
{
    return yoke_random_stream_hashed(seed, yoke_random_name(name), step, part);
}

uint32_t yoke_random_u32(yoke_random_key key, uint64_t index)
{
    return yoke_philox_words(key, index >> 2).word[index & 3];
}

float yoke_random_uniform(yoke_random_key key, uint64_t index)
{
    return (float)(yoke_random_u32(key, index) >> 8) * 0x1p-24f;
}

float yoke_random_normal(yoke_random_key key, uint64_t index)
{
    yoke_philox_block block = yoke_philox_words(key, index >> 2);
    const uint32_t *pair = &block.word[index & 2];
    /* In (0, 1]: the logarithm is finite and the largest normal is 6.7. */
    double radius_word = ((double)pair[0] + 1.0) * 0x1p-32;
    double angle = (double)pair[1] * (0x1p-32 * 6.283185307179586476925);
    double radius = sqrt(-2.0 * log(radius_word));
    return (float)(radius * ((index & 1) ? sin(angle) : cos(angle)));
}

/* A permutation of [0, 4^half_bits). */
static uint64_t feistel(yoke_random_key key, int half_bits, uint64_t index)
{
    uint32_t mask = (uint32_t)((UINT64_C(1) << half_bits) - 1);
    uint32_t left = (uint32_t)(index >> half_bits) & mask;
    uint32_t right = (uint32_t)index & mask;
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        yoke_philox_block counter = {{right, 0, round, FEISTEL_TAG}};
        uint32_t mixed = left ^ (yoke_philox(counter, key).word[0] & mask);
        left = right;
        right = mixed;
    }
    return (uint64_t)left << half_bits | right;
}

uint64_t yoke_random_permute(yoke_random_key key, uint64_t n, uint64_t index)
{
    YOKE_ASSERT(index < n);
    int half_bits = 1;
    while (half_bits < 32 && n > UINT64_C(1) << (2 * half_bits)) {
        half_bits++;
    }
    /* The domain is less than four times n; walking the cycle until it is back inside [0, n) keeps a bijection. */
    do {
        index = feistel(key, half_bits, index);
    } while (index >= n);
    return index;
}
