/*
 * Buckets of small gradients: those of one block that are reduced alike are joined, reduced as one, and
 * taken apart again, so that a collective is started for each bucket and not for each bias and gain.
 *
 *   g0, g1 .. -> bucket -> reduced bucket -> reduced g0, reduced g1 ..
 *
 * Each element is summed over the same ranks in the same order as alone, and comes back to the storage
 * of its gradient. Joined is what is reduced once a step, behind the last micro-batch, and is whole on
 * every rank but for the sum: what an axis divides, and what is reduced to pieces, travels alone.
 *
 * Relies on layouts. Knows no axis, and not when a bucket leaves: program/overlap.c moves the joining
 * up to the last contribution.
 */
#include <string.h>
#include "layout/infer.h"

/* A gradient that may be joined: the reductions that follow each other in the tail. */
typedef struct reduced {
    yoke_value from, to;                /* the sum over micro-batches, and what is made of it */
    int64_t n_elements;                 /* of a rank's piece, the whole */
    int node[YOKE_MAX_LAYOUT_STEPS], n; /* the reductions, by their old nodes */
    int bucket;                         /* or NO_BUCKET */
} reduced;

typedef struct bucket {
    int first, n;       /* member that stands first, and how many there are */
    int64_t n_elements; /* of all */
} bucket;

enum { NO_BUCKET = -1, NOBODY = -1 };

typedef struct joining {
    yoke_graph *graph;
    yoke_rewriting nodes;
    reduced *members;
    bucket *buckets;
    int64_t n_members, members_capacity, n_buckets, buckets_capacity;
    int *reader; /* [values] the only node that reads it, or NOBODY */
    int *member; /* [nodes] whose reduction it is, or NOBODY */
    int *n_of;   /* [blocks] buckets so far, for their names */
} joining;

/* --- What may be joined ----------------------------------------------------------------------- */

static void find_readers(joining *j)
{
    const yoke_graph *graph = j->graph;
    j->reader = YOKE_ARENA_NEW(graph->arena, int, graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        j->reader[v] = NOBODY;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        for (int k = 0; k < graph->nodes[i].n_in; k++) {
            yoke_value value = graph->nodes[i].in[k];
            j->reader[value] = graph->values[value].n_uses == 1 ? (int)i : NOBODY;
        }
    }
}

static bool reduces(const yoke_graph *graph, const yoke_node *node)
{
    return node->op == YOKE_OP_CONVERT && node->region == YOKE_REGION_TAIL &&
           node->conversion == YOKE_CONVERT_ALL_REDUCE &&
           graph->values[node->in[0]].layout.place[node->axis] == YOKE_PARTIAL_SUM;
}

/* True if every rank holds all elements, of the sum or of a part of it. */
static bool is_undivided(const yoke_graph *graph, const yoke_value_info *info)
{
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (graph->mesh.size[axis] > 1 && info->layout.place[axis] >= 0) {
            return false;
        }
    }
    return true;
}

/* True for a gradient as a block leaves it: what the tail has summed before may be on other stages. */
static bool is_sum_of_block(const yoke_graph *graph, yoke_value value)
{
    const yoke_value_info *info = &graph->values[value];
    return info->kind == YOKE_VALUE_ACCUMULATOR && info->dtype == YOKE_F32 &&
           yoke_value_parameter(graph, value) != YOKE_NO_VALUE &&
           graph->nodes[info->producer].block != YOKE_NO_BLOCK;
}

/* The reductions from node `first` on, each read by nothing but the next. */
static reduced follow(const joining *j, int first)
{
    const yoke_graph *graph = j->graph;
    const yoke_node *node = &graph->nodes[first];
    reduced r = {.from = node->in[0], .bucket = NO_BUCKET};
    r.n_elements = yoke_shape_elements(&graph->values[r.from].shape);
    for (int at = first; at != NOBODY && reduces(graph, &graph->nodes[at]); at = j->reader[r.to]) {
        YOKE_ASSERT(r.n < YOKE_MAX_LAYOUT_STEPS);
        r.node[r.n++] = at;
        r.to = graph->nodes[at].out[0];
    }
    return r;
}

