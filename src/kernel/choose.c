/*
 * Which kernel runs an operator: the first set of the list that the processor supports and that has it.
 */
#include "kernel/kernel.h"

#include <string.h>
#include "kernel/sets.h"

static const yoke_kernel_set *const sets[] = {
#define YOKE_KERNEL_SET_ROW(name) &yoke_kernel_set_##name,
    YOKE_KERNEL_SET_LIST(YOKE_KERNEL_SET_ROW)
#undef YOKE_KERNEL_SET_ROW
};

enum { N_SETS = sizeof(sets) / sizeof(sets[0]) };

const yoke_kernel_set *yoke_kernel_set_find(const char *name)
{
    for (int i = 0; i < (int)N_SETS; i++) {
        if (strcmp(sets[i]->name, name) == 0) {
            return sets[i];
        }
    }
    return NULL;
}

static yoke_status check_wanted(const char *wanted)
{
    bool known = !wanted || strcmp(wanted, "ref") == 0 || strcmp(wanted, "auto") == 0;
    return known ? YOKE_OK
                 : YOKE_FAIL(YOKE_BAD_INPUT, "kernels \"%s\" are unknown; use auto or ref", wanted);
}

/* The best kernel of an operator, or NULL. */
static yoke_kernel find(const char *wanted, int op, bool narrow)
{
    bool only_ref = wanted && strcmp(wanted, "ref") == 0;
    yoke_kernel found = NULL;
    for (int i = only_ref ? N_SETS - 1 : 0; i < (int)N_SETS && !found; i++) {
        if (!sets[i]->supported || sets[i]->supported()) {
            found = narrow ? sets[i]->run_narrow[op] : sets[i]->run[op];
        }
    }
    return found;
}

yoke_status yoke_kernel_choose(const char *wanted, yoke_kernel chosen[YOKE_N_OPS])
{
    YOKE_TRY(check_wanted(wanted));
    for (int op = 0; op < (int)YOKE_N_OPS; op++) {
        chosen[op] = find(wanted, op, false);
        YOKE_ASSERT(chosen[op]);
    }
    return YOKE_OK;
}

yoke_status yoke_kernel_choose_narrow(const char *wanted, yoke_kernel chosen[YOKE_N_OPS])
{
    YOKE_TRY(check_wanted(wanted));
    for (int op = 0; op < (int)YOKE_N_OPS; op++) {
        chosen[op] = find(wanted, op, true);
    }
    return YOKE_OK;
}
