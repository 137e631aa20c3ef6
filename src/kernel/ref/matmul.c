/*
 * Matrix product: y[m,n] = sum over k of a[m,k] b[k,n], each operand as stored or transposed; one such product for each
 * index of the batch. Without any k the product is zero. Sums in double, k ascending, rounded once to the type of y.
 *
 * Each operand is f32 or bf16, whichever its piece says.
 */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>
#include "base/bf16.h"
#include "kernel/piece.h"

enum { COLUMNS = 64 }; /* of the output at a time, so that rows of b are read in order */

/* One product of the batch; `first` is where its elements begin. */
typedef struct matrix {
    const void *data;
    yoke_dtype type;
    int64_t first, row_stride, column_stride;
} matrix;

static matrix matrix_view(const yoke_tensor *tensor, int64_t first, int64_t rows, int64_t columns,
                          bool transposed)
{
    return (matrix){
        .data = tensor->data,
        .type = tensor->dtype,
        .first = first,
        .row_stride = transposed ? 1 : columns,
        .column_stride = transposed ? rows : 1,
    };
}

static double number_get(const void *data, yoke_dtype type, int64_t at)
{
    return type == YOKE_BF16 ? (double)yoke_bf16_widen(((const yoke_bf16 *)data)[at])
                             : (double)((const float *)data)[at];
}

/* Rounded to odd, so that the f32 rounds to the same bf16 as the double would. */
static float round_odd(double a)
{
    float nearest = (float)a;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    if (!isfinite(nearest) || (double)nearest == a || bits & 1) {
        return nearest;
    }
    bool is_away = fabs((double)nearest) > fabs(a);
    bits += is_away ? UINT32_MAX : 1;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

static void number_put(void *data, yoke_dtype type, int64_t at, double a)
{
    if (type == YOKE_BF16) {
        ((yoke_bf16 *)data)[at] = yoke_bf16_round(round_odd(a));
    } else {
        ((float *)data)[at] = (float)a;
    }
}

static double element(const matrix *of, int64_t row, int64_t column)
{
    int64_t at = of->first + row * of->row_stride + column * of->column_stride;
    return number_get(of->data, of->type, at);
}

/* sum[j] = sum over k of a[m, k] b[k, n + j]. */
static void sum_products(double sum[COLUMNS], const matrix *a, const matrix *b, int64_t m,
                         const int64_t columns[2], int64_t n_k)
{
    for (int64_t j = 0; j < COLUMNS; j++) {
        sum[j] = 0.0;
    }
    for (int64_t k = 0; k < n_k; k++) {
        double factor = element(a, m, k);
        for (int64_t j = 0; j < columns[1]; j++) {
            sum[j] += factor * element(b, k, columns[0] + j);
        }
    }
}

/* `first` is where the product begins in y, that goes there or is added. */
static void multiply(const matrix *a, const matrix *b, const yoke_product *size,
                     const yoke_kernel_call *call, int64_t first)
{
    const yoke_tensor *y = &call->out[0];
    double sum[COLUMNS];
    for (int64_t m = 0; m < size->m; m++) {
        for (int64_t n = 0; n < size->n; n += COLUMNS) {
            const int64_t columns[2] = {n, size->n - n < COLUMNS ? size->n - n : COLUMNS};
            sum_products(sum, a, b, m, columns, size->k);
            for (int64_t j = 0; j < columns[1]; j++) {
                int64_t at = first + m * size->n + n + j;
                double before = call->accumulate ? number_get(y->data, y->dtype, at) : 0.0;
                number_put(y->data, y->dtype, at, call->accumulate ? before + sum[j] : sum[j]);
            }
        }
    }
}

void yoke_ref_matmul(const yoke_kernel_call *call)
{
    const yoke_contraction *contraction = &call->attributes->contraction;
    yoke_product size = yoke_piece_contract(call);
    YOKE_ASSERT(!call->accumulate || call->out[0].dtype == YOKE_F32);
    for (int64_t i = 0; i < size.n_batch; i++) {
        matrix a = matrix_view(&call->in[0], i * size.m * size.k, size.m, size.k,
                               contraction->a_transposed);
        matrix b = matrix_view(&call->in[1], i * size.k * size.n, size.k, size.n,
                               contraction->b_transposed);
        multiply(&a, &b, &size, call, i * size.m * size.n);
    }
}
