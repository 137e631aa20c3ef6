/*
 * Rotary position embedding (Su et al., "RoFormer", 2021) as HuggingFace lays it out: of a head of width x, element i
 * and element i + x/2 are a pair, turned by the angle position * base^(-2i/x). Sign -1 turns back: the gradient.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

static void rotate_heads(const real *a, real *y, int64_t n_heads, int64_t width, double angle)
{
    double cosine = cos(angle);
    double sine = sin(angle);
    for (int64_t h = 0; h < n_heads; h++) {
        double first = (double)real_widen(a[h * width]);
        double second = (double)real_widen(a[h * width + width / 2]);
        y[h * width] = real_round((float)(first * cosine - second * sine));
        y[h * width + width / 2] = real_round((float)(second * cosine + first * sine));
    }
}

void YOKE_REF_NAME(rope)(const yoke_kernel_call *call)
{
    const real *a = call->in[0].data;
    const int32_t *positions = call->in[1].data;
    real *y = call->out[0].data;
    int64_t n_tokens = yoke_piece_elements(&call->in[1]);
    int64_t n_heads = call->in[0].shard.extent[2];
    int64_t width = call->in[0].shard.extent[3];
    double base = (double)call->attributes->base;
    for (int64_t i = 0; i < n_tokens; i++) {
        for (int64_t pair = 0; pair < width / 2; pair++) {
            double frequency = pow(base, -2.0 * (double)pair / (double)width);
            double angle = call->attributes->sign * (double)positions[i] * frequency;
            int64_t first = i * n_heads * width + pair;
            rotate_heads(a + first, y + first, n_heads, width, angle);
        }
    }
}
