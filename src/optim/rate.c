/*
 * Schedules of the learning rate, as functions of the number of the step alone: never of samples, time or the mesh.
 *
 * Step n counts from 1. Warm-up reaches the peak at n = warmup_steps (without warm-up the first step has the peak); the
 * falling shapes reach the minimum at n = total_steps and stay there. A wsd decay that would begin inside the warm-up
 * begins at its end.
 */
#include "yoke/optimizer.h"

#include <math.h>

const char *yoke_rate_name(yoke_rate rate)
{
    static const char *const names[YOKE_N_RATES] = {
#define YOKE_RATE_NAME(upper, lower, help) [YOKE_RATE_##upper] = #lower,
        YOKE_RATE_LIST(YOKE_RATE_NAME)
#undef YOKE_RATE_NAME
    };
    return (int)rate >= 0 && (int)rate < (int)YOKE_N_RATES ? names[rate] : "unknown";
}

/* How far step n is on the way from `first`, the last step at the peak, to `last`: 0 to 1. */
static double progress(int64_t n, int64_t first, int64_t last)
{
    if (n >= last) {
        return 1.0;
    }
    return n <= first ? 0.0 : (double)(n - first) / (double)(last - first);
}

double yoke_optimizer_lr(const yoke_optimizer *optimizer, int64_t applied)
{
    const double pi = 3.14159265358979323846;
    int64_t n = applied + 1;
    int64_t total = optimizer->total_steps;
    int64_t peak = optimizer->warmup_steps > 1 ? optimizer->warmup_steps : 1;
    int64_t decay = total - optimizer->decay_steps;
    double fallen = 0.0;
    if (n <= peak) {
        return optimizer->lr * ((double)n / (double)peak);
    }
    switch (optimizer->rate) {
    case YOKE_RATE_LINEAR:
        fallen = progress(n, peak, total);
        break;
    case YOKE_RATE_COSINE:
        fallen = 0.5 * (1.0 - cos(pi * progress(n, peak, total)));
        break;
    case YOKE_RATE_WSD:
        fallen = progress(n, decay > peak ? decay : peak, total);
        break;
    case YOKE_RATE_CONSTANT:
    case YOKE_N_RATES:
        break;
    }
    /* In this form both ends are exact. */
    return optimizer->lr * (1.0 - fallen) + optimizer->min_lr * fallen;
}
