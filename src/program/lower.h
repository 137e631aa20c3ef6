/*
 * Lowering, shared by its files: the state of turning a graph and a schedule into the program of
 * one class of ranks, which is that of its first rank.
 */
#ifndef YOKE_PROGRAM_LOWER_H
#define YOKE_PROGRAM_LOWER_H

#include "program/program.h"

/* A started message whose wait is yet to be placed. */
typedef struct yoke_pending_send {
    int transfer;
    bool waited;
} yoke_pending_send;

typedef struct yoke_expected {
    yoke_value value;
    int microbatch;
} yoke_expected;

/* What one stage sends to the rank at hand, in the order in which it does. */
typedef struct yoke_inbox {
    yoke_expected *letters;
    int64_t n, capacity;
    int64_t next; /* the first not yet received */
} yoke_inbox;

/* Nodes of the graph in buckets: those of one region, and inside the micro-batch of one chunk. */
typedef struct yoke_buckets {
    int *nodes; /* ascending in each */
    int *first; /* [buckets + 1] */
} yoke_buckets;

/* Some nodes. */
typedef struct yoke_node_list {
    const int *node;
    int n;
} yoke_node_list;

typedef struct yoke_lowering {
    yoke_program_set *set;
    const yoke_graph *graph;
    yoke_program *program; /* of the rank at hand */
    int rank, stage;
    int n_microbatches;
    const int *chunk_of_block;
    yoke_buckets all;        /* nodes */
    yoke_buckets outgoing;   /* those that make what another stage reads */
    int *buffer_of;          /* [values][microbatches + 1] of the rank at hand, or YOKE_NO_BUFFER */
    int *operands;           /* scratch: buffers of the node at hand, inputs first */
    bool *wanted;            /* [values] scratch of receiving */
    bool *written;           /* [values] accumulators that already hold a micro-batch */
    int *last_read;          /* [values] node on this stage that reads it last, if that is known */
    bool splits_backward;    /* the schedule has I and W: */
    const bool *for_weights; /* [nodes] what W runs, backward nodes that no other block waits for */
    yoke_inbox *inboxes;     /* [stages] what each stage sends to the rank at hand */
    int *arriving;           /* receives started and not yet waited for */
    int64_t n_arriving, arriving_capacity;
    const uint64_t *readers; /* [values] stages that read it in the forward or backward pass */
    const uint64_t *distant; /* [values] those of them that do not do so in the next chunk alone */
    yoke_pending_send *pending;
    int64_t n_pending, pending_capacity;
    yoke_region region; /* of what is emitted now */
    int block, microbatch;
} yoke_lowering;

/* --- place.c, classes.c: who holds what, and who does the same --- */

/* Stages that hold each value, one bit a stage; YOKE_BAD_INPUT if something can be computed
 * nowhere. */
yoke_status yoke_place_stages(yoke_program_set *set, const int *chunk_of_block) YOKE_MUST_USE;

/* The stage that contributes input i of an operator that spans stages: the first that holds it. */
int yoke_place_contributor(const yoke_program_set *set, const yoke_node *node, int i);

/* Sets the classes of the set, each with its ranks; `readers` [values] are the stages to which each
 * is sent. */
void yoke_classes_find(yoke_program_set *set, const uint64_t *readers,
                       const yoke_program_request *request);

/* True if all ranks have pieces of equal extents. */
bool yoke_layout_is_even(const yoke_mesh *mesh, yoke_layout layout, const yoke_shape *shape);

/* --- emit.c: buffers and single instructions --- */

int *yoke_lowering_slot(yoke_lowering *low, yoke_value value, int microbatch);
/* Asserts that it is there. */
int yoke_lowering_buffer(yoke_lowering *low, yoke_value value, int microbatch);
/* A new buffer for a value; takes the storage of `root` unless that is YOKE_NO_BUFFER. */
int yoke_lowering_buffer_add(yoke_lowering *low, yoke_value value, int microbatch, int root);
void yoke_lowering_emit(yoke_lowering *low, yoke_opcode opcode, yoke_instruction extra,
                        const int *in_out);
/* True if `node` is the last to read `value` on this rank and nobody else holds on to it: then a
 * result may take its storage. */
bool yoke_lowering_may_take(const yoke_lowering *low, const yoke_node *node, yoke_value value);
/* The buffer of the node's result, to begin with equal to `value`: its storage taken over, or a
 * copy if somebody else still wants that. */
int yoke_lowering_take_or_copy(yoke_lowering *low, const yoke_node *node, yoke_value value);
bool yoke_value_is_per_microbatch(const yoke_value_info *info);

/* --- exchange.c: messages and collectives --- */

void yoke_lowering_send(yoke_lowering *low, yoke_value value); /* to all stages that read it */
int yoke_lowering_receive(yoke_lowering *low, yoke_value value, int microbatch); /* starts it */
void yoke_lowering_wait(yoke_lowering *low, int transfer);
void yoke_lowering_wait_sends(yoke_lowering *low);
/* `node` is a convert along an axis whose conversion moves bytes. */
void yoke_lowering_convert(yoke_lowering *low, const yoke_node *node);
/* Sums the buffer of `value` in place over the stages in `stages`. */
void yoke_lowering_sum_stages(yoke_lowering *low, yoke_value value, int buffer, uint64_t stages);

/* --- inbox.c: what is received, and when --- */

void yoke_inbox_fill(yoke_lowering *low); /* of the rank at hand, from the actions of all others */
/* Receives the values that an action reads from other stages. */
void yoke_inbox_receive(yoke_lowering *low, const yoke_action *action);

/* --- lower.c, plan.c --- */

/* Of the nodes of the action's chunk and region, those that are part of it. */
bool yoke_lowering_in_action(const yoke_lowering *low, const yoke_action *action,
                             const yoke_node *node);
bool yoke_lowering_runs_here(const yoke_lowering *low, const yoke_node *node);

/* Puts the nodes in buckets, once for all ranks. */
void yoke_lowering_sort_nodes(yoke_lowering *low);
/* Nodes of head or tail, of which `chunk` is not asked, or of a chunk's pass. */
yoke_node_list yoke_lowering_nodes(const yoke_lowering *low, const yoke_buckets *buckets,
                                   yoke_region region, int chunk);
yoke_region yoke_action_region(const yoke_action *action);

void yoke_lower_rank(yoke_lowering *low);
void yoke_overlap(yoke_lowering *low); /* overlap.c: reorders the program of the rank at hand */
void yoke_plan_memory(yoke_program_set *set, yoke_program *program,
                      const yoke_program_request *request);

#endif
