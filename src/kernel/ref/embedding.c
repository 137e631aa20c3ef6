/*
 * Embedding: y[b,t,:] = table[ids[b,t],:], and its gradient dtable[v,:] = sum of dy over the tokens with id v.
 *
 * The table has a type of its own, and may be a shard of rows. An id outside of it gives a row of zeros, so the sum over the
 * shards is the whole. Tokens of one id are added in ascending order, and their sum to what is there before. So a table
 * that serves twice can have one gradient for both places, with the bits of the sum of two.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

static float table_element(const yoke_tensor *table, int64_t i)
{
    return table->dtype == YOKE_BF16 ? real_widen(((const real *)table->data)[i])
                                     : ((const float *)table->data)[i];
}

void YOKE_REF_NAME(embedding)(const yoke_kernel_call *call)
{
    const yoke_tensor *table = &call->in[0];
    const int32_t *ids = call->in[1].data;
    real *y = call->out[0].data;
    int64_t width = yoke_piece_columns(table);
    int64_t n_tokens = yoke_piece_elements(&call->in[1]);
    for (int64_t i = 0; i < n_tokens; i++) {
        int64_t row = ids[i] - table->shard.offset[0];
        bool is_here = row >= 0 && row < table->shard.extent[0];
        for (int64_t d = 0; d < width; d++) {
            float element = is_here ? table_element(table, row * width + d) : 0.0f;
            y[i * width + d] = real_round(element);
        }
    }
}

static bool is_first(const int32_t *ids, int64_t i)
{
    int64_t j = 0;
    while (ids[j] != ids[i]) {
        j++;
    }
    return j == i;
}

void YOKE_REF_NAME(embedding_grad)(const yoke_kernel_call *call)
{
    const int32_t *ids = call->in[0].data;
    const real *dy = call->in[1].data;
    const yoke_shard *shard = &call->out[0].shard;
    float *dtable = call->out[0].data;
    int64_t width = shard->extent[1];
    int64_t n_tokens = yoke_piece_elements(&call->in[0]);
    if (!call->accumulate) {
        for (int64_t i = 0; i < shard->extent[0] * width; i++) {
            dtable[i] = 0.0f;
        }
    }
    for (int64_t i = 0; i < n_tokens; i++) {
        int64_t row = ids[i] - shard->offset[0];
        if (row < 0 || row >= shard->extent[0] || !is_first(ids, i)) {
            continue;
        }
        for (int64_t d = 0; d < width; d++) {
            float sum = 0.0f;
            for (int64_t j = i; j < n_tokens; j++) {
                sum += ids[j] == ids[i] ? real_widen(dy[j * width + d]) : 0.0f;
            }
            dtable[row * width + d] += sum;
        }
    }
}
