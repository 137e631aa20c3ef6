/*
 * The verifier of programs, rank by rank: a plan or an instruction that is spoiled is refused in words
 * that name rank, instruction, tensor and reason. And a slow twin: where buffers are moved at random,
 * the verifier refuses exactly what a map of the owner of every line of memory refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "layout/division.h"
#include "program_cases.h"

static int id_of(int rank, const yoke_buffer *buffer)
{
    return (int)(buffer - program(rank)->buffers);
}

/* --- The plan ----------------------------------------------------------------------------------------- */

static blame overlapping_parameters(void)
{
    const yoke_buffer *wte =
        &program(1)->buffers[yoke_program_find(program(1), graph->parameters[0], YOKE_ONCE_A_STEP)];
    int wpe = yoke_program_find(program(1), graph->parameters[1], YOKE_ONCE_A_STEP);
    place(1, wpe, wte->offset);
    return (blame){1, program(1)->buffers[wpe].first, "wpe"};
}

static blame misaligned(void)
{
    int64_t gelu = find_kernel(1, YOKE_OP_GELU, 0);
    output(1, gelu)->offset += 4;
    output(1, gelu)->root = id_of(1, output(1, gelu));
    return blame_output(1, gelu);
}

static blame out_of_its_part(void)
{
    int64_t gelu = find_kernel(1, YOKE_OP_GELU, 0);
    yoke_buffer *b = output(1, gelu);
    assert_int_equal(b->kind, YOKE_BUFFER_STASH);
    b->offset = program(1)->kind_offset[YOKE_BUFFER_SCRATCH] - YOKE_ALIGNMENT;
    return blame_output(1, gelu);
}

static blame out_of_the_slab(void)
{
    program(1)->slab_bytes -= YOKE_ALIGNMENT;
    return (blame){1, -1, NULL};
}

static blame overlapping_parts(void)
{
    program(1)->kind_offset[YOKE_BUFFER_GRADS] -= YOKE_ALIGNMENT;
    return (blame){1, -1, NULL};
}

static blame on_kernel_scratch(void)
{
    const yoke_program *p = program(0);
    program(0)->kernel_scratch_bytes = p->slab_bytes - p->kind_offset[YOKE_BUFFER_SCRATCH];
    program(0)->kernel_scratch_offset = p->kind_offset[YOKE_BUFFER_SCRATCH];
    int first = 0;
    while (p->buffers[first].kind != YOKE_BUFFER_SCRATCH) {
        first++;
    }
    return (blame){0, p->buffers[first].first, name_of(p->buffers[first].value)};
}

static blame wrong_bytes(void)
{
    int64_t matmul = find_kernel(0, YOKE_OP_MATMUL, 0);
    output(0, matmul)->bytes -= 4;
    return blame_output(0, matmul);
}

static blame wrong_shard(void)
{
    int64_t matmul = find_kernel(0, YOKE_OP_MATMUL, 0);
    output(0, matmul)->shape.extent[0]++;
    return blame_output(0, matmul);
}

static blame wrong_root(void)
{
    yoke_buffer *b = output(0, find_kernel(0, YOKE_OP_DROPOUT, 0));
    assert_int_not_equal(b->root, id_of(0, b));
    b->offset += YOKE_ALIGNMENT;
    return (blame){0, -1, name_of(b->value)};
}

/* --- What is read and written ------------------------------------------------------------------------- */

static blame dropped_kernel(void)
{
    int64_t gelu = find_kernel(0, YOKE_OP_GELU, 1);
    int buffer = id_of(0, output(0, gelu));
    const char *tensor = name_of(output(0, gelu)->value);
    drop(0, gelu);
    return (blame){0, find_reader(0, buffer, 0), tensor};
}

/* Statistics of the second norm are written over the attention's output, which the backward pass reads. */
static blame early_free(void)
{
    const yoke_buffer *kept = output(0, find_kernel(0, YOKE_OP_ATTENTION, 0));
    int64_t norm = find_kernel(0, YOKE_OP_LAYER_NORM, 1);
    int mean = operands(0, norm)[at(0, norm)->n_in + 1];
    assert_true(kept->kind == YOKE_BUFFER_STASH &&
                program(0)->buffers[mean].kind == YOKE_BUFFER_STASH);
    place(0, mean, kept->offset);
    return (blame){0, find_reader(0, id_of(0, kept), norm), name_of(kept->value)};
}

static blame over_its_own_input(void)
{
    int64_t attention = find_kernel(0, YOKE_OP_ATTENTION, 0);
    const yoke_buffer *in = &program(0)->buffers[operands(0, attention)[0]];
    assert_int_equal(in->bytes, output(0, attention)->bytes);
    place(0, id_of(0, output(0, attention)), in->offset);
    return blame_output(0, attention);
}

