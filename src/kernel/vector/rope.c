/*
 * Rotary position embedding; ref/rope.c says what it is. Angles are computed in double, once for a token and all its heads.
 */
#include "kernel/vector/real.h"

enum { CHUNK = 64 }; /* pairs whose sines are held at a time */

typedef struct rotation {
    float cosine[CHUNK], sine[CHUNK];
    int64_t n;
} rotation;

static void rotate(const real *a, real *y, int64_t half, const rotation *by)
{
    for (int64_t i = 0; i < by->n; i += LANES) {
        int64_t n = by->n - i;
        lanes cosine = lanes_get(by->cosine + i, n, 0.0f);
        lanes sine = lanes_get(by->sine + i, n, 0.0f);
        lanes first = lanes_get_real(a + i, n, 0.0f);
        lanes second = lanes_get_real(a + half + i, n, 0.0f);
        lanes_put_real(y + i, n, lanes_sub(lanes_mul(first, cosine), lanes_mul(second, sine)));
        lanes_put_real(y + half + i, n,
                       lanes_add(lanes_mul(second, cosine), lanes_mul(first, sine)));
    }
}

void YOKE_VECTOR_NAME(rope)(const yoke_kernel_call *call)
{
    const int32_t *positions = call->in[1].data;
    double *frequency = call->scratch;
    int64_t n_tokens = yoke_piece_elements(&call->in[1]);
    int64_t n_heads = call->in[0].shard.extent[2];
    int64_t width = call->in[0].shard.extent[3];
    int64_t half = width / 2;
    for (int64_t pair = 0; pair < half; pair++) {
        frequency[pair] = pow((double)call->attributes->base, -2.0 * (double)pair / (double)width);
    }
#pragma omp parallel for schedule(static) if (n_tokens * n_heads * width > GRAIN)
    for (int64_t i = 0; i < n_tokens; i++) {
        for (int64_t pair = 0; pair < half; pair += CHUNK) {
            rotation by = {.n = smaller(CHUNK, half - pair)};
            for (int64_t j = 0; j < by.n; j++) {
                double angle = (double)positions[i] * frequency[pair + j];
                by.cosine[j] = (float)cos(angle);
                by.sine[j] = (float)(call->attributes->sign * sin(angle));
            }
            for (int64_t h = 0; h < n_heads; h++) {
                int64_t first = (i * n_heads + h) * width + pair;
                rotate((const real *)call->in[0].data + first, (real *)call->out[0].data + first,
                       half, &by);
            }
        }
    }
}