static void find_members(joining *j, int64_t most_elements)
{
    yoke_graph *graph = j->graph;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (!reduces(graph, node) || !is_sum_of_block(graph, node->in[0]) ||
            !is_undivided(graph, &graph->values[node->in[0]])) {
            continue;
        }
        reduced r = follow(j, (int)i);
        if (r.n_elements < most_elements) {
            j->members = yoke_arena_grow(graph->arena, j->members, j->n_members,
                                         &j->members_capacity, sizeof *j->members);
            j->members[j->n_members++] = r;
        }
    }
}

/* --- What is joined --------------------------------------------------------------------------- */

static int block_of(const joining *j, const reduced *r)
{
    return j->graph->nodes[j->graph->values[r->from].producer].block;
}

static bool are_alike(const joining *j, const reduced *a, const reduced *b)
{
    const yoke_graph *graph = j->graph;
    bool alike = block_of(j, a) == block_of(j, b) && a->n == b->n &&
                 yoke_layout_equal(graph->values[a->from].layout, graph->values[b->from].layout);
    for (int i = 0; alike && i < a->n; i++) {
        alike = graph->nodes[a->node[i]].axis == graph->nodes[b->node[i]].axis;
    }
    return alike;
}

/* Into the first bucket of its kind that has room, or a new one. */
static void deal(joining *j, int index, int64_t most_elements)
{
    reduced *r = &j->members[index];
    int at = 0;
    while (at < j->n_buckets && (j->buckets[at].n_elements + r->n_elements > most_elements ||
                                 !are_alike(j, &j->members[j->buckets[at].first], r))) {
        at++;
    }
    if (at == j->n_buckets) {
        j->buckets = yoke_arena_grow(j->graph->arena, j->buckets, j->n_buckets,
                                     &j->buckets_capacity, sizeof *j->buckets);
        j->buckets[j->n_buckets++] = (bucket){.first = index};
    }
    r->bucket = at;
    j->buckets[at].n++;
    j->buckets[at].n_elements += r->n_elements;
}

static void fill_buckets(joining *j, int64_t most_elements)
{
    yoke_graph *graph = j->graph;
    for (int m = 0; m < j->n_members; m++) {
        deal(j, m, most_elements);
    }
    j->n_of = YOKE_ARENA_NEW(graph->arena, int, graph->n_blocks);
    j->member = YOKE_ARENA_NEW(graph->arena, int, graph->n_nodes);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        j->member[i] = NOBODY;
    }
    for (int m = 0; m < j->n_members; m++) {
        const reduced *r = &j->members[m];
        for (int i = 0; j->buckets[r->bucket].n > 1 && i < r->n; i++) {
            j->member[r->node[i]] = m;
        }
    }
}

/* --- Rewriting -------------------------------------------------------------------------------- */

/* In place of the first reduction of the bucket's first member. */
static yoke_node node_of(const joining *j, yoke_op op, int n_in, const reduced *first)
{
    yoke_node node = j->nodes.old[first->node[0]];
    node.op = op;
    node.n_in = n_in;
    node.in = YOKE_ARENA_NEW(j->graph->arena, yoke_value, n_in);
    node.in_rule = YOKE_ARENA_NEW(j->graph->arena, const char *, n_in);
    node.attributes = (yoke_attributes){0};
    return node;
}

static const char *rule_of(const joining *j, yoke_value value)
{
    return yoke_arena_copy_text(j->graph->arena, j->graph->values[value].dims);
}

