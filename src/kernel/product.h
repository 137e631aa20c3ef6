/*
 * Matrix products whose operands are stored in bf16, or some of them, and sums in f32.
 *
 * Storing in bf16 and multiplying in bf16 are two decisions: a multiplier has a type of its own, and operands of the other
 * type are converted in blocks on their way into it. Products of f32 alone do not come here.
 */
#ifndef YOKE_KERNEL_PRODUCT_H
#define YOKE_KERNEL_PRODUCT_H

#include "base/bf16.h"
#include "kernel/kernel.h"

/* y[m,n] = beta y + a[m,k] b[k,n]: row-major, `stride` elements from one stored row to the next. */
typedef struct yoke_tile {
    int64_t m, n, k;
    const void *a, *b; /* of the multiplier's type */
    float *y;
    int64_t a_stride, b_stride, y_stride;
    bool a_transposed, b_transposed; /* a is stored as [k,m], b as [n,k] */
    float beta;
} yoke_tile;

typedef struct yoke_multiplier {
    yoke_dtype type;                         /* of a and b: f32 or bf16 */
    void (*multiply)(const yoke_tile *tile); /* on the calling thread alone */
} yoke_multiplier;

/* oneDNN's. That of bf16 may be used only where yoke_multiplier_bf16_missing is NULL; else that says why not. */
extern const yoke_multiplier yoke_multiplier_f32, yoke_multiplier_bf16;
const char *yoke_multiplier_bf16_missing(void);

/* Runs a matmul: tiles and blocks depend on the sizes alone and each tile is one thread's, so any number of threads gives
 * equal bits. It accumulates only into f32. */
void yoke_product_run(const yoke_kernel_call *call, const yoke_multiplier *multiplier);

/* Of the call's scratch: of whichever multiplier wants more, and 0 if all operands are f32. */
size_t yoke_product_scratch_bytes(const yoke_kernel_call *call, int n_threads);

bool yoke_product_is_narrow(const yoke_kernel_call *call); /* some operand is bf16 */

/* The kernel of matmul that multiplies operands in bf16, unless all are f32. Sets hold the one that multiplies in f32. */
void yoke_product_in_bf16(const yoke_kernel_call *call);

/* --- Rows of numbers, as blocks are made of them --- */

void yoke_product_widen(const yoke_bf16 *in, float *out, int64_t n);
void yoke_product_round(const float *in, yoke_bf16 *out, int64_t n);

/* --- What a product takes on this machine --- */

typedef struct yoke_product_sample {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
    yoke_dtype a, b, y;
} yoke_product_sample;

/* Seconds of the best of several runs, for about `seconds`, on the calling rank's threads; < 0 without memory. */
double yoke_product_sample_s(const yoke_product_sample *sample, yoke_kernel kernel, double seconds);

#endif
