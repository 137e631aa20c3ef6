/*
 * Kernel: computes one operator on the local pieces that a rank holds.
 *
 * `ref` in plain C is complete and is the definition. Faster sets override some operators; a set leaves NULL what it
 * does not have, and the choice falls to the next. Every kernel has one signature. A kernel allocates nothing, knows
 * no rank, and adds in an order that does not depend on the number of threads.
 */
#ifndef YOKE_KERNEL_KERNEL_H
#define YOKE_KERNEL_KERNEL_H

#include "op/attributes.h"
#include "op/list.h"

/* A local piece: `shard.extent` are its dims, `shard.offset` where it begins in the global tensor. */
typedef struct yoke_tensor {
    void *data; /* aligned to 64 bytes; may be NULL when empty */
    yoke_shard shard;
    yoke_dtype dtype; /* read by those that mix types: yoke_op_def */
} yoke_tensor;

typedef struct yoke_kernel_call {
    const yoke_tensor *in;
    const yoke_tensor *out;
    int n_in, n_out;
    const yoke_attributes *attributes;
    bool
        accumulate; /* add to the outputs instead of overwriting: gradients and sums over micro-batches. Must be
                            supported by: embedding_grad, matmul, sum_rows, *_grad_gain, cross_entropy, count_valid, balance_loss, z_loss */
    void *scratch; /* yoke_kernel_scratch_bytes, aligned to 64 bytes */
    uint64_t seed; /* of the run; with step and microbatch it keys dropout */
    int64_t step;
    int microbatch;
} yoke_kernel_call;

typedef void (*yoke_kernel)(const yoke_kernel_call *call);

typedef struct yoke_kernel_set {
    const char *name;
    const char *help;
    bool (*supported)(void);     /* by this processor; NULL: always */
    yoke_kernel run[YOKE_N_OPS]; /* NULL: this set does not have it */
    /* The same where the operands that yoke_op_def calls narrow are bf16. */
    yoke_kernel run_narrow[YOKE_N_OPS];
} yoke_kernel_set;

/* X(name): `yoke_kernel_set_<name>`, best first; ref is last and complete. */
#if defined(__x86_64__)
#define YOKE_KERNEL_SET_LIST(X) X(onednn) X(avx512) X(avx2) X(ref)
#else
#define YOKE_KERNEL_SET_LIST(X) X(onednn) X(ref)
#endif

/* One kernel for each operator. `wanted` NULL or "auto": the best that the processor supports; "ref": ref for all; YOKE_BAD_INPUT otherwise. */
yoke_status yoke_kernel_choose(const char *wanted, yoke_kernel chosen[YOKE_N_OPS]) YOKE_MUST_USE;
/* The same for operands in bf16; NULL for operators that have none such. */
yoke_status yoke_kernel_choose_narrow(const char *wanted,
                                      yoke_kernel chosen[YOKE_N_OPS]) YOKE_MUST_USE;
const yoke_kernel_set *yoke_kernel_set_find(const char *name); /* NULL if unknown */

/* Scratch that any set may want for this call: depends on shapes and threads only, and data pointers are not read. */
size_t yoke_kernel_scratch_bytes(yoke_op op, const yoke_kernel_call *call, int n_threads);

/* OpenMP threads of the calling rank. */
void yoke_kernel_threads_set(int n_threads);
int yoke_kernel_threads_get(void);

/* FLOP/s of square matrix products on the calling rank's threads, measured for about `seconds`; 0 without memory. */
double yoke_kernel_matmul_rate(int64_t n, double seconds);

#endif
