/*
 * Joins neighbours that only pass memory to each other, so that each element goes to memory once.
 * No operator is new for it: one takes over what another did as optional operands (op/list.h).
 *
 *   biases    add_bias whose result only GELU and its gradient read: they add the bias to what they
 *             read, and what is kept for the backward pass is the sum without it;
 *   addends   add of two, one of which add_bias or the gradient of a norm made for it alone: that
 *             one adds the other, as where the gradients of the residual stream meet;
 *   sums      a norm that reads a sum of two before anybody else: it makes the sum and its bias, and
 *             gives the sum as one more output.
 *
 * Runs after layouts, so a value that has to be converted has its convert node between and is no
 * neighbour. A pair has one region and one block, and is computed again together or not at all. In
 * f32 all bits are those of the nodes apart; in bf16 what lay between is not rounded, but for the sum
 * of a norm.
 *
 * Whether a pair is joined does not depend on what is computed again: so the cut of a pipeline is
 * the same at every level of it.
 */
#include <string.h>
#include "graph/graph.h"

/* Operators that take something over, and the inputs that they have without it. */
typedef struct form {
    yoke_op op;
    int n_in;
} form;

static const form biases[] = {
    {YOKE_OP_GELU, 1},
    {YOKE_OP_GELU_GRAD, 2},
    {YOKE_OP_GELU_ERF, 1},
    {YOKE_OP_GELU_ERF_GRAD, 2},
};
static const form addends[] = {
    {YOKE_OP_ADD_BIAS, 2},
    {YOKE_OP_LAYER_NORM_GRAD, 5},
    {YOKE_OP_RMS_NORM_GRAD, 4},
};
static const form sums[] = {
    {YOKE_OP_LAYER_NORM, 3},
    {YOKE_OP_RMS_NORM, 2},
};

#define HAS_FORM(forms, node) has_form(forms, sizeof(forms) / sizeof *(forms), node)

typedef struct fusion {
    yoke_graph *graph;
    int *first;  /* [values + 1] where the readers of a value begin in `reader` */
    int *reader; /* nodes, those of a value in ascending order */
    bool *gone;  /* [nodes] joined to another */
} fusion;

static bool has_form(const form *forms, size_t n, const yoke_node *node)
{
    for (size_t i = 0; i < n; i++) {
        if (forms[i].op == node->op && forms[i].n_in == node->n_in) {
            return true;
        }
    }
    return false;
}

/* --- Who reads what --------------------------------------------------------------------------- */

static void index_readers(fusion *f)
{
    const yoke_graph *graph = f->graph;
    int64_t n_reads = 0;
    f->first = YOKE_ARENA_NEW(graph->arena, int, graph->n_values + 2);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        n_reads += node->n_in;
        for (int k = 0; k < node->n_in; k++) {
            f->first[node->in[k] + 2]++;
        }
    }
    for (int64_t v = 0; v < graph->n_values; v++) {
        f->first[v + 2] += f->first[v + 1];
    }
    /* first[v + 1] goes from the begin of v's readers to their end. */
    f->reader = YOKE_ARENA_NEW(graph->arena, int, n_reads);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        for (int k = 0; k < graph->nodes[i].n_in; k++) {
            f->reader[f->first[graph->nodes[i].in[k] + 1]++] = (int)i;
        }
    }
}

static int n_readers(const fusion *f, yoke_value value)
{
    return f->first[value + 1] - f->first[value];
}

/* --- What may be joined ----------------------------------------------------------------------- */

/* True if nobody outside the graph's nodes has a use for the value. */
static bool is_passed_on(const yoke_graph *graph, yoke_value value)
{
    const yoke_value_info *info = &graph->values[value];
    return info->kind == YOKE_VALUE_ACTIVATION && !info->output &&
           yoke_value_parameter(graph, value) == YOKE_NO_VALUE;
}

/* True if a node may read or write either value in the place of the other. */
static bool lie_alike(const yoke_graph *graph, yoke_value a, yoke_value b)
{
    const yoke_value_info *x = &graph->values[a], *y = &graph->values[b];
    return x->dtype == y->dtype && yoke_layout_equal(x->layout, y->layout);
}

/* The node that makes `value` for node `consumer`, if the two may be one; else NULL. */
static const yoke_node *find_neighbour(const fusion *f, yoke_value value, const yoke_node *consumer)
{
    const yoke_graph *graph = f->graph;
    int index = graph->values[value].producer;
    if (index == YOKE_NO_NODE || f->gone[index] || !is_passed_on(graph, value)) {
        return NULL;
    }
    const yoke_node *producer = &graph->nodes[index];
    bool together = producer->region == consumer->region && producer->block == consumer->block &&
                    producer->recomputed == consumer->recomputed;
    bool inside =
        producer->region == YOKE_REGION_FORWARD || producer->region == YOKE_REGION_BACKWARD;
    return together && inside ? producer : NULL;
}

/* --- Joining ---------------------------------------------------------------------------------- */

