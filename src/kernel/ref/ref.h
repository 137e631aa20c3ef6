/*
 * The reference kernels: one for each operator, in plain C. They are the definition of the operators: the clearest
 * loop, reductions in double, one thread. Faster sets are tested against them.
 *
 * Those with operands that may be bf16 are compiled twice, see kernel/real.h: yoke_ref_<name> and yoke_ref_narrow_<name>.
 */
#ifndef YOKE_KERNEL_REF_REF_H
#define YOKE_KERNEL_REF_REF_H

#include "kernel/kernel.h"
#include "kernel/real.h"

#if defined(YOKE_NARROW)
#define YOKE_REF_NAME(name) yoke_ref_narrow_##name
#else
#define YOKE_REF_NAME(name) yoke_ref_##name
#endif

/* X(enumerator, name): the operators compiled twice. */
#define YOKE_REF_NARROW_LIST(X)                                                                    \
    X(EMBEDDING, embedding)                                                                        \
    X(EMBEDDING_GRAD, embedding_grad)                                                              \
    X(ADD_BIAS, add_bias)                                                                          \
    X(SUM_ROWS, sum_rows)                                                                          \
    X(ADD, add)                                                                                    \
    X(LAYER_NORM, layer_norm)                                                                      \
    X(LAYER_NORM_GRAD, layer_norm_grad)                                                            \
    X(LAYER_NORM_GRAD_GAIN, layer_norm_grad_gain)                                                  \
    X(RMS_NORM, rms_norm)                                                                          \
    X(RMS_NORM_GRAD, rms_norm_grad)                                                                \
    X(RMS_NORM_GRAD_GAIN, rms_norm_grad_gain)                                                      \
    X(ROPE, rope)                                                                                  \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_COMBINE, attention_combine)                                                        \
    X(GELU, gelu)                                                                                  \
    X(GELU_GRAD, gelu_grad)                                                                        \
    X(GELU_ERF, gelu_erf)                                                                          \
    X(GELU_ERF_GRAD, gelu_erf_grad)                                                                \
    X(SWIGLU, swiglu)                                                                              \
    X(SWIGLU_GRAD, swiglu_grad)                                                                    \
    X(DROPOUT, dropout)                                                                            \
    X(JITTER, jitter)                                                                              \
    X(ROUTER, router)                                                                              \
    X(ROUTER_GRAD, router_grad)                                                                    \
    X(DISPATCH, dispatch)                                                                          \
    X(COMBINE, combine)                                                                            \
    X(COMBINE_GRAD, combine_grad)                                                                  \
    X(Z_LOSS, z_loss)                                                                              \
    X(Z_LOSS_GRAD, z_loss_grad)                                                                    \
    X(ROW_MAX, row_max)                                                                            \
    X(ROW_SUM_EXP, row_sum_exp)                                                                    \
    X(ROW_PICK, row_pick)                                                                          \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad)                                                      \
    X(CAST, cast)                                                                                  \
    X(CONVERT, convert)

#define YOKE_REF_DECLARE(upper, lower) void yoke_ref_##lower(const yoke_kernel_call *call);
#define YOKE_REF_DECLARE_NARROW(upper, lower)                                                      \
    void yoke_ref_narrow_##lower(const yoke_kernel_call *call);
YOKE_OP_LIST(YOKE_REF_DECLARE)
YOKE_REF_NARROW_LIST(YOKE_REF_DECLARE_NARROW)
#undef YOKE_REF_DECLARE
#undef YOKE_REF_DECLARE_NARROW

#endif
