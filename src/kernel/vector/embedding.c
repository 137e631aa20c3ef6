/*
 * Embedding and its gradient; ref/embedding.c says what they are. The gradient is dealt to the threads by columns, and in
 * each adds the tokens of a row in ascending order.
 */
#include "kernel/vector/real.h"

enum { STRIP = 64 }; /* columns of the gradient in a unit of work */

/* Up to 16 elements of the table, which has a type of its own. */
static inline lanes table_get(const yoke_tensor *table, int64_t at, int64_t n)
{
    return table->dtype == YOKE_BF16 ? lanes_get_real((const real *)table->data + at, n, 0.0f)
                                     : lanes_get((const float *)table->data + at, n, 0.0f);
}

void YOKE_VECTOR_NAME(embedding)(const yoke_kernel_call *call)
{
    const yoke_tensor *table = &call->in[0];
    const int32_t *ids = call->in[1].data;
    int64_t width = yoke_piece_columns(table);
    int64_t n_tokens = yoke_piece_elements(&call->in[1]);
#pragma omp parallel for schedule(static) if (n_tokens > grain_rows(width))
    for (int64_t i = 0; i < n_tokens; i++) {
        real *y = (real *)call->out[0].data + i * width;
        int64_t row = ids[i] - table->shard.offset[0];
        bool is_here = row >= 0 && row < table->shard.extent[0];
        for (int64_t d = 0; d < width; d += LANES) {
            lanes element =
                is_here ? table_get(table, row * width + d, width - d) : lanes_set(0.0f);
            lanes_put_real(y + d, width - d, element);
        }
    }
}

static void zero(float *a, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t first = 0; first < n; first += GRAIN) {
        memset(a + first, 0, (size_t)smaller(GRAIN, n - first) * sizeof(*a));
    }
}

/* Tokens by the row that they are of: the first of each row, and behind each token the next; -1: none. */
typedef struct chains {
    int32_t *first, *next;
} chains;

static chains find_chains(const yoke_kernel_call *call, int64_t n_tokens)
{
    const int32_t *ids = call->in[0].data;
    const yoke_shard *shard = &call->out[0].shard;
    chains c = {.first = call->scratch, .next = (int32_t *)call->scratch + shard->extent[0]};
    memset(c.first, 0xff, (size_t)shard->extent[0] * sizeof *c.first);
    for (int64_t i = n_tokens - 1; i >= 0; i--) {
        int64_t row = ids[i] - shard->offset[0];
        if (row >= 0 && row < shard->extent[0]) {
            c.next[i] = c.first[row];
            c.first[row] = (int32_t)i;
        }
    }
    return c;
}

/* Adds to columns [column, end) of a row the sum over its tokens. */
static void add_row(const yoke_kernel_call *call, const chains *c, int64_t row,
                    const int64_t columns[2])
{
    int64_t width = call->out[0].shard.extent[1];
    float *dtable = (float *)call->out[0].data + row * width;
    for (int64_t d = columns[0]; d < columns[1]; d += LANES) {
        lanes sum = lanes_set(0.0f);
        for (int32_t i = c->first[row]; i >= 0; i = c->next[i]) {
            const real *dy = (const real *)call->in[1].data + i * width;
            sum = lanes_add(sum, lanes_get_real(dy + d, columns[1] - d, 0.0f));
        }
        lanes_put(dtable + d, columns[1] - d,
                  lanes_add(lanes_get(dtable + d, columns[1] - d, 0.0f), sum));
    }
}

void YOKE_VECTOR_NAME(embedding_grad)(const yoke_kernel_call *call)
{
    const int32_t *ids = call->in[0].data;
    const yoke_shard *shard = &call->out[0].shard;
    int64_t width = shard->extent[1];
    int64_t n_tokens = yoke_piece_elements(&call->in[0]);
    if (!call->accumulate) {
        zero(call->out[0].data, shard->extent[0] * width);
    }
    chains c = find_chains(call, n_tokens);
#pragma omp parallel for schedule(static) if (n_tokens * width > GRAIN)
    for (int64_t column = 0; column < width; column += STRIP) {
        const int64_t columns[2] = {column, smaller(column + STRIP, width)};
        for (int64_t i = 0; i < n_tokens; i++) {
            int64_t row = ids[i] - shard->offset[0];
            if (row >= 0 && row < shard->extent[0] && c.first[row] == i) {
                add_row(call, &c, row, columns);
            }
        }
    }
}
