/*
 * Dropout (Srivastava et al., 2014): y = a / (1 - rate) where a random number is at least the rate, else 0. The number is
 * a function of the seed, the site, the step, the micro-batch and the element's index in the *global* tensor, so a mask
 * does not depend on how the tensor lies, and the gradient is the same operator on dy.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"
#include "yoke/random.h"

void YOKE_REF_NAME(dropout)(const yoke_kernel_call *call)
{
    const yoke_attributes *attributes = call->attributes;
    const real *a = call->in[0].data;
    real *y = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    double scale = 1.0 / (1.0 - (double)attributes->rate);
    yoke_random_key key =
        yoke_random_stream_hashed(call->seed, attributes->site, call->step, call->microbatch);
    for (int64_t row = 0; row < rows && width > 0; row++) {
        uint64_t first = yoke_piece_global_row(attributes, &call->in[0].shard, row);
        for (int64_t c = 0; c < width; c++) {
            bool keep = yoke_random_uniform(key, first + (uint64_t)c) >= attributes->rate;
            double kept = (double)real_widen(a[row * width + c]) * scale;
            y[row * width + c] = real_round(keep ? (float)kept : 0.0f);
        }
    }
}