static blame two_outputs_in_one_place(void)
{
    int64_t norm = find_kernel(0, YOKE_OP_LAYER_NORM, 0);
    const int *out = operands(0, norm) + at(0, norm)->n_in;
    place(0, out[2], program(0)->buffers[out[1]].offset);
    return (blame){0, norm, name_of(program(0)->buffers[out[1]].value)};
}

static blame wrong_input(void)
{
    int64_t first = find_kernel(0, YOKE_OP_GELU, 0);
    int64_t second = find_kernel(0, YOKE_OP_GELU, 1);
    operands(0, second)[0] = operands(0, first)[0];
    return blame_output(0, second);
}

static blame wrong_output(void)
{
    int64_t matmul = find_kernel(0, YOKE_OP_MATMUL, 0);
    int parameter = operands(0, matmul)[1];
    operands(0, matmul)[2] = parameter;
    return (blame){0, matmul, name_of(program(0)->buffers[parameter].value)};
}

static blame missing_input(void)
{
    int64_t matmul = find_kernel(0, YOKE_OP_MATMUL, 0);
    int buffer = operands(0, matmul)[0];
    operands(0, matmul)[0] = YOKE_NO_BUFFER;
    return (blame){0, matmul, name_of(program(0)->buffers[buffer].value)};
}

static blame unknown_buffer(void)
{
    int64_t matmul = find_kernel(0, YOKE_OP_MATMUL, 0);
    operands(0, matmul)[0] = (int)program(0)->n_buffers;
    return (blame){0, -1, "names an opcode, node, transfer or buffer"};
}

/* The kernel that adds the last micro-batch to the gradient of a bias. */
static int64_t find_last_sum(void)
{
    int64_t rows = find_kernel(0, YOKE_OP_SUM_ROWS, 0), last = rows;
    for (int64_t i = rows; i < program(0)->n_instructions; i++) {
        bool writes = at(0, i)->opcode == YOKE_OPCODE_KERNEL && at(0, i)->n_out > 0;
        last = writes && output(0, i) == output(0, rows) ? i : last;
    }
    assert_true(last > rows);
    return last;
}

static blame dropped_sum(void)
{
    int64_t last = find_last_sum(), start = last;
    const yoke_buffer *sum = output(0, last);
    while (at(0, start)->opcode != YOKE_OPCODE_COLLECTIVE ||
           program(0)->buffers[transfer_at(0, start)->in].root != sum->root) {
        start++;
    }
    drop(0, last);
    return (blame){0, start - 1, name_of(sum->value)};
}

static blame repeated_sum(void)
{
    int64_t last = find_last_sum();
    insert_copy(0, last);
    return (blame){0, -1, name_of(output(0, last)->value)};
}

static blame forgotten_accumulation(void)
{
    int64_t first = find_kernel(0, YOKE_OP_SUM_ROWS, 0);
    int64_t i = first + 1;
    while (at(0, i)->opcode != YOKE_OPCODE_KERNEL || at(0, i)->n_out == 0 ||
           output(0, i) != output(0, first)) {
        i++;
    }
    at(0, i)->accumulate = false;
    return blame_output(0, i);
}

static blame early_accumulation(void)
{
    int64_t first = find_kernel(0, YOKE_OP_SUM_ROWS, 0);
    at(0, first)->accumulate = true;
    return blame_output(0, first);
}

/* --- Updates and the end of the step ------------------------------------------------------------------- */

static blame missing_update(void)
{
    int64_t adamw = find_kernel(1, YOKE_OP_ADAMW, 3);
    int parameter = operands(1, adamw)[0];
    drop(1, adamw);
    return (blame){1, find_reader(1, parameter, 0), name_of(program(1)->buffers[parameter].value)};
}

static blame double_update(void)
{
    int64_t adamw = find_kernel(1, YOKE_OP_ADAMW, 3);
    insert_copy(1, adamw);
    int parameter = operands(1, adamw)[0];
    return (blame){1, adamw + 1, name_of(program(1)->buffers[parameter].value)};
}

static blame update_in_evaluation(void)
{
    set->schedule.forward_only = true;
    int64_t adamw = find_kernel(0, YOKE_OP_ADAMW, 0);
    return (blame){0, adamw, "wte"};
}

static blame lost_result(void)
{
    const yoke_program *p = program(0);
    int norms = yoke_program_find(p, graph->norms, YOKE_ONCE_A_STEP);
    int control = yoke_program_find(p, graph->control, YOKE_ONCE_A_STEP);
    place(0, control, p->buffers[p->buffers[norms].root].offset);
    return (blame){0, find_kernel(0, YOKE_OP_ADAMW_CONTROL, 0), name_of(graph->norms)};
}

