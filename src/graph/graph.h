/*
 * Graph, from the inside: what the passes after the builder read and write.
 *
 * Values and nodes stand in arrays in the order in which they were made, which is an order of
 * execution. Everything lives in the graph's arena.
 */
#ifndef YOKE_GRAPH_GRAPH_H
#define YOKE_GRAPH_GRAPH_H

#include "base/memory.h"
#include "op/op.h"

/* X(enumerator, name, help): what the backward pass of a block computes again instead of keeping. */
#define YOKE_RECOMPUTE_LIST(X)                                                                     \
    X(NONE, none, "nothing")                                                                       \
    X(LIGHT, light, "what takes a pass over values that are kept anyway: norms, activations")      \
    X(SELECTIVE, selective, "what is cheap: all but matrix products")                              \
    X(FULL, full, "everything from the block's inputs on")

typedef enum yoke_recompute {
#define YOKE_RECOMPUTE_ENUM(upper, lower, help) YOKE_RECOMPUTE_##upper,
    YOKE_RECOMPUTE_LIST(YOKE_RECOMPUTE_ENUM)
#undef YOKE_RECOMPUTE_ENUM
        YOKE_N_RECOMPUTES
} yoke_recompute;

struct yoke_graph {
    yoke_arena *arena;
    yoke_status error; /* the first; owned */
    yoke_value_info *values;
    int64_t n_values, values_capacity;
    yoke_node *nodes;
    int64_t n_nodes, nodes_capacity;
    const char **blocks; /* names */
    int64_t n_blocks, blocks_capacity;
    int64_t letters[128]; /* extents; 0: never set */
    yoke_region region;   /* of the next node */
    int block;

    /* The step; YOKE_NO_VALUE where the graph has none. */
    yoke_value loss_total, loss_share; /* accumulated sum, and 1 / number of valid labels */
    yoke_value loss, n_valid, logits, control, norms;
    yoke_optimizer optimizer;

    /* Accumulated losses beside that one, and tokens of each expert of each layer; and what becomes
     * of them: a scalar, and shares [layers, experts]. */
    yoke_value *auxiliary, *loads;
    int64_t n_auxiliary, auxiliary_capacity, n_loads, loads_capacity;
    yoke_value auxiliary_loss, expert_load;

    yoke_value *parameters; /* in the order of declaration */
    int64_t n_parameters, parameters_capacity;
    /* [n_parameters], whole gradients in the layout of their parameters; NO_VALUE for a frozen one;
     * NULL before autodiff. */
    yoke_value *gradients;

    /* In which logits are made one after the other, and how many the budget wants; 0 before that is
     * settled. */
    int64_t n_strips, n_strips_wanted;

    const yoke_recompute *recompute; /* [n_blocks]; NULL: nothing is computed again */

    yoke_mesh mesh; /* of layout inference */

    /* By layout inference: the letter that does not stand as it is, or 0, and how it does. Whoever
     * fills inputs follows it, and nodes whose operator is ordered have it in their attributes. */
    char ordered;
    yoke_order order;
    bool has_layouts;
};

/* A new value; returns its id. */
yoke_value yoke_graph_value_add(yoke_graph *graph, const yoke_value_info *info);

/* Adds a node behind the others, as the maker of its outputs. */
void yoke_graph_node_append(yoke_graph *graph, const yoke_node *node);

/* The nodes of a graph before a pass, which is to write them anew: it appends each, or others. */
typedef struct yoke_rewriting {
    const yoke_node *old; /* [n_old], in the graph's arena */
    int64_t n_old;
} yoke_rewriting;

/* Takes the nodes off the graph. A value's producer counts among the old ones until it is appended. */
yoke_rewriting yoke_rewriting_begin(yoke_graph *graph);

/* Takes out the nodes that are gone; nothing makes any more what they alone made. */
void yoke_graph_nodes_drop(yoke_graph *graph, const bool *gone);

/* Counts the uses of every value anew, for a pass that has written the nodes anew. */
void yoke_graph_count_uses(yoke_graph *graph);

/* Adds backward nodes for every parameter and, in the tail, each parameter's whole gradient. Needs
 * a loss. */
yoke_status yoke_graph_differentiate(yoke_graph *graph) YOKE_MUST_USE;

/* Adds the tail: gradient norm, control, and the update of every parameter. Needs gradients. */
yoke_status yoke_graph_optimize(yoke_graph *graph, const yoke_optimizer *optimizer) YOKE_MUST_USE;

/* True if the node makes or reads a value with the dims of the logits. */
bool yoke_graph_handles_logits(const yoke_graph *graph, const yoke_node *node);

/* Moves what handles logits from the backward pass to the end of the forward pass: early.c. After
 * differentiation, before recomputation and layouts. Leaves a graph alone in which it has to wait for
 * other gradients. */
void yoke_graph_end_with_loss(yoke_graph *graph);

/* Lets the backward pass of each block compute again what choice[block] says, from what is kept. The
 * block of the loss keeps everything, since in most schedules its backward pass follows at once. At
 * most once, after differentiation, before layouts. */
void yoke_graph_recompute(yoke_graph *graph, const yoke_recompute *choice);

const char *yoke_recompute_name(yoke_recompute level);

/* "h.0 to h.3 full, h.4 selective": the blocks that compute something again, or "nothing". Returns
 * buffer. */
const char *yoke_graph_recompute_print(const yoke_graph *graph, char *buffer, int buffer_bytes);

/* Work that a block does twice for a micro-batch, on the scale of flops: products, and for the rest a
 * pass over the results. */
double yoke_graph_recompute_flops(const yoke_graph *graph, int block);

/* Stores activations in bf16 where operators allow it: narrow.c. Once a graph, before its layouts. */
void yoke_graph_narrow(yoke_graph *graph);

/* Joins neighbours that only pass memory to each other: fuse.c. Once a graph, after its layouts. */
void yoke_graph_fuse(yoke_graph *graph);

/* Keeps a value to the end of the step and gives it to whoever asks. */
void yoke_graph_keep(yoke_graph *graph, yoke_value value);

/* Checks the graph by itself: operands come before their use, every region reads only what it may,
 * updates happen once. */
yoke_status yoke_graph_verify(const yoke_graph *graph) YOKE_MUST_USE;

/* Floating-point operations of one micro-batch, forward and backward, of the whole batch; of one
 * block if block >= 0. Those of the model: what is computed again is not counted. */
double yoke_graph_flops(const yoke_graph *graph, int block);

const char *yoke_region_name(yoke_region region);

#endif
