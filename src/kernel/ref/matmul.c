/*
 * Matrix product: y[m,n] = sum over k of a[m,k] b[k,n], each operand as stored or transposed. Without any k the product
 * is zero. Sums in double, k ascending.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

enum { COLUMNS = 64 }; /* of the output at a time, so that rows of b are read in order */

typedef struct matrix {
    const float *data;
    int64_t row_stride, column_stride;
} matrix;

static matrix matrix_view(const yoke_tensor *piece, int64_t rows, int64_t columns, bool transposed)
{
    if (transposed) {
        return (matrix){piece->data, 1, rows};
    }
    return (matrix){piece->data, columns, 1};
}

static void sum_products(double sum[COLUMNS], const matrix *a, const matrix *b, int64_t m,
                         int64_t n, int64_t n_columns, int64_t n_k)
{
    for (int64_t j = 0; j < COLUMNS; j++) {
        sum[j] = 0.0;
    }
    for (int64_t k = 0; k < n_k; k++) {
        double factor = (double)a->data[m * a->row_stride + k * a->column_stride];
        const float *row = b->data + k * b->row_stride + n * b->column_stride;
        for (int64_t j = 0; j < n_columns; j++) {
            sum[j] += factor * (double)row[j * b->column_stride];
        }
    }
}

void yoke_ref_matmul(const yoke_kernel_call *call)
{
    const yoke_contraction *contraction = &call->attributes->contraction;
    yoke_product size = yoke_piece_contract(call);
    matrix a = matrix_view(&call->in[0], size.m, size.k, contraction->a_transposed);
    matrix b = matrix_view(&call->in[1], size.k, size.n, contraction->b_transposed);
    float *y = call->out[0].data;
    double sum[COLUMNS];
    for (int64_t m = 0; m < size.m; m++) {
        for (int64_t n = 0; n < size.n; n += COLUMNS) {
            int64_t n_columns = size.n - n < COLUMNS ? size.n - n : COLUMNS;
            sum_products(sum, &a, &b, m, n, n_columns, size.k);
            for (int64_t j = 0; j < n_columns; j++) {
                float *element = &y[m * size.n + n + j];
                *element = (float)(call->accumulate ? (double)*element + sum[j] : sum[j]);
            }
        }
    }
}
