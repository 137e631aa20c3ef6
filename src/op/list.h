/*
 * The list of operators. Adding one: a definition in a file of its own in this folder, a kernel in
 * kernel/ref, one line here.
 *
 * X(enumerator, name). For each name: `const yoke_op_def yoke_op_<name>` and `yoke_ref_<name>`.
 * Operands are in the order given here, inputs -> outputs; every tensor is row-major, compact, and
 * the local piece of its global tensor. Those behind a bar are optional, the later ones only with
 * the earlier: graph/fuse.c gives them, and a kernel tells them by the number of its operands.
 */
#ifndef YOKE_OP_LIST_H
#define YOKE_OP_LIST_H

#define YOKE_OP_LIST(X)                                                                            \
    X(EMBEDDING, embedding)           /* table[v,d], ids[b,t] -> y[b,t,d] */                       \
    X(EMBEDDING_GRAD, embedding_grad) /* ids[b,t], dy[b,t,d] -> dtable[v,d] */                     \
    X(MATMUL, matmul)                 /* a, b -> y */                                              \
    X(ADD_BIAS, add_bias)             /* a[..., c], bias[c] | b -> y[..., c] */                    \
    X(SUM_ROWS, sum_rows)             /* dy[..., c] -> dbias[c] */                                 \
    X(ADD, add)                       /* 1 or more of equal shape -> y */                          \
    X(LAYER_NORM, layer_norm) /* a[b,t,d], gain[d], bias[d] | b, bias_a -> y, mean, rstd | x */    \
    X(LAYER_NORM_GRAD, layer_norm_grad)           /* dy, a, gain, mean, rstd | b -> da */          \
    X(LAYER_NORM_GRAD_GAIN, layer_norm_grad_gain) /* dy, a, mean, rstd -> dgain[d], dbias[d] */    \
    X(RMS_NORM, rms_norm)           /* a[b,t,d], gain[d] | b, bias_a -> y, rstd[b,t] | x */        \
    X(RMS_NORM_GRAD, rms_norm_grad) /* dy, a, gain, rstd | b -> da */                              \
    X(RMS_NORM_GRAD_GAIN, rms_norm_grad_gain) /* dy, a, rstd -> dgain[d] */                        \
    X(ROPE, rope)                             /* a[b,t,h,x], positions[b,t] -> y; attr.sign */     \
    X(ATTENTION, attention) /* q[b,t,h,x], k[b,s,k,x], v[b,s,k,x] -> y[b,t,h,x], lse[b,t,h] */     \
    X(ATTENTION_GRAD, attention_grad)       /* q, k, v, y, lse, dy -> dq, dk, dv */                \
    X(ATTENTION_COMBINE, attention_combine) /* y, lse of two pieces of keys -> y, lse of both */   \
    X(GELU, gelu)                           /* a | bias -> y */                                    \
    X(GELU_GRAD, gelu_grad)                 /* a, dy | bias -> da */                               \
    X(GELU_ERF, gelu_erf)                   /* a | bias -> y */                                    \
    X(GELU_ERF_GRAD, gelu_erf_grad)         /* a, dy | bias -> da */                               \
    X(SWIGLU, swiglu)                       /* gate, up -> y */                                    \
    X(SWIGLU_GRAD, swiglu_grad)             /* gate, up, dy -> dgate, dup */                       \
    X(DROPOUT, dropout)                     /* a -> y; its own gradient */                         \
    X(JITTER, jitter)                       /* a -> y; its own gradient */                         \
    X(ROUTER, router)             /* logits[b,t,r] -> gates[b,t,r], probabilities[b,t,r] */        \
    X(ROUTER_GRAD, router_grad)   /* gates, probabilities, dgates, dprobabilities if any -> */     \
    X(EXPERT_SLOTS, expert_slots) /* gates[b,t,r] -> slots[b,t,r] */                               \
    X(DISPATCH, dispatch)         /* x[b,t,d], slots, gates or not -> u[e,b,c,d] */                \
    X(COMBINE, combine)           /* o[e,b,c,d], slots, gates or not -> y[b,t,d] */                \
    X(COMBINE_GRAD, combine_grad) /* o, slots, dy -> dgates[b,t,r] */                              \
    X(EXPERT_LOAD, expert_load)   /* gates, probabilities -> mass[b,r], chosen[b,r] */             \
    X(SPREAD, spread)             /* dmass[b,r] -> dprobabilities[b,t,r] */                        \
    X(BALANCE_LOSS, balance_loss) /* mass, chosen -> loss */                                       \
    X(BALANCE_LOSS_GRAD, balance_loss_grad) /* chosen, dloss -> dmass */                           \
    X(Z_LOSS, z_loss)                       /* logits[b,t,r] -> loss */                            \
    X(Z_LOSS_GRAD, z_loss_grad)             /* logits, dloss -> dlogits */                         \
    X(ROW_SHARE, row_share)                 /* a[..., c] -> y: each row divided by its sum */      \
    X(ROW_MAX, row_max)                     /* logits[b,t,v] -> max[b,t] */                        \
    X(ROW_SUM_EXP, row_sum_exp)             /* logits, max -> sum[b,t] of exp(logit - max) */      \
    X(ROW_PICK, row_pick)           /* logits, labels[b,t] -> picked[b,t], 0 where not here */     \
    X(CROSS_ENTROPY, cross_entropy) /* logits (unread), max, sum, picked, labels -> loss */        \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad) /* logits, max, sum, labels, dloss -> dlogits */     \
    X(COUNT_VALID, count_valid)               /* labels[b,t] -> count */                           \
    X(RECIPROCAL, reciprocal)                 /* n -> 1/n, and 0 for n = 0 */                      \
    X(MULTIPLY, multiply)                     /* two scalars -> product */                         \
    X(SUM_SQUARES, sum_squares)               /* a -> scalar */                                    \
    X(PACK, pack)                             /* n of shape [...] -> [n, ...] */                   \
    X(SUM, sum)                               /* a[n] -> scalar, in ascending order */             \
    X(ADAMW_CONTROL, adamw_control) /* norm_squares, n_valid, applied (inout) -> control[8] */     \
    X(ADAMW, adamw) /* parameter (inout), first (inout), second (inout), gradient, control -> */   \
    X(CAST, cast)   /* a, storage of y or not -> y: a in the type of y */                          \
    X(CONVERT,                                                                                     \
      convert) /* a -> y: a redistribution along one axis; the local ones have a kernel */         \
    X(STRIP,                                                                                       \
      strip) /* a, storage of y or not -> y: a's indices along attr.strip.dim from .first on */    \
    X(JOIN, join) /* strips -> y: one behind the other along attr.strip.dim */

typedef enum yoke_op {
#define YOKE_OP_ENUM(upper, lower) YOKE_OP_##upper,
    YOKE_OP_LIST(YOKE_OP_ENUM)
#undef YOKE_OP_ENUM
        YOKE_N_OPS
} yoke_op;

#endif
