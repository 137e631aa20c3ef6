/*
 * Element by element: add, bias, GELU, SwiGLU and their gradients. The formulas stand in ref/elementwise.c.
 *
 * With s = 1 / (1 + exp(-2u)) the tanh form of GELU is a s, free of cancellation where a is very negative.
 */
#include "kernel/vector/vector.h"

typedef struct stream {
    const float *in[3];
    float *out[2];
} stream;

typedef void (*stream_kernel)(const stream *s, int64_t n);

/* Runs a kernel over grains of arrays of equal length. */
static void stream_run(const yoke_kernel_call *call, stream_kernel kernel)
{
    int64_t n = yoke_piece_elements(&call->out[0]);
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t grain = 0; grain < ceil_div(n, GRAIN); grain++) {
        int64_t first = grain * GRAIN;
        stream part = {0};
        for (int i = 0; i < call->n_in; i++) {
            part.in[i] = (const float *)call->in[i].data + first;
        }
        for (int i = 0; i < call->n_out; i++) {
            part.out[i] = (float *)call->out[i].data + first;
        }
        kernel(&part, smaller(GRAIN, n - first));
    }
}

void YOKE_VECTOR_NAME(add)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_elements(&call->out[0]);
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t grain = 0; grain < ceil_div(n, GRAIN); grain++) {
        int64_t end = smaller(grain * GRAIN + GRAIN, n);
        for (int64_t i = grain * GRAIN; i < end; i += LANES) {
            lanes sum = lanes_get((const float *)call->in[0].data + i, end - i, 0.0f);
            for (int j = 1; j < call->n_in; j++) {
                sum = lanes_add(sum, lanes_get((const float *)call->in[j].data + i, end - i, 0.0f));
            }
            lanes_put((float *)call->out[0].data + i, end - i, sum);
        }
    }
}

void YOKE_VECTOR_NAME(add_bias)(const yoke_kernel_call *call)
{
    const float *bias = call->in[1].data;
    int64_t width = yoke_piece_elements(&call->in[1]);
    int64_t rows = width > 0 ? yoke_piece_elements(&call->in[0]) / width : 0;
    int64_t grain = grain_rows(width);
#pragma omp parallel for schedule(static) if (rows > grain)
    for (int64_t first = 0; first < rows; first += grain) {
        for (int64_t row = first; row < smaller(first + grain, rows); row++) {
            const float *a = (const float *)call->in[0].data + row * width;
            float *y = (float *)call->out[0].data + row * width;
            for (int64_t c = 0; c < width; c += LANES) {
                lanes sum = lanes_add(lanes_get(a + c, width - c, 0.0f),
                                      lanes_get(bias + c, width - c, 0.0f));
                lanes_put(y + c, width - c, sum);
            }
        }
    }
}

/* 2 sqrt(2/pi) and that times 0.044715: 2u = a (first + cubic a^2). */
static const float gelu_first = 1.59576912160573071f;
static const float gelu_cubic = 0.0713548162726f;

static void gelu(const stream *s, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        lanes a = lanes_get(s->in[0] + i, n - i, 0.0f);
        lanes slope = lanes_fma(lanes_mul(a, a), lanes_set(gelu_cubic), lanes_set(gelu_first));
        lanes_put(s->out[0] + i, n - i, lanes_mul(a, lanes_sigmoid(lanes_mul(a, slope))));
    }
}

void YOKE_VECTOR_NAME(gelu)(const yoke_kernel_call *call)
{
    stream_run(call, gelu);
}

static void gelu_grad(const stream *s, int64_t n)
{
    lanes one = lanes_set(1.0f);
    for (int64_t i = 0; i < n; i += LANES) {
        lanes a = lanes_get(s->in[0] + i, n - i, 0.0f);
        lanes dy = lanes_get(s->in[1] + i, n - i, 0.0f);
        lanes square = lanes_mul(a, a);
        lanes slope = lanes_fma(square, lanes_set(gelu_cubic), lanes_set(gelu_first));
        lanes inner = lanes_fma(square, lanes_set(3.0f * gelu_cubic), lanes_set(gelu_first));
        lanes sigmoid = lanes_sigmoid(lanes_mul(a, slope));
        lanes bend = lanes_mul(lanes_mul(sigmoid, lanes_sub(one, sigmoid)), lanes_mul(a, inner));
        lanes_put(s->out[0] + i, n - i, lanes_mul(dy, lanes_add(sigmoid, bend)));
    }
}

void YOKE_VECTOR_NAME(gelu_grad)(const yoke_kernel_call *call)
{
    stream_run(call, gelu_grad);
}

static void swiglu(const stream *s, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        lanes gate = lanes_get(s->in[0] + i, n - i, 0.0f);
        lanes up = lanes_get(s->in[1] + i, n - i, 0.0f);
        lanes_put(s->out[0] + i, n - i, lanes_mul(lanes_mul(gate, lanes_sigmoid(gate)), up));
    }
}

void YOKE_VECTOR_NAME(swiglu)(const yoke_kernel_call *call)
{
    stream_run(call, swiglu);
}

static void swiglu_grad(const stream *s, int64_t n)
{
    lanes one = lanes_set(1.0f);
    for (int64_t i = 0; i < n; i += LANES) {
        lanes gate = lanes_get(s->in[0] + i, n - i, 0.0f);
        lanes up = lanes_get(s->in[1] + i, n - i, 0.0f);
        lanes dy = lanes_get(s->in[2] + i, n - i, 0.0f);
        lanes sigmoid = lanes_sigmoid(gate);
        lanes bend = lanes_fma(gate, lanes_sub(one, sigmoid), one);
        lanes dsilu = lanes_mul(lanes_mul(dy, up), lanes_mul(sigmoid, bend));
        lanes_put(s->out[0] + i, n - i, dsilu);
        lanes_put(s->out[1] + i, n - i, lanes_mul(dy, lanes_mul(gate, sigmoid)));
    }
}

void YOKE_VECTOR_NAME(swiglu_grad)(const yoke_kernel_call *call)
{
    stream_run(call, swiglu_grad);
}
