/*
 * Memory: the only folder that asks the system for any.
 *
 * Three kinds. An *arena* holds what is built before step 1 (graphs, programs): it reserves address space once, hands
 * out zeroed pieces that never move, and is freed whole. A *block* is one heap allocation for everything else. A
 * *mapping* is page-granular memory, private or shared with forked children: the slabs of the ranks.
 *
 * Every request through arena, block or mapping is counted, so that a test can see that the step loop makes none.
 */
#ifndef YOKE_BASE_MEMORY_H
#define YOKE_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_arena yoke_arena;

/* Reserves address space for at most `reserve_bytes` (0: 8 GiB); pages cost memory only once touched. */
yoke_status yoke_arena_create(yoke_arena **arena, size_t reserve_bytes) YOKE_MUST_USE;
void yoke_arena_destroy(yoke_arena *arena); /* NULL is fine */

/* Zeroed, aligned to 64 bytes, never NULL: running out of the reserve is an assert. */
void *yoke_arena_alloc(yoke_arena *arena, size_t bytes);
char *yoke_arena_print(yoke_arena *arena, const char *format, ...) YOKE_FORMAT(2, 3);
char *yoke_arena_copy_text(yoke_arena *arena, const char *text);
size_t yoke_arena_bytes(const yoke_arena *arena); /* handed out so far */

#define YOKE_ARENA_NEW(arena, type, count)                                                         \
    ((type *)yoke_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* Makes room for one more element in an array that lives in an arena: doubles it when `n` has reached `*capacity`. */
void *yoke_arena_grow(yoke_arena *arena, void *array, int64_t n, int64_t *capacity,
                      size_t element_bytes);

/* Heap block, zeroed, aligned to 64 bytes; NULL without memory. */
void *yoke_block_alloc(size_t bytes);
void yoke_block_free(void *block); /* NULL is fine */

/* Whole pages, zeroed on first touch. Shared ones are seen by children forked later. */
yoke_status yoke_mapping_create(void **start, size_t bytes, bool shared) YOKE_MUST_USE;
void yoke_mapping_destroy(void *start, size_t bytes); /* NULL is fine */

/* Requests made by the calling thread so far, of all three kinds. */
int64_t yoke_memory_requests(void);

/* Bytes of physical memory that a new program may hope for (MemAvailable, and the cgroup's limit where one is set). */
int64_t yoke_memory_available_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
