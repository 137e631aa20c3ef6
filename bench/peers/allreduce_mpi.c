/*
 * MPI's all_reduce, for bench/allreduce: `mpiexec -n RANKS allreduce_mpi BYTES REPEATS` prints the median time in seconds of
 * one all_reduce of floats in place, as the slowest rank saw each. Stands on MPI alone, and on nothing of yoke.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(float *data, int n, double *times, int n_times)
{
    for (int i = 0; i < n_times; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start_s = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = MPI_Wtime() - start_s;
    }
}

int main(int argc, char **argv)
{
    int rank;
    long bytes = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long n_times = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (bytes < 4 || bytes > (1L << 32) || n_times < 1 || n_times > 1000000) {
        fprintf(stderr, "usage: allreduce_mpi BYTES REPEATS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    float *data = calloc((size_t)bytes, 1);
    double *times = malloc(sizeof *times * (size_t)n_times);
    double *slowest = malloc(sizeof *slowest * (size_t)n_times);
    if (!data || !times || !slowest) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    measure(data, (int)(bytes / 4), times, (int)n_times);
    MPI_Reduce(times, slowest, (int)n_times, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(slowest, (size_t)n_times, sizeof *slowest, compare);
        printf("%.9f\n", slowest[n_times / 2]);
    }
    free(data);
    free(times);
    free(slowest);
    MPI_Finalize();
    return 0;
}
