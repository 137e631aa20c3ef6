/*
 * all_reduce through the local transport: 4 KB to 64 MB over 2, 4 and 8 ranks as processes.
 *
 * Prints the median time of one all_reduce over all repetitions, as the slowest rank saw it, and the
 * rate at which each rank's buffer was reduced. Arguments: the largest size in MB (64).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transport/transport.h"

enum { MOST_RANKS = 8, LEAST_BYTES = 4096, MOST_REPEATS = 201 };

typedef struct trial {
    size_t bytes;
    int repeats;
    float *data;    /* [ranks][bytes] */
    double *time_s; /* [ranks][MOST_REPEATS] */
} trial;

static yoke_status reduce_again(yoke_endpoint *endpoint, void *user)
{
    const trial *t = user;
    size_t rank = (size_t)yoke_endpoint_rank(endpoint);
    yoke_transfer barrier = {.kind = YOKE_TRANSFER_BARRIER};
    yoke_transfer reduce = {.kind = YOKE_TRANSFER_ALL_REDUCE_SUM,
                            .elements = (int64_t)(t->bytes / sizeof(float)),
                            .out = t->data + rank * (t->bytes / sizeof(float))};
    yoke_request request;
    memset(reduce.out, 0, t->bytes);
    for (int i = 0; i < t->repeats; i++) {
        YOKE_TRY(yoke_transfer_start(endpoint, &barrier, &request));
        YOKE_TRY(yoke_transfer_wait(endpoint, &request));
        double start_s = yoke_clock_s();
        YOKE_TRY(yoke_transfer_start(endpoint, &reduce, &request));
        YOKE_TRY(yoke_transfer_wait(endpoint, &request));
        t->time_s[rank * MOST_REPEATS + (size_t)i] = yoke_clock_s() - start_s;
    }
    return YOKE_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_s(const trial *t, int n_ranks)
{
    double slowest[MOST_REPEATS];
    for (int i = 0; i < t->repeats; i++) {
        slowest[i] = 0;
        for (int r = 0; r < n_ranks; r++) {
            double time_s = t->time_s[r * MOST_REPEATS + i];
            slowest[i] = time_s > slowest[i] ? time_s : slowest[i];
        }
    }
    qsort(slowest, (size_t)t->repeats, sizeof slowest[0], compare);
    return slowest[t->repeats / 2];
}

static yoke_status measure(int n_ranks, size_t most_bytes)
{
    static const int all[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int *groups[] = {all};
    size_t data_bytes = (size_t)n_ranks * most_bytes;
    yoke_world_options options = {.n_ranks = n_ranks,
                                  .n_groups = 1,
                                  .group_size = &n_ranks,
                                  .group_ranks = groups,
                                  .user_bytes =
                                      data_bytes + sizeof(double) * MOST_RANKS * MOST_REPEATS};
    yoke_world *world;
    YOKE_TRY(yoke_world_create(&options, &world));
    char *memory = yoke_world_user(world);
    yoke_status status = YOKE_OK;
    for (size_t bytes = LEAST_BYTES; bytes <= most_bytes && !status; bytes *= 4) {
        size_t fitting = ((size_t)256 << 20) / bytes;
        trial t = {.bytes = bytes,
                   .repeats = fitting > MOST_REPEATS ? MOST_REPEATS : (int)fitting + 3,
                   .data = (float *)(void *)memory,
                   .time_s = (double *)(void *)(memory + data_bytes)};
        yoke_rank_report reports[MOST_RANKS];
        yoke_launch launch = {.run = reduce_again, .user = &t};
        status = yoke_world_launch(world, &launch, reports);
        double time_s = status ? 0 : median_s(&t, n_ranks);
        printf("%5d %10zu %12.1f %10.2f\n", n_ranks, bytes, time_s * 1e6,
               time_s > 0 ? (double)bytes / time_s * 1e-9 : 0.0);
    }
    yoke_world_destroy(world);
    return status;
}

int main(int argc, char **argv)
{
    long most_mb = argc > 1 ? strtol(argv[1], NULL, 10) : 64;
    if (most_mb < 1 || most_mb > 4096) {
        fprintf(stderr, "usage: allreduce [LARGEST_MB]; 1 to 4096\n");
        return 2;
    }
    printf("%5s %10s %12s %10s\n", "ranks", "bytes", "us", "GB/s");
    for (int n_ranks = 2; n_ranks <= MOST_RANKS; n_ranks *= 2) {
        yoke_status status = measure(n_ranks, (size_t)most_mb << 20);
        if (status) {
            fprintf(stderr, "%s\n", yoke_status_message(status));
            yoke_status_free(status);
            return 1;
        }
    }
    return 0;
}
