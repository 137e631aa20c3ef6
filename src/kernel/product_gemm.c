/*
 * oneDNN's products of one tile, in 2.6 and 3.x alike.
 *
 * dnnl_gemm_bf16bf16f32 is exported by both (looked up in 2.6.3 and 3.13) but in no header, since oneDNN wants matrix
 * products made as primitives: those are built for one shape, with a dozen requests for memory. A library without it is
 * taken as one that cannot.
 */
#include "kernel/product.h"

#include <dnnl.h>

__attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char a_transposed, char b_transposed,
                                                          dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                                          float alpha, const yoke_bf16 *a,
                                                          dnnl_dim_t a_stride, const yoke_bf16 *b,
                                                          dnnl_dim_t b_stride, float beta, float *y,
                                                          dnnl_dim_t y_stride);

static char letter(bool transposed)
{
    return transposed ? 'T' : 'N';
}

static void multiply_f32(const yoke_tile *t)
{
    dnnl_status_t status =
        dnnl_sgemm(letter(t->a_transposed), letter(t->b_transposed), t->m, t->n, t->k, 1.0f, t->a,
                   t->a_stride, t->b, t->b_stride, t->beta, t->y, t->y_stride);
    YOKE_ASSERT(status == dnnl_success);
}

static void multiply_bf16(const yoke_tile *t)
{
    YOKE_ASSERT(dnnl_gemm_bf16bf16f32);
    dnnl_status_t status = dnnl_gemm_bf16bf16f32(letter(t->a_transposed), letter(t->b_transposed),
                                                 t->m, t->n, t->k, 1.0f, t->a, t->a_stride, t->b,
                                                 t->b_stride, t->beta, t->y, t->y_stride);
    YOKE_ASSERT(status == dnnl_success);
}

const yoke_multiplier yoke_multiplier_f32 = {YOKE_F32, multiply_f32};
const yoke_multiplier yoke_multiplier_bf16 = {YOKE_BF16, multiply_bf16};

const char *yoke_multiplier_bf16_missing(void)
{
    /* Without the instructions oneDNN emulates them where there is AVX-512 and refuses elsewhere. */
    const unsigned wanted = dnnl_cpu_isa_avx512_core_bf16;
    if (((unsigned)dnnl_get_effective_cpu_isa() & wanted) != wanted) {
        return "this processor has no AVX512-BF16 instructions, or ONEDNN_MAX_CPU_ISA hides them";
    }
    return dnnl_gemm_bf16bf16f32 ? NULL : "this oneDNN has no dnnl_gemm_bf16bf16f32";
}
