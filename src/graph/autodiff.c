/*
 * Reverse-mode differentiation on the graph: walks the forward nodes backwards, sums what flows
 * into each value, and asks each operator for the nodes of its gradient. The gradient of the loss
 * is `share`, one over the number of valid labels, so every gradient comes out already divided, on
 * any mesh and pipeline alike.
 *
 * The gradient of a parameter accumulates over the micro-batches. A parameter used in several
 * places has one accumulator a place; the tail adds them in the order of their blocks. With two
 * places the bits of the sum are the same wherever they live; of three or more, stages add their
 * own first.
 */
#include "graph/graph.h"

/* What flows into one value, in the order in which it was found. */
typedef struct flow {
    yoke_value *part;
    int64_t n, capacity;
} flow;

typedef struct differentiation {
    yoke_graph *graph;
    flow *into; /* [values at the start] */
} differentiation;

static void push(differentiation *d, yoke_value value, yoke_value part)
{
    flow *f = &d->into[value];
    f->part = yoke_arena_grow(d->graph->arena, f->part, f->n, &f->capacity, sizeof *f->part);
    f->part[f->n++] = part;
}

static int block_of(const yoke_graph *graph, yoke_value value)
{
    int producer = graph->values[value].producer;
    return producer == YOKE_NO_NODE ? YOKE_NO_BLOCK : graph->nodes[producer].block;
}

/* The block in which the parts of a gradient are added: theirs if it is one, so that only the sum
 * leaves it. */
static int block_of_sum(const yoke_graph *graph, const flow *f, yoke_value value)
{
    int block = block_of(graph, f->part[0]);
    for (int64_t i = 1; i < f->n; i++) {
        if (block_of(graph, f->part[i]) != block) {
            return block_of(graph, value);
        }
    }
    return block;
}

static yoke_value sum(yoke_graph *graph, const yoke_value *parts, int64_t n)
{
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_ADD,
                                           .n_in = (int)n,
                                           .in = parts,
                                           .out_dims = {graph->values[parts[0]].dims}},
                         NULL);
}

/* The whole gradient of a value that a node made. */
static yoke_value gather(differentiation *d, yoke_value value)
{
    yoke_graph *graph = d->graph;
    const flow *f = &d->into[value];
    if (f->n == 0) {
        return YOKE_NO_VALUE;
    }
    yoke_value whole = f->part[0];
    if (f->n > 1) {
        graph->block = block_of_sum(graph, f, value);
        whole = sum(graph, f->part, f->n);
    }
    if (whole == YOKE_NO_VALUE) {
        return whole;
    }
    yoke_value_info *info = &graph->values[whole];
    info->stream = info->stream || graph->values[value].stream;
    if (graph->values[value].kind == YOKE_VALUE_ACTIVATION && info->gradient_of == YOKE_NO_VALUE) {
        info->gradient_of = value;
    }
    return whole;
}

/* A kernel adds to all of its outputs or to none: what it makes beside the gradient of a trained
 * parameter, that of a frozen one, accumulates too. */
static void accumulate(yoke_graph *graph, yoke_value part)
{
    const yoke_node *node = &graph->nodes[graph->values[part].producer];
    for (int i = 0; i < node->n_out; i++) {
        graph->values[node->out[i]].kind = YOKE_VALUE_ACCUMULATOR;
    }
}

/* The part of a parameter's gradient that one use of it gives. It must be a value of its own that
 * can accumulate. */
static void push_parameter(differentiation *d, yoke_value parameter, yoke_value part,
                           int64_t first_new)
{
    yoke_graph *graph = d->graph;
    if (graph->values[part].producer < first_new ||
        !yoke_op_get(graph->nodes[graph->values[part].producer].op)->accumulates) {
        part = sum(graph, &part, 1);
    }
    accumulate(graph, part);
    graph->values[part].gradient_of = parameter;
    push(d, parameter, part);
}

static void differentiate_node(differentiation *d, const yoke_node *node)
{
    yoke_graph *graph = d->graph;
    const yoke_op_def *def = yoke_op_get(node->op);
    yoke_value d_out[YOKE_MAX_OUTPUTS] = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE,
                                          YOKE_NO_VALUE};
    for (int i = 0; i < node->n_out; i++) {
        d_out[i] = gather(d, node->out[i]);
    }
    if (!def->gradient || d_out[0] == YOKE_NO_VALUE) {
        return;
    }
    graph->block = node->block;
    int64_t first_new = graph->n_nodes;
    yoke_value d_in[YOKE_MAX_OUTPUTS + 2];
    YOKE_ASSERT(node->n_in <= YOKE_MAX_OUTPUTS + 2);
    for (int i = 0; i < node->n_in; i++) {
        d_in[i] = YOKE_NO_VALUE;
    }
    def->gradient(graph, node, d_out, d_in);
    for (int i = 0; i < node->n_in && !graph->error; i++) {
        yoke_value_kind kind = graph->values[node->in[i]].kind;
        bool constant = kind == YOKE_VALUE_INPUT || graph->values[node->in[i]].frozen;
        if (d_in[i] == YOKE_NO_VALUE || constant) {
            continue;
        }
        if (kind == YOKE_VALUE_PARAMETER) {
            push_parameter(d, node->in[i], d_in[i], first_new);
        } else {
            push(d, node->in[i], d_in[i]);
        }
    }
}

