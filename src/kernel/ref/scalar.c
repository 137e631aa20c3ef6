/*
 * Scalars and what makes them: 1/n, products, sums of squares and of packed scalars, the count of labels.
 *
 * sum_squares adds blocks of 4096 elements and then the blocks, all in double and in ascending order.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

enum { BLOCK = 4096 };

static const float *scalar_get(const yoke_kernel_call *call, int operand)
{
    return call->in[operand].data;
}

void yoke_ref_reciprocal(const yoke_kernel_call *call)
{
    float n = scalar_get(call, 0)[0];
    ((float *)call->out[0].data)[0] = n == 0.0f ? 0.0f : (float)(1.0 / (double)n);
}

void yoke_ref_multiply(const yoke_kernel_call *call)
{
    ((float *)call->out[0].data)[0] = scalar_get(call, 0)[0] * scalar_get(call, 1)[0];
}

void yoke_ref_sum_squares(const yoke_kernel_call *call)
{
    const float *a = call->in[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    double total = 0.0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        double sum = 0.0;
        for (int64_t i = first; i < n && i < first + BLOCK; i++) {
            sum += (double)a[i] * (double)a[i];
        }
        total += sum;
    }
    ((float *)call->out[0].data)[0] = (float)total;
}

/* An input that has no memory here is another rank's to give, and counts 0. */
void yoke_ref_pack(const yoke_kernel_call *call)
{
    float *packed = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->out[0]) / call->n_in;
    for (int i = 0; i < call->n_in; i++) {
        const float *a = call->in[i].data;
        for (int64_t j = 0; j < n; j++) {
            packed[i * n + j] = a ? a[j] : 0.0f;
        }
    }
}

void yoke_ref_sum(const yoke_kernel_call *call)
{
    const float *a = call->in[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        total += (double)a[i];
    }
    ((float *)call->out[0].data)[0] = (float)total;
}

void yoke_ref_count_valid(const yoke_kernel_call *call)
{
    const int32_t *labels = call->in[0].data;
    float *count = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        total += labels[i] >= 0;
    }
    count[0] = (float)((call->accumulate ? (double)count[0] : 0.0) + (double)total);
}