static void test_spoiled_plans(void **state)
{
    (void)state;
    static const plan p = {.mesh = "dp=2", .schedule = "gpipe", .microbatches = 2};
    static const mutation table[] = {
        {"overlapping parameters", &p, overlapping_parameters,
         "the lasting buffers of wte and wpe"},
        {"misaligned", &p, misaligned, "no multiple of 64"},
        {"out of its part", &p, out_of_its_part, "is out of the part for stash"},
        {"out of the slab", &p, out_of_the_slab, "the part for scratch"},
        {"overlapping parts", &p, overlapping_parts, "for params and grads overlap"},
        {"on kernel scratch", &p, on_kernel_scratch, "what kernels use as scratch"},
        {"wrong bytes", &p, wrong_bytes, "its piece of the tensor"},
        {"wrong shard", &p, wrong_shard, "is not the piece that its layout says"},
        {"wrong root", &p, wrong_root, "takes over storage that does not fit it"},
    };
    graph_case c = gpt2_case(1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make(&c, &p);
        assert_refused(&table[i]);
    }
}

static void test_spoiled_flow(void **state)
{
    (void)state;
    static const plan p = {.mesh = "dp=2", .schedule = "gpipe", .microbatches = 2};
    static const mutation table[] = {
        {"dropped kernel", &p, dropped_kernel, "which was never written"},
        {"early free", &p, early_free, "which was overwritten with h.0.layer_norm"},
        {"over its own input", &p, over_its_own_input, "over its own input h.0.add_bias"},
        {"two outputs in one place", &p, two_outputs_in_one_place, "to the same bytes"},
        {"wrong input", &p, wrong_input, "instead of h.0.add_bias"},
        {"wrong output", &p, wrong_output, "writes h.0.wq instead of h.0.matmul"},
        {"missing input", &p, missing_input, "of which this rank has no buffer"},
        {"unknown buffer", &p, unknown_buffer, "that is not there"},
        {"dropped sum", &p, dropped_sum, "after 1 of its 2 parts"},
        {"repeated sum", &p, repeated_sum, "is a sum of 2 parts, but 3 are added"},
        {"forgotten accumulation", &p, forgotten_accumulation, "anew, which loses"},
        {"early accumulation", &p, early_accumulation, "which was never written"},
        {"missing update", &p, missing_update, "which nothing updates in the step"},
        {"double update", &p, double_update, "which this step has updated before (#"},
        {"update in evaluation", &p, update_in_evaluation, "in a program that only evaluates"},
        {"lost result", &p, lost_result, "which must last to the end of the step"},
    };
    graph_case c = gpt2_case(1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make(&c, &p);
        assert_refused(&table[i]);
    }
}

/* --- The twin ----------------------------------------------------------------------------------------- */

enum { MOST_LINES = 1 << 16, FREE = -1 };

/* A line of YOKE_ALIGNMENT bytes: who was last written there, and which transfers hold it. */
typedef struct line {
    int owner;
    int held;    /* by started sends */
    bool coming; /* being received */
} line;

static line *lines; /* [MOST_LINES] */

static int64_t first_line(const yoke_buffer *b)
{
    return b->offset / YOKE_ALIGNMENT;
}

static int64_t end_line(const yoke_buffer *b)
{
    return (b->offset + b->bytes + YOKE_ALIGNMENT - 1) / YOKE_ALIGNMENT;
}

static bool twin_read(int buffer)
{
    const yoke_buffer *b = &program(0)->buffers[buffer];
    bool good = true;
    for (int64_t i = first_line(b); i < end_line(b); i++) {
        good = good && lines[i].owner == buffer && !lines[i].coming;
    }
    return good;
}

static bool twin_write(int buffer)
{
    const yoke_buffer *b = &program(0)->buffers[buffer];
    bool good = true;
    for (int64_t i = first_line(b); i < end_line(b); i++) {
        good = good && !lines[i].held && !lines[i].coming;
        lines[i].owner = buffer;
    }
    return good;
}

static void twin_hold(int buffer, int by, bool coming)
{
    const yoke_buffer *b = &program(0)->buffers[buffer];
    for (int64_t i = first_line(b); i < end_line(b); i++) {
        lines[i].held += by;
        lines[i].coming = coming;
    }
}

static bool twin_transfer(const yoke_instruction *instruction)
{
    const yoke_program_transfer *t = &program(0)->transfers[instruction->transfer];
    bool start = instruction->opcode != YOKE_OPCODE_WAIT;
    if (t->kind == YOKE_EXCHANGE_SEND) {
        bool good = !start || twin_read(t->in);
        twin_hold(t->in, start ? 1 : -1, false);
        return good;
    }
    bool good = !start || twin_write(t->out);
    twin_hold(t->out, 0, start);
    return good;
}

