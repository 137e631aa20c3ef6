/*
 * Matrix product as an Einstein sum of two operands: [Z | M | K] x [Z | K | N] -> [Z | M | N], where
 * Z, M, K and N are groups of letters and either operand may lie transposed behind Z. The letters of
 * Z, mostly none, stand in all three: one product for each of their indices. Its gradients are
 * matrix products again.
 */
#include "op/op.h"
#include <string.h>

/* True if the letters of `part`, in order, are those of text[from, from + n). */
static bool stands_at(const char *text, int from, const char *part, int n)
{
    return strncmp(text + from, part, (size_t)n) == 0;
}

/* Letters of `text` that are (or are not) in `other`, in order. */
static int select_letters(const char *text, const char *other, bool present, char *out)
{
    int n = 0;
    for (const char *c = text; *c; c++) {
        if ((strchr(other, *c) != NULL) == present) {
            out[n++] = *c;
        }
    }
    out[n] = 0;
    return n;
}

/* Letters with which all three begin, in the same order: one product for each of their indices. */
static int count_batch(const char *a, const char *b, const char *y)
{
    int n = 0;
    while (a[n] && a[n] == b[n] && a[n] == y[n]) {
        n++;
    }
    return n;
}

/* Finds the contraction of a and b to y; false if it is not one matrix product. */
static bool contract(const char *a, const char *b, const char *y, yoke_contraction *found)
{
    char m[8], k[8], n[8];
    int n_batch = count_batch(a, b, y);
    a += n_batch;
    b += n_batch;
    y += n_batch;
    int n_m = select_letters(a, b, false, m);
    int n_k = select_letters(a, b, true, k);
    int n_n = select_letters(b, a, false, n);
    bool a_plain = stands_at(a, 0, m, n_m) && stands_at(a, n_m, k, n_k);
    bool a_turned = stands_at(a, 0, k, n_k) && stands_at(a, n_k, m, n_m);
    bool b_plain = stands_at(b, 0, k, n_k) && stands_at(b, n_k, n, n_n);
    bool b_turned = stands_at(b, 0, n, n_n) && stands_at(b, n_n, k, n_k);
    bool y_plain =
        (int)strlen(y) == n_m + n_n && stands_at(y, 0, m, n_m) && stands_at(y, n_m, n, n_n);
    *found = (yoke_contraction){
        .a_split = a_plain ? n_m : n_k,
        .b_split = b_plain ? n_k : n_n,
        .a_transposed = !a_plain,
        .b_transposed = !b_plain,
        .n_batch = n_batch,
    };
    return n_k > 0 && (a_plain || a_turned) && (b_plain || b_turned) && y_plain;
}

/* An operand and the letters under which the product reads it. */
typedef struct operand {
    yoke_value value;
    const char *rule;
} operand;

/* y = a b, in whichever order of the operands gives the rule of y. */
static yoke_value product(yoke_graph *graph, operand a, operand b, operand y, const char *dims)
{
    yoke_contraction contraction;
    bool swap = !contract(a.rule, b.rule, y.rule, &contraction);
    if (swap && !contract(b.rule, a.rule, y.rule, &contraction)) {
        yoke_graph_fail(
            graph,
            "matmul \"%s,%s->%s\" is not one matrix product: the output must be the letters "
            "of one operand that are not summed, then those of the other, each in order",
            a.rule, b.rule, y.rule);
        return YOKE_NO_VALUE;
    }
    const yoke_value in[] = {swap ? b.value : a.value, swap ? a.value : b.value};
    const char *const rules[] = {swap ? b.rule : a.rule, swap ? a.rule : b.rule};
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_MATMUL,
                                           .n_in = 2,
                                           .in = in,
                                           .in_rules = rules,
                                           .out_dims = {dims},
                                           .out_rules = {y.rule},
                                           .attributes = {.contraction = contraction}},
                         NULL);
}

/* Copies the rule of one operand. A letter may stand for another one of the same extent, so that a
 * product of a square matrix can give back the letters that it took. */
static bool read_rule(yoke_graph *graph, const char *rule, size_t n, yoke_value value, char *copy)
{
    const char *dims = yoke_value_get(graph, value)->dims;
    bool fits = n == strlen(dims);
    for (size_t i = 0; fits && i < n; i++) {
        fits = yoke_letter_extent(graph, rule[i]) == yoke_letter_extent(graph, dims[i]) &&
               memchr(rule, rule[i], i) == NULL;
        copy[i] = rule[i];
    }
    copy[fits ? n : 0] = '\0';
    return fits;
}

yoke_value yoke_matmul(yoke_graph *graph, const char *rule, yoke_value a, yoke_value b)
{
    const yoke_value in[] = {a, b};
    char rules[2][YOKE_MAX_DIMS + 1];
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const char *comma = strchr(rule, ','), *arrow = strstr(rule, "->");
    if (!comma || !arrow || arrow < comma || strlen(arrow + 2) > YOKE_MAX_DIMS) {
        yoke_graph_fail(graph, "matmul \"%s\": wants a rule such as \"btd,df->btf\"", rule);
        return YOKE_NO_VALUE;
    }
    if (!read_rule(graph, rule, (size_t)(comma - rule), a, rules[0]) ||
        !read_rule(graph, comma + 1, (size_t)(arrow - comma - 1), b, rules[1])) {
        yoke_graph_fail(graph, "matmul \"%s\" of operands [%s] and [%s]: the letters differ", rule,
                        yoke_value_get(graph, a)->dims, yoke_value_get(graph, b)->dims);
        return YOKE_NO_VALUE;
    }
    const char *y = arrow + 2;
    return product(graph, (operand){a, rules[0]}, (operand){b, rules[1]},
                   (operand){YOKE_NO_VALUE, y}, y);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    const operand a = {node->in[0], node->in_rule[0]}, b = {node->in[1], node->in_rule[1]};
    const operand dy = {d_out[0], node->out_rule[0]};
    d_in[0] = product(graph, dy, b, a, yoke_value_get(graph, a.value)->dims);
    d_in[1] = product(graph, a, dy, b, yoke_value_get(graph, b.value)->dims);
}

static double flops(const yoke_graph *graph, const yoke_node *node)
{
    const yoke_value_info *y = yoke_value_get(graph, node->out[0]);
    const yoke_value_info *a = yoke_value_get(graph, node->in[0]);
    double summed = 1;
    for (int d = 0; d < a->shape.n_dims; d++) {
        bool kept = strchr(node->out_rule[0], node->in_rule[0][d]);
        summed *= kept ? 1.0 : (double)a->shape.extent[d];
    }
    return 2.0 * summed * (double)yoke_shape_elements(&y->shape);
}

const yoke_op_def yoke_op_matmul = {
    .name = "matmul",
    .linear = {1 << 0, 1 << 1},
    .gradient = gradient,
    .flops = flops,
    .accumulates = true,
    .mixes = true,
    .narrow_in = 1 << 0 | 1 << 1,
    .narrow_out = 1 << 0,
};
