/*
 * Logits strip by strip: where a rank's piece of them is too large, the nodes that make and read it run
 * once for each of several strips of tokens, so that no more than a strip exists at a time.
 *
 * A strip is a part of every rank's own piece, along a dim of tokens: the same local indices everywhere,
 * so that a strip is divided over the ranks as the whole is, and nothing moves. What a run of nodes
 * sums over tokens, the loss and the gradient of the head's weight, each strip adds to; what it makes
 * for each token is joined behind the last.
 *
 * Relies on layouts, and on the gradient of the logits in the forward pass (graph/early.c). Where tokens
 * do not divide evenly, or not alike for all that the run reads, or where a model drops out logits,
 * these stay whole, and a note says so (run/notes.c).
 */
#include <string.h>
#include "layout/infer.h"

typedef struct strips {
    yoke_graph *graph;
    yoke_rewriting nodes; /* once the strips are chosen */
    int64_t first, last;  /* the run and what stands between its nodes */
    bool *runs;           /* [nodes] of the run */
    bool *depends;        /* [nodes] on what the run makes, or of it */
    bool *made;           /* [values at the start] by the run, or from what it makes */
    int n_rows;           /* dims that tell the token, the first of logits */
    int dim;              /* the one that is cut */
    int64_t n, extent;    /* strips, and local indices that they share */
    yoke_value *now;      /* [values at the start] strip at hand, or YOKE_NO_VALUE */
    yoke_value **parts;   /* [values at the start] strips of what is read behind the run, or NULL */
} strips;

/* --- The run ---------------------------------------------------------------------------------- */

static const yoke_value_info *info_of(const strips *s, yoke_value value)
{
    return &s->graph->values[value];
}

/* True if the value has a row for each token. */
static bool has_rows(const strips *s, yoke_value value)
{
    const char *dims = info_of(s, s->graph->logits)->dims;
    return strncmp(info_of(s, value)->dims, dims, (size_t)s->n_rows) == 0;
}

/* What depends on nodes that handle logits; their first and last. */
static void find_depending(strips *s)
{
    s->first = s->graph->n_nodes;
    for (int64_t i = 0; i < s->graph->n_nodes; i++) {
        const yoke_node *node = &s->graph->nodes[i];
        s->runs[i] =
            node->region == YOKE_REGION_FORWARD && yoke_graph_handles_logits(s->graph, node);
        s->depends[i] = s->runs[i];
        for (int k = 0; k < node->n_in; k++) {
            s->depends[i] = s->depends[i] || s->made[node->in[k]];
        }
        for (int k = 0; k < node->n_out; k++) {
            s->made[node->out[k]] = s->depends[i];
        }
        s->first = s->runs[i] && i < s->first ? i : s->first;
        s->last = s->runs[i] ? i : s->last;
    }
}

/* Nodes that handle logits, and what stands between two of them. */
static void find_run(strips *s)
{
    find_depending(s);
    bool *wanted = YOKE_ARENA_NEW(s->graph->arena, bool, s->graph->n_values);
    for (int64_t i = s->last; i >= s->first; i--) {
        const yoke_node *node = &s->graph->nodes[i];
        for (int k = 0; k < node->n_out; k++) {
            s->runs[i] = s->runs[i] || (s->depends[i] && wanted[node->out[k]]);
        }
        for (int k = 0; s->runs[i] && k < node->n_in; k++) {
            wanted[node->in[k]] = true;
        }
    }
}

/* --- The dim that is cut ---------------------------------------------------------------------- */

static int64_t n_parts(const strips *s, yoke_value value, int dim)
{
    int64_t n = 1;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        n *= info_of(s, value)->layout.place[axis] == dim ? s->graph->mesh.size[axis] : 1;
    }
    return n;
}

/* True if the value's pieces along the dim are those of the logits, and even. */
static bool lies_alike(const strips *s, yoke_value value, int dim)
{
    const yoke_layout *a = &info_of(s, value)->layout;
    const yoke_layout *b = &info_of(s, s->graph->logits)->layout;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        bool same = (a->place[axis] == dim) == (b->place[axis] == dim) && a->turn[axis] == 0;
        if (s->graph->mesh.size[axis] > 1 && !same) {
            return false;
        }
    }
    return info_of(s, value)->shape.extent[dim] % n_parts(s, value, dim) == 0;
}

