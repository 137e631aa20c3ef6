/*
 * Attention with grouped queries, causal or of all to all (Vaswani et al. 2017; Ainslie et al.,
 * "GQA", 2023), computed in tiles with the log-sum-exp of each row kept for the backward pass (Dao
 * et al., "FlashAttention", 2022).
 *
 * Heads may be divided. Key/value heads go with the query heads where they divide too; otherwise
 * they stay whole on every rank, which uses those that its query heads need, and their gradients
 * are partial sums.
 *
 * Query tokens may be divided, and are another letter than key tokens: each piece of the queries
 * wants all keys and values, and their gradients are partial sums.
 *
 * The kernels also take a piece of the keys. Then y and lse are of that piece, and the combine
 * operator joins two; the gradient takes those of all keys, and its dq is a partial sum. No index
 * rule says this: whoever passes keys round a ring adds the nodes.
 */
#include <math.h>
#include <string.h>
#include "op/op.h"
#include "yoke/random.h"

/* The rule letters of keys and values: their tokens are `s`. */
static const char *key_rule(const char *dims)
{
    return dims[2] == 'h' ? "bshx" : "bskx";
}

static bool shapes_fit(yoke_graph *graph, const yoke_value qkv[3])
{
    const yoke_value_info *k = yoke_value_get(graph, qkv[1]);
    if (!yoke_value_expect(graph, "queries of attention", qkv[0], "bthx")) {
        return false;
    }
    if (strcmp(k->dims, "bthx") != 0 &&
        !yoke_value_expect(graph, "keys of attention", qkv[1], "btkx")) {
        return false;
    }
    int64_t n_heads = yoke_letter_extent(graph, 'h');
    if (n_heads % k->shape.extent[2] != 0) {
        yoke_graph_fail(graph,
                        "attention: %lld query heads are not a multiple of %lld key/value heads",
                        (long long)n_heads, (long long)k->shape.extent[2]);
        return false;
    }
    return yoke_value_expect(graph, "values of attention", qkv[2], k->dims);
}

yoke_value yoke_attention(yoke_graph *graph, const char *name, const yoke_value qkv[3], float rate,
                          bool causal)
{
    if (!yoke_values_good(graph, qkv, 3) || !shapes_fit(graph, qkv)) {
        return YOKE_NO_VALUE;
    }
    const yoke_value_info *q = yoke_value_get(graph, qkv[0]), *k = yoke_value_get(graph, qkv[1]);
    const char *const rules[] = {"bqhx", key_rule(k->dims), key_rule(k->dims)};
    return yoke_node_add(
        graph,
        &(yoke_node_spec){.op = YOKE_OP_ATTENTION,
                          .n_in = 3,
                          .in = qkv,
                          .in_rules = rules,
                          .out_dims = {"bthx", "bth"},
                          .out_rules = {"bqhx", "bqh"},
                          .attributes = {.scale = 1.0f / sqrtf((float)q->shape.extent[3]),
                                         .rate = rate,
                                         .causal = causal,
                                         .site = rate > 0 ? yoke_random_name(name) : 0,
                                         .n_heads = q->shape.extent[2],
                                         .n_kv_heads = k->shape.extent[2],
                                         .n_tokens = q->shape.extent[1]}},
        NULL);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    const char *kv = yoke_value_get(graph, node->in[1])->dims;
    const char *const rules[] = {"bqhx", key_rule(kv), key_rule(kv), "bqhx", "bqh", "bqhx"};
    const yoke_value in[] = {node->in[0],  node->in[1],  node->in[2],
                             node->out[0], node->out[1], d_out[0]};
    yoke_node_add(graph,
                  &(yoke_node_spec){.op = YOKE_OP_ATTENTION_GRAD,
                                    .n_in = 6,
                                    .in = in,
                                    .in_rules = rules,
                                    .out_dims = {"bthx", kv, kv},
                                    .out_rules = {"bqhx", key_rule(kv), key_rule(kv)},
                                    .attributes = node->attributes},
                  d_in);
}

/* Two products of [t,x] with [s,x] a head; half of it is masked if causal. */
static double forward_flops(const yoke_graph *graph, const yoke_node *node)
{
    const yoke_value_info *q = yoke_value_get(graph, node->in[0]);
    double products = node->attributes.causal ? 1.0 : 2.0;
    return 2.0 * products * (double)yoke_shape_elements(&q->shape) *
           (double)node->attributes.n_tokens;
}

/* Five such products: scores again, dv, dp, dq, dk. */
static double backward_flops(const yoke_graph *graph, const yoke_node *node)
{
    return 2.5 * forward_flops(graph, node);
}

/* Key/value heads divide with the query heads when both come out even, or are the same letter
 * anyway; never alone, since a query needs the keys of its own head only. Key tokens divide with
 * query tokens only where keys are passed round (layout/ring.c). */
static char companion(const yoke_graph *graph, const yoke_node *node, char letter, int n_parts)
{
    (void)node;
    int64_t n_kv = yoke_letter_extent(graph, 'k');
    if (letter == 'q') {
        return 's';
    }
    return letter == 'h' && n_kv > 0 && n_kv % n_parts == 0 ? 'k' : 0;
}

const yoke_op_def yoke_op_attention = {
    .name = "attention",
    .whole = "skx",
    .companion = companion,
    .ordered = true,
    .cheap = true,
    .gradient = gradient,
    .flops = forward_flops,
    .narrow_in = 1 << 0 | 1 << 1 | 1 << 2,
    .narrow_out = 1 << 0,
};

const yoke_op_def yoke_op_attention_grad = {
    .name = "attention_grad",
    .whole = "skx",
    .companion = companion,
    .ordered = true,
    .flops = backward_flops,
    .narrow_in = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5,
    .narrow_out = 1 << 0 | 1 << 1 | 1 << 2,
};

const yoke_op_def yoke_op_attention_combine = {
    .name = "attention_combine",
    .whole = "x",
    .reuses = 1 << 0 | 1 << 2,
    .narrow_in = 1 << 0 | 1 << 2,
    .narrow_out = 1 << 0,
};
