/*
 * Arenas, blocks and mappings: see memory.h for what they are for.
 *
 * Relies on mmap with lazily touched pages; an arena is one private mapping whose first bytes are its own header. It does
 * not limit anything: what a run may use is decided by the plan, before any of this is called.
 */
/* MAP_ANONYMOUS and MAP_NORESERVE are not in POSIX. */
#define _DEFAULT_SOURCE
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/text.h"

enum { ALIGNMENT = 64 };

static const size_t default_reserve_bytes = (size_t)8 << 30;

struct yoke_arena {
    size_t reserved_bytes; /* of the mapping, this header included */
    size_t used_bytes;     /* likewise */
};

/*
 * The one mutable variable of the library, and of no effect on what anything computes: tests read it to see that the
 * step loop asks for nothing. By thread, because ranks may be threads.
 */
static _Thread_local int64_t n_requests;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *map_pages(size_t bytes, int sharing)
{
    n_requests++;
    void *start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static yoke_status mapping_error(const char *what, size_t bytes)
{
    char asked[16];
    char available[16];
    int error = errno;
    yoke_text_bytes((double)bytes, asked, sizeof asked);
    yoke_text_bytes((double)yoke_memory_available_bytes(), available, sizeof available);
    return YOKE_FAIL(YOKE_NO_MEMORY,
                     "cannot map %s for %s: %s; %s of memory are available; raise the limit of "
                     "address space (ulimit -v), or use more ranks or a smaller model",
                     asked, what, strerror(error), available);
}

yoke_status yoke_arena_create(yoke_arena **arena, size_t reserve_bytes)
{
    *arena = NULL;
    size_t wanted = reserve_bytes ? reserve_bytes : default_reserve_bytes;
    YOKE_ASSERT(wanted < SIZE_MAX / 2);
    size_t header = round_up(sizeof(yoke_arena), ALIGNMENT);
    size_t bytes = round_up(wanted + header, page_bytes());
    yoke_arena *made = map_pages(bytes, MAP_PRIVATE);
    if (!made) {
        return mapping_error("an arena", bytes);
    }
    *made = (yoke_arena){.reserved_bytes = bytes, .used_bytes = header};
    *arena = made;
    return YOKE_OK;
}

void yoke_arena_destroy(yoke_arena *arena)
{
    if (arena) {
        (void)munmap(arena, arena->reserved_bytes);
    }
}

void *yoke_arena_alloc(yoke_arena *arena, size_t bytes)
{
    n_requests++;
    YOKE_ASSERT(bytes <= arena->reserved_bytes - arena->used_bytes);
    char *piece = (char *)arena + arena->used_bytes;
    size_t used = round_up(arena->used_bytes + bytes, ALIGNMENT);
    /* Pages are multiples of the alignment, so rounding up cannot pass the end. */
    arena->used_bytes = used;
    return piece;
}

char *yoke_arena_print(yoke_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    YOKE_ASSERT(length >= 0);
    char *text = yoke_arena_alloc(arena, (size_t)length + 1);
    (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *yoke_arena_copy_text(yoke_arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(yoke_arena_alloc(arena, bytes), text, bytes);
}

size_t yoke_arena_bytes(const yoke_arena *arena)
{
    return arena->used_bytes - round_up(sizeof(yoke_arena), ALIGNMENT);
}

void *yoke_arena_grow(yoke_arena *arena, void *array, int64_t n, int64_t *capacity,
                      size_t element_bytes)
{
    YOKE_ASSERT(n >= 0 && n <= *capacity);
    if (n < *capacity) {
        return array;
    }
    int64_t doubled = *capacity < 4 ? 8 : *capacity * 2;
    YOKE_ASSERT(element_bytes > 0 && (uint64_t)doubled <= SIZE_MAX / 2 / element_bytes);
    void *larger = yoke_arena_alloc(arena, (size_t)doubled * element_bytes);
    if (n > 0) {
        memcpy(larger, array, (size_t)n * element_bytes);
    }
    *capacity = doubled;
    return larger;
}

void *yoke_block_alloc(size_t bytes)
{
    n_requests++;
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t rounded = bytes ? round_up(bytes, ALIGNMENT) : ALIGNMENT;
    void *block = aligned_alloc(ALIGNMENT, rounded);
    return block ? memset(block, 0, rounded) : NULL;
}

void yoke_block_free(void *block)
{
    free(block);
}

yoke_status yoke_mapping_create(void **start, size_t bytes, bool shared)
{
    *start = NULL;
    YOKE_ASSERT(bytes < SIZE_MAX / 2);
    size_t rounded = round_up(bytes ? bytes : 1, page_bytes());
    *start = map_pages(rounded, shared ? MAP_SHARED : MAP_PRIVATE);
    return *start ? YOKE_OK : mapping_error(shared ? "shared pages" : "private pages", rounded);
}

void yoke_mapping_destroy(void *start, size_t bytes)
{
    if (start) {
        (void)munmap(start, round_up(bytes ? bytes : 1, page_bytes()));
    }
}

int64_t yoke_memory_requests(void)
{
    return n_requests;
}
