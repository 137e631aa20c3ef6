/*
 * Graphs with their layouts, looked into: one at a time, found by name, its conversions counted.
 *
 * Included by one test program each, after cmocka.h.
 */
#ifndef INFERRED_H
#define INFERRED_H

#include "graph_cases.h"

static yoke_graph *graph;

static inline void assert_inferred(const graph_case *c, const char *mesh)
{
    yoke_status status = case_build(c, mesh, true, &graph);
    if (status) {
        fail_msg("mesh '%s' %s: %s", mesh, c->options ? c->options : "",
                 yoke_status_message(status));
    }
}

static inline const yoke_value_info *info(yoke_value value)
{
    return &graph->values[value];
}

/* What a conversion is counted by; dims NULL: any. */
typedef struct sort {
    yoke_region region;
    yoke_conversion conversion;
    yoke_axis axis;
    const char *dims;
} sort;

static inline bool is_of_sort(const yoke_node *node, const sort *s)
{
    return node->op == YOKE_OP_CONVERT && node->region == s->region &&
           node->conversion == s->conversion && node->axis == s->axis &&
           (!s->dims || strcmp(info(node->in[0])->dims, s->dims) == 0);
}

static inline int count(const sort *s)
{
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        n += is_of_sort(&graph->nodes[i], s);
    }
    return n;
}

static inline int count_region(yoke_region region)
{
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].op == YOKE_OP_CONVERT && graph->nodes[i].region == region;
    }
    return n;
}

#endif
