/*
 * How long a product takes on this machine, on operands of given types: what the choice of a multiplier rests on.
 */
#include "kernel/product.h"

#include "base/clock.h"
#include "base/memory.h"

static size_t matrix_bytes(int64_t rows, int64_t columns)
{
    return (sizeof(float) * (size_t)(rows * columns) + 63) / 64 * 64;
}

static yoke_tensor matrix_at(char **memory, int64_t rows, int64_t columns, yoke_dtype type)
{
    yoke_tensor matrix = {.data = *memory, .shard = {.n_dims = 2, .extent = {rows, columns}}};
    matrix.dtype = type;
    for (int64_t i = 0; i < rows * columns; i++) {
        float value = (float)(i % 7) - 3.0f;
        if (type == YOKE_BF16) {
            ((yoke_bf16 *)matrix.data)[i] = yoke_bf16_round(value);
        } else {
            ((float *)matrix.data)[i] = value;
        }
    }
    *memory += matrix_bytes(rows, columns);
    return matrix;
}

/* The first runs warm up threads and caches; the best of all is the machine's. */
static double best_s(yoke_kernel kernel, const yoke_kernel_call *call, double seconds)
{
    double best = -1.0;
    double end_s = yoke_clock_s() + seconds;
    do {
        double start_s = yoke_clock_s();
        kernel(call);
        double taken_s = yoke_clock_s() - start_s;
        best = best >= 0.0 && best < taken_s ? best : taken_s;
    } while (yoke_clock_s() < end_s);
    return best;
}

double yoke_product_sample_s(const yoke_product_sample *sample, yoke_kernel kernel, double seconds)
{
    const yoke_product_sample *s = sample;
    yoke_attributes attributes = {.contraction = {.a_split = 1,
                                                  .b_split = 1,
                                                  .a_transposed = s->a_transposed,
                                                  .b_transposed = s->b_transposed}};
    char *memory = yoke_block_alloc(matrix_bytes(s->m, s->k) + matrix_bytes(s->k, s->n) +
                                    matrix_bytes(s->m, s->n));
    if (!memory) {
        return -1.0;
    }
    char *next = memory;
    yoke_tensor in[2], out;
    in[0] = matrix_at(&next, s->a_transposed ? s->k : s->m, s->a_transposed ? s->m : s->k, s->a);
    in[1] = matrix_at(&next, s->b_transposed ? s->n : s->k, s->b_transposed ? s->k : s->n, s->b);
    out = matrix_at(&next, s->m, s->n, s->y);
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .attributes = &attributes};
    size_t scratch_bytes = yoke_product_scratch_bytes(&call, yoke_kernel_threads_get());
    call.scratch = scratch_bytes > 0 ? yoke_block_alloc(scratch_bytes) : NULL;
    double best = scratch_bytes > 0 && !call.scratch ? -1.0 : best_s(kernel, &call, seconds);
    yoke_block_free(call.scratch);
    yoke_block_free(memory);
    return best;
}
