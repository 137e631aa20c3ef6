/*
 * Layer norm, RMS norm and their gradients; the formulas stand in ref/norm.c. Rows are dealt to the threads, and for the
 * gradients of gain and bias, strips of columns: each sum belongs to one thread.
 */
#include "kernel/vector/real.h"

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
    for (int64_t d = 0; d < width; d += LANES) {
        lanes sum = lanes_get_real(a + d, width - d, 0.0f);
        if (bias) {
            sum = lanes_add(sum, lanes_get(bias + d, width - d, 0.0f));
        }
        sum = lanes_add(sum, lanes_get_real(b + d, width - d, 0.0f));
        lanes_put_real(x + d, width - d, sum);
    }
    return x;
}

static float row_mean(const real *a, int64_t width)
{
    lanes sum = lanes_set(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        sum = lanes_add(sum, lanes_get_real(a + d, width - d, 0.0f));
    }
    return lanes_sum(sum) / (float)width;
}

/* 1 / sqrt(mean of (a - mean)^2 + epsilon) */
static float row_rstd(const real *a, int64_t width, float mean, float epsilon)
{
    lanes squares = lanes_set(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        lanes centred = lanes_sub(lanes_get_real(a + d, width - d, mean), lanes_set(mean));
        squares = lanes_fma(centred, centred, squares);
    }
    return 1.0f / sqrtf(lanes_sum(squares) / (float)width + epsilon);
}

void YOKE_VECTOR_NAME(layer_norm)(const yoke_kernel_call *call)
{
    const float *gain = call->in[1].data;
    const float *bias = call->in[2].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *a = input_row(call, 3, row, width);
        real *y = (real *)call->out[0].data + row * width;
        float mean = row_mean(a, width);
        float rstd = row_rstd(a, width, mean, call->attributes->epsilon);
        for (int64_t d = 0; d < width; d += LANES) {
            lanes centred = lanes_sub(lanes_get_real(a + d, width - d, 0.0f), lanes_set(mean));
            lanes scaled = lanes_mul(lanes_mul(centred, lanes_set(rstd)),
                                     lanes_get(gain + d, width - d, 0.0f));
            lanes_put_real(y + d, width - d,
                           lanes_add(scaled, lanes_get(bias + d, width - d, 0.0f)));
        }
        ((float *)call->out[1].data)[row] = mean;
        ((float *)call->out[2].data)[row] = rstd;
    }
}

void YOKE_VECTOR_NAME(rms_norm)(const yoke_kernel_call *call)
{
    const float *gain = call->in[1].data;
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        const real *a = input_row(call, 2, row, width);
        real *y = (real *)call->out[0].data + row * width;
        float rstd = row_rstd(a, width, 0.0f, call->attributes->epsilon);
        for (int64_t d = 0; d < width; d += LANES) {
            lanes normal = lanes_mul(lanes_get_real(a + d, width - d, 0.0f), lanes_set(rstd));
            lanes_put_real(y + d, width - d,
                           lanes_mul(normal, lanes_get(gain + d, width - d, 0.0f)));
        }
        ((float *)call->out[1].data)[row] = rstd;
    }
}

typedef struct norm_row {
    const real *dy, *a, *addend; /* the last may be NULL */
    const float *gain;
    float mean, rstd;
    bool centred; /* the norm took off the mean */
} norm_row;

static inline lanes scaled_get(const norm_row *row, int64_t d, int64_t n)
{
    return lanes_mul(lanes_get_real(row->dy + d, n, 0.0f), lanes_get(row->gain + d, n, 0.0f));
}

static inline lanes normal_get(const norm_row *row, int64_t d, int64_t n)
{
    lanes centred = lanes_sub(lanes_get_real(row->a + d, n, row->mean), lanes_set(row->mean));
    return lanes_mul(centred, lanes_set(row->rstd));
}

static void norm_row_grad(const norm_row *row, int64_t width, real *da)
{
    lanes sum = lanes_set(0.0f);
    lanes product = lanes_set(0.0f);
    for (int64_t d = 0; d < width; d += LANES) {
        lanes g = scaled_get(row, d, width - d);
        sum = lanes_add(sum, g);
        product = lanes_fma(g, normal_get(row, d, width - d), product);
    }
    lanes mean_sum = lanes_set(row->centred ? lanes_sum(sum) / (float)width : 0.0f);
    lanes mean_product = lanes_set(lanes_sum(product) / (float)width);
    for (int64_t d = 0; d < width; d += LANES) {
        lanes g = lanes_sub(scaled_get(row, d, width - d), mean_sum);
        g = lanes_sub(g, lanes_mul(normal_get(row, d, width - d), mean_product));
        g = lanes_mul(g, lanes_set(row->rstd));
        if (row->addend) {
            g = lanes_add(g, lanes_get_real(row->addend + d, width - d, 0.0f));
        }
        lanes_put_real(da + d, width - d, g);
    }
}

/* A row of input n, or NULL if the call has fewer. */
static const real *addend_row(const yoke_kernel_call *call, int n, int64_t row, int64_t width)
{
    return call->n_in > n ? (const real *)call->in[n].data + row * width : NULL;
}

void YOKE_VECTOR_NAME(layer_norm_grad)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        norm_row r = {
            .dy = (const real *)call->in[0].data + row * width,
            .a = (const real *)call->in[1].data + row * width,
            .addend = addend_row(call, 5, row, width),
            .gain = call->in[2].data,
            .mean = ((const float *)call->in[3].data)[row],
            .rstd = ((const float *)call->in[4].data)[row],
            .centred = true,
        };
        norm_row_grad(&r, width, (real *)call->out[0].data + row * width);
    }
}

void YOKE_VECTOR_NAME(rms_norm_grad)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_columns(&call->in[0]);
    int64_t rows = yoke_piece_rows(&call->in[0]);
#pragma omp parallel for schedule(static) if (rows > grain_rows(width))
    for (int64_t row = 0; row < rows; row++) {
        norm_row r = {
            .dy = (const real *)call->in[0].data + row * width,
            .a = (const real *)call->in[1].data + row * width,
            .addend = addend_row(call, 4, row, width),
            .gain = call->in[2].data,
            .rstd = ((const float *)call->in[3].data)[row],
        };
        norm_row_grad(&r, width, (real *)call->out[0].data + row * width);
    }
}
