/*
 * Random numbers without state: each is a function of a key and an index (Philox 4x32-10, Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011). Nothing is saved, nothing depends on the mesh, and any element can be drawn by any rank.
 */
#ifndef YOKE_RANDOM_H
#define YOKE_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_random_key {
    uint32_t word[2];
} yoke_random_key;

/* The key of one stream: `name` says what is drawn ("h.0.attn.dropout"), `step` and `part` (micro-batch) when. */
yoke_random_key yoke_random_stream(uint64_t seed, const char *name, int64_t step, int64_t part);

/* As yoke_random_stream with the name already hashed by yoke_random_name. */
yoke_random_key yoke_random_stream_hashed(uint64_t seed, uint64_t name_hash, int64_t step,
                                          int64_t part);
uint64_t yoke_random_name(const char *name); /* XXH64 */

uint32_t yoke_random_u32(yoke_random_key key, uint64_t index);
float yoke_random_uniform(yoke_random_key key, uint64_t index); /* in [0, 1), multiples of 2^-24 */
float yoke_random_normal(yoke_random_key key, uint64_t index); /* mean 0, deviation 1; Box-Muller */

/* A permutation of [0, n) given by its key: where element `index` goes. Cycle-walking Feistel network. */
uint64_t yoke_random_permute(yoke_random_key key, uint64_t n, uint64_t index);

#ifdef __cplusplus
}
#endif
#endif