/* Orders the parts of a parameter's gradient by block; there are few. */
static void sort_by_block(const yoke_graph *graph, flow *f)
{
    for (int64_t i = 1; i < f->n; i++) {
        yoke_value part = f->part[i];
        int64_t j = i;
        for (; j > 0 && block_of(graph, f->part[j - 1]) > block_of(graph, part); j--) {
            f->part[j] = f->part[j - 1];
        }
        f->part[j] = part;
    }
}

static void collect_gradients(differentiation *d)
{
    yoke_graph *graph = d->graph;
    graph->gradients = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_parameters);
    graph->region = YOKE_REGION_TAIL;
    graph->block = YOKE_NO_BLOCK;
    for (int64_t i = 0; i < graph->n_parameters && !graph->error; i++) {
        yoke_value parameter = graph->parameters[i];
        flow *f = &d->into[parameter];
        graph->gradients[i] = YOKE_NO_VALUE;
        if (graph->values[parameter].frozen) {
            continue;
        }
        if (f->n == 0) {
            yoke_graph_fail(graph, "the loss does not depend on parameter %s; remove it",
                            graph->values[parameter].name);
            return;
        }
        sort_by_block(graph, f);
        graph->gradients[i] = f->n > 1 ? sum(graph, f->part, f->n) : f->part[0];
        if (!graph->error) {
            graph->values[graph->gradients[i]].gradient_of = parameter;
        }
    }
}

static bool is_used(const yoke_graph *graph, const yoke_node *node)
{
    for (int i = 0; i < node->n_out; i++) {
        const yoke_value_info *info = &graph->values[node->out[i]];
        if (info->n_uses > 0 || info->output || info->kind == YOKE_VALUE_ACCUMULATOR) {
            return true;
        }
    }
    return false;
}

/* A forward node that nobody reads may hold a parameter on a stage that gives it no gradient. */
static void refuse_unused(yoke_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->region == YOKE_REGION_FORWARD && !is_used(graph, node)) {
            graph->block = node->block;
            yoke_graph_fail(graph, "the loss does not depend on %s; remove it",
                            graph->values[node->out[0]].name);
        }
    }
}

/* Takes out the backward nodes whose results nobody reads: gradients of what is not trained. */
static void prune(yoke_graph *graph, int64_t n_forward)
{
    bool *kept = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes);
    for (int64_t i = graph->n_nodes - 1; i >= 0; i--) {
        const yoke_node *node = &graph->nodes[i];
        kept[i] = i < n_forward || is_used(graph, node) || node->region == YOKE_REGION_TAIL;
        for (int k = 0; !kept[i] && k < node->n_in; k++) {
            graph->values[node->in[k]].n_uses--;
        }
    }
    int64_t n = n_forward;
    for (int64_t i = n_forward; i < graph->n_nodes; i++) {
        if (kept[i]) {
            graph->nodes[n] = graph->nodes[i];
            for (int k = 0; k < graph->nodes[n].n_out; k++) {
                graph->values[graph->nodes[n].out[k]].producer = (int)n;
            }
            n++;
        }
    }
    graph->n_nodes = n;
}

yoke_status yoke_graph_differentiate(yoke_graph *graph)
{
    YOKE_ASSERT(graph->loss_total != YOKE_NO_VALUE);
    differentiation d = {.graph = graph,
                         .into = YOKE_ARENA_NEW(graph->arena, flow, graph->n_values)};
    int64_t n_forward = graph->n_nodes;
    refuse_unused(graph);
    push(&d, graph->loss_total, graph->loss_share);
    for (int64_t i = 0; i < graph->n_auxiliary; i++) {
        push(&d, graph->auxiliary[i], graph->loss_share);
    }
    graph->region = YOKE_REGION_BACKWARD;
    for (int64_t i = n_forward - 1; i >= 0 && !graph->error; i--) {
        /* A copy: the array moves while backward nodes are added. */
        yoke_node node = graph->nodes[i];
        if (node.region == YOKE_REGION_FORWARD) {
            differentiate_node(&d, &node);
        }
    }
    collect_gradients(&d);
    prune(graph, n_forward);
    return yoke_graph_finish(graph);
}
