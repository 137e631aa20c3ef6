/*
 * Normalisation over the last dim, which is never sharded, and its gradients.
 *
 * Layer norm: Ba, Kiros and Hinton, 2016. With n = (a - mean) rstd, rstd = 1 / sqrt(variance + epsilon):
 *   y = n gain + bias,   da = rstd (g - mean(g) - n mean(g n)) where g = dy gain,
 *   dgain = sum of dy n over the rows, dbias = sum of dy.
 * RMS norm: Zhang and Sennrich, 2019: the same with mean 0 and without bias, rstd = 1 / sqrt(mean(a^2) + epsilon).
 *
 * Behind its other inputs a norm may have b, and a bias of a: then it is that of x = a + b, or (a + bias) + b, as x is
 * stored, and x is its last output. A gradient may have a tensor that is added to da.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include "kernel/piece.h"

/* The row that is normalised: of a, or of the sum x, which is written; b is the input behind `n` others. */
static const real *input_row(const yoke_kernel_call *call, int n, int64_t row, int64_t width)
{
    const real *a = (const real *)call->in[0].data + row * width;
    if (call->n_in <= n) {
        return a;
    }
    const real *b = (const real *)call->in[n].data + row * width;
    const float *bias = call->n_in > n + 1 ? call->in[n + 1].data : NULL;
    real *x = (real *)call->out[call->n_out - 1].data + row * width;
    for (int64_t d = 0; d < width; d++) {
        float first = bias ? real_widen(a[d]) + bias[d] : real_widen(a[d]);
        x[d] = real_round(first + real_widen(b[d]));
    }
    return x;
}

void YOKE_REF_NAME(layer_norm)(const yoke_kernel_call *call)
{
    const float *gain = call->in[1].data;
    const float *bias = call->in[2].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const real *a = input_row(call, 3, row, width);
        real *y = (real *)call->out[0].data + row * width;
        double sum = 0.0;
        for (int64_t d = 0; d < width; d++) {
            sum += (double)real_widen(a[d]);
        }
        double mean = sum / (double)width;
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            squares += ((double)real_widen(a[d]) - mean) * ((double)real_widen(a[d]) - mean);
        }
        double rstd = 1.0 / sqrt(squares / (double)width + (double)call->attributes->epsilon);
        for (int64_t d = 0; d < width; d++) {
            double n = ((double)real_widen(a[d]) - mean) * rstd;
            y[d] = real_round((float)(n * (double)gain[d] + (double)bias[d]));
        }
        ((float *)call->out[1].data)[row] = (float)mean;
        ((float *)call->out[2].data)[row] = (float)rstd;
    }
}

void YOKE_REF_NAME(rms_norm)(const yoke_kernel_call *call)
{
    const float *gain = call->in[1].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        const real *a = input_row(call, 2, row, width);
        real *y = (real *)call->out[0].data + row * width;
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++) {
            squares += (double)real_widen(a[d]) * (double)real_widen(a[d]);
        }
        double rstd = 1.0 / sqrt(squares / (double)width + (double)call->attributes->epsilon);
        for (int64_t d = 0; d < width; d++) {
            y[d] = real_round((float)((double)real_widen(a[d]) * rstd * (double)gain[d]));
        }
        ((float *)call->out[1].data)[row] = (float)rstd;
    }
}

typedef struct norm_row {
    const real *dy, *a, *addend; /* the last may be NULL */
    const float *gain;
    double mean, rstd;
} norm_row;

/* `dy_mean_weight` is 1 where the norm takes off the mean, else 0. */
static void norm_row_grad(const norm_row *row, double dy_mean_weight, int64_t width, real *da)
{
    double sum = 0.0;
    double product = 0.0;
    for (int64_t d = 0; d < width; d++) {
        double g = (double)real_widen(row->dy[d]) * (double)row->gain[d];
        sum += g;
        product += g * ((double)real_widen(row->a[d]) - row->mean) * row->rstd;
    }
    double mean_sum = dy_mean_weight * sum / (double)width;
    double mean_product = product / (double)width;
    for (int64_t d = 0; d < width; d++) {
        double g = (double)real_widen(row->dy[d]) * (double)row->gain[d];
        double n = ((double)real_widen(row->a[d]) - row->mean) * row->rstd;
        float gradient = (float)(row->rstd * (g - mean_sum - n * mean_product));
        da[d] = real_round(row->addend ? gradient + real_widen(row->addend[d]) : gradient);
    }
}

/* A row of input n, or NULL if the call has fewer. */
static const real *addend_row(const yoke_kernel_call *call, int n, int64_t row, int64_t width)
{
    return call->n_in > n ? (const real *)call->in[n].data + row * width : NULL;
}

void YOKE_REF_NAME(layer_norm_grad)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        norm_row r = {
            .dy = (const real *)call->in[0].data + row * width,
            .a = (const real *)call->in[1].data + row * width,
            .addend = addend_row(call, 5, row, width),
            .gain = call->in[2].data,
            .mean = (double)((const float *)call->in[3].data)[row],
            .rstd = (double)((const float *)call->in[4].data)[row],
        };
        norm_row_grad(&r, 1.0, width, (real *)call->out[0].data + row * width);
    }
}

void YOKE_REF_NAME(rms_norm_grad)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t row = 0; row < rows; row++) {
        norm_row r = {
            .dy = (const real *)call->in[0].data + row * width,
            .a = (const real *)call->in[1].data + row * width,
            .addend = addend_row(call, 4, row, width),
            .gain = call->in[2].data,
            .rstd = (double)((const float *)call->in[3].data)[row],
        };
        norm_row_grad(&r, 0.0, width, (real *)call->out[0].data + row * width);
    }
}

void YOKE_REF_NAME(layer_norm_grad_gain)(const yoke_kernel_call *call)
{
    const real *dy = call->in[0].data;
    const real *a = call->in[1].data;
    const float *mean = call->in[2].data;
    const float *rstd = call->in[3].data;
    float *dgain = call->out[0].data;
    float *dbias = call->out[1].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t d = 0; d < width; d++) {
        double gain_sum = call->accumulate ? (double)dgain[d] : 0.0;
        double bias_sum = call->accumulate ? (double)dbias[d] : 0.0;
        for (int64_t row = 0; row < rows; row++) {
            double dy_d = (double)real_widen(dy[row * width + d]);
            double centred = (double)real_widen(a[row * width + d]) - (double)mean[row];
            gain_sum += dy_d * centred * (double)rstd[row];
            bias_sum += dy_d;
        }
        dgain[d] = (float)gain_sum;
        dbias[d] = (float)bias_sum;
    }
}

void YOKE_REF_NAME(rms_norm_grad_gain)(const yoke_kernel_call *call)
{
    const real *dy = call->in[0].data;
    const real *a = call->in[1].data;
    const float *rstd = call->in[2].data;
    float *dgain = call->out[0].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
    for (int64_t d = 0; d < width; d++) {
        double sum = call->accumulate ? (double)dgain[d] : 0.0;
        for (int64_t row = 0; row < rows; row++) {
            double dy_d = (double)real_widen(dy[row * width + d]);
            sum += dy_d * (double)real_widen(a[row * width + d]) * (double)rstd[row];
        }
        dgain[d] = (float)sum;
    }
}
