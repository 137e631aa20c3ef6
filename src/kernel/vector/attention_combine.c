/*
 * Joins what attention made of two pieces of the keys; ref/attention_combine.c says how. Rows are dealt to the threads.
 */
#include "kernel/vector/real.h"

/* What the two pieces are multiplied by. Returns the lse of both. */
static float shares_get(float lse1, float lse2, float share[2])
{
    double max = (double)(lse1 > lse2 ? lse1 : lse2);
    if (lse1 == -INFINITY && lse2 == -INFINITY) {
        share[0] = share[1] = 0.0f;
        return -INFINITY;
    }
    double first = exp((double)lse1 - max);
    double second = exp((double)lse2 - max);
    share[0] = (float)(first / (first + second));
    share[1] = (float)(second / (first + second));
    return (float)(max + log(first + second));
}

void YOKE_VECTOR_NAME(attention_combine)(const yoke_kernel_call *call)
{
    const float *lse1 = call->in[1].data;
    const float *lse2 = call->in[3].data;
    float *lse = call->out[1].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *first = (const real *)call->in[0].data + row * width;
        const real *second = (const real *)call->in[2].data + row * width;
        real *y = (real *)call->out[0].data + row * width;
        float share[2];
        lse[row] = shares_get(lse1[row], lse2[row], share);
        for (int64_t x = 0; x < width; x += LANES) {
            lanes a = lanes_mul(lanes_get_real(first + x, width - x, 0.0f), lanes_set(share[0]));
            lanes b = lanes_get_real(second + x, width - x, 0.0f);
            lanes_put_real(y + x, width - x, lanes_fma(b, lanes_set(share[1]), a));
        }
    }
}
