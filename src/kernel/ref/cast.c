/*
 * From one type of storage to another: rounded, widened, or added to what is there. Both operands say their types; a second
 * input is not read.
 */
#include "kernel/ref/ref.h"

#include "kernel/piece.h"

static float element(const yoke_tensor *a, int64_t i)
{
    return a->dtype == YOKE_BF16 ? real_widen(((const real *)a->data)[i])
                                 : ((const float *)a->data)[i];
}

void YOKE_REF_NAME(cast)(const yoke_kernel_call *call)
{
    const yoke_tensor *y = &call->out[0];
    int64_t n = yoke_piece_elements(y);
    for (int64_t i = 0; i < n; i++) {
        float all = element(&call->in[0], i);
        all = call->accumulate ? element(y, i) + all : all;
        if (y->dtype == YOKE_BF16) {
            ((real *)y->data)[i] = real_round(all);
        } else {
            ((float *)y->data)[i] = all;
        }
    }
}
