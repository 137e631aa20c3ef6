/*
 * The table of one vector set: avx2 or avx512, as the file is compiled.
 */
#include "kernel/sets.h"
#include "kernel/vector/vector.h"

#define SET_NAME_(isa) yoke_kernel_set_##isa
#define SET_NAME(isa)  SET_NAME_(isa)
#define TEXT_(isa)     #isa
#define TEXT(isa)      TEXT_(isa)

static bool supported(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
}

const yoke_kernel_set SET_NAME(YOKE_ISA) = {
    .name = TEXT(YOKE_ISA),
    .help = "plain C in lanes of 16 floats, compiled for " TEXT(YOKE_ISA),
    .supported = supported,
    .run =
        {
#define YOKE_VECTOR_ROW(upper, lower) [YOKE_OP_##upper] = YOKE_VECTOR_NAME(lower),
            YOKE_VECTOR_LIST(YOKE_VECTOR_ROW)
#undef YOKE_VECTOR_ROW
        },
    .run_narrow =
        {
#define YOKE_VECTOR_ROW(upper, lower) [YOKE_OP_##upper] = YOKE_VECTOR_NAME(narrow_##lower),
            YOKE_VECTOR_NARROW_LIST(YOKE_VECTOR_ROW)
#undef YOKE_VECTOR_ROW
        },
};
