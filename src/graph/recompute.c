/*
 * Recomputation: Chen et al., "Training deep nets with sublinear memory cost", 2016; selective:
 * Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022.
 *
 * A rewriting of the differentiated graph. A backward node that reads what its own block's forward
 * pass made reads a clone of it instead, made just before the first that wants it from what is kept:
 * the values of other blocks, parameters, inputs, and results that the block's level does not compute
 * again. Only what is wanted is cloned, so what nobody reads any more dies after the forward pass by
 * itself. Random numbers are functions of site and element, hence a clone equals its original.
 *
 * Knows no layouts: inference divides a clone as it has divided the original.
 */
#include <limits.h>
#include <string.h>
#include "graph/graph.h"

typedef struct recomputation {
    yoke_graph *graph;
    const yoke_recompute *choice;
    yoke_rewriting nodes;
    int *producer;     /* [values at the start] old node */
    yoke_value *clone; /* [values at the start] or YOKE_NO_VALUE */
    bool *wanted;      /* [old nodes] to be cloned next */
    int n_wanted, lowest, highest;
} recomputation;

const char *yoke_recompute_name(yoke_recompute level)
{
    static const char *const names[] = {
#define NAME(upper, lower, help) #lower,
        YOKE_RECOMPUTE_LIST(NAME)
#undef NAME
    };
    YOKE_ASSERT((int)level >= 0 && level < YOKE_N_RECOMPUTES);
    return names[level];
}

/* --- What is computed again ------------------------------------------------------------------- */

static bool is_repeatable(const recomputation *r, const yoke_node *node)
{
    for (int i = 0; i < node->n_out; i++) {
        const yoke_value_info *info = &r->graph->values[node->out[i]];
        if (info->kind != YOKE_VALUE_ACTIVATION || info->output) {
            return false;
        }
    }
    switch (r->choice[node->block]) {
    case YOKE_RECOMPUTE_LIGHT:
        return yoke_op_get(node->op)->light;
    case YOKE_RECOMPUTE_SELECTIVE:
        return yoke_op_get(node->op)->cheap;
    case YOKE_RECOMPUTE_FULL:
        return true;
    case YOKE_RECOMPUTE_NONE:
    case YOKE_N_RECOMPUTES:
        break;
    }
    return false;
}

/* The forward node whose clone is to make `value` for the backward pass of `block`, or YOKE_NO_NODE
 * where the value is kept. */
static int maker(const recomputation *r, yoke_value value, int block)
{
    int producer = r->producer[value];
    if (producer == YOKE_NO_NODE) {
        return YOKE_NO_NODE;
    }
    const yoke_node *node = &r->nodes.old[producer];
    bool own = node->region == YOKE_REGION_FORWARD && node->block == block;
    return own && is_repeatable(r, node) ? producer : YOKE_NO_NODE;
}

/* Marks the makers of what `node` reads that are not cloned yet. */
static void want_inputs(recomputation *r, const yoke_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        int producer = yoke_node_reads(node, i) ? maker(r, node->in[i], node->block) : YOKE_NO_NODE;
        bool missing = producer != YOKE_NO_NODE && r->clone[node->in[i]] == YOKE_NO_VALUE;
        if (missing && !r->wanted[producer]) {
            r->wanted[producer] = true;
            r->n_wanted++;
            r->lowest = producer < r->lowest ? producer : r->lowest;
            r->highest = producer > r->highest ? producer : r->highest;
        }
    }
}

/* --- Rewriting -------------------------------------------------------------------------------- */

/* Lets a node of the backward pass read clones where there are any. */
static void read_clones(recomputation *r, yoke_node *node)
{
    yoke_value *in = YOKE_ARENA_NEW(r->graph->arena, yoke_value, node->n_in);
    for (int i = 0; i < node->n_in; i++) {
        yoke_value value = node->in[i];
        bool repeated = maker(r, value, node->block) != YOKE_NO_NODE;
        yoke_value clone = repeated ? r->clone[value] : YOKE_NO_VALUE;
        in[i] = clone == YOKE_NO_VALUE ? value : clone;
    }
    node->in = in;
}

static void add_clone(recomputation *r, const yoke_node *original)
{
    yoke_graph *graph = r->graph;
    yoke_node node = *original;
    read_clones(r, &node);
    node.region = YOKE_REGION_BACKWARD;
    node.recomputed = true;
    node.repeats = original->out[0];
    for (int i = 0; i < node.n_out; i++) {
        yoke_value_info info = graph->values[original->out[i]];
        info.name = yoke_arena_print(graph->arena, "%s.again", info.name);
        node.out[i] = yoke_graph_value_add(graph, &info);
        r->clone[original->out[i]] = node.out[i];
    }
    yoke_graph_node_append(graph, &node);
}