static yoke_value append_join(joining *j, int index, int block)
{
    yoke_graph *graph = j->graph;
    const bucket *b = &j->buckets[index];
    const reduced *first = &j->members[b->first];
    yoke_value_info info = {
        .name =
            yoke_arena_print(graph->arena, "%s.bucket.%d", graph->blocks[block], j->n_of[block]++),
        .dims = "&",
        .shape = {.n_dims = 1, .extent = {b->n_elements}},
        .dtype = YOKE_F32,
        .kind = YOKE_VALUE_STEP,
        .gradient_of = YOKE_NO_VALUE,
        .gathered_of = YOKE_NO_VALUE,
        .bucket = true,
        .layout = graph->values[first->from].layout,
    };
    yoke_node join = node_of(j, YOKE_OP_JOIN, b->n, first);
    int n = 0;
    for (int m = b->first; n < b->n; m++) {
        if (j->members[m].bucket == index) {
            join.in[n] = j->members[m].from;
            join.in_rule[n++] = rule_of(j, j->members[m].from);
        }
    }
    join.out[0] = yoke_graph_value_add(graph, &info);
    join.out_rule[0] = rule_of(j, join.out[0]);
    yoke_graph_node_append(graph, &join);
    return join.out[0];
}

static yoke_value append_reductions(joining *j, const reduced *first, yoke_value value)
{
    yoke_graph *graph = j->graph;
    for (int i = 0; i < first->n; i++) {
        const yoke_node *alone = &j->nodes.old[first->node[i]];
        yoke_value_info info = graph->values[value];
        info.layout.place[alone->axis] = YOKE_REPLICATED;
        yoke_node node = node_of(j, YOKE_OP_CONVERT, 1, first);
        node.axis = alone->axis;
        node.conversion = alone->conversion;
        node.attributes.global[0] = info.shape;
        node.in[0] = value;
        node.in_rule[0] = node.out_rule[0] = rule_of(j, value);
        node.out[0] = value = yoke_graph_value_add(graph, &info);
        yoke_graph_node_append(graph, &node);
    }
    return value;
}

static void append_strips(joining *j, int index, yoke_value whole)
{
    const bucket *b = &j->buckets[index];
    int64_t offset = 0;
    for (int m = b->first; offset < b->n_elements; m++) {
        const reduced *r = &j->members[m];
        if (r->bucket != index) {
            continue;
        }
        yoke_node strip = node_of(j, YOKE_OP_STRIP, 2, &j->members[b->first]);
        strip.attributes.strip.first = offset;
        strip.in[0] = whole;
        strip.in[1] = r->from;
        strip.in_rule[0] = rule_of(j, whole);
        strip.in_rule[1] = rule_of(j, r->from);
        strip.out[0] = r->to;
        strip.out_rule[0] = rule_of(j, r->to);
        yoke_graph_node_append(j->graph, &strip);
        offset += r->n_elements;
    }
}

static void append_bucket(joining *j, int index)
{
    const reduced *first = &j->members[j->buckets[index].first];
    int block = j->nodes.old[j->graph->values[first->from].producer].block;
    yoke_value value = append_join(j, index, block);
    append_strips(j, index, append_reductions(j, first, value));
}

void yoke_layout_join_gradients(yoke_graph *graph, int64_t most_bytes)
{
    YOKE_ASSERT(graph->has_layouts && most_bytes > 0);
    joining j = {.graph = graph};
    int64_t most_elements = most_bytes / yoke_dtype_bytes(YOKE_F32);
    find_readers(&j);
    find_members(&j, most_elements);
    fill_buckets(&j, most_elements);
    j.nodes = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i < j.nodes.n_old; i++) {
        int m = j.member[i];
        if (m == NOBODY) {
            yoke_graph_node_append(graph, &j.nodes.old[i]);
            continue;
        }
        YOKE_ASSERT(j.members && j.buckets);
        const reduced *r = &j.members[m];
        if (j.buckets[r->bucket].first == m && r->node[0] == i) {
            append_bucket(&j, r->bucket);
        }
    }
    yoke_graph_count_uses(graph);
}