/* True if an output lies on an input on which the operator does not allow it. */
static bool twin_clash(const yoke_instruction *instruction, const yoke_node *node)
{
    const int *operand = program(0)->operands + instruction->operands;
    for (int o = 0; o < instruction->n_out; o++) {
        const yoke_buffer *out = &program(0)->buffers[operand[instruction->n_in + o]];
        for (int i = 0; i < instruction->n_in + instruction->n_out; i++) {
            bool other =
                i < instruction->n_in ? yoke_node_reads(node, i) : i != instruction->n_in + o;
            if (!other || operand[i] == YOKE_NO_BUFFER) {
                continue;
            }
            const yoke_buffer *in = &program(0)->buffers[operand[i]];
            bool apart = end_line(in) <= first_line(out) || end_line(out) <= first_line(in);
            bool reuses = i < instruction->n_in && o == 0 && i < 32 &&
                          (yoke_op_get(node->op)->reuses >> i & 1u) && in->offset == out->offset;
            if (!apart && !reuses) {
                return true;
            }
        }
    }
    return false;
}

static bool twin_kernel(const yoke_instruction *instruction)
{
    const int *operand = program(0)->operands + instruction->operands;
    bool load = instruction->opcode == YOKE_OPCODE_LOAD;
    const yoke_node *node = load ? NULL : &graph->nodes[instruction->node];
    bool good = load || !twin_clash(instruction, node);
    for (int i = 0; i < instruction->n_in; i++) {
        good = good &&
               (!yoke_node_reads(node, i) || operand[i] == YOKE_NO_BUFFER || twin_read(operand[i]));
    }
    for (int i = 0; i < instruction->n_out; i++) {
        int out = operand[instruction->n_in + i];
        good = good && (!instruction->accumulate || twin_read(out)) && twin_write(out);
    }
    return good;
}

/* The forward program of rank 0, which has neither collectives nor updates. */
static bool twin_verify(void)
{
    bool good = true;
    for (int i = 0; i < MOST_LINES; i++) {
        lines[i] = (line){.owner = FREE};
    }
    for (int b = 0; b < program(0)->n_buffers; b++) {
        bool lasts = program(0)->buffers[b].kind == YOKE_BUFFER_PARAMS;
        good = (!lasts || twin_write(b)) && good;
    }
    for (int64_t i = 0; i < program(0)->n_instructions; i++) {
        const yoke_instruction *instruction = at(0, i);
        bool moves = instruction->transfer != YOKE_NO_TRANSFER;
        if (!(moves ? twin_transfer(instruction) : twin_kernel(instruction))) {
            return false;
        }
    }
    for (int b = 0; b < program(0)->n_buffers; b++) {
        good = good && (!graph->values[program(0)->buffers[b].value].output || twin_read(b));
    }
    return good;
}

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void test_random_plans_agree_with_the_twin(void **state)
{
    (void)state;
    static const plan p = {
        .mesh = "pp=2", .schedule = "gpipe", .microbatches = 3, .forward_only = true};
    graph_case c = llama_case(4);
    int n_good = 0;
    int n_bad = 0;
    make(&c, &p);
    lines = YOKE_ARENA_NEW(set->arena, line, MOST_LINES);
    assert_true(program(0)->slab_bytes / YOKE_ALIGNMENT + 64 < MOST_LINES);
    for (uint32_t trial = 0; trial < 2000; trial++) {
        uint32_t seed = trial;
        int moved = (int)draw(&seed, (uint32_t)program(0)->n_buffers);
        const yoke_buffer *b = &program(0)->buffers[moved];
        int64_t before = b->offset;
        int64_t room = program(0)->kind_bytes[YOKE_BUFFER_SCRATCH] - b->bytes;
        if (b->kind != YOKE_BUFFER_SCRATCH || b->bytes == 0 || room < YOKE_ALIGNMENT) {
            continue;
        }
        place(0, moved,
              program(0)->kind_offset[YOKE_BUFFER_SCRATCH] +
                  (int64_t)draw(&seed, (uint32_t)(room / YOKE_ALIGNMENT)) * YOKE_ALIGNMENT);
        bool good = twin_verify();
        yoke_status status = yoke_program_verify(set);
        if (good != !status) {
            fail_msg("seed %u: the twin finds it %s; %s", trial, good ? "good" : "bad",
                     status ? yoke_status_message(status) : "the verifier lets it pass");
        }
        n_good += good;
        n_bad += !good;
        yoke_status_free(status);
        place(0, moved, before);
    }
    unmake();
    assert_true(n_good > 50 && n_bad > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spoiled_plans),
        cmocka_unit_test(test_spoiled_flow),
        cmocka_unit_test(test_random_plans_agree_with_the_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
