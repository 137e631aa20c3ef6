/*
 * Joins what attention made of two pieces of the keys (Liu et al., "Ring attention", 2023; the sums are those of Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 *   lse = log(exp(lse1) + exp(lse2)), y = exp(lse1 - lse) y1 + exp(lse2 - lse) y2.
 *
 * A piece that a query does not see has y = 0 and lse = -inf, and leaves the other's bits as they are; two such give one.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

void YOKE_REF_NAME(attention_combine)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const real *first = (const real *)call->in[0].data + row * width;
        const real *second = (const real *)call->in[2].data + row * width;
        double lse1 = (double)((const float *)call->in[1].data)[row];
        double lse2 = (double)((const float *)call->in[3].data)[row];
        double max = lse1 > lse2 ? lse1 : lse2;
        bool seen = !(lse1 == (double)-INFINITY && lse2 == (double)-INFINITY);
        double share1 = seen ? exp(lse1 - max) : 0.0;
        double share2 = seen ? exp(lse2 - max) : 0.0;
        double sum = seen ? share1 + share2 : 1.0;
        for (int64_t x = 0; x < width; x++) {
            double both = share1 * (double)real_widen(first[x]);
            both += share2 * (double)real_widen(second[x]);
            ((real *)call->out[0].data)[row * width + x] = real_round((float)(both / sum));
        }
        ((float *)call->out[1].data)[row] = (float)(max + log(sum));
    }
}
