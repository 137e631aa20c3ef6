/*
 * all_reduce through the local transport: 4 KB to 64 MB over 2, 4 and 8 ranks as processes; beside it, in turn, the same by
 * MPI where it was there when this was built (bench/peers/allreduce_mpi.c).
 *
 *     build/release/bench/allreduce [LARGEST_MB] [ROUNDS]        64 and 5 unless given
 *
 * A round is the median time over many repetitions, as the slowest rank saw each; what is printed is the median of the
 * rounds, with the rate at which each rank's buffer was reduced, and MPI's time as a multiple of it.
 */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/config_keys.h"
#include "run/placement.h"
#include "transport/transport.h"

enum { MOST_RANKS = 8, LEAST_BYTES = 4096, MOST_REPEATS = 201, MOST_ROUNDS = 99, MOST_MB = 4096 };

typedef struct trial {
    const yoke_placement *placement;
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
    yoke_placement_bind(t->placement, yoke_endpoint_rank(endpoint));
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

static int repeats_of(size_t bytes)
{
    size_t fitting = ((size_t)256 << 20) / bytes;
    return fitting > MOST_REPEATS - 3 ? MOST_REPEATS : (int)fitting + 3;
}

/* A world of `n_ranks` with room for `bytes` of each. */
static yoke_status make_world(int n_ranks, size_t bytes, yoke_world **world)
{
    static const int all[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int *groups[] = {all};
    yoke_world_options options = {.n_ranks = n_ranks,
                                  .n_groups = 1,
                                  .group_size = &n_ranks,
                                  .group_ranks = groups,
                                  .user_bytes = (size_t)n_ranks * bytes +
                                                sizeof(double) * MOST_RANKS * MOST_REPEATS};
    return yoke_world_create(&options, world);
}

static yoke_status measure_placed(const yoke_placement *placement, int n_ranks, size_t bytes,
                                  double *seconds)
{
    yoke_world *world;
    YOKE_TRY(make_world(n_ranks, bytes, &world));
    char *memory = yoke_world_user(world);
    trial t = {.placement = placement,
               .bytes = bytes,
               .repeats = repeats_of(bytes),
               .data = (float *)(void *)memory,
               .time_s = (double *)(void *)(memory + (size_t)n_ranks * bytes)};
    yoke_rank_report reports[MOST_RANKS];
    yoke_launch launch = {.run = reduce_again, .user = &t};
    yoke_status status = yoke_world_launch(world, &launch, reports);
    *seconds = status ? 0 : median_s(&t, n_ranks);
    yoke_world_destroy(world);
    return status;
}

static yoke_status measure_ours(int n_ranks, size_t bytes, double *seconds)
{
    yoke_placement *placement;
    /* As a run places its ranks; MPI does likewise. */
    YOKE_TRY(yoke_placement_create(
        &(yoke_placement_request){.wanted = "auto", .n_ranks = n_ranks, .n_threads = 1},
        &placement));
    yoke_status status = measure_placed(placement, n_ranks, bytes, seconds);
    yoke_placement_destroy(placement);
    return status;
}

/* Where the peer lies: beside this program. False if it was not built. */
static bool find_peer(const char *self, char *path, size_t path_bytes)
{
    char copy[4096];
    (void)snprintf(copy, sizeof copy, "%s", self);
    (void)snprintf(path, path_bytes, "%s/peers/allreduce_mpi", dirname(copy));
    return access(path, X_OK) == 0;
}

/* Open MPI wants to be told that it may run as root, and with more ranks than cores; others do not read this. */
static void allow_all_to_mpi(void)
{
    static const char *const names[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                        "OMPI_MCA_rmaps_base_oversubscribe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)setenv(names[i], "1", 1);
    }
}

/* 0 if MPI did not say. */
static double measure_mpi(const char *peer, int n_ranks, size_t bytes)
{
    char command[8192];
    double seconds = 0;
    (void)snprintf(command, sizeof command, "mpiexec -n %d '%s' %zu %d", n_ranks, peer, bytes,
                   repeats_of(bytes));
    (void)fflush(stdout);
    FILE *output = popen(command, "r");
    if (!output) {
        return 0;
    }
    if (fscanf(output, "%lf", &seconds) != 1) {
        seconds = 0;
    }
    return pclose(output) == 0 ? seconds : 0;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

/* One row of the table. `peer` NULL: ours alone. */
static yoke_status measure(int n_ranks, size_t bytes, int n_rounds, const char *peer)
{
    double ours[MOST_ROUNDS];
    double theirs[MOST_ROUNDS];
    for (int i = 0; i < n_rounds; i++) {
        YOKE_TRY(measure_ours(n_ranks, bytes, &ours[i]));
        theirs[i] = peer ? measure_mpi(peer, n_ranks, bytes) : 0;
    }
    double time_s = median(ours, n_rounds);
    printf("%5d %10zu %12.1f %10.2f", n_ranks, bytes, time_s * 1e6, (double)bytes / time_s * 1e-9);
    if (peer) {
        double mpi_s = median(theirs, n_rounds);
        printf(" %12.1f %8.2f", mpi_s * 1e6, mpi_s / time_s);
    }
    printf("\n");
    return YOKE_OK;
}

static yoke_status measure_all(size_t most_bytes, int n_rounds, const char *peer)
{
    for (int n_ranks = 2; n_ranks <= MOST_RANKS; n_ranks *= 2) {
        for (size_t bytes = LEAST_BYTES; bytes <= most_bytes; bytes *= 4) {
            YOKE_TRY(measure(n_ranks, bytes, n_rounds, peer));
        }
    }
    return YOKE_OK;
}

static void print_usage(void)
{
    printf("usage: allreduce [LARGEST_MB] [ROUNDS]\n\n"
           "Times all_reduce of 4 KB to LARGEST_MB, at most %d [64], over 2, 4 and 8 ranks, and "
           "prints "
           "medians of ROUNDS,\nat most %d [5]. In turn with MPI, if that was there when this was "
           "built.\n",
           MOST_MB, MOST_ROUNDS);
}

/* The number in `text`, if there is one, in place of *value. */
static yoke_status take(const char *name, const char *text, int most, int *value)
{
    int64_t n = *value;
    if (text) {
        YOKE_TRY(yoke_number_parse_int(name, text, &n));
    }
    if (n < 1 || n > most) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%s is %lld; use 1 to %d", name, (long long)n, most);
    }
    *value = (int)n;
    return YOKE_OK;
}

static yoke_status run(int argc, char **argv)
{
    char peer[4200];
    int most_mb = 64, n_rounds = 5;
    if (argc > 3) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%.80s: there are LARGEST_MB and ROUNDS; see --help",
                         argv[3]);
    }
    YOKE_TRY(take("LARGEST_MB", argc > 1 ? argv[1] : NULL, MOST_MB, &most_mb));
    YOKE_TRY(take("ROUNDS", argc > 2 ? argv[2] : NULL, MOST_ROUNDS, &n_rounds));
    bool has_peer = find_peer(argv[0], peer, sizeof peer);
    allow_all_to_mpi();
    printf("%5s %10s %12s %10s%s\n", "ranks", "bytes", "us", "GB/s",
           has_peer ? "       MPI us    ratio" : "");
    return measure_all((size_t)most_mb << 20, n_rounds, has_peer ? peer : NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        print_usage();
        return 0;
    }
    yoke_status status = run(argc, argv);
    if (status) {
        int code = yoke_status_code(status) == YOKE_BAD_INPUT ? 2 : 1;
        fprintf(stderr, "allreduce: %s\n", yoke_status_message(status));
        yoke_status_free(status);
        return code;
    }
    return 0;
}
