/* The table of operators, from the list, and what a definition says of one operand. */
#include "op/op.h"

const yoke_op_def *yoke_op_get(yoke_op op)
{
    static const yoke_op_def *const table[YOKE_N_OPS] = {
#define YOKE_OP_ENTRY(upper, lower) [YOKE_OP_##upper] = &yoke_op_##lower,
        YOKE_OP_LIST(YOKE_OP_ENTRY)
#undef YOKE_OP_ENTRY
    };
    YOKE_ASSERT(op >= 0 && op < YOKE_N_OPS);
    return table[op];
}

bool yoke_mask_has(unsigned mask, int i)
{
    return mask == (unsigned)YOKE_ALL_INPUTS || (i < 32 && (mask >> i & 1u));
}

bool yoke_node_reads(const yoke_node *node, int i)
{
    return !yoke_mask_has(yoke_op_get(node->op)->unread, i);
}
