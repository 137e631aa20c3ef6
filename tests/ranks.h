/*
 * Running ranks in a test. A rank says what is wrong by returning an error; asserts of cmocka work
 * in the test's own thread only.
 */
#ifndef RANKS_H
#define RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "transport/transport.h"

enum { MOST_TEST_RANKS = 16, MOST_TEST_GROUPS = 8 };

/* Groups in an easy form. By default one group with all ranks. */
typedef struct rank_options {
    int n_ranks;
    int n_groups;
    int group_size[MOST_TEST_GROUPS];
    int group[MOST_TEST_GROUPS][MOST_TEST_RANKS];
    size_t user_bytes;
    double timeout_s;
    int n_cores;
    int depth;
} rank_options;

static inline yoke_world *open_world(const rank_options *options)
{
    static const int all[MOST_TEST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int *groups[MOST_TEST_GROUPS] = {all};
    int sizes[MOST_TEST_GROUPS] = {options->n_ranks};
    int n_groups = options->n_groups > 0 ? options->n_groups : 1;
    for (int g = 0; g < options->n_groups; g++) {
        groups[g] = options->group[g];
        sizes[g] = options->group_size[g];
    }
    yoke_world_options world_options = {.n_ranks = options->n_ranks,
                                        .n_groups = n_groups,
                                        .group_size = sizes,
                                        .group_ranks = groups,
                                        .n_cores = options->n_cores,
                                        .depth = options->depth,
                                        .timeout_s = options->timeout_s,
                                        .user_bytes = options->user_bytes};
    yoke_world *world = NULL;
    yoke_status status = yoke_world_create(&world_options, &world);
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
    return world;
}

typedef yoke_status (*rank_function)(yoke_endpoint *endpoint, void *user);

/* All ranks must end well. */
static inline void run_ranks(yoke_world *world, bool threads, rank_function run, void *user)
{
    yoke_rank_report reports[MOST_TEST_RANKS];
    yoke_launch launch = {.threads = threads, .run = run, .user = user};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
}

static inline yoke_status run_transfer(yoke_endpoint *endpoint, const yoke_transfer *transfer)
{
    yoke_request request;
    YOKE_TRY(yoke_transfer_start(endpoint, transfer, &request));
    return yoke_transfer_wait(endpoint, &request);
}

static inline yoke_status run_barrier(yoke_endpoint *endpoint, int group)
{
    return run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_BARRIER, .group = group});
}

enum { MOST = 100003 }; /* elements of a buffer */

/* What a rank contributes at an index: mantissas full of bits, so that another order of summation
 * would show, and different for each `salt`. */
static inline float value_of(int rank, int64_t index, int salt)
{
    uint32_t x = (uint32_t)index * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)salt * 977u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x >> 8) - 8388608.0f) / 65537.0f;
}

/* Rank r's buffer `which` of MOST elements, in the memory of all. */
typedef struct arena {
    int n_ranks;
    float *start;
} arena;

enum { N_BUFFERS = 2 };

static inline float *buffer_of(const arena *a, int rank, int which)
{
    return a->start + ((size_t)rank * N_BUFFERS + (size_t)which) * MOST;
}

static inline void fill(float *to, int rank, int64_t n, int salt)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = value_of(rank, i, salt);
    }
}

/* What is not written must not happen to be right. */
static inline void poison(float *out, int64_t n)
{
    memset(out, 0xff, (size_t)n * sizeof(float));
}

static inline yoke_status differs(const char *what, int rank, int64_t n, int64_t index,
                                  const float *pair)
{
    return YOKE_FAIL(YOKE_CHECK, "%s of %lld on rank %d: element %lld is %.9g, not %.9g", what,
                     (long long)n, rank, (long long)index, (double)pair[0], (double)pair[1]);
}

static inline yoke_status check_bits(const char *what, int rank, int64_t n, int64_t index,
                                     float got, float wanted)
{
    if (memcmp(&got, &wanted, sizeof got) != 0) {
        return differs(what, rank, n, index, (const float[]){got, wanted});
    }
    return YOKE_OK;
}

static inline void run_in_arena(int n_ranks, int n_cores, rank_function run)
{
    rank_options options = {.n_ranks = n_ranks,
                            .n_cores = n_cores,
                            .user_bytes = (size_t)n_ranks * N_BUFFERS * MOST * sizeof(float)};
    yoke_world *world = open_world(&options);
    arena a = {.n_ranks = n_ranks, .start = yoke_world_user(world)};
    run_ranks(world, true, run, &a);
    yoke_world_destroy(world);
}

static inline yoke_shard line(int64_t offset, int64_t extent)
{
    return (yoke_shard){.n_dims = 1, .offset = {offset}, .extent = {extent}};
}

#endif
