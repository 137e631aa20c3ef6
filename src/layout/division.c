/* Lists the divisions of an operator from its index rule and an axis's policy. Knows no costs. */
#include "layout/division.h"
#include <string.h>

static bool is_whole(const yoke_node *node, char letter)
{
    const char *whole = yoke_op_get(node->op)->whole;
    if (!whole) {
        return false;
    }
    if (whole[0] == '$') {
        size_t n = strlen(node->out_rule[0]);
        return n > 0 && node->out_rule[0][n - 1] == letter;
    }
    return strchr(whole, letter) != NULL;
}

static bool stands_in_rule(const yoke_node *node, char letter)
{
    for (int i = 0; i < node->n_in; i++) {
        if (strchr(node->in_rule[i], letter)) {
            return true;
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        if (strchr(node->out_rule[i], letter)) {
            return true;
        }
    }
    return false;
}

/* Ranks among which the letter would be divided, those of axes further out included. */
static int ranks_of_letter(const yoke_parts *parts, char letter)
{
    int n = parts->n;
    for (int i = 0; i < parts->n_outer; i++) {
        n *= parts->outer[i].letter == letter ? parts->outer_n[i] : 1;
    }
    return n;
}

/* Adds the division by a letter, unless the operator cannot or it is there already. */
static int add_letter(const yoke_graph *graph, const yoke_node *node, const yoke_parts *parts,
                      char letter, yoke_division *list, int n)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    bool uneven =
        strchr(parts->policy->even, letter) && yoke_letter_extent(graph, letter) % parts->n != 0;
    bool listed = false;
    for (int i = 0; i < n; i++) {
        listed = listed || list[i].letter == letter;
    }
    if (uneven || listed || is_whole(node, letter) || !stands_in_rule(node, letter)) {
        return n;
    }
    int n_ranks = ranks_of_letter(parts, letter);
    char companion = def->companion ? def->companion(graph, node, letter, n_ranks) : 0;
    companion = companion && strchr(parts->policy->compute, companion) ? companion : 0;
    list[n] = (yoke_division){.letter = letter, .companion = companion};
    return n + 1;
}

/* Where parameters are stored in pieces, they are rounded, and their gradients are summed and read, in
 * pieces, of whatever dim. */
static int add_stored_letters(const yoke_graph *graph, const yoke_node *node,
                              const yoke_parts *parts, yoke_division *list, int n)
{
    bool stored = parts->policy->storing != YOKE_STORE_WHOLE;
    for (int i = 0; stored && i < node->n_in; i++) {
        bool gradient = yoke_value_parameter(graph, node->in[i]) != YOKE_NO_VALUE;
        bool in_pieces = gradient || node->op == YOKE_OP_CAST;
        for (const char *c = in_pieces ? node->in_rule[i] : ""; *c; c++) {
            n = add_letter(graph, node, parts, *c, list, n);
        }
    }
    return n;
}

int yoke_division_list(const yoke_graph *graph, const yoke_node *node, const yoke_parts *parts,
                       yoke_division *list)
{
    const yoke_op_def *def = yoke_op_get(node->op);
    int n = 0;
    for (const char *c = parts->policy->compute; *c; c++) {
        n = add_letter(graph, node, parts, *c, list, n);
    }
    n = add_stored_letters(graph, node, parts, list, n);
    for (int i = 0; i < YOKE_MAX_LINEAR && def->linear[i]; i++) {
        list[n++] = (yoke_division){.linear = def->linear[i]};
    }
    list[n++] = (yoke_division){0};
    YOKE_ASSERT(n <= YOKE_MAX_DIVISIONS);
    return n;
}

/* The dim on which the division cuts an operand with these letters, or -1. */
static int divided_dim(const yoke_division *division, const char *rule)
{
    for (int d = 0; rule[d]; d++) {
        if (rule[d] == division->letter ||
            (division->companion && rule[d] == division->companion)) {
            return d;
        }
    }
    return -1;
}

int yoke_division_input(const yoke_division *division, const yoke_node *node, int i)
{
    if (division->letter) {
        int dim = divided_dim(division, node->in_rule[i]);
        return dim >= 0 ? dim : YOKE_REPLICATED;
    }
    return yoke_mask_has((unsigned)division->linear, i) ? YOKE_PARTIAL_SUM : YOKE_REPLICATED;
}

int yoke_division_output(const yoke_division *division, const yoke_node *node, int i)
{
    if (division->letter) {
        int dim = divided_dim(division, node->out_rule[i]);
        int partial = yoke_op_get(node->op)->maximum ? YOKE_PARTIAL_MAX : YOKE_PARTIAL_SUM;
        return dim >= 0 ? dim : partial;
    }
    return division->linear ? YOKE_PARTIAL_SUM : YOKE_REPLICATED;
}
