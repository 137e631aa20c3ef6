/*
 * Matrix product: y[m,n] = sum over k of a[m,k] b[k,n], each operand as stored or transposed; one such product for each
 * index of the batch. Without any k the product is zero. Sums in double, k ascending.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

enum { COLUMNS = 64 }; /* of the output at a time, so that rows of b are read in order */

typedef struct matrix {
    const float *data;
    int64_t row_stride, column_stride;
} matrix;

static matrix matrix_view(const float *data, int64_t rows, int64_t columns, bool transposed)
{
    return transposed ? (matrix){data, 1, rows} : (matrix){data, columns, 1};
}

/* sum[j] = sum over k of row[k] b[k, j], where `row` is a row of a and b begins at the columns wanted. */
static void sum_products(double sum[COLUMNS], const matrix *row, const matrix *b, int64_t n_columns,
                         int64_t n_k)
{
    for (int64_t j = 0; j < COLUMNS; j++) {
        sum[j] = 0.0;
    }
    for (int64_t k = 0; k < n_k; k++) {
        double factor = (double)row->data[k * row->column_stride];
        const float *b_row = b->data + k * b->row_stride;
        for (int64_t j = 0; j < n_columns; j++) {
            sum[j] += factor * (double)b_row[j * b->column_stride];
        }
    }
}

/* `y` is where the product goes, or is added to. */
static void multiply_rows(const matrix *a, const matrix *b, const yoke_product *size, float *y,
                          bool accumulate)
{
    double sum[COLUMNS];
    for (int64_t m = 0; m < size->m; m++) {
        matrix row = {a->data + m * a->row_stride, a->row_stride, a->column_stride};
        for (int64_t n = 0; n < size->n; n += COLUMNS) {
            int64_t n_columns = size->n - n < COLUMNS ? size->n - n : COLUMNS;
            matrix part = {b->data + n * b->column_stride, b->row_stride, b->column_stride};
            float *out = y + m * size->n + n;
            sum_products(sum, &row, &part, n_columns, size->k);
            for (int64_t j = 0; j < n_columns; j++) {
                out[j] = (float)(accumulate ? (double)out[j] + sum[j] : sum[j]);
            }
        }
    }
}

void yoke_ref_matmul(const yoke_kernel_call *call)
{
    const yoke_contraction *contraction = &call->attributes->contraction;
    yoke_product size = yoke_piece_contract(call);
    const float *a = call->in[0].data;
    const float *b = call->in[1].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < size.n_batch; i++) {
        matrix left = matrix_view(a, size.m, size.k, contraction->a_transposed);
        matrix right = matrix_view(b, size.k, size.n, contraction->b_transposed);
        /* Without a k the operands may have no memory to point into. */
        if (size.k == 0) {
            static const float nothing = 0.0f;
            left = right = (matrix){.data = &nothing};
        }
        multiply_rows(&left, &right, &size, y, call->accumulate);
        a += size.m * size.k;
        b += size.k * size.n;
        y += size.m * size.n;
    }
}
