/*
 * The threads of a rank's kernels, and how fast they multiply.
 */
#include "kernel/kernel.h"

#include "base/float.h"
#include "kernel/product.h"
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

double yoke_kernel_matmul_rate(int64_t n, double seconds)
{
    yoke_kernel chosen[YOKE_N_OPS];
    yoke_status status = yoke_kernel_choose(NULL, chosen);
    YOKE_ASSERT(!status);
    const yoke_product_sample square = {.m = n, .n = n, .k = n};
    double taken_s = yoke_product_sample_s(&square, chosen[YOKE_OP_MATMUL], seconds);
    return taken_s > 0.0 ? 2.0 * (double)n * (double)n * (double)n / taken_s : 0.0;
}
