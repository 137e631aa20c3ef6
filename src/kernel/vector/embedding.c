/*
 * Embedding and its gradient; ref/embedding.c says what they are. The gradient is dealt to the threads by columns, so each
 * adds the tokens of its columns in ascending order.
 */
#include "kernel/vector/real.h"

enum { STRIP = 64 }; /* columns of the gradient in a unit of work */

/* Up to 16 elements of the table, which has a type of its own. */
static inline lanes table_get(const yoke_tensor *table, int64_t at, int64_t n)
{
    return table->dtype == YOKE_BF16 ? lanes_get_real((const real *)table->data + at, n, 0.0f)
                                     : lanes_get((const float *)table->data + at, n, 0.0f);
}

void YOKE_VECTOR_NAME(embedding)(const yoke_kernel_call *call)
{
    const yoke_tensor *table = &call->in[0];
    const int32_t *ids = call->in[1].data;
    int64_t width = yoke_piece_columns(table);
    int64_t n_tokens = yoke_piece_elements(&call->in[1]);
#pragma omp parallel for schedule(static) if (n_tokens > grain_rows(width))
    for (int64_t i = 0; i < n_tokens; i++) {
        real *y = (real *)call->out[0].data + i * width;
        int64_t row = ids[i] - table->shard.offset[0];
        bool is_here = row >= 0 && row < table->shard.extent[0];
        for (int64_t d = 0; d < width; d += LANES) {
            lanes element =
                is_here ? table_get(table, row * width + d, width - d) : lanes_set(0.0f);
            lanes_put_real(y + d, width - d, element);
        }
    }
}

static void zero(float *a, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t first = 0; first < n; first += GRAIN) {
        memset(a + first, 0, (size_t)smaller(GRAIN, n - first) * sizeof(*a));
    }
}

void YOKE_VECTOR_NAME(embedding_grad)(const yoke_kernel_call *call)
{
    const int32_t *ids = call->in[0].data;
    const yoke_shard *shard = &call->out[0].shard;
    int64_t width = shard->extent[1];
    int64_t n_tokens = yoke_piece_elements(&call->in[0]);
    if (!call->accumulate) {
        zero(call->out[0].data, shard->extent[0] * width);
    }
#pragma omp parallel for schedule(static) if (n_tokens * width > GRAIN)
    for (int64_t column = 0; column < width; column += STRIP) {
        int64_t end = smaller(column + STRIP, width);
        for (int64_t i = 0; i < n_tokens; i++) {
            int64_t row = ids[i] - shard->offset[0];
            if (row < 0 || row >= shard->extent[0]) {
                continue;
            }
            const real *dy = (const real *)call->in[1].data + i * width;
            float *dtable = (float *)call->out[0].data + row * width;
            for (int64_t d = column; d < end; d += LANES) {
                lanes sum = lanes_add(lanes_get(dtable + d, end - d, 0.0f),
                                      lanes_get_real(dy + d, end - d, 0.0f));
                lanes_put(dtable + d, end - d, sum);
            }
        }
    }
}
