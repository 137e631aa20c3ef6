/*
 * Conversions that need no other rank. Input and output are pieces of one global tensor.
 *
 *   slice: the output is filled with the input where they overlap (R -> S; the output lies inside the input)
 *   mask:  R -> P, where the first rank keeps the value (attribute sign 1) and the others hold zeros (sign 0)
 *
 * A slice has sign 1. Elements are words of any type, of the bytes of a real.
 */
#include "kernel/ref/ref.h"

#include <string.h>
#include "kernel/piece.h"

/* The part of a piece that another one has too, in global indices. */
static yoke_shard intersect(const yoke_shard *a, const yoke_shard *b)
{
    yoke_shard both = {.n_dims = a->n_dims};
    for (int dim = 0; dim < a->n_dims; dim++) {
        int64_t a_end = a->offset[dim] + a->extent[dim];
        int64_t b_end = b->offset[dim] + b->extent[dim];
        int64_t end = a_end < b_end ? a_end : b_end;
        both.offset[dim] = a->offset[dim] > b->offset[dim] ? a->offset[dim] : b->offset[dim];
        both.extent[dim] = end > both.offset[dim] ? end - both.offset[dim] : 0;
    }
    return both;
}

/* Local index in `piece` of the first element of row `row` of the part. */
static int64_t row_begin(const yoke_shard *piece, const yoke_shard *part, int64_t row)
{
    int64_t index = 0;
    int64_t stride = 1;
    for (int dim = part->n_dims - 1; dim >= 0; dim--) {
        int64_t local = part->offset[dim] - piece->offset[dim];
        if (dim < part->n_dims - 1) {
            YOKE_ASSERT(part->extent[dim] > 0);
            local += row % part->extent[dim];
            row /= part->extent[dim];
        }
        index += local * stride;
        stride *= piece->extent[dim];
    }
    return index;
}

void YOKE_REF_NAME(convert)(const yoke_kernel_call *call)
{
    const yoke_tensor *in = &call->in[0];
    const yoke_tensor *out = &call->out[0];
    const real *a = in->data;
    real *y = out->data;
    if (call->attributes->sign == 0) {
        /* A rank that holds less than before was sliced: sign 1 is missing. */
        YOKE_ASSERT(memcmp(in->shard.extent, out->shard.extent,
                           (size_t)in->shard.n_dims * sizeof(in->shard.extent[0])) == 0);
        for (int64_t i = 0; i < yoke_piece_elements(out); i++) {
            y[i] = real_round(0.0f);
        }
        return;
    }
    yoke_tensor part = {.shard = intersect(&in->shard, &out->shard)};
    int64_t rows = yoke_piece_rows(&part);
    int64_t width = yoke_piece_columns(&part);
    for (int64_t row = 0; row < rows && width > 0; row++) {
        /* Source and target are the same memory where a mask keeps its value in place. */
        memmove(y + row_begin(&out->shard, &part.shard, row),
                a + row_begin(&in->shard, &part.shard, row), (size_t)width * sizeof(*y));
    }
}
