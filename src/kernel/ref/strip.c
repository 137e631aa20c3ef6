/*
 * Strips of a piece along one dim, and the piece that strips make. Elements are words of any type.
 */
#include "kernel/ref/ref.h"

#include <string.h>
#include "kernel/piece.h"

/* Bytes of a piece behind one index of the dims before `dim`. */
static size_t row_bytes(const yoke_tensor *piece, int dim)
{
    int64_t elements = yoke_piece_product(piece, dim, piece->shard.n_dims);
    return (size_t)(elements * yoke_dtype_bytes(piece->dtype));
}

void yoke_ref_strip(const yoke_kernel_call *call)
{
    const yoke_tensor *a = &call->in[0], *y = &call->out[0];
    int dim = call->attributes->strip.dim;
    int64_t index = yoke_piece_product(a, dim + 1, a->shard.n_dims) * yoke_dtype_bytes(a->dtype);
    size_t a_row = row_bytes(a, dim), y_row = row_bytes(y, dim);
    const char *from = (const char *)a->data + index * call->attributes->strip.first;
    int64_t n_rows = yoke_piece_product(a, 0, dim);
    for (int64_t row = 0; row < n_rows && y_row > 0; row++) {
        memcpy((char *)y->data + (size_t)row * y_row, from + (size_t)row * a_row, y_row);
    }
}

void yoke_ref_join(const yoke_kernel_call *call)
{
    const yoke_tensor *y = &call->out[0];
    int dim = call->attributes->strip.dim;
    size_t y_row = row_bytes(y, dim);
    char *to = y->data;
    int64_t n_rows = yoke_piece_product(y, 0, dim);
    for (int i = 0; i < call->n_in; i++) {
        size_t strip_row = row_bytes(&call->in[i], dim);
        for (int64_t row = 0; row < n_rows && strip_row > 0; row++) {
            memcpy(to + (size_t)row * y_row,
                   (const char *)call->in[i].data + (size_t)row * strip_row, strip_row);
        }
        to += strip_row;
    }
}
