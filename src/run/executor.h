/*
 * Executor: runs one rank's program on its slab.
 *
 * Binding turns buffers into pointers once; a step then only calls kernels and the transport. It
 * allocates nothing, decides nothing, and marks each instruction so that others can see where it
 * is.
 */
#ifndef YOKE_RUN_EXECUTOR_H
#define YOKE_RUN_EXECUTOR_H

#include "kernel/kernel.h"
#include "program/program.h"
#include "transport/transport.h"

/* Fills the piece `shard` of an input of one micro-batch; false for a name it does not know. */
typedef bool (*yoke_loader)(void *user, const char *name, int64_t step, int microbatch,
                            const yoke_shard *shard, int32_t *out);

typedef struct yoke_executor_request {
    const yoke_program_set *set;
    int rank;
    int first_group;    /* of the set's groups among those of the world */
    int64_t first_mark; /* of the set's instructions among all that the launcher can name */
    char *slab;
    yoke_endpoint *endpoint;
    const yoke_kernel *kernels;        /* [YOKE_N_OPS] */
    const yoke_kernel *narrow_kernels; /* [YOKE_N_OPS], where operands are in bf16 */
    yoke_loader load;
    void *load_user;
    uint64_t seed;
} yoke_executor_request;

typedef struct yoke_executor yoke_executor;

/* Lives in the arena. */
yoke_executor *yoke_executor_create(yoke_arena *arena, const yoke_executor_request *request);

/* All instructions, once. `step` numbers the batch and keys dropout. */
yoke_status yoke_executor_step(yoke_executor *executor, int64_t step) YOKE_MUST_USE;

/* Seconds that all steps so far spent on the transfers along an axis while no kernel ran. */
double yoke_executor_exposed_s(const yoke_executor *executor, yoke_axis axis);

/* The piece of a value that this rank holds, or NULL. */
void *yoke_executor_find(const yoke_executor *executor, yoke_value value);

/* Scratch of an instruction's kernel, for the plan; `user` points to the number of threads
 * (int). */
int64_t yoke_executor_scratch_bytes(const yoke_graph *graph, const yoke_program *program,
                                    const yoke_instruction *instruction, void *user);

#endif