/* Whether a node of the run can work on strips along the dim: what it has no rows of comes from
 * elsewhere, or is a sum that it can add to, and where its tokens stand, which a strip does not know,
 * is the same to it. */
static bool can_cut(const strips *s, const yoke_node *node, int dim)
{
    bool can = !yoke_op_get(node->op)->ordered;
    for (int k = 0; k < node->n_in; k++) {
        yoke_value value = node->in[k];
        can = can && (has_rows(s, value) ? lies_alike(s, value, dim) : !s->made[value]);
    }
    for (int k = 0; k < node->n_out; k++) {
        bool rows = has_rows(s, node->out[k]);
        can = can && (rows ? lies_alike(s, node->out[k], dim) : yoke_op_get(node->op)->accumulates);
    }
    return can;
}

/* Finds the longest dim that all of the run can be cut along. */
static bool choose_dim(strips *s)
{
    const yoke_value_info *logits = info_of(s, s->graph->logits);
    yoke_shard piece = yoke_layout_shard(&s->graph->mesh, logits->layout, &logits->shape, 0);
    s->extent = 0;
    for (int dim = 0; dim < s->n_rows; dim++) {
        bool can = piece.extent[dim] > s->extent;
        for (int64_t i = s->first; can && i <= s->last; i++) {
            can = !s->runs[i] || can_cut(s, &s->graph->nodes[i], dim);
        }
        if (can) {
            s->dim = dim;
            s->extent = piece.extent[dim];
        }
    }
    return s->extent > 1;
}

/* --- Rewriting -------------------------------------------------------------------------------- */

static int64_t first_of(const strips *s, int64_t strip)
{
    int64_t longer = s->extent % s->n;
    return strip * (s->extent / s->n) + (strip < longer ? strip : longer);
}

/* A strip of a value, yet to be made. */
static yoke_value add_strip(strips *s, yoke_value value, int64_t strip)
{
    yoke_value_info info = *info_of(s, value);
    info.name = yoke_arena_print(s->graph->arena, "%s.strip%lld", info.name, (long long)strip);
    info.kind = YOKE_VALUE_ACTIVATION;
    info.shape.extent[s->dim] =
        n_parts(s, value, s->dim) * (first_of(s, strip + 1) - first_of(s, strip));
    return yoke_graph_value_add(s->graph, &info);
}

/* A node of the run's place and block, over values that have rows. */
static yoke_node node_of_rows(const strips *s, yoke_op op, const yoke_value *in, int n_in)
{
    YOKE_ASSERT(s->nodes.old);
    yoke_node node = s->nodes.old[s->first];
    node.op = op;
    node.n_in = n_in;
    node.n_out = 1;
    node.in = YOKE_ARENA_NEW(s->graph->arena, yoke_value, n_in);
    node.in_rule = YOKE_ARENA_NEW(s->graph->arena, const char *, n_in);
    node.attributes = (yoke_attributes){.strip = {.dim = s->dim}};
    for (int k = 0; k < n_in; k++) {
        node.in[k] = in[k];
        node.in_rule[k] = yoke_arena_copy_text(s->graph->arena, info_of(s, in[k])->dims);
    }
    return node;
}

static void append_strip(strips *s, yoke_value value, int64_t strip)
{
    yoke_node node = node_of_rows(s, YOKE_OP_STRIP, &value, 1);
    node.attributes.strip.first = first_of(s, strip);
    s->now[value] = node.out[0] = add_strip(s, value, strip);
    node.out_rule[0] = yoke_arena_copy_text(s->graph->arena, info_of(s, node.out[0])->dims);
    yoke_graph_node_append(s->graph, &node);
}

/* A node of the run, for one strip. */
static void append_for_strip(strips *s, const yoke_node *old, int64_t strip)
{
    yoke_node node = *old;
    node.in = YOKE_ARENA_NEW(s->graph->arena, yoke_value, old->n_in);
    for (int k = 0; k < old->n_in; k++) {
        bool rows = has_rows(s, old->in[k]);
        if (rows && !s->made[old->in[k]] && s->now[old->in[k]] == YOKE_NO_VALUE) {
            append_strip(s, old->in[k], strip);
        }
        node.in[k] = rows ? s->now[old->in[k]] : old->in[k];
    }
    for (int k = 0; k < old->n_out; k++) {
        yoke_value value = old->out[k];
        if (!has_rows(s, value)) {
            s->graph->values[value].n_makers = (int)s->n;
            continue;
        }
        s->now[value] = node.out[k] = add_strip(s, value, strip);
        if (s->parts[value]) {
            s->parts[value][strip] = node.out[k];
        }
    }
    if (node.op == YOKE_OP_CONVERT) {
        node.attributes.global[0] = info_of(s, node.out[0])->shape;
    }
    yoke_graph_node_append(s->graph, &node);
}

