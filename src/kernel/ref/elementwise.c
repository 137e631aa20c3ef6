/*
 * What works element by element, and sums over rows: add, bias and its gradient, GELU, SwiGLU.
 *
 * GELU in its tanh form: Hendrycks and Gimpel, "Gaussian error linear units", 2016:
 *   gelu(a) = a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3)))
 * and exact, with the distribution function of the normal: gelu_erf(a) = a/2 (1 + erf(a / sqrt(2))).
 * SwiGLU: Shazeer, "GLU variants improve transformer", 2020: y = silu(gate) up, silu(g) = g / (1 + exp(-g)).
 *
 * GELU and its gradients may have a bias that is added to a first, and add_bias a second tensor.
 *
 * An output may be the same memory as an input: each element is read before it is written.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

static const double gelu_scale = 0.79788456080286535588; /* sqrt(2/pi) */
static const double gelu_cubic = 0.044715;
static const double sqrt_half = 0.70710678118654752440;
static const double normal_peak = 0.39894228040143267794; /* 1 / sqrt(2 pi) */

void YOKE_REF_NAME(add)(const yoke_kernel_call *call)
{
    real *y = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->out[0]);
    for (int64_t i = 0; i < n; i++) {
        float sum = real_widen(((const real *)call->in[0].data)[i]);
        for (int j = 1; j < call->n_in; j++) {
            sum += real_widen(((const real *)call->in[j].data)[i]);
        }
        y[i] = real_round(call->accumulate ? real_widen(y[i]) + sum : sum);
    }
}

void YOKE_REF_NAME(add_bias)(const yoke_kernel_call *call)
{
    const real *a = call->in[0].data;
    const float *bias = call->in[1].data;
    const real *b = call->n_in > 2 ? call->in[2].data : NULL;
    real *y = call->out[0].data;
    int64_t width = yoke_piece_elements(&call->in[1]);
    int64_t n = yoke_piece_elements(&call->out[0]);
    for (int64_t i = 0; i < n; i++) {
        float sum = real_widen(a[i]) + bias[i % width];
        y[i] = real_round(b ? sum + real_widen(b[i]) : sum);
    }
}

void YOKE_REF_NAME(sum_rows)(const yoke_kernel_call *call)
{
    const real *dy = call->in[0].data;
    float *dbias = call->out[0].data;
    int64_t width = yoke_piece_elements(&call->out[0]);
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t c = 0; c < width; c++) {
        double sum = call->accumulate ? (double)dbias[c] : 0.0;
        for (int64_t i = c; i < n; i += width) {
            sum += (double)real_widen(dy[i]);
        }
        dbias[c] = (float)sum;
    }
}

/* Element i of the first input, plus its bias where the call has one behind `n` other inputs. */
static double biased(const yoke_kernel_call *call, int n, int64_t i)
{
    float a = real_widen(((const real *)call->in[0].data)[i]);
    if (call->n_in <= n) {
        return (double)a;
    }
    const float *bias = call->in[n].data;
    return (double)(a + bias[i % yoke_piece_elements(&call->in[n])]);
}

void YOKE_REF_NAME(gelu)(const yoke_kernel_call *call)
{
    real *y = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double u = biased(call, 1, i);
        y[i] =
            real_round((float)(0.5 * u * (1.0 + tanh(gelu_scale * (u + gelu_cubic * u * u * u)))));
    }
}

void YOKE_REF_NAME(gelu_grad)(const yoke_kernel_call *call)
{
    const real *dy = call->in[1].data;
    real *da = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double u = biased(call, 2, i);
        double tanh_u = tanh(gelu_scale * (u + gelu_cubic * u * u * u));
        double inner = gelu_scale * (1.0 + 3.0 * gelu_cubic * u * u);
        double slope = 0.5 * (1.0 + tanh_u) + 0.5 * u * (1.0 - tanh_u * tanh_u) * inner;
        da[i] = real_round((float)(slope * (double)real_widen(dy[i])));
    }
}

/* (1 + erf(u / sqrt(2))) / 2, without cancellation where u is very negative. */
static double normal_share(double u)
{
    return 0.5 * erfc(-u * sqrt_half);
}

void YOKE_REF_NAME(gelu_erf)(const yoke_kernel_call *call)
{
    real *y = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double u = biased(call, 1, i);
        y[i] = real_round((float)(u * normal_share(u)));
    }
}

void YOKE_REF_NAME(gelu_erf_grad)(const yoke_kernel_call *call)
{
    const real *dy = call->in[1].data;
    real *da = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double u = biased(call, 2, i);
        double density = normal_peak * exp(-0.5 * u * u);
        da[i] = real_round((float)((normal_share(u) + u * density) * (double)real_widen(dy[i])));
    }
}

void YOKE_REF_NAME(swiglu)(const yoke_kernel_call *call)
{
    const real *gate = call->in[0].data;
    const real *up = call->in[1].data;
    real *y = call->out[0].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double g = (double)real_widen(gate[i]);
        y[i] = real_round((float)(g / (1.0 + exp(-g)) * (double)real_widen(up[i])));
    }
}

void YOKE_REF_NAME(swiglu_grad)(const yoke_kernel_call *call)
{
    const real *gate = call->in[0].data;
    const real *up = call->in[1].data;
    const real *dy = call->in[2].data;
    real *dgate = call->out[0].data;
    real *dup = call->out[1].data;
    int64_t n = yoke_piece_elements(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        double g = (double)real_widen(gate[i]);
        double u = (double)real_widen(up[i]);
        double dy_i = (double)real_widen(dy[i]);
        double sigmoid = 1.0 / (1.0 + exp(-g));
        dgate[i] = real_round((float)(dy_i * u * sigmoid * (1.0 + g * (1.0 - sigmoid))));
        dup[i] = real_round((float)(dy_i * g * sigmoid));
    }
}
