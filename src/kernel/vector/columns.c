/*
 * Sums over rows, a column at a time: gradients of biases and gains.
 *
 * A thread takes strips of columns. Within one, rows are added in blocks of 64 and then the blocks, so that the error does
 * not grow with the number of rows.
 */
#include "kernel/vector/real.h"

enum {
    STRIP_LANES = 4,
    STRIP = STRIP_LANES * LANES,
    BLOCK_ROWS = 64,
    MAX_SUMS = 2,
};

/* What is summed: dy, or dy normalised(a) where `a` is given, or both. `mean` NULL is zero. */
typedef struct columns {
    const real *dy, *a;
    const float *mean, *rstd;
    float *dgain, *dbias; /* NULL: not wanted */
    int64_t rows, width;
    bool accumulate;
} columns;

static void strip_add_block(const columns *c, int64_t first_row, int64_t column,
                            lanes total[MAX_SUMS][STRIP_LANES])
{
    lanes sum[MAX_SUMS][STRIP_LANES];
    for (int64_t j = 0; j < STRIP_LANES; j++) {
        sum[0][j] = lanes_set(0.0f);
        sum[1][j] = lanes_set(0.0f);
    }
    for (int64_t row = first_row; row < smaller(first_row + BLOCK_ROWS, c->rows); row++) {
        lanes mean = lanes_set(c->mean ? c->mean[row] : 0.0f);
        lanes rstd = lanes_set(c->rstd ? c->rstd[row] : 0.0f);
        for (int64_t j = 0; j < STRIP_LANES; j++) {
            int64_t d = column + j * LANES;
            lanes dy = lanes_get_real(c->dy + row * c->width + d, c->width - d, 0.0f);
            sum[0][j] = lanes_add(sum[0][j], dy);
            if (c->a) {
                lanes a = lanes_get_real(c->a + row * c->width + d, c->width - d, 0.0f);
                lanes normal = lanes_mul(lanes_sub(a, mean), rstd);
                sum[1][j] = lanes_fma(dy, normal, sum[1][j]);
            }
        }
    }
    for (int64_t j = 0; j < STRIP_LANES; j++) {
        total[0][j] = lanes_add(total[0][j], sum[0][j]);
        total[1][j] = lanes_add(total[1][j], sum[1][j]);
    }
}

static void strip_write(const columns *c, float *to, int64_t column, const lanes total[STRIP_LANES])
{
    for (int64_t j = 0; j < STRIP_LANES && to; j++) {
        int64_t d = column + j * LANES;
        lanes sum = total[j];
        if (c->accumulate) {
            sum = lanes_add(lanes_get(to + d, c->width - d, 0.0f), sum);
        }
        lanes_put(to + d, c->width - d, sum);
    }
}

static void columns_sum(const columns *c)
{
#pragma omp parallel for schedule(static) if (c->rows * c->width > GRAIN)
    for (int64_t column = 0; column < c->width; column += STRIP) {
        lanes total[MAX_SUMS][STRIP_LANES];
        for (int64_t j = 0; j < STRIP_LANES; j++) {
            total[0][j] = lanes_set(0.0f);
            total[1][j] = lanes_set(0.0f);
        }
        for (int64_t row = 0; row < c->rows; row += BLOCK_ROWS) {
            strip_add_block(c, row, column, total);
        }
        strip_write(c, c->dbias, column, total[0]);
        strip_write(c, c->dgain, column, total[1]);
    }
}

void YOKE_VECTOR_NAME(sum_rows)(const yoke_kernel_call *call)
{
    int64_t width = yoke_piece_elements(&call->out[0]);
    columns_sum(&(columns){
        .dy = call->in[0].data,
        .dbias = call->out[0].data,
        .rows = width > 0 ? yoke_piece_elements(&call->in[0]) / width : 0,
        .width = width,
        .accumulate = call->accumulate,
    });
}

void YOKE_VECTOR_NAME(layer_norm_grad_gain)(const yoke_kernel_call *call)
{
    columns_sum(&(columns){
        .dy = call->in[0].data,
        .a = call->in[1].data,
        .mean = call->in[2].data,
        .rstd = call->in[3].data,
        .dgain = call->out[0].data,
        .dbias = call->out[1].data,
        .rows = yoke_piece_rows(&call->in[0]),
        .width = yoke_piece_columns(&call->in[0]),
        .accumulate = call->accumulate,
    });
}

void YOKE_VECTOR_NAME(rms_norm_grad_gain)(const yoke_kernel_call *call)
{
    columns_sum(&(columns){
        .dy = call->in[0].data,
        .a = call->in[1].data,
        .rstd = call->in[2].data,
        .dgain = call->out[0].data,
        .rows = yoke_piece_rows(&call->in[0]),
        .width = yoke_piece_columns(&call->in[0]),
        .accumulate = call->accumulate,
    });
}
