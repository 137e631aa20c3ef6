/* The opcode table, and a program in words. */
#include "program/program.h"

const yoke_opcode_def *yoke_opcode_get(yoke_opcode opcode)
{
    static const yoke_opcode_def table[] = {
#define YOKE_OPCODE_ENTRY(upper, lower, starts_, ends_)                                            \
    [YOKE_OPCODE_##upper] = {.name = #lower, .starts = starts_, .ends = ends_},
        YOKE_OPCODE_LIST(YOKE_OPCODE_ENTRY)
#undef YOKE_OPCODE_ENTRY
    };
    return &table[opcode];
}

/* What the instruction does, and to which value. */
static void name_instruction(const yoke_program_set *set, int rank,
                             const yoke_instruction *instruction, char *what, int what_bytes)
{
    const yoke_graph *graph = set->graph;
    const yoke_program *program = yoke_program_of(set, rank);
    if (instruction->transfer != YOKE_NO_TRANSFER) {
        const yoke_program_transfer *t = &program->transfers[instruction->transfer];
        bool message = t->kind == YOKE_EXCHANGE_SEND || t->kind == YOKE_EXCHANGE_RECV;
        const char *kind = message ? (t->kind == YOKE_EXCHANGE_SEND ? "send" : "recv")
                                   : yoke_conversion_name(t->conversion);
        const char *wait = instruction->opcode == YOKE_OPCODE_WAIT ? "wait " : "";
        if (message) {
            snprintf(what, (size_t)what_bytes, "%s%s %s %s rank %d", wait, kind,
                     graph->values[t->value].name, t->kind == YOKE_EXCHANGE_SEND ? "to" : "from",
                     yoke_program_peer(set, rank, t));
        } else {
            snprintf(what, (size_t)what_bytes, "%s%s %s over %s", wait, kind,
                     graph->values[t->value].name, yoke_axis_name(t->axis));
        }
        return;
    }
    const yoke_node *node = instruction->node >= 0 ? &graph->nodes[instruction->node] : NULL;
    const char *verb = yoke_opcode_get(instruction->opcode)->name;
    if (node) {
        verb = node->op == YOKE_OP_CONVERT ? yoke_conversion_name(node->conversion)
                                           : yoke_op_get(node->op)->name;
    }
    int n = instruction->n_in + instruction->n_out;
    int shown = instruction->n_out ? instruction->n_in : 0;
    int buffer = n ? program->operands[instruction->operands + shown] : YOKE_NO_BUFFER;
    const char *value =
        buffer != YOKE_NO_BUFFER ? graph->values[program->buffers[buffer].value].name : "";
    snprintf(what, (size_t)what_bytes, "%s %s", verb, value);
}

const char *yoke_instruction_print(const yoke_program_set *set, int rank, int64_t index,
                                   char *buffer, int buffer_bytes)
{
    const yoke_program *program = yoke_program_of(set, rank);
    if (index < 0 || index >= program->n_instructions) {
        snprintf(buffer, (size_t)buffer_bytes, "#%lld (outside the program)", (long long)index);
        return buffer;
    }
    const yoke_instruction *instruction = &program->instructions[index];
    char what[200], when[32] = "";
    name_instruction(set, rank, instruction, what, sizeof what);
    int microbatch = instruction->transfer == YOKE_NO_TRANSFER
                         ? instruction->microbatch
                         : program->transfers[instruction->transfer].microbatch;
    if (microbatch >= 0) {
        snprintf(when, sizeof when, " (micro-batch %d)", microbatch);
    }
    snprintf(buffer, (size_t)buffer_bytes, "#%lld %s%s", (long long)index, what, when);
    return buffer;
}

static void print_operands(const yoke_program *program, const yoke_instruction *instruction,
                           FILE *file)
{
    for (int i = 0; i < instruction->n_in + instruction->n_out; i++) {
        int id = program->operands[instruction->operands + i];
        fprintf(file, "%s", i == instruction->n_in ? " ->" : "");
        if (id == YOKE_NO_BUFFER) {
            fprintf(file, " -");
        } else {
            fprintf(file, " %lld+%lld", (long long)program->buffers[id].offset,
                    (long long)program->buffers[id].bytes);
        }
    }
}

void yoke_program_print(const yoke_program_set *set, int rank, FILE *file)
{
    const yoke_program *program = yoke_program_of(set, rank);
    fprintf(file, "rank %d of %d: %lld instructions, slab of %lld bytes:", rank, set->n_ranks,
            (long long)program->n_instructions, (long long)program->slab_bytes);
#define YOKE_KIND_PRINT(upper, lower, help)                                                        \
    fprintf(file, " " #lower " %lld", (long long)program->kind_bytes[YOKE_BUFFER_##upper]);
    YOKE_BUFFER_KIND_LIST(YOKE_KIND_PRINT)
#undef YOKE_KIND_PRINT
    fprintf(file, "\n");
    for (int64_t i = 0; i < program->n_instructions; i++) {
        char text[256];
        const yoke_instruction *instruction = &program->instructions[i];
        fprintf(file, "%-8s %-72s", yoke_region_name(instruction->region),
                yoke_instruction_print(set, rank, i, text, sizeof text));
        print_operands(program, instruction, file);
        fprintf(file, "%s\n", instruction->accumulate ? "  accumulates" : "");
    }
}
