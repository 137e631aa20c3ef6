/*
 * Programs of single strategies, spoiled: a ring that passes the wrong pieces, a gradient that leaves
 * before its last contribution (C2), one that is scattered or added at the wrong moment, a parameter
 * that is used before it is gathered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "program_cases.h"

static bool is_start_of(int rank, int64_t i, yoke_conversion conversion)
{
    return at(rank, i)->opcode == YOKE_OPCODE_COLLECTIVE &&
           transfer_at(rank, i)->conversion == conversion;
}

/* The `nth` start, from 0, of a conversion in a region. */
static int64_t find_start(int rank, yoke_conversion conversion, yoke_region region, int nth)
{
    for (int64_t i = 0; i < program(rank)->n_instructions; i++) {
        if (is_start_of(rank, i, conversion) && at(rank, i)->region == region && nth-- == 0) {
            return i;
        }
    }
    fail_msg("no such collective");
    return -1;
}

/* The last kernel before `index` that writes the storage of a buffer. */
static int64_t find_writer(int rank, int buffer, int64_t index)
{
    const yoke_program *p = program(rank);
    for (int64_t i = index - 1; i >= 0; i--) {
        for (int k = 0; at(rank, i)->opcode == YOKE_OPCODE_KERNEL && k < at(rank, i)->n_out; k++) {
            int out = operands(rank, i)[at(rank, i)->n_in + k];
            if (out != YOKE_NO_BUFFER && p->buffers[out].root == p->buffers[buffer].root) {
                return i;
            }
        }
    }
    fail_msg("nobody writes it");
    return -1;
}

/* --- Gradients ------------------------------------------------------------------------------------ */

/* C2: the reduction starts while the last micro-batch is still to be added. */
static blame early_reduction(void)
{
    int64_t start = find_start(0, YOKE_CONVERT_ALL_REDUCE, YOKE_REGION_TAIL, 0);
    int64_t writer = find_writer(0, transfer_at(0, start)->in, start);
    const char *tensor = name_of(output(0, writer)->value);
    move(0, start, writer);
    return (blame){0, writer, tensor};
}

static blame early_scattering(void)
{
    int64_t start = find_start(0, YOKE_CONVERT_REDUCE_SCATTER, YOKE_REGION_BACKWARD, 0);
    int64_t writer = find_writer(0, transfer_at(0, start)->in, start);
    const char *tensor = name_of(output(0, writer)->value);
    move(0, start, writer);
    return (blame){0, writer, tensor};
}

/* The piece is added to its sum while it still travels. */
static blame early_addition(void)
{
    int64_t start = find_start(0, YOKE_CONVERT_REDUCE_SCATTER, YOKE_REGION_BACKWARD, 0);
    int64_t wait = find_wait(0, at(0, start)->transfer);
    move(0, wait, wait + 1);
    return (blame){0, wait, name_of(transfer_at(0, start)->value)};
}

/* --- Parameters ----------------------------------------------------------------------------------- */

static blame use_before_gathering(void)
{
    int64_t start = find_start(0, YOKE_CONVERT_ALL_GATHER, YOKE_REGION_FORWARD, 0);
    int64_t wait = find_wait(0, at(0, start)->transfer);
    int64_t reader = find_reader(0, transfer_at(0, start)->out, wait);
    move(0, reader, wait);
    return (blame){0, wait, name_of(transfer_at(0, start)->value)};
}

/* --- The ring ------------------------------------------------------------------------------------- */

/* The second turn takes the piece that went round in the first. */
static blame same_piece_again(void)
{
    int64_t first = find_start(1, YOKE_CONVERT_ROTATE, YOKE_REGION_FORWARD, 0);
    int64_t later = find_start(1, YOKE_CONVERT_ROTATE, YOKE_REGION_FORWARD, 2);
    transfer_at(1, later)->in = transfer_at(1, first)->in;
    return blame_transfer(1, later);
}

/* One rank keeps out of a turn. */
static blame missed_turn(void)
{
    int64_t turn = find_start(2, YOKE_CONVERT_ROTATE, YOKE_REGION_FORWARD, 0);
    const char *tensor = name_of(transfer_at(2, turn)->value);
    int64_t reader = find_reader(2, transfer_at(2, turn)->out, turn);
    drop_transfer(2, at(2, turn)->transfer);
    return (blame){2, reader - 2, tensor};
}

/* Attention of the second turn works on the piece of the first. */
static blame wrong_turn(void)
{
    int64_t first = find_kernel(0, YOKE_OP_ATTENTION, 0);
    int64_t second = find_kernel(0, YOKE_OP_ATTENTION, 1);
    operands(0, second)[1] = operands(0, first)[1];
    return (blame){0, second, NULL};
}

static const plan gradients = {.mesh = "dp=2", .schedule = "gpipe", .microbatches = 2};
static const plan sharded = {.mesh = "fsdp=2", .schedule = "gpipe", .microbatches = 2};
static const plan passed_round = {.mesh = "cp=3", .schedule = "gpipe", .microbatches = 1};

static void test_spoiled_strategies(void **state)
{
    (void)state;
    static const mutation table[] = {
        {"early reduction", &gradients, early_reduction, "after 1 of its 2 parts"},
        {"early scattering", &sharded, early_scattering, "which was never written"},
        {"early addition", &sharded, early_addition, "which is still being received"},
        {"use before gathering", &sharded, use_before_gathering, "which is still being received"},
        {"same piece again", &passed_round, same_piece_again, "which it is not made of"},
        {"missed turn", &passed_round, missed_turn, "which was never written"},
        {"wrong turn", &passed_round, wrong_turn, ") instead of "},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        graph_case c = gpt2_case(2);
        c.tokens = 6;
        c.options = table[i].plan == &passed_round ? "context_parallel=ring" : NULL;
        make(&c, table[i].plan);
        assert_refused(&table[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spoiled_strategies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