/* Prepares a place for the strips of each value of the run that is read behind it. */
static void find_parts(strips *s)
{
    for (int64_t i = s->first; i < s->graph->n_nodes; i++) {
        const yoke_node *node = &s->graph->nodes[i];
        for (int k = 0; !s->runs[i] && k < node->n_in; k++) {
            int producer = info_of(s, node->in[k])->producer;
            if (producer >= 0 && s->runs[producer] && has_rows(s, node->in[k]) &&
                !s->parts[node->in[k]]) {
                s->parts[node->in[k]] = YOKE_ARENA_NEW(s->graph->arena, yoke_value, s->n);
            }
        }
    }
}

static void append_joins(strips *s, int64_t n_values)
{
    for (yoke_value value = 0; value < n_values; value++) {
        if (s->parts[value]) {
            yoke_node node = node_of_rows(s, YOKE_OP_JOIN, s->parts[value], (int)s->n);
            node.out[0] = value;
            node.out_rule[0] = yoke_arena_copy_text(s->graph->arena, info_of(s, value)->dims);
            yoke_graph_node_append(s->graph, &node);
        }
    }
}

static void append_run(strips *s, int64_t n_values)
{
    for (int64_t strip = 0; strip < s->n; strip++) {
        for (yoke_value value = 0; value < n_values; value++) {
            s->now[value] = YOKE_NO_VALUE;
        }
        for (int64_t i = s->first; i <= s->last; i++) {
            if (s->runs[i]) {
                append_for_strip(s, &s->nodes.old[i], strip);
            }
        }
    }
    append_joins(s, n_values);
}

/* Nodes between those of the run go before it, or behind it if they depend on it. */
static void rewrite(strips *s, int64_t n_values)
{
    yoke_graph *graph = s->graph;
    s->nodes = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i <= s->last; i++) {
        if (!s->depends[i]) {
            yoke_graph_node_append(graph, &s->nodes.old[i]);
        }
    }
    append_run(s, n_values);
    for (int64_t i = s->first; i < s->nodes.n_old; i++) {
        if (i > s->last || (s->depends[i] && !s->runs[i])) {
            yoke_graph_node_append(graph, &s->nodes.old[i]);
        }
    }
    yoke_graph_count_uses(graph);
}

static strips strips_of(yoke_graph *graph)
{
    strips s = {
        .graph = graph,
        .runs = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes),
        .depends = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes),
        .made = YOKE_ARENA_NEW(graph->arena, bool, graph->n_values),
        .now = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_values),
        .parts = YOKE_ARENA_NEW(graph->arena, yoke_value *, graph->n_values),
        .n_rows = (int)strlen(graph->values[graph->logits].dims) - 1,
    };
    find_run(&s);
    return s;
}

void yoke_layout_cut_logits(yoke_graph *graph, int64_t most_bytes)
{
    YOKE_ASSERT(graph->has_layouts && !graph->values[graph->logits].output && most_bytes > 0);
    const yoke_value_info *logits = &graph->values[graph->logits];
    yoke_shard piece = yoke_layout_shard(&graph->mesh, logits->layout, &logits->shape, 0);
    int64_t bytes = yoke_shard_elements(&piece) * yoke_dtype_bytes(logits->dtype);
    int64_t wanted = bytes > most_bytes ? (bytes + most_bytes - 1) / most_bytes : 1;
    graph->n_strips = 1;
    graph->n_strips_wanted = wanted;
    if (wanted == 1) {
        return;
    }
    strips s = strips_of(graph);
    if (!choose_dim(&s)) {
        return;
    }
    s.n = wanted < s.extent ? wanted : s.extent;
    find_parts(&s);
    rewrite(&s, (int64_t)graph->n_values);
    graph->n_strips = s.n;
}
