/*
 * Sampling. Softmax in double over the kept tokens in ascending order, so that the result depends on nothing but the
 * logits and the random number.
 */
#include "cli/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

/* True if token a is less likely than b; of equal ones the higher token is. */
static bool less(const float *logits, int32_t a, int32_t b)
{
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
}

/* Sinks heap[root] in a heap of `n` tokens whose root is the least likely. */
static void sink(const float *logits, int32_t *heap, int64_t root, int64_t n)
{
    for (int64_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && less(logits, heap[child + 1], heap[child])) {
            child++;
        }
        if (!less(logits, heap[child], heap[root])) {
            return;
        }
        int32_t swap = heap[root];
        heap[root] = heap[child];
        heap[child] = swap;
        root = child;
    }
}

/* The likeliest `keep` of `n` tokens: a heap of those seen so far, whose root gives way. */
static int32_t least_kept(const float *logits, int32_t *heap, int64_t keep, int64_t n)
{
    for (int64_t i = 0; i < keep; i++) {
        heap[i] = (int32_t)i;
    }
    for (int64_t root = keep / 2 - 1; root >= 0; root--) {
        sink(logits, heap, root, keep);
    }
    for (int64_t i = keep; i < n; i++) {
        if (less(logits, heap[0], (int32_t)i)) {
            heap[0] = (int32_t)i;
            sink(logits, heap, 0, keep);
        }
    }
    return heap[0];
}

static int32_t likeliest(const float *logits, int64_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = less(logits, best, i) ? i : best;
    }
    return best;
}

/* exp((logit - highest) / temperature), or 0 for a token that is less likely than `least`. */
static double weight(const yoke_sampling *sampling, const float *logits, int32_t token,
                     const int32_t ends[2])
{
    if (less(logits, token, ends[0])) {
        return 0.0;
    }
    return exp(((double)logits[token] - (double)logits[ends[1]]) / sampling->temperature);
}

yoke_status yoke_sample(const yoke_sampling *sampling, const float *logits, int32_t *order,
                        int64_t n, double uniform, int32_t *token)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(logits[i])) {
            return YOKE_FAIL(YOKE_CHECK,
                             "the logit of token %" PRId64 " is %g; the weights are not usable", i,
                             (double)logits[i]);
        }
    }
    *token = likeliest(logits, n);
    if (sampling->temperature <= 0.0) {
        return YOKE_OK;
    }
    bool all = sampling->top_k <= 0 || sampling->top_k > n;
    int32_t ends[2] = {least_kept(logits, order, all ? n : sampling->top_k, n), *token};
    double total = 0.0;
    for (int32_t i = 0; i < n; i++) {
        total += weight(sampling, logits, i, ends);
    }
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double share = weight(sampling, logits, i, ends);
        sum += share;
        if (share > 0.0 && sum > uniform * total) {
            *token = i;
            return YOKE_OK;
        }
    }
    return YOKE_OK;
}
