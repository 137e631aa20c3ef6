/*
 * What surrounds the micro-batches: the count of valid labels before them; the loss, the norm of
 * the gradients and the updates after them. All of it is ordinary nodes, so nothing is counted
 * twice on any mesh.
 */
#include "op/step.h"
#include "graph/graph.h"

yoke_value yoke_step_head(yoke_graph *graph, yoke_op op, yoke_value a)
{
    if (!yoke_values_good(graph, &a, 1)) {
        return YOKE_NO_VALUE;
    }
    yoke_region region = graph->region;
    int block = graph->block;
    graph->region = YOKE_REGION_HEAD;
    graph->block = YOKE_NO_BLOCK;
    yoke_value out = yoke_node_add(
        graph, &(yoke_node_spec){.op = op, .n_in = 1, .in = &a, .out_dims = {""}}, NULL);
    if (out != YOKE_NO_VALUE && graph->values[a].kind == YOKE_VALUE_INPUT) {
        graph->values[out].kind = YOKE_VALUE_ACCUMULATOR;
    }
    graph->region = region;
    graph->block = block;
    return out;
}

/* A node in the tail. */
static yoke_value tail(yoke_graph *graph, const yoke_node_spec *spec)
{
    yoke_region region = graph->region;
    int block = graph->block;
    graph->region = YOKE_REGION_TAIL;
    graph->block = YOKE_NO_BLOCK;
    yoke_value out = yoke_node_add(graph, spec, NULL);
    graph->region = region;
    graph->block = block;
    return out;
}

void yoke_graph_keep(yoke_graph *graph, yoke_value value)
{
    if (value != YOKE_NO_VALUE) {
        graph->values[value].output = true;
    }
}

static void push(yoke_graph *graph, yoke_value **list, int64_t *n, int64_t *capacity,
                 yoke_value value)
{
    if (yoke_values_good(graph, &value, 1)) {
        graph->values[value].kind = YOKE_VALUE_ACCUMULATOR;
        *list = yoke_arena_grow(graph->arena, *list, *n, capacity, sizeof **list);
        (*list)[(*n)++] = value;
    }
}

void yoke_step_auxiliary_loss(yoke_graph *graph, yoke_value total)
{
    push(graph, &graph->auxiliary, &graph->n_auxiliary, &graph->auxiliary_capacity, total);
}

void yoke_step_expert_load(yoke_graph *graph, yoke_value load)
{
    push(graph, &graph->loads, &graph->n_loads, &graph->loads_capacity, load);
}

/* Values of all stages side by side, along a letter of the graph's own. */
static yoke_value pack(yoke_graph *graph, const yoke_value *values, int64_t n, char letter)
{
    char dims[YOKE_MAX_DIMS + 2];
    (void)snprintf(dims, sizeof dims, "%c%s", letter, graph->values[values[0]].dims);
    graph->letters[(int)letter] = n;
    return tail(graph, &(yoke_node_spec){
                           .op = YOKE_OP_PACK, .n_in = (int)n, .in = values, .out_dims = {dims}});
}

/* What the leading rank prints of the losses beside the main one and of the experts. */
static void report(yoke_graph *graph)
{
    if (graph->n_auxiliary > 0 && !graph->error) {
        yoke_value packed = pack(graph, graph->auxiliary, graph->n_auxiliary, '+');
        yoke_value total =
            tail(graph,
                 &(yoke_node_spec){.op = YOKE_OP_SUM, .n_in = 1, .in = &packed, .out_dims = {""}});
        const yoke_value in[] = {total, graph->loss_share};
        graph->auxiliary_loss =
            tail(graph,
                 &(yoke_node_spec){.op = YOKE_OP_MULTIPLY, .n_in = 2, .in = in, .out_dims = {""}});
        yoke_graph_keep(graph, graph->auxiliary_loss);
    }
    if (graph->n_loads > 0 && !graph->error) {
        yoke_value packed = pack(graph, graph->loads, graph->n_loads, '%');
        const char *dims = graph->values[packed].dims;
        graph->expert_load =
            tail(graph, &(yoke_node_spec){
                            .op = YOKE_OP_ROW_SHARE, .n_in = 1, .in = &packed, .out_dims = {dims}});
        yoke_graph_keep(graph, graph->expert_load);
    }
}

