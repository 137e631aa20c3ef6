/*
 * The parts of cross entropy that read the logits; ref/loss.c says what they are. Rows are dealt to the threads.
 */
#include "kernel/vector/real.h"

enum { CHUNK = 512 }; /* exponentials summed in float before they go to a double */

void YOKE_VECTOR_NAME(row_max)(const yoke_kernel_call *call)
{
    float *max = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *logits = (const real *)call->in[0].data + row * width;
        lanes best = lanes_set(-INFINITY);
        for (int64_t v = 0; v < width; v += LANES) {
            best = lanes_max(best, lanes_get_real(logits + v, width - v, -INFINITY));
        }
        max[row] = lanes_highest(best);
    }
}

static double sum_exp(const real *logits, int64_t width, float max)
{
    double total = 0.0;
    for (int64_t first = 0; first < width; first += CHUNK) {
        int64_t n = smaller(CHUNK, width - first);
        lanes sum = lanes_set(0.0f);
        for (int64_t v = 0; v < n; v += LANES) {
            lanes logit = lanes_get_real(logits + first + v, n - v, -INFINITY);
            sum = lanes_add(sum, lanes_exp(lanes_sub(logit, lanes_set(max))));
        }
        total += (double)lanes_sum(sum);
    }
    return total;
}

void YOKE_VECTOR_NAME(row_sum_exp)(const yoke_kernel_call *call)
{
    const float *max = call->in[1].data;
    float *sum = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *logits = (const real *)call->in[0].data + row * width;
        sum[row] = (float)sum_exp(logits, width, max[row]);
    }
}

void YOKE_VECTOR_NAME(cross_entropy_grad)(const yoke_kernel_call *call)
{
    const float *max = call->in[1].data;
    const float *sum = call->in[2].data;
    const int32_t *labels = call->in[3].data;
    const float *dloss = call->in[4].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = width > 0 ? yoke_piece_rows(&call->in[0]) : 0;
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *logits = (const real *)call->in[0].data + row * width;
        real *dlogits = (real *)call->out[0].data + row * width;
        int64_t column = labels[row] - call->in[0].shard.offset[2];
        if (labels[row] < 0) {
            memset(dlogits, 0, (size_t)width * sizeof(*dlogits));
            continue;
        }
        lanes factor = lanes_set(dloss[0] / sum[row]);
        /* Its own logit is read before dlogits may take its place, and its gradient rounded once. */
        bool is_here = column >= 0 && column < width;
        float own = is_here ? real_widen(logits[column]) : 0.0f;
        for (int64_t v = 0; v < width; v += LANES) {
            lanes logit = lanes_get_real(logits + v, width - v, 0.0f);
            lanes p = lanes_exp(lanes_sub(logit, lanes_set(max[row])));
            lanes_put_real(dlogits + v, width - v, lanes_mul(p, factor));
        }
        if (is_here) {
            lanes p = lanes_mul(lanes_exp(lanes_set(own - max[row])), factor);
            dlogits[column] = real_round(p.low[0] - dloss[0]);
        }
    }
}
