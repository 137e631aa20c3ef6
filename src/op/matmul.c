/*
 * Matrix product as an Einstein sum of two operands without batch letters: [M | K] x [K | N]
 * -> [M | N], where M, K and N are groups of letters and either operand may lie transposed. Its
 * gradients are matrix products again.
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

/* Finds the contraction of a and b to y; false if it is not one matrix product. */
static bool contract(const char *a, const char *b, const char *y, yoke_contraction *found)
{
    char m[8], k[8], n[8];
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
    };
    return n_k > 0 && (a_plain || a_turned) && (b_plain || b_turned) && y_plain;
}

/* y = a b, in whichever order of the operands gives the letters of y. */
static yoke_value product(yoke_graph *graph, yoke_value a, yoke_value b, const char *y)
{
    const char *da = yoke_value_get(graph, a)->dims, *db = yoke_value_get(graph, b)->dims;
    yoke_contraction contraction;
    bool swap = !contract(da, db, y, &contraction);
    if (swap && !contract(db, da, y, &contraction)) {
        yoke_graph_fail(
            graph,
            "matmul \"%s,%s->%s\" is not one matrix product: the output must be the letters "
            "of one operand that are not summed, then those of the other, each in order",
            da, db, y);
        return YOKE_NO_VALUE;
    }
    const yoke_value in[] = {swap ? b : a, swap ? a : b};
    return yoke_node_add(graph,
                         &(yoke_node_spec){.op = YOKE_OP_MATMUL,
                                           .n_in = 2,
                                           .in = in,
                                           .out_dims = {y},
                                           .attributes = {.contraction = contraction}},
                         NULL);
}

yoke_value yoke_matmul(yoke_graph *graph, const char *rule, yoke_value a, yoke_value b)
{
    const yoke_value in[] = {a, b};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    const char *comma = strchr(rule, ','), *arrow = strstr(rule, "->");
    if (!comma || !arrow || arrow < comma || strlen(arrow + 2) > YOKE_MAX_DIMS) {
        yoke_graph_fail(graph, "matmul \"%s\": wants a rule such as \"btd,df->btf\"", rule);
        return YOKE_NO_VALUE;
    }
    const char *da = yoke_value_get(graph, a)->dims, *db = yoke_value_get(graph, b)->dims;
    size_t n_a = (size_t)(comma - rule), n_b = (size_t)(arrow - comma - 1);
    if (strlen(da) != n_a || strncmp(da, rule, n_a) != 0 || strlen(db) != n_b ||
        strncmp(db, comma + 1, n_b) != 0) {
        yoke_graph_fail(graph, "matmul \"%s\" of operands [%s] and [%s]: the letters differ", rule,
                        da, db);
        return YOKE_NO_VALUE;
    }
    return product(graph, a, b, arrow + 2);
}

static void gradient(yoke_graph *graph, const yoke_node *node, const yoke_value *d_out,
                     yoke_value *d_in)
{
    yoke_value a = node->in[0], b = node->in[1];
    d_in[0] = product(graph, d_out[0], b, yoke_value_get(graph, a)->dims);
    d_in[1] = product(graph, a, d_out[0], yoke_value_get(graph, b)->dims);
}

static double flops(const yoke_graph *graph, const yoke_node *node)
{
    const yoke_value_info *a = yoke_value_get(graph, node->in[0]);
    const yoke_value_info *y = yoke_value_get(graph, node->out[0]);
    double summed = 1;
    for (const char *c = a->dims; *c; c++) {
        summed *= strchr(y->dims, *c) ? 1.0 : (double)yoke_letter_extent(graph, *c);
    }
    return 2.0 * summed * (double)yoke_shape_elements(&y->shape);
}

const yoke_op_def yoke_op_matmul = {.name = "matmul",
                                    .linear = {1 << 0, 1 << 1},
                                    .gradient = gradient,
                                    .flops = flops,
                                    .accumulates = true};
