/*
 * Scratch of a call: the most that any set wants, so that a plan holds whichever set runs.
 */
#include "kernel/kernel.h"

#include "kernel/attention_plan.h"
#include "kernel/piece.h"
#include "kernel/product.h"

static size_t max_bytes(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t attention_bytes(const yoke_kernel_call *call, int n_threads, bool gradient)
{
    int64_t n_keys = call->in[1].shard.extent[1];
    int64_t width = call->in[1].shard.extent[3];
    yoke_attention_plan plan = yoke_attention_plan_get(n_keys, width);
    int64_t floats = gradient ? plan.gradient_floats : plan.forward_floats;
    int64_t ref_doubles = gradient ? 2 * n_keys * width + width : n_keys;
    return max_bytes((size_t)ref_doubles * sizeof(double),
                     (size_t)n_threads * (size_t)floats * sizeof(float));
}

size_t yoke_kernel_scratch_bytes(yoke_op op, const yoke_kernel_call *call, int n_threads)
{
    if (op == YOKE_OP_ATTENTION || op == YOKE_OP_ATTENTION_GRAD) {
        return attention_bytes(call, n_threads, op == YOKE_OP_ATTENTION_GRAD);
    }
    if (op == YOKE_OP_ROPE) {
        return (size_t)call->in[0].shard.extent[3] * sizeof(double); /* a frequency for each pair */
    }
    if (op == YOKE_OP_EMBEDDING_GRAD) {
        int64_t n_tokens = yoke_piece_elements(&call->in[0]);
        return (size_t)(call->out[0].shard.extent[0] + n_tokens) * sizeof(int32_t);
    }
    if (op == YOKE_OP_MATMUL) {
        return yoke_product_scratch_bytes(call, n_threads);
    }
    return 0;
}
