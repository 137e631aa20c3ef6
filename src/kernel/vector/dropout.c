/*
 * Dropout; ref/dropout.c says what it is.
 */
#include "kernel/vector/random.h"

/* Global row-major index of the first element of local row `row`. */
static uint64_t global_row(const yoke_shape *global, const yoke_shard *shard, int64_t row)
{
    int last = shard->n_dims - 1;
    int64_t index = last >= 0 ? shard->offset[last] : 0;
    int64_t stride = last >= 0 ? global->extent[last] : 1;
    for (int dim = last - 1; dim >= 0; dim--) {
        index += (shard->offset[dim] + row % shard->extent[dim]) * stride;
        row /= shard->extent[dim];
        stride *= global->extent[dim];
    }
    return (uint64_t)index;
}

void YOKE_VECTOR_NAME(dropout)(const yoke_kernel_call *call)
{
    const yoke_tensor *in = &call->in[0];
    dropout drop = dropout_get(call);
    int64_t width = yoke_piece_columns(in);
    int64_t rows = width > 0 ? yoke_piece_rows(in) : 0;
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        uint64_t first = global_row(&call->attributes->global[0], &in->shard, row);
        const float *a = (const float *)in->data + row * width;
        float *y = (float *)call->out[0].data + row * width;
        for (int64_t c = 0; c < width; c += LANES) {
            lanes keep = dropout_keep(&drop, first + (uint64_t)c);
            lanes_put(y + c, width - c, dropout_apply(keep, lanes_get(a + c, width - c, 0.0f)));
        }
    }
}
