/*
 * Jitter: y = a (1 - epsilon + 2 epsilon u), where u is even in [0, 1) and, as in dropout.c, a function of the seed, the
 * site, the step, the micro-batch and the element's index in the global tensor.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"
#include "yoke/random.h"

void YOKE_REF_NAME(jitter)(const yoke_kernel_call *call)
{
    const yoke_attributes *attributes = call->attributes;
    const real *a = call->in[0].data;
    real *y = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double epsilon = (double)attributes->rate;
    yoke_random_key key =
        yoke_random_stream_hashed(call->seed, attributes->site, call->step, call->microbatch);
    for (int64_t row = 0; row < rows && width > 0; row++) {
        uint64_t first = yoke_piece_global_row(attributes, &call->in[0].shard, row);
        for (int64_t c = 0; c < width; c++) {
            double u = (double)yoke_random_uniform(key, first + (uint64_t)c);
            double a_c = (double)real_widen(a[row * width + c]);
            y[row * width + c] = real_round((float)(a_c * (1.0 + epsilon * (2.0 * u - 1.0))));
        }
    }
}
