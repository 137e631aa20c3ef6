/*
 * Jitter; ref/jitter.c says what it is.
 */
#include "kernel/vector/random.h"
#include "kernel/vector/real.h"

void YOKE_VECTOR_NAME(jitter)(const yoke_kernel_call *call)
{
    const yoke_tensor *in = &call->in[0];
    yoke_random_key key =
        yoke_random_stream_hashed(call->seed, call->attributes->site, call->step, call->microbatch);
    lanes one = lanes_set(1.0f);
    lanes epsilon = lanes_set(call->attributes->rate);
    int64_t width = yoke_piece_columns(in);
    int64_t rows = width > 0 ? yoke_piece_rows(in) : 0;
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        uint64_t first = yoke_piece_global_row(call->attributes, &in->shard, row);
        const real *a = (const real *)in->data + row * width;
        real *y = (real *)call->out[0].data + row * width;
        for (int64_t c = 0; c < width; c += LANES) {
            lanes u = lanes_uniform(key, first + (uint64_t)c);
            lanes factor = lanes_fma(epsilon, lanes_sub(lanes_add(u, u), one), one);
            lanes_put_real(y + c, width - c,
                           lanes_mul(factor, lanes_get_real(a + c, width - c, 0.0f)));
        }
    }
}
