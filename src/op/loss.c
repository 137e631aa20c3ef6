/*
 * Cross entropy that works on a divided vocabulary (Shoeybi et al., "Megatron-LM", 2019, section
 * 3): each rank reduces its columns to the row's maximum, sum of exponentials and label's logit,
 * and only these cross between ranks.
 *
 *   loss = sum over valid tokens of (log(sum) + max - picked) / number of valid tokens in the whole
 *   step
 *
 * The divisor is counted before the first forward pass, and one node multiplies by its reciprocal
 * for the printed loss, another for the gradient: they cannot disagree.
 */
#include "op/op.h"
#include "op/step.h"

static yoke_value add_node(yoke_graph *graph, yoke_op op, const yoke_value *in, int n_in,
                           const char *dims)
{
    return yoke_node_add(
        graph, &(yoke_node_spec){.op = op, .n_in = n_in, .in = in, .out_dims = {dims}}, NULL);
}

yoke_value yoke_cross_entropy(yoke_graph *graph, yoke_value logits, yoke_value labels)
{
    const yoke_value both[] = {logits, labels};
    if (!yoke_values_good(graph, both, 2) ||
        !yoke_value_expect(graph, "logits of cross entropy", logits, "btv") ||
        !yoke_value_expect(graph, "labels of cross entropy", labels, "bt")) {
        return YOKE_NO_VALUE;
    }
    yoke_value n_valid = yoke_step_head(graph, YOKE_OP_COUNT_VALID, labels);
    yoke_value share = yoke_step_head(graph, YOKE_OP_RECIPROCAL, n_valid);
    yoke_value max = add_node(graph, YOKE_OP_ROW_MAX, &logits, 1, "bt");
    const yoke_value for_sum[] = {logits, max};
    yoke_value sum = add_node(graph, YOKE_OP_ROW_SUM_EXP, for_sum, 2, "bt");
    yoke_value picked = add_node(graph, YOKE_OP_ROW_PICK, both, 2, "bt");
    const yoke_value for_loss[] = {logits, max, sum, picked, labels};
    yoke_value total = add_node(graph, YOKE_OP_CROSS_ENTROPY, for_loss, 5, "");
    return yoke_step_loss(graph, total, share, n_valid);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    const yoke_value in[] = {node->in[0], node->in[1], node->in[2], node->in[4], d_out[0]};
    d_in[0] = add_node(graph, YOKE_OP_CROSS_ENTROPY_GRAD, in, 5, "btv");
}

const yoke_op_def yoke_op_row_max = {
    .name = "row_max",
    .maximum = true,
    .narrow_in = 1 << 0,
};
const yoke_op_def yoke_op_row_sum_exp = {
    .name = "row_sum_exp",
    .narrow_in = 1 << 0,
};
const yoke_op_def yoke_op_row_pick = {
    .name = "row_pick",
    .narrow_in = 1 << 0,
};
const yoke_op_def yoke_op_cross_entropy = {
    .name = "cross_entropy",
    .whole = "v",
    .unread = 1 << 0,
    .gradient = gradient,
    .accumulates = true,
    .sums_whole = true,
    .narrow_in = 1 << 0,
};
const yoke_op_def yoke_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .reuses = 1 << 0,
    .narrow_in = 1 << 0,
    .narrow_out = 1 << 0,
};
const yoke_op_def yoke_op_count_valid = {.name = "count_valid", .accumulates = true};
const yoke_op_def yoke_op_reciprocal = {.name = "reciprocal"};
