/*
 * AdamW and the sum of squares that its clipping needs; ref/optimizer.c and ref/scalar.c say what they are.
 */
#include "kernel/vector/vector.h"

enum {
    N_PARTS = 64, /* of a sum of squares: dealt to threads, then added in order */
    CHUNK = 512,  /* elements summed in float before they go to a double */
};

static double part_sum_squares(const float *a, int64_t n)
{
    double total = 0.0;
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t n_chunk = smaller(CHUNK, n - first);
        lanes sum = lanes_set(0.0f);
        for (int64_t i = 0; i < n_chunk; i += LANES) {
            lanes element = lanes_get(a + first + i, n_chunk - i, 0.0f);
            sum = lanes_fma(element, element, sum);
        }
        total += (double)lanes_sum(sum);
    }
    return total;
}

void YOKE_VECTOR_NAME(sum_squares)(const yoke_kernel_call *call)
{
    double part[N_PARTS] = {0};
    int64_t n = yoke_piece_elements(&call->in[0]);
    int64_t size = ceil_div(ceil_div(n, N_PARTS), CHUNK) * CHUNK;
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t i = 0; i < N_PARTS; i++) {
        int64_t first = i * size;
        if (first < n) {
            part[i] =
                part_sum_squares((const float *)call->in[0].data + first, smaller(size, n - first));
        }
    }
    double total = 0.0;
    for (int i = 0; i < N_PARTS; i++) {
        total += part[i];
    }
    ((float *)call->out[0].data)[0] = (float)total;
}

/* The scalars of an update, as lanes. */
typedef struct update {
    lanes beta1, beta2, rest1, rest2, epsilon, decay, lr, scale, bias1, bias2;
} update;

static update update_get(const yoke_kernel_call *call)
{
    const yoke_optimizer *optimizer = call->attributes->optimizer;
    const float *control = call->in[4].data;
    return (update){
        .beta1 = lanes_set((float)optimizer->beta1),
        .beta2 = lanes_set((float)optimizer->beta2),
        .rest1 = lanes_set((float)(1.0 - optimizer->beta1)),
        .rest2 = lanes_set((float)(1.0 - optimizer->beta2)),
        .epsilon = lanes_set((float)optimizer->epsilon),
        .decay = lanes_set(call->attributes->decay),
        .lr = lanes_set(control[YOKE_CONTROL_LR]),
        .scale = lanes_set(control[YOKE_CONTROL_SCALE]),
        .bias1 = lanes_set(control[YOKE_CONTROL_BIAS1]),
        .bias2 = lanes_set(control[YOKE_CONTROL_BIAS2]),
    };
}

/* Elements [i, i + n), at most 16. */
static inline void update_apply(const update *u, const yoke_kernel_call *call, int64_t i, int64_t n)
{
    float *parameter = (float *)call->in[0].data + i;
    float *first = (float *)call->in[1].data + i;
    float *second = (float *)call->in[2].data + i;
    lanes g = lanes_mul(lanes_get((const float *)call->in[3].data + i, n, 0.0f), u->scale);
    lanes p = lanes_get(parameter, n, 0.0f);
    lanes m = lanes_mul(u->beta1, lanes_get(first, n, 0.0f));
    lanes v = lanes_mul(u->beta2, lanes_get(second, n, 0.0f));
    m = lanes_add(m, lanes_mul(u->rest1, g));
    v = lanes_add(v, lanes_mul(u->rest2, lanes_mul(g, g)));
    lanes root = lanes_add(lanes_sqrt(lanes_div(v, u->bias2)), u->epsilon);
    lanes step = lanes_add(lanes_div(lanes_div(m, u->bias1), root), lanes_mul(u->decay, p));
    lanes_put(first, n, m);
    lanes_put(second, n, v);
    lanes_put(parameter, n, lanes_sub(p, lanes_mul(u->lr, step)));
}

void YOKE_VECTOR_NAME(adamw)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_elements(&call->in[0]);
    if (!(((const float *)call->in[4].data)[YOKE_CONTROL_APPLY] > 0.0f)) {
        return;
    }
    update u = update_get(call);
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t first = 0; first < n; first += GRAIN) {
        int64_t end = smaller(first + GRAIN, n);
        for (int64_t i = first; i < end; i += LANES) {
            update_apply(&u, call, i, end - i);
        }
    }
}
