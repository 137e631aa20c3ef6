/*
 * The threads of a rank's kernels, and how fast they multiply.
 */
#include "kernel/kernel.h"

#include "base/clock.h"
#include "base/float.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

void yoke_kernel_threads_set(int n_threads)
{
    YOKE_ASSERT(n_threads >= 1);
    yoke_float_flush_denormals();
#if defined(_OPENMP)
    omp_set_num_threads(n_threads);
    /* Threads of an earlier, larger team may have been made before this thread flushed denormals. */
#pragma omp parallel
    yoke_float_flush_denormals();
#endif
}

int yoke_kernel_threads_get(void)
{
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

double yoke_kernel_matmul_rate(int64_t n, double seconds, float *scratch)
{
    yoke_kernel chosen[YOKE_N_OPS];
    yoke_status status = yoke_kernel_choose(NULL, chosen);
    YOKE_ASSERT(!status);
    for (int64_t i = 0; i < 3 * n * n; i++) {
        scratch[i] = (float)(i % 7) - 3.0f;
    }
    yoke_shard square = {.n_dims = 2, .extent = {n, n}};
    yoke_tensor in[2] = {{.data = scratch, .shard = square},
                         {.data = scratch + n * n, .shard = square}};
    yoke_tensor out = {.data = scratch + 2 * n * n, .shard = square};
    yoke_attributes attributes = {.contraction = {.a_split = 1, .b_split = 1}};
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .attributes = &attributes};
    double flops = 2.0 * (double)n * (double)n * (double)n;
    double best_s = 0.0;
    double end_s = yoke_clock_s() + seconds;
    /* The first products warm up threads and caches; the best of all is the machine's rate. */
    do {
        double start_s = yoke_clock_s();
        chosen[YOKE_OP_MATMUL](&call);
        double taken_s = yoke_clock_s() - start_s;
        best_s = best_s > 0.0 && best_s < taken_s ? best_s : taken_s;
    } while (yoke_clock_s() < end_s);
    return best_s > 0.0 ? flops / best_s : 0.0;
}
