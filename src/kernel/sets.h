/*
 * The kernel sets of this build: a table each, looked up through the list in kernel.h.
 */
#ifndef YOKE_KERNEL_SETS_H
#define YOKE_KERNEL_SETS_H

#include "kernel/kernel.h"

#define YOKE_KERNEL_SET_DECLARE(name) extern const yoke_kernel_set yoke_kernel_set_##name;
YOKE_KERNEL_SET_LIST(YOKE_KERNEL_SET_DECLARE)
#undef YOKE_KERNEL_SET_DECLARE

#endif
