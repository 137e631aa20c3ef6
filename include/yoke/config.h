/*
 * Config: everything that a run can be told, declared once.
 *
 * The list drives the struct below, the parser of run files (YAML), `--set key=value`, the flags,
 * the help texts, docs/cli.md and the resolved config that each run writes. Keys of the model
 * itself (HuggingFace's names) are declared by its family: yoke/model.h.
 */
#ifndef YOKE_CONFIG_H
#define YOKE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "yoke/mesh.h"
#include "yoke/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(type, key, default, unit, help). The types of C stand below the list. */
#define YOKE_CONFIG_LIST(X)                                                                        \
    X(TEXT, mesh, "", "", "ranks along each axis, such as dp=2,tp=2,pp=2")                         \
    X(INT, zero, 0, "",                                                                            \
      "along dp, divides: 1 the optimizer's state, 2 gradients too, 3 parameters too (ZeRO)")      \
    X(BOOL, sequence_parallel, false, "", "along tp, the residual stream is divided by tokens")    \
    X(TEXT, context_parallel, "gather", "", "along cp, attention: gather, heads or ring")          \
    X(BOOL, balance_context, false, "",                                                            \
      "along cp with gather or ring: each rank has an early and a late chunk of every sequence, "  \
      "so that causal attention costs all the same")                                               \
    X(TEXT, dtype, "f32", "",                                                                      \
      "of activations, and of weights that are gathered: f32 or bf16; parameters, their "          \
      "gradients and the optimizer stay f32")                                                      \
    X(TEXT, reduce_dtype, "f32", "",                                                               \
      "of gradients while they are summed over ranks: f32 or bf16, which moves half the bytes")    \
    X(TEXT, bucket_size, "1MiB", "",                                                               \
      "small gradients of a block are reduced together, up to as many bytes; 0: each alone")       \
    X(TEXT, matmul, "auto", "",                                                                    \
      "products of bf16: in f32 or bf16; auto: a measurement at start finds the faster")           \
    X(TEXT, recompute, "light", "",                                                                \
      "activations in the backward pass: none, light, selective, full, or bytes a stage may keep " \
      "(2GiB)")                                                                                    \
    X(TEXT, logits_budget, "64MiB", "",                                                            \
      "logits of a rank at a time: the loss and its gradient run over strips of tokens")           \
    X(TEXT, model, "gpt2-mini", "", "a preset, or the path of a HuggingFace config.json")          \
    X(TEXT, weights, "", "path", "model.safetensors to start from; empty: random")                 \
    X(TEXT, data, "", "path", "the corpus: a UTF-8 text, or a flat file of uint16 tokens")         \
    X(TEXT, data_format, "auto", "",                                                               \
      "auto, text (bytes) or u16; auto: u16 if the name ends in .bin or .u16")                     \
    X(REAL, eval_fraction, 0.05, "", "last part of the corpus, held out for evaluation")           \
    X(INT, ignore_token, -1, "token",                                                              \
      "predictions of this token do not count (padding); -1: none")                                \
    X(REAL, mask_rate, 0.15, "",                                                                   \
      "share of the tokens that an encoder has to find; other models have no use for it")          \
    X(INT, mask_token, -1, "token",                                                                \
      "stands in their place in an encoder's input; -1: the last of the vocabulary")               \
    X(INT, seed, 1, "", "of weights, data order and dropout")                                      \
    X(INT, steps, 1000, "steps", "optimizer steps")                                                \
    X(INT, batch_size, 16, "sequences", "sequences in a step, over all ranks and micro-batches")   \
    X(INT, microbatches, 1, "", "micro-batches in a step; a multiple is best with pipelines")      \
    X(INT, seq_len, 128, "tokens", "tokens in a sequence")                                         \
    X(TEXT, schedule, "1f1b", "", "gpipe, 1f1b, interleaved, zb-h1, zb-v, or the path of a .csv")  \
    X(INT, chunks_per_stage, 0, "", "of the pipeline; 0: as many as the schedule has by itself")   \
    X(REAL, lr, 1e-3, "", "peak learning rate")                                                    \
    X(REAL, min_lr, 1e-4, "", "learning rate at the end")                                          \
    X(TEXT, lr_schedule, "cosine", "", "constant, linear, cosine or wsd")                          \
    X(INT, warmup_steps, 20, "steps", "the learning rate rises over these")                        \
    X(INT, decay_steps, 0, "steps", "wsd: the learning rate falls over these last steps")          \
    X(REAL, beta1, 0.9, "", "AdamW: decay of the first moment")                                    \
    X(REAL, beta2, 0.95, "", "AdamW: decay of the second moment")                                  \
    X(REAL, epsilon, 1e-8, "", "AdamW: added to the root of the second moment")                    \
    X(REAL, weight_decay, 0.1, "", "AdamW: decoupled, on weights; not on biases and norms")        \
    X(REAL, grad_clip, 1.0, "", "largest global gradient norm; 0: no clipping")                    \
    X(INT, max_skipped, 20, "steps", "stop after so many skipped steps in a row")                  \
    X(INT, eval_interval, 0, "steps", "evaluate every so many steps; 0: only after the last")      \
    X(INT, eval_batches, 16, "batches", "batches of batch_size sequences in an evaluation")        \
    X(INT, threads, 0, "threads", "for each rank; 0: cores / ranks, at least 1")                   \
    X(TEXT, placement, "auto", "",                                                                 \
      "cores: one for each thread; auto: likewise if they suffice and are mostly needed; none")    \
    X(BOOL, fuse, true, "", "neighbours that only pass memory to each other run as one kernel")    \
    X(TEXT, kernels, "auto", "",                                                                   \
      "auto: the fastest that this processor has; ref: those that define them")                    \
    X(TEXT, ranks, "processes", "", "processes or threads")                                        \
    X(REAL, timeout_s, 600.0, "s", "a rank that waits longer than this calls the run hung")        \
    X(TEXT, run_dir, "", "path", "folder of the run; empty: runs/<model>-<time>")                  \
    X(INT, log_interval, 1, "steps", "one line in the log every so many steps")

#define YOKE_CONFIG_TYPE_INT  int64_t
#define YOKE_CONFIG_TYPE_REAL double
#define YOKE_CONFIG_TYPE_BOOL bool
#define YOKE_CONFIG_TYPE_TEXT const char *

typedef struct yoke_config {
#define YOKE_CONFIG_FIELD(type, key, fallback, unit, help) YOKE_CONFIG_TYPE_##type key;
    YOKE_CONFIG_LIST(YOKE_CONFIG_FIELD)
#undef YOKE_CONFIG_FIELD
} yoke_config;

/* Every key at its default. Texts point to constants. */
yoke_config yoke_config_default(void);

/* Refuses values out of range, with the numbers and a way out: sizes below 1, a batch that the
 * micro-batches do not divide, rates outside [0, 1), an unknown schedule, ... It reads no file. */
yoke_status yoke_config_check(const yoke_config *config) YOKE_MUST_USE;

/* The optimizer that the config describes; the config has been checked. */
yoke_optimizer yoke_config_optimizer(const yoke_config *config);

#ifdef __cplusplus
}
#endif
#endif
