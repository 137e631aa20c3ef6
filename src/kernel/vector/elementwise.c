/*
 * Element by element: add, bias, GELU, SwiGLU and their gradients. The formulas stand in ref/elementwise.c.
 *
 * With s = 1 / (1 + exp(-2u)) the tanh form of GELU is a s, free of cancellation where a is very negative.
 */
#include "kernel/vector/vector.h"

/* Elements [first, end) of all operands, which have equal shapes. */
typedef void (*stream_kernel)(const yoke_kernel_call *call, int64_t first, int64_t end);

static void stream_run(const yoke_kernel_call *call, stream_kernel kernel)
{
    int64_t n = yoke_piece_elements(&call->out[0]);
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t first = 0; first < n; first += GRAIN) {
        kernel(call, first, smaller(first + GRAIN, n));
    }
}

static inline lanes in_get(const yoke_kernel_call *call, int operand, int64_t i, int64_t end)
{
    return lanes_get((const float *)call->in[operand].data + i, end - i, 0.0f);
}

static inline void out_put(const yoke_kernel_call *call, int operand, int64_t i, int64_t end,
                           lanes a)
{
    lanes_put((float *)call->out[operand].data + i, end - i, a);
}

static void add(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes sum = in_get(call, 0, i, end);
        for (int j = 1; j < call->n_in; j++) {
            sum = lanes_add(sum, in_get(call, j, i, end));
        }
        out_put(call, 0, i, end, sum);
    }
}

void YOKE_VECTOR_NAME(add)(const yoke_kernel_call *call)
{
    stream_run(call, add);
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

static void gelu(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = in_get(call, 0, i, end);
        lanes slope = lanes_fma(lanes_mul(a, a), lanes_set(gelu_cubic), lanes_set(gelu_first));
        out_put(call, 0, i, end, lanes_mul(a, lanes_sigmoid(lanes_mul(a, slope))));
    }
}

void YOKE_VECTOR_NAME(gelu)(const yoke_kernel_call *call)
{
    stream_run(call, gelu);
}

static void gelu_grad(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    lanes one = lanes_set(1.0f);
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = in_get(call, 0, i, end);
        lanes dy = in_get(call, 1, i, end);
        lanes square = lanes_mul(a, a);
        lanes slope = lanes_fma(square, lanes_set(gelu_cubic), lanes_set(gelu_first));
        lanes inner = lanes_fma(square, lanes_set(3.0f * gelu_cubic), lanes_set(gelu_first));
        lanes sigmoid = lanes_sigmoid(lanes_mul(a, slope));
        lanes bend = lanes_mul(lanes_mul(sigmoid, lanes_sub(one, sigmoid)), lanes_mul(a, inner));
        out_put(call, 0, i, end, lanes_mul(dy, lanes_add(sigmoid, bend)));
    }
}

void YOKE_VECTOR_NAME(gelu_grad)(const yoke_kernel_call *call)
{
    stream_run(call, gelu_grad);
}

static void swiglu(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes gate = in_get(call, 0, i, end);
        lanes up = in_get(call, 1, i, end);
        out_put(call, 0, i, end, lanes_mul(lanes_mul(gate, lanes_sigmoid(gate)), up));
    }
}

void YOKE_VECTOR_NAME(swiglu)(const yoke_kernel_call *call)
{
    stream_run(call, swiglu);
}

static void swiglu_grad(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    lanes one = lanes_set(1.0f);
    for (int64_t i = first; i < end; i += LANES) {
        lanes gate = in_get(call, 0, i, end);
        lanes up = in_get(call, 1, i, end);
        lanes dy = in_get(call, 2, i, end);
        lanes sigmoid = lanes_sigmoid(gate);
        lanes bend = lanes_fma(gate, lanes_sub(one, sigmoid), one);
        lanes dsilu = lanes_mul(lanes_mul(dy, up), lanes_mul(sigmoid, bend));
        out_put(call, 0, i, end, dsilu);
        out_put(call, 1, i, end, lanes_mul(dy, lanes_mul(gate, sigmoid)));
    }
}

void YOKE_VECTOR_NAME(swiglu_grad)(const yoke_kernel_call *call)
{
    stream_run(call, swiglu_grad);
}
