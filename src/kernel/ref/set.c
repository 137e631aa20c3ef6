/*
 * The table of the reference set. It is complete by construction: it is made from the list of operators.
 */
#include "kernel/sets.h"
#include "kernel/ref/ref.h"

const yoke_kernel_set yoke_kernel_set_ref = {
    .name = "ref",
    .help = "plain C, the definition of each operator",
    .run =
        {
#define YOKE_REF_ROW(upper, lower) [YOKE_OP_##upper] = yoke_ref_##lower,
            YOKE_OP_LIST(YOKE_REF_ROW)
#undef YOKE_REF_ROW
        },
    /* These read the type of each operand. */
    .run_narrow = {[YOKE_OP_MATMUL] = yoke_ref_matmul,
                   [YOKE_OP_STRIP] = yoke_ref_strip,
                   [YOKE_OP_JOIN] = yoke_ref_join,
#define YOKE_REF_ROW(upper, lower) [YOKE_OP_##upper] = yoke_ref_narrow_##lower,
                   YOKE_REF_NARROW_LIST(YOKE_REF_ROW)
#undef YOKE_REF_ROW
    },
};
