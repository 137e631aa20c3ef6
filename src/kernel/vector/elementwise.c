/*
 * Element by element: add, bias, GELU, SwiGLU and their gradients. The formulas stand in ref/elementwise.c.
 *
 * The exact form is a times the distribution function of the normal, see there.
 *
 * With s = 1 / (1 + exp(-2u)) the tanh form of GELU is a s, free of cancellation where a is very negative.
 */
#include "kernel/vector/real.h"

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

/* The same where the first operand may have a bias, NULL if not, of which element 0 belongs to `first`. */
typedef void (*biased_kernel)(const yoke_kernel_call *call, int64_t first, int64_t end,
                              const float *bias);

/* The bias is the input behind `n` others, which may be all: the stretches are its rows, else of any size. */
static void biased_run(const yoke_kernel_call *call, int n, biased_kernel kernel)
{
    bool has_bias = call->n_in > n;
    const float *bias = has_bias ? call->in[n].data : NULL;
    int64_t width = has_bias ? yoke_piece_elements(&call->in[n]) : GRAIN;
    int64_t elements = yoke_piece_elements(&call->out[0]);
    int64_t rows = width > 0 ? ceil_div(elements, width) : 0;
    int64_t grain = grain_rows(width);
#pragma omp parallel for schedule(static) if (rows > grain)
    for (int64_t first = 0; first < rows; first += grain) {
        for (int64_t row = first; row < smaller(first + grain, rows); row++) {
            kernel(call, row * width, smaller((row + 1) * width, elements), bias);
        }
    }
}

static inline lanes in_get(const yoke_kernel_call *call, int operand, int64_t i, int64_t end)
{
    return lanes_get_real((const real *)call->in[operand].data + i, end - i, 0.0f);
}

/* Elements from i on of the first operand, with their bias. */
static inline lanes biased_get(const yoke_kernel_call *call, int64_t i, int64_t first, int64_t end,
                               const float *bias)
{
    lanes a = in_get(call, 0, i, end);
    return bias ? lanes_add(a, lanes_get(bias + (i - first), end - i, 0.0f)) : a;
}

static inline void out_put(const yoke_kernel_call *call, int operand, int64_t i, int64_t end,
                           lanes a)
{
    lanes_put_real((real *)call->out[operand].data + i, end - i, a);
}

static void add(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes sum = in_get(call, 0, i, end);
        for (int j = 1; j < call->n_in; j++) {
            sum = lanes_add(sum, in_get(call, j, i, end));
        }
        if (call->accumulate) {
            const real *y = call->out[0].data;
            sum = lanes_add(lanes_get_real(y + i, end - i, 0.0f), sum);
        }
        out_put(call, 0, i, end, sum);
    }
}

void YOKE_VECTOR_NAME(add)(const yoke_kernel_call *call)
{
    stream_run(call, add);
}

static void add_bias(const yoke_kernel_call *call, int64_t first, int64_t end, const float *bias)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes sum = biased_get(call, i, first, end, bias);
        out_put(call, 0, i, end, call->n_in > 2 ? lanes_add(sum, in_get(call, 2, i, end)) : sum);
    }
}

void YOKE_VECTOR_NAME(add_bias)(const yoke_kernel_call *call)
{
    biased_run(call, 1, add_bias);
}

/* 2 sqrt(2/pi) and that times 0.044715: 2u = a (first + cubic a^2). */
static const float gelu_first = 1.59576912160573071f;
static const float gelu_cubic = 0.0713548162726f;

static void gelu(const yoke_kernel_call *call, int64_t first, int64_t end, const float *bias)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = biased_get(call, i, first, end, bias);
        lanes slope = lanes_fma(lanes_mul(a, a), lanes_set(gelu_cubic), lanes_set(gelu_first));
        out_put(call, 0, i, end, lanes_mul(a, lanes_sigmoid(lanes_mul(a, slope))));
    }
}

void YOKE_VECTOR_NAME(gelu)(const yoke_kernel_call *call)
{
    biased_run(call, 1, gelu);
}

static void gelu_grad(const yoke_kernel_call *call, int64_t first, int64_t end, const float *bias)
{
    lanes one = lanes_set(1.0f);
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = biased_get(call, i, first, end, bias);
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
    biased_run(call, 2, gelu_grad);
}

/* The distribution function of the normal, and its density. */
typedef struct normal {
    lanes share, density;
} normal;

/*
 * For |a| = z, share(-z) = exp(-z^2/2) p(s) / (z + 4) with s = (4 - z) / (4 + z), where p fits to 8e-9 of itself for all
 * z below 13.3, beyond which the share is no float. The error of the square is made good: exp would multiply it by its
 * size. The idea is that of Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981.
 */
static inline vec vec_normal(vec a, vec *density)
{
    static const float p[] = {1.25689865e-4f, 1.93158470e-4f, -1.57546080e-3f, -3.51847525e-3f,
                              7.52912587e-3f, 6.04045055e-2f, 1.86522843e-1f,  3.87136883e-1f,
                              6.07896610e-1f, 7.55285135e-1f};
    const vec four = vec_set(4.0f);
    vec_bits is_negative = (vec_bits)(a < vec_set(0.0f));
    vec z = vec_select(is_negative, vec_set(0.0f) - a, a);
    z = vec_select((vec_bits)(z > vec_set(14.0f)), vec_set(14.0f), z);
    vec square = z * z;
    vec missing = vec_fma(z, z, vec_set(0.0f) - square);
    vec bell = vec_exp(vec_set(-0.5f) * square);
    bell = vec_fma(bell * vec_set(-0.5f), missing, bell);
    vec r = vec_set(1.0f) / (z + four);
    vec s = (four - z) * r;
    vec fit = vec_set(p[0]);
    for (size_t i = 1; i < sizeof p / sizeof p[0]; i++) {
        fit = vec_fma(fit, s, vec_set(p[i]));
    }
    vec tail = bell * (fit * r);
    *density = bell * vec_set(0.398942280f); /* 1 / sqrt(2 pi) */
    return vec_select(is_negative, tail, vec_set(1.0f) - tail);
}

static inline normal lanes_normal(lanes a)
{
    normal r;
    r.share.low = vec_normal(a.low, &r.density.low);
    IF_TWO(r.share.high = vec_normal(a.high, &r.density.high);)
    return r;
}

static void gelu_erf(const yoke_kernel_call *call, int64_t first, int64_t end, const float *bias)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = biased_get(call, i, first, end, bias);
        out_put(call, 0, i, end, lanes_mul(a, lanes_normal(a).share));
    }
}

void YOKE_VECTOR_NAME(gelu_erf)(const yoke_kernel_call *call)
{
    biased_run(call, 1, gelu_erf);
}

static void gelu_erf_grad(const yoke_kernel_call *call, int64_t first, int64_t end,
                          const float *bias)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes a = biased_get(call, i, first, end, bias);
        normal n = lanes_normal(a);
        lanes slope = lanes_fma(a, n.density, n.share);
        out_put(call, 0, i, end, lanes_mul(in_get(call, 1, i, end), slope));
    }
}

void YOKE_VECTOR_NAME(gelu_erf_grad)(const yoke_kernel_call *call)
{
    biased_run(call, 2, gelu_erf_grad);
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