/* One more input. Nodes may share their arrays: a clone has the rules of its original. */
static void add_input(const yoke_graph *graph, yoke_node *node, yoke_value value, const char *rule)
{
    int n = node->n_in++;
    yoke_value *in = YOKE_ARENA_NEW(graph->arena, yoke_value, n + 1);
    const char **in_rule = YOKE_ARENA_NEW(graph->arena, const char *, n + 1);
    memcpy(in, node->in, sizeof *in * (size_t)n);
    memcpy(in_rule, node->in_rule, sizeof *in_rule * (size_t)n);
    in[n] = value;
    in_rule[n] = rule;
    node->in = in;
    node->in_rule = in_rule;
}

static void drop(fusion *f, const yoke_node *node)
{
    f->gone[node - f->graph->nodes] = true;
}

/* A bias that was gathered for one pass is not there in the other. */
static bool is_there_for_the_step(const yoke_graph *graph, yoke_value value)
{
    int producer = graph->values[value].producer;
    return producer == YOKE_NO_NODE || graph->nodes[producer].region == YOKE_REGION_HEAD;
}

static void join_biases(fusion *f, yoke_node *node)
{
    yoke_graph *graph = f->graph;
    yoke_value sum = node->out[0];
    bool good = node->op == YOKE_OP_ADD_BIAS && node->n_in == 2 && is_passed_on(graph, sum) &&
                n_readers(f, sum) > 0 && lie_alike(graph, node->in[0], sum) &&
                is_there_for_the_step(graph, node->in[1]);
    for (int i = f->first[sum]; good && i < f->first[sum + 1]; i++) {
        const yoke_node *reader = &graph->nodes[f->reader[i]];
        good = HAS_FORM(biases, reader) && reader->in[0] == sum && reader->block == node->block &&
               !(reader->n_in > 1 && reader->in[1] == sum);
    }
    for (int i = f->first[sum]; good && i < f->first[sum + 1]; i++) {
        yoke_node *reader = &graph->nodes[f->reader[i]];
        add_input(graph, reader, node->in[1], node->in_rule[1]);
        reader->in[0] = node->in[0];
    }
    if (good) {
        drop(f, node);
    }
}

/* Lets the maker of operand k of a sum add the other operand. */
static bool join_addend(fusion *f, yoke_node *add, int k)
{
    yoke_graph *graph = f->graph;
    yoke_value part = add->in[k], other = add->in[1 - k];
    const yoke_node *producer = find_neighbour(f, part, add);
    if (!producer || !HAS_FORM(addends, producer) || n_readers(f, part) != 1 ||
        !lie_alike(graph, part, other) || !lie_alike(graph, part, add->out[0])) {
        return false;
    }
    yoke_node joint = *producer;
    add_input(graph, &joint, other, add->in_rule[1 - k]);
    joint.out[0] = add->out[0];
    joint.repeats = add->repeats;
    drop(f, producer);
    *add = joint;
    return true;
}

static void join_addends(fusion *f, yoke_node *node)
{
    bool adds = node->op == YOKE_OP_ADD && node->n_in == 2;
    if (adds && f->graph->values[node->out[0]].kind == YOKE_VALUE_ACTIVATION) {
        (void)(join_addend(f, node, 0) || join_addend(f, node, 1));
    }
}

/* A sum of two tensors, perhaps with a bias of the first over the dim that a norm is over. */
static bool is_sum_of_two(const yoke_node *node)
{
    bool biased = node->op == YOKE_OP_ADD_BIAS && node->n_in == 3 && strlen(node->in_rule[1]) == 1;
    return biased || (node->op == YOKE_OP_ADD && node->n_in == 2);
}

static void join_sum(fusion *f, yoke_node *norm)
{
    yoke_graph *graph = f->graph;
    const yoke_node *sum = HAS_FORM(sums, norm) ? find_neighbour(f, norm->in[0], norm) : NULL;
    if (!sum || !is_sum_of_two(sum)) {
        return;
    }
    yoke_value x = sum->out[0];
    int last = sum->n_in - 1;
    bool is_first = f->reader[f->first[x]] == (int)(norm - graph->nodes);
    if (!is_first || !lie_alike(graph, x, sum->in[0]) || !lie_alike(graph, x, sum->in[last])) {
        return;
    }
    add_input(graph, norm, sum->in[last], sum->in_rule[last]);
    if (sum->op == YOKE_OP_ADD_BIAS) {
        add_input(graph, norm, sum->in[1], sum->in_rule[1]);
    }
    norm->in[0] = sum->in[0];
    norm->out[norm->n_out] = x;
    norm->out_rule[norm->n_out++] = sum->out_rule[0];
    drop(f, sum);
}

/* --- The pass --------------------------------------------------------------------------------- */

void yoke_graph_fuse(yoke_graph *graph)
{
    void (*const joins[])(fusion *, yoke_node *) = {join_biases, join_addends, join_sum};
    YOKE_ASSERT(graph->has_layouts);
    for (size_t j = 0; j < sizeof joins / sizeof *joins; j++) {
        fusion f = {.graph = graph, .gone = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes)};
        index_readers(&f);
        for (int64_t i = 0; i < graph->n_nodes; i++) {
            joins[j](&f, &graph->nodes[i]);
        }
        yoke_graph_nodes_drop(graph, f.gone);
    }
    yoke_graph_count_uses(graph);
}
