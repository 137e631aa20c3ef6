/*
 * When collectives start and are waited for: parameters are gathered one block ahead and no earlier,
 * gradients leave in the backward pass of the last micro-batch, and a group has a bounded number
 * under way. That the numbers do not change is parity's to say, that nothing is misused the
 * verifier's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session_case.h"

static const yoke_program *open_program(scene *s, const char *mesh, const char *options)
{
    const session_case c = {
        .keys = "n_layer=5", .mesh = mesh, .options = options, .batch = 8, .microbatches = 2};
    scene_open(s, &c);
    scene_plan(s);
    return yoke_program_of(yoke_session_programs(s->session), 0);
}

/* The index of a transfer's start or wait. */
static int64_t find(const yoke_program *program, yoke_opcode opcode, int transfer)
{
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *at = &program->instructions[i];
        if (at->opcode == opcode && at->transfer == transfer) {
            return i;
        }
    }
    fail_msg("transfer %d has no %s", transfer, yoke_opcode_get(opcode)->name);
    return -1;
}

static int64_t start_of(const yoke_program *program, int transfer)
{
    return find(program, YOKE_OPCODE_COLLECTIVE, transfer);
}

static bool is_gather(const yoke_program *program, int transfer)
{
    const yoke_program_transfer *t = &program->transfers[transfer];
    return t->kind == YOKE_EXCHANGE_COPY && program->buffers[t->out].kind == YOKE_BUFFER_GATHERED;
}

/* A kernel of the model: not one that only adds a scattered gradient to its sum, behind its block. */
static bool computes(const yoke_program *program, const yoke_instruction *at)
{
    if (at->opcode != YOKE_OPCODE_KERNEL) {
        return false;
    }
    int out = program->operands[at->operands + at->n_in];
    return !(at->n_in == 1 && at->n_out == 1 && program->buffers[out].kind == YOKE_BUFFER_GRADS);
}

/* Blocks of kernels that run between a start and its wait, that of the wait itself not counted. */
static int blocks_between(const yoke_program *program, int transfer)
{
    int n = 0;
    int64_t wait = find(program, YOKE_OPCODE_WAIT, transfer);
    int block = program->instructions[wait].block, last = block;
    for (int64_t i = start_of(program, transfer); i < wait; i++) {
        const yoke_instruction *at = &program->instructions[i];
        if (computes(program, at)) {
            n += at->block != block && at->block != last;
            last = at->block;
        }
    }
    return n;
}

/* In forward and backward, all but those of an action's first block. */
static void test_parameters_are_gathered_one_block_ahead(void **state)
{
    (void)state;
    scene s;
    const yoke_program *program = open_program(&s, "fsdp=2", NULL);
    int n_ahead = 0, n_first = 0;
    for (int t = 0; t < program->n_transfers; t++) {
        if (is_gather(program, t)) {
            int n = blocks_between(program, t);
            assert_in_range(n, 0, 1);
            n_ahead += n == 1;
            n_first += n == 0;
        }
    }
    /* 16 parameters in each of 5 layers, 4 in embedding and head; 2 passes, 2 micro-batches; the
     * embedding's table and positions come first in forward, the head's norm and table backward. */
    assert_true(n_ahead >= 2 * 2 * 5 * 12);
    assert_true(n_first > 0 && n_first < n_ahead / 4);
    scene_close(&s);
}

static bool reduces_gradient(const yoke_session *session, const yoke_program_transfer *t)
{
    const yoke_graph *graph = yoke_session_graph(session);
    return t->kind == YOKE_EXCHANGE_ALL_REDUCE_SUM && t->value >= 0 &&
           yoke_value_parameter(graph, t->value) != YOKE_NO_VALUE;
}

/* A gradient starts right behind the last kernel that adds to it, before those of earlier layers. */
static void test_gradients_leave_in_the_last_backward_pass(void **state)
{
    (void)state;
    scene s;
    const yoke_program *program = open_program(&s, "dp=2", "bucket_size=0");
    int64_t last_kernel = 0;
    int n = 0;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        bool backward = program->instructions[i].region == YOKE_REGION_BACKWARD;
        last_kernel = backward ? i : last_kernel;
    }
    for (int t = 0; t < program->n_transfers; t++) {
        if (reduces_gradient(s.session, &program->transfers[t])) {
            n += start_of(program, t) < last_kernel;
        }
    }
    assert_true(n >= 5 * 12);
    scene_close(&s);
}

/* Pieces of gradients travel while the next layer computes; but for the last layer's, nothing is left
 * to compute. */
static void test_scattering_is_hidden(void **state)
{
    (void)state;
    static const char *const options[] = {NULL, "zero=2", "zero=3"};
    for (int i = 0; i < 3; i++) {
        scene s;
        const yoke_program *program = open_program(&s, i ? "dp=2" : "fsdp=2", options[i]);
        int n = 0, hidden = 0;
        for (int t = 0; t < program->n_transfers; t++) {
            if (program->transfers[t].kind != YOKE_EXCHANGE_SUM) {
                continue;
            }
            int64_t wait = find(program, YOKE_OPCODE_WAIT, t), at = start_of(program, t);
            while (at < wait && !computes(program, &program->instructions[at])) {
                at++;
            }
            n++;
            hidden += at < wait;
        }
        assert_true(n >= 2 * 5 * 12);
        assert_true(hidden > n - n / 8);
        scene_close(&s);
    }
}

static void assert_bounded(const char *mesh, const char *options)
{
    scene s;
    const yoke_program *program = open_program(&s, mesh, options);
    const yoke_program_set *set = yoke_session_programs(s.session);
    assert_true(program->n_transfers > 62);
    assert_in_range(set->depth, 2, 32);
    scene_close(&s);
}

static void test_channels_stay_narrow(void **state)
{
    (void)state;
    assert_bounded("dp=2", "bucket_size=0"); /* 62 gradients, one group */
    assert_bounded("dp=2", "zero=1");
    assert_bounded("fsdp=2", NULL);
    assert_bounded("fsdp=2,tp=2",
                   NULL); /* biases are whole over fsdp: reduced last, started early */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters_are_gathered_one_block_ahead),
        cmocka_unit_test(test_gradients_leave_in_the_last_backward_pass),
        cmocka_unit_test(test_scattering_is_hidden),
        cmocka_unit_test(test_channels_stay_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
