/* What the passes of travel.h share: casts, and values for them. */
#include "layout/travel.h"

yoke_value yoke_travel_value_add(yoke_graph *graph, yoke_value like, yoke_dtype dtype)
{
    yoke_value_info info = graph->values[like];
    info.dtype = dtype;
    info.stream = info.output = false;
    info.n_makers = 0;
    return yoke_graph_value_add(graph, &info);
}

static void append(yoke_graph *graph, const yoke_value *in, int n_in, yoke_value out,
                   const yoke_node *at)
{
    yoke_node cast = {
        .op = YOKE_OP_CAST,
        .region = at->region,
        .block = at->block,
        .n_in = n_in,
        .n_out = 1,
        .in = YOKE_ARENA_NEW(graph->arena, yoke_value, n_in),
        .in_rule = YOKE_ARENA_NEW(graph->arena, const char *, n_in),
        .out = {out, YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE},
        .out_rule = {yoke_arena_copy_text(graph->arena, graph->values[out].dims)},
    };
    for (int i = 0; i < n_in; i++) {
        cast.in[i] = in[i];
        cast.in_rule[i] = cast.out_rule[0];
    }
    yoke_graph_node_append(graph, &cast);
}

void yoke_travel_cast(yoke_graph *graph, yoke_value in, yoke_value out, const yoke_node *at)
{
    append(graph, &in, 1, out, at);
}

void yoke_travel_cast_into(yoke_graph *graph, const yoke_value in_lender[2], yoke_value out,
                           const yoke_node *at)
{
    append(graph, in_lender, 2, out, at);
}
