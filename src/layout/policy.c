/* The table of policies. A new axis is a line in yoke/mesh.h and a row here. */
#include "layout/policy.h"
#include <stddef.h>

/* dp: each rank has its share of the batch. tp: Megatron's division of heads, feed-forward width
 * and vocabulary (Shoeybi et al. 2019); key/value heads are divided if they can be evenly, else
 * every rank has them all (Ainslie et al. 2023). */
static const yoke_policy table[YOKE_N_AXES] = {
    [YOKE_AXIS_DP] = {.compute = "b", .parameter = "", .even = "", .stream = "b"},
    [YOKE_AXIS_TP] = {.compute = "hkfv", .parameter = "hkfv", .even = "k", .stream = ""},
};

const yoke_policy *yoke_policy_get(yoke_axis axis)
{
    return table[axis].compute ? &table[axis] : NULL;
}