/* Clones what a node of the backward pass wants, and what that wants in turn, in the order of the
 * originals. */
static void add_clones_for(recomputation *r, const yoke_node *node)
{
    r->n_wanted = 0;
    r->lowest = INT_MAX;
    r->highest = -1;
    want_inputs(r, node);
    for (int i = r->highest, left = r->n_wanted; left > 0; i--) {
        if (r->wanted[i]) {
            int before = r->n_wanted;
            want_inputs(r, &r->nodes.old[i]);
            left += r->n_wanted - before - 1;
        }
    }
    for (int i = r->lowest; i <= r->highest; i++) {
        if (r->wanted[i]) {
            r->wanted[i] = false;
            add_clone(r, &r->nodes.old[i]);
        }
    }
}

static void rewrite(recomputation *r)
{
    yoke_graph *graph = r->graph;
    r->nodes = yoke_rewriting_begin(graph);
    for (int64_t i = 0; i < r->nodes.n_old; i++) {
        yoke_node node = r->nodes.old[i];
        bool backward = node.region == YOKE_REGION_BACKWARD;
        if (backward && r->choice[node.block] != YOKE_RECOMPUTE_NONE) {
            add_clones_for(r, &node);
            read_clones(r, &node);
        }
        yoke_graph_node_append(graph, &node);
    }
    yoke_graph_count_uses(graph);
}

/* The level of each block as far as it comes to something. */
static const yoke_recompute *effective(const recomputation *r)
{
    const yoke_graph *graph = r->graph;
    yoke_recompute *level = YOKE_ARENA_NEW(graph->arena, yoke_recompute, graph->n_blocks);
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->recomputed) {
            level[node->block] = r->choice[node->block];
        }
    }
    return level;
}

void yoke_graph_recompute(yoke_graph *graph, const yoke_recompute *choice)
{
    YOKE_ASSERT(!graph->has_layouts && !graph->recompute && graph->loss_total != YOKE_NO_VALUE);
    yoke_recompute *chosen = YOKE_ARENA_NEW(graph->arena, yoke_recompute, graph->n_blocks);
    memcpy(chosen, choice, sizeof *chosen * (size_t)graph->n_blocks);
    chosen[graph->nodes[graph->values[graph->loss_total].producer].block] = YOKE_RECOMPUTE_NONE;
    recomputation r = {
        .graph = graph,
        .choice = chosen,
        .producer = YOKE_ARENA_NEW(graph->arena, int, graph->n_values),
        .clone = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_values),
        .wanted = YOKE_ARENA_NEW(graph->arena, bool, graph->n_nodes),
    };
    for (int64_t v = 0; v < graph->n_values; v++) {
        r.producer[v] = graph->values[v].producer;
        r.clone[v] = YOKE_NO_VALUE;
    }
    rewrite(&r);
    graph->recompute = effective(&r);
}

/* --- Questions -------------------------------------------------------------------------------- */

double yoke_graph_recompute_flops(const yoke_graph *graph, int block)
{
    double flops = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        const yoke_op_def *def = yoke_op_get(node->op);
        if (node->recomputed && node->block == block) {
            const yoke_shape *shape = &graph->values[node->out[0]].shape;
            /* As in the cut: an element goes to memory and back in the time of 16 flops. */
            flops += 16 * (double)yoke_shape_elements(shape);
            flops += def->flops ? def->flops(graph, node) : 0;
        }
    }
    return flops;
}

static yoke_recompute level_of(const yoke_graph *graph, int64_t block)
{
    return graph->recompute ? graph->recompute[block] : YOKE_RECOMPUTE_NONE;
}

const char *yoke_graph_recompute_print(const yoke_graph *graph, char *buffer, int buffer_bytes)
{
    size_t room = (size_t)buffer_bytes, used = 0;
    (void)snprintf(buffer, room, "nothing");
    for (int64_t first = 0, next; first < graph->n_blocks; first = next) {
        yoke_recompute level = level_of(graph, first);
        for (next = first + 1; next < graph->n_blocks && level_of(graph, next) == level; next++) {}
        if (level == YOKE_RECOMPUTE_NONE || used + 1 >= room) {
            continue;
        }
        bool one = next == first + 1;
        (void)snprintf(buffer + used, room - used, "%s%s%s%s %s", used ? ", " : "",
                       graph->blocks[first], one ? "" : " to ", one ? "" : graph->blocks[next - 1],
                       yoke_recompute_name(level));
        used += strlen(buffer + used);
    }
    return buffer;
}
