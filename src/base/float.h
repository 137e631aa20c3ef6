/*
 * The floating-point mode of a thread. Every thread that computes calls this first, so that denormals round alike
 * everywhere and cost nothing.
 */
#ifndef YOKE_BASE_FLOAT_H
#define YOKE_BASE_FLOAT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Denormal operands and results count as zero on the calling thread from now on; threads made later inherit it. */
void yoke_float_flush_denormals(void);

#ifdef __cplusplus
}
#endif
#endif
