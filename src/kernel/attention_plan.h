/*
 * The workspace of the vectorised attention: who sizes scratch and who uses it read the same numbers.
 *
 * Each thread holds, for a block of queries of one head, their scores over all keys, and the keys and values of one head
 * in panels of 16 lanes. It grows with the number of keys, not with its square.
 */
#ifndef YOKE_KERNEL_ATTENTION_PLAN_H
#define YOKE_KERNEL_ATTENTION_PLAN_H

#include <stdint.h>

enum {
    YOKE_ATTENTION_LANES = 16,
    YOKE_ATTENTION_QUERIES =
        48, /* in a block: a multiple of the rows of every micro-kernel, 6 and 12 */
};

typedef struct yoke_attention_plan {
    int64_t keys, width;     /* whole lanes */
    int64_t keys_stride;     /* of scores: one panel more, for micro-kernels that overlap the end */
    int64_t key_floats;      /* [keys_stride, width] in any arrangement */
    int64_t score_floats;    /* [queries, keys_stride] */
    int64_t query_floats;    /* [queries, width] in any arrangement */
    int64_t forward_floats;  /* of a thread: two of keys, one of scores, two of queries */
    int64_t gradient_floats; /* of a thread: five of keys, two of scores, five of queries */
} yoke_attention_plan;

static inline yoke_attention_plan yoke_attention_plan_get(int64_t n_keys, int64_t width)
{
    const int64_t lanes = YOKE_ATTENTION_LANES;
    yoke_attention_plan plan = {
        .keys = (n_keys + lanes - 1) / lanes * lanes,
        .width = (width + lanes - 1) / lanes * lanes,
    };
    plan.keys_stride = plan.keys + lanes;
    plan.key_floats = plan.keys_stride * plan.width;
    plan.score_floats = YOKE_ATTENTION_QUERIES * plan.keys_stride;
    plan.query_floats = YOKE_ATTENTION_QUERIES * plan.width;
    plan.forward_floats = 2 * plan.key_floats + plan.score_floats + 2 * plan.query_floats;
    plan.gradient_floats = 5 * plan.key_floats + 2 * plan.score_floats + 5 * plan.query_floats;
    return plan;
}

#endif
