/*
 * Ring attention (Liu et al., "Ring attention with blockwise transformers", 2023): every rank has a
 * piece of the queries and a piece of the keys and values. The pieces of keys go round; each rank
 * attends to one after the other and combines what it has by the log-sum-exp of the rows. Backward
 * they go round again, and the gradients of keys and values with them, back to where they belong.
 *
 * All of it is ordinary nodes: attention on pieces, rotations, sums. Which ranks meet, and when, is
 * the program's business.
 */
#include "layout/inference.h"

enum { K = 1, V };   /* inputs of attention and of attention_grad */
enum { DQ, DK, DV }; /* outputs of attention_grad */

typedef struct ring {
    yoke_inference *in;
    const yoke_node *node;
    int axis, n_ranks;
} ring;

bool yoke_ring_applies(const yoke_node *node, const yoke_division *division)
{
    bool attends = node->op == YOKE_OP_ATTENTION || node->op == YOKE_OP_ATTENTION_GRAD;
    return attends && division->companion == 's';
}

/* Another value with the dims and layout of `like`, turned along the ring. */
static yoke_value value_like(const ring *r, yoke_value like, int turn)
{
    yoke_value_info info = r->in->graph->values[like];
    info.layout.turn[r->axis] = (int16_t)(turn % r->n_ranks);
    info.kind = YOKE_VALUE_ACTIVATION;
    info.gradient_of = YOKE_NO_VALUE;
    info.stream = info.output = false;
    return yoke_inference_value_add(r->in, &info);
}

/* `value` as the next rank has it; it becomes `out`, or a new value if that is YOKE_NO_VALUE. */
static yoke_value rotate(const ring *r, yoke_value value, yoke_value out)
{
    yoke_graph *graph = r->in->graph;
    int turn = graph->values[value].layout.turn[r->axis] + 1;
    yoke_node node = yoke_inference_convert_node(graph, value, r->node);
    node.axis = (yoke_axis)r->axis;
    node.conversion = YOKE_CONVERT_ROTATE;
    node.out[0] = out == YOKE_NO_VALUE ? value_like(r, value, turn) : out;
    yoke_graph_node_append(graph, &node);
    return node.out[0];
}

/* The node for the pieces of keys and values that are here at this turn. */
static yoke_node step_node(const ring *r, const yoke_value kv[2])
{
    yoke_node node = *r->node;
    node.in = YOKE_ARENA_NEW(r->in->graph->arena, yoke_value, node.n_in);
    for (int i = 0; i < node.n_in; i++) {
        node.in[i] = r->node->in[i];
    }
    node.in[K] = kv[0];
    node.in[V] = kv[1];
    return node;
}

/* a + b, which becomes `out`. */
static yoke_value add(const ring *r, yoke_value a, yoke_value b, yoke_value out)
{
    const yoke_value both[] = {a, b};
    yoke_node node = yoke_inference_sum_node(r->in->graph, both, 2, r->node);
    node.out[0] = out;
    yoke_graph_node_append(r->in->graph, &node);
    return out;
}

/* y and its log-sum-exp over the keys of `so_far` and of `step` together. */
static void combine(const ring *r, const yoke_value so_far[2], const yoke_value step[2],
                    const yoke_value out[2])
{
    yoke_graph *graph = r->in->graph;
    yoke_node node = *r->node;
    node.op = YOKE_OP_ATTENTION_COMBINE;
    node.n_in = 4;
    node.in = YOKE_ARENA_NEW(graph->arena, yoke_value, 4);
    node.in_rule = YOKE_ARENA_NEW(graph->arena, const char *, 4);
    for (int i = 0; i < 4; i++) {
        node.in[i] = i < 2 ? so_far[i] : step[i - 2];
        node.in_rule[i] = r->node->out_rule[i % 2];
    }
    node.out[0] = out[0];
    node.out[1] = out[1];
    yoke_graph_node_append(graph, &node);
}

static void append_forward(const ring *r)
{
    const yoke_node *node = r->node;
    yoke_value kv[] = {node->in[K], node->in[V]};
    yoke_value so_far[2] = {YOKE_NO_VALUE, YOKE_NO_VALUE};
    for (int turn = 0; turn < r->n_ranks; turn++) {
        yoke_node step = step_node(r, kv);
        for (int i = 0; i < 2; i++) {
            step.out[i] = value_like(r, node->out[i], 0);
        }
        yoke_graph_node_append(r->in->graph, &step);
        yoke_value joined[] = {step.out[0], step.out[1]};
        bool last = turn == r->n_ranks - 1;
        for (int i = 0; turn > 0 && i < 2; i++) {
            joined[i] = last ? node->out[i] : value_like(r, node->out[i], 0);
        }
        if (turn > 0) {
            combine(r, so_far, step.out, joined);
        }
        for (int i = 0; i < 2; i++) {
            so_far[i] = joined[i];
            kv[i] = last ? kv[i] : rotate(r, kv[i], YOKE_NO_VALUE);
        }
    }
}

/* The gradient of keys or values so far goes round with them; what this turn gives is added. */
static yoke_value carry(const ring *r, yoke_value so_far, yoke_value step)
{
    if (so_far == YOKE_NO_VALUE) {
        return step;
    }
    yoke_value here = rotate(r, so_far, YOKE_NO_VALUE);
    int turn = r->in->graph->values[step].layout.turn[r->axis];
    return add(r, here, step, value_like(r, step, turn));
}

static void append_backward(const ring *r)
{
    const yoke_node *node = r->node;
    yoke_value kv[] = {node->in[K], node->in[V]};
    yoke_value so_far[3] = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE};
    for (int turn = 0; turn < r->n_ranks; turn++) {
        bool last = turn == r->n_ranks - 1;
        yoke_node step = step_node(r, kv);
        for (int i = 0; i < 3; i++) {
            step.out[i] = value_like(r, node->out[i], i == DQ ? 0 : turn);
        }
        yoke_graph_node_append(r->in->graph, &step);
        so_far[DQ] = turn == 0 ? step.out[DQ]
                               : add(r, so_far[DQ], step.out[DQ],
                                     last ? node->out[DQ] : value_like(r, node->out[DQ], 0));
        for (int i = DK; i <= DV; i++) {
            so_far[i] = carry(r, so_far[i], step.out[i]);
            kv[i - DK] = last ? kv[i - DK] : rotate(r, kv[i - DK], YOKE_NO_VALUE);
        }
    }
    (void)rotate(r, so_far[DK], node->out[DK]);
    (void)rotate(r, so_far[DV], node->out[DV]);
}

void yoke_ring_append(yoke_inference *in, const yoke_node *node, int axis)
{
    const ring r = {.in = in, .node = node, .axis = axis, .n_ranks = in->graph->mesh.size[axis]};
    if (node->op == YOKE_OP_ATTENTION) {
        append_forward(&r);
    } else {
        append_backward(&r);
    }
}