yoke_value yoke_step_loss(yoke_graph *graph, yoke_value total, yoke_value share, yoke_value n_valid)
{
    const yoke_value in[] = {total, share};
    if (!yoke_values_good(graph, in, 2)) {
        return YOKE_NO_VALUE;
    }
    if (graph->loss != YOKE_NO_VALUE) {
        yoke_graph_fail(graph, "a graph has one loss; this is the second");
        return YOKE_NO_VALUE;
    }
    graph->values[total].kind = YOKE_VALUE_ACCUMULATOR;
    graph->loss_total = total;
    graph->loss_share = share;
    graph->n_valid = n_valid;
    graph->loss = tail(
        graph, &(yoke_node_spec){.op = YOKE_OP_MULTIPLY, .n_in = 2, .in = in, .out_dims = {""}});
    yoke_graph_keep(graph, graph->loss);
    yoke_graph_keep(graph, n_valid);
    report(graph);
    return graph->loss;
}

static yoke_value state(yoke_graph *graph, const char *name, const char *suffix,
                        const yoke_value_info *like)
{
    yoke_value_info info = {
        .name = yoke_arena_print(graph->arena, "%s.%s", name, suffix),
        .kind = YOKE_VALUE_STATE,
        .producer = YOKE_NO_NODE,
        .gradient_of = YOKE_NO_VALUE,
        .gathered_of = YOKE_NO_VALUE,
        .layout = yoke_layout_replicated(),
    };
    if (like) {
        info.shape = like->shape;
        for (int i = 0; i < like->shape.n_dims; i++) {
            info.dims[i] = like->dims[i];
        }
    }
    return yoke_graph_value_add(graph, &info);
}

/* Squares of the 2-norm of the gradients of all trained parameters, side by side, [*]. */
static yoke_value norms(yoke_graph *graph)
{
    yoke_value *squares = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_parameters);
    int n = 0;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        if (graph->gradients[i] != YOKE_NO_VALUE) {
            squares[n++] = tail(graph, &(yoke_node_spec){.op = YOKE_OP_SUM_SQUARES,
                                                         .n_in = 1,
                                                         .in = &graph->gradients[i],
                                                         .out_dims = {""}});
        }
    }
    if (n == 0) {
        yoke_graph_fail(graph, "all %lld parameters are frozen; leave one to train",
                        (long long)graph->n_parameters);
        return YOKE_NO_VALUE;
    }
    yoke_letter(graph, '*', n);
    return tail(graph,
                &(yoke_node_spec){.op = YOKE_OP_PACK, .n_in = n, .in = squares, .out_dims = {"*"}});
}

static void update(yoke_graph *graph, int64_t index)
{
    yoke_value parameter = graph->parameters[index];
    const char *name = graph->values[parameter].name;
    yoke_value_info like = graph->values[parameter];
    const yoke_value in[] = {parameter, state(graph, name, "first", &like),
                             state(graph, name, "second", &like), graph->gradients[index],
                             graph->control};
    float decay = like.decays ? (float)graph->optimizer.decay : 0.0f;
    tail(graph, &(yoke_node_spec){.op = YOKE_OP_ADAMW,
                                  .n_in = 5,
                                  .in = in,
                                  .attributes = {.decay = decay, .optimizer = &graph->optimizer}});
}

yoke_status yoke_graph_optimize(yoke_graph *graph, const yoke_optimizer *optimizer)
{
    YOKE_ASSERT(graph->gradients && graph->n_valid != YOKE_NO_VALUE);
    graph->optimizer = *optimizer;
    graph->norms = norms(graph);
    yoke_graph_keep(graph, graph->norms);
    yoke_value total = tail(
        graph,
        &(yoke_node_spec){.op = YOKE_OP_SUM, .n_in = 1, .in = &graph->norms, .out_dims = {""}});
    const yoke_value in[] = {total, graph->n_valid, state(graph, "step", "applied", NULL)};
    /* The eight control numbers are a vector of their own letter. */
    yoke_letter(graph, '#', YOKE_N_CONTROLS);
    graph->control = tail(graph, &(yoke_node_spec){.op = YOKE_OP_ADAMW_CONTROL,
                                                   .n_in = 3,
                                                   .in = in,
                                                   .out_dims = {"#"},
                                                   .attributes = {.optimizer = &graph->optimizer}});
    yoke_graph_keep(graph, graph->control);
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        if (graph->gradients[i] != YOKE_NO_VALUE) {
            update(graph, i);
        }
    }
    return yoke_graph_finish(graph);
}
