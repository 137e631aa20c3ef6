/*
 * Optimizer: AdamW with clipping by the global norm and a schedule of the learning rate.
 *
 * AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019. The step that the schedule and the bias correction see is the
 * number of *applied* steps: a skipped step moves nothing.
 */
#ifndef YOKE_OPTIMIZER_H
#define YOKE_OPTIMIZER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, name, help): the shape after warm-up, from the peak rate to the minimum. */
#define YOKE_RATE_LIST(X)                                                                          \
    X(CONSTANT, constant, "stays at the peak")                                                     \
    X(LINEAR, linear, "falls linearly to the minimum at the last step")                            \
    X(COSINE, cosine, "falls as half a cosine to the minimum at the last step")                    \
    X(WSD, wsd, "stays at the peak, then falls linearly over the last decay_steps")

typedef enum yoke_rate {
#define YOKE_RATE_ENUM(upper, lower, help) YOKE_RATE_##upper,
    YOKE_RATE_LIST(YOKE_RATE_ENUM)
#undef YOKE_RATE_ENUM
        YOKE_N_RATES
} yoke_rate;

typedef struct yoke_optimizer {
    yoke_rate rate;
    double lr, min_lr;    /* peak and final learning rate */
    int64_t warmup_steps; /* the rate rises linearly: lr * (step + 1) / warmup_steps */
    int64_t decay_steps;  /* wsd only */
    int64_t total_steps;  /* steps of the whole run */
    double beta1, beta2, epsilon;
    double decay; /* decoupled, on weights only */
    double clip;  /* largest global gradient norm; 0 does not clip */
} yoke_optimizer;

/* The rate of the step that follows `applied` applied steps. */
double yoke_optimizer_lr(const yoke_optimizer *optimizer, int64_t applied);

const char *yoke_rate_name(yoke_rate rate);

/* What the control operator writes, float32. */
enum {
    YOKE_CONTROL_APPLY, /* 1, or 0 for a step to be skipped: no valid label, or a gradient that is not finite */
    YOKE_CONTROL_LR,
    YOKE_CONTROL_SCALE, /* of the gradient, by clipping */
    YOKE_CONTROL_BIAS1, /* 1 - beta1^n, n the number of this applied step, from 1 */
    YOKE_CONTROL_BIAS2, /* 1 - beta2^n */
    YOKE_CONTROL_NORM,  /* global gradient norm before clipping */
    YOKE_CONTROL_STEP,  /* n */
    YOKE_CONTROL_UNUSED,
    YOKE_N_CONTROLS
};

#ifdef __cplusplus
}
#endif
#endif
