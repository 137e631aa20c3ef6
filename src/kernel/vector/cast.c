/*
 * From one type of storage to another; ref/cast.c says what it is.
 */
#include "kernel/vector/real.h"

static inline lanes get(const yoke_tensor *a, int64_t i, int64_t n)
{
    return a->dtype == YOKE_BF16 ? lanes_get_real((const real *)a->data + i, n, 0.0f)
                                 : lanes_get((const float *)a->data + i, n, 0.0f);
}

static void cast(const yoke_kernel_call *call, int64_t first, int64_t end)
{
    const yoke_tensor *y = &call->out[0];
    for (int64_t i = first; i < end; i += LANES) {
        lanes all = get(&call->in[0], i, end - i);
        all = call->accumulate ? lanes_add(get(y, i, end - i), all) : all;
        if (y->dtype == YOKE_BF16) {
            lanes_put_real((real *)y->data + i, end - i, all);
        } else {
            lanes_put((float *)y->data + i, end - i, all);
        }
    }
}

void YOKE_VECTOR_NAME(cast)(const yoke_kernel_call *call)
{
    int64_t n = yoke_piece_elements(&call->out[0]);
#pragma omp parallel for schedule(static) if (n > GRAIN)
    for (int64_t first = 0; first < n; first += GRAIN) {
        cast(call, first, smaller(first + GRAIN, n));
    }
}
