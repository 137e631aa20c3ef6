/*
 * The order of tokens, where a policy wants balanced chunks: checked, and given to the nodes whose
 * mathematics depends on where a token stands. Layouts know nothing of it: a piece is an interval of
 * indices in any order.
 */
#include "layout/inference.h"
#include <string.h>

yoke_status yoke_inference_order(yoke_inference *in)
{
    yoke_graph *graph = in->graph;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        char letter = in->policies->axis[axis].balanced;
        int64_t n_tokens = letter ? yoke_letter_extent(graph, letter) : 0;
        if (n_tokens == 0 || !yoke_inference_divides(in, axis)) {
            continue;
        }
        const char *name = yoke_axis_name((yoke_axis)axis);
        int64_t n_ranks = graph->mesh.size[axis], n_chunks = 2 * n_ranks;
        if (n_tokens % n_chunks != 0) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "%lld tokens do not divide into the 2 x %lld balanced chunks of "
                             "%s=%lld: use a seq_len that is a multiple of %lld, such as %lld, or "
                             "balance_context=false",
                             (long long)n_tokens, (long long)n_ranks, name, (long long)n_ranks,
                             (long long)n_chunks,
                             (long long)((n_tokens / n_chunks + 1) * n_chunks));
        }
        YOKE_ASSERT(!graph->ordered);
        graph->ordered = letter;
        graph->order = (yoke_order){.n_tokens = n_tokens, .n_chunks = n_chunks};
    }
    return YOKE_OK;
}

yoke_status yoke_inference_order_node(const yoke_inference *in, yoke_node *node)
{
    const yoke_graph *graph = in->graph;
    if (!graph->ordered || !yoke_op_get(node->op)->ordered) {
        return YOKE_OK;
    }
    const yoke_value_info *info = &graph->values[node->in[0]];
    const char *found = strchr(info->dims, graph->ordered);
    if (!found) {
        return YOKE_OK;
    }
    if (!found[1]) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%s of [%s]: its last dim are tokens in balanced chunks, and rows must be "
                         "whole; give it another last dim, or use balance_context=false",
                         yoke_op_get(node->op)->name, info->dims);
    }
    node->attributes.order = graph->order;
    node->attributes.order_dim = (int)(found - info->dims);
    return YOKE_OK;
}
