/*
 * Programs whose gradients travel in bf16, spoiled: rounded before the last contribution, widened while the sum is still
 * under way, sent before it is rounded, rounded from another gradient.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "layout/travel.h"
#include "program_cases.h"

/* The start that sends what the `nth` rounding in the tail makes. */
static int64_t start_behind(int64_t cast)
{
    int buffer = operands(0, cast)[at(0, cast)->n_in];
    for (int64_t i = cast; i < program(0)->n_instructions; i++) {
        if (at(0, i)->opcode == YOKE_OPCODE_COLLECTIVE &&
            program(0)->buffers[transfer_at(0, i)->in].root == buffer) {
            return i;
        }
    }
    fail_msg("nobody sends it");
    return -1;
}

/* The last kernel before `index` that writes the buffer. */
static int64_t writer_before(int64_t index, int buffer)
{
    for (int64_t i = index - 1; i >= 0; i--) {
        for (int k = 0; at(0, i)->opcode == YOKE_OPCODE_KERNEL && k < at(0, i)->n_out; k++) {
            if (operands(0, i)[at(0, i)->n_in + k] == buffer) {
                return i;
            }
        }
    }
    fail_msg("nobody writes it");
    return -1;
}

/* C2, where nothing is overwritten: the copy lacks the last micro-batch. */
static blame rounded_early(void)
{
    int64_t cast = find_kernel(0, YOKE_OP_CAST, 0);
    int sum = operands(0, cast)[0];
    int64_t writer = writer_before(cast, sum);
    move(0, cast, writer);
    return (blame){0, writer, name_of(program(0)->buffers[sum].value)};
}

static blame sent_before_rounded(void)
{
    int64_t cast = find_kernel(0, YOKE_OP_CAST, 0);
    int64_t start = start_behind(cast);
    const char *tensor = name_of(transfer_at(0, start)->value);
    move(0, start, cast);
    return (blame){0, cast, tensor};
}

static blame widened_early(void)
{
    int64_t start = start_behind(find_kernel(0, YOKE_OP_CAST, 0));
    int64_t wait = find_wait(0, at(0, start)->transfer);
    int64_t reader = find_reader(0, transfer_at(0, start)->out, wait);
    move(0, reader, wait);
    return (blame){0, wait, name_of(transfer_at(0, start)->value)};
}

static blame rounded_from_another(void)
{
    int64_t first = find_kernel(0, YOKE_OP_CAST, 0), other = find_kernel(0, YOKE_OP_CAST, 1);
    operands(0, first)[0] = operands(0, other)[0];
    return (blame){0, first, NULL};
}

static void test_spoiled_roundings(void **state)
{
    (void)state;
    static const plan replicated = {.mesh = "dp=2", .schedule = "gpipe", .microbatches = 2};
    static const mutation table[] = {
        {"rounded early", &replicated, rounded_early, "after 1 of its 2 parts"},
        {"sent before rounded", &replicated, sent_before_rounded, "which was never written"},
        {"widened early", &replicated, widened_early, "which is still being received"},
        {"rounded from another", &replicated, rounded_from_another, " instead of "},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        graph_case c = gpt2_case(2);
        c.tied = false;
        assert_good(case_build(&c, table[i].plan->mesh, true, &graph), table[i].plan);
        yoke_travel_gradients(graph);
        make_program(table[i].plan);
        assert_refused(&table[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spoiled_roundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
