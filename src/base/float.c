/*
 * The floating-point mode of a thread, by architecture: MXCSR on x86, FPCR on aarch64. Elsewhere nothing is done, and a
 * run with vanishing gradients is slower and rounds otherwise.
 */
#include "base/float.h"

#include <stdint.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

void yoke_float_flush_denormals(void)
{
#if defined(__SSE2__)
    const unsigned flush_to_zero = 0x8000;
    const unsigned denormals_are_zero = 0x0040;
    _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
#elif defined(__aarch64__)
    const uint64_t flush_to_zero = UINT64_C(1) << 24;
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | flush_to_zero));
#endif
}
