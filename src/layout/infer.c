/*
 * Layout inference, axis by axis, in the order of execution:
 *
 *   1. candidates are the divisions that the operator's rule and the axis's policy allow
 *      (division.c);
 *   2. a divided parameter, an operand updated in place, or the gradient of a divided parameter
 *      forces its letter;
 *   3. otherwise the cheapest: elements received to convert the inputs, plus those to convert the
 *      output to its pin. A pin (the residual stream, or a result that every rank needs) is seen
 *      through operators that keep dims: add, bias, dropout;
 *   4. converting one value to one layout is done once in a block, but what was gathered for the
 *      forward pass is gathered again for the backward pass: between them the pieces are kept.
 *
 * A parameter stored in pieces forces nothing: it is gathered for its use, or once for the step, and
 * its gradient is brought to the same pieces.
 *
 * Values that policies fix are in fixed.c, the choice in choose.c, the order of tokens in order.c; this file writes the graph anew.
 * No rule mentions a parallel strategy; the published ones fall out of the policies.
 */
#include "layout/infer.h"
#include "layout/inference.h"

static void track_value(yoke_inference *in)
{
    yoke_graph *graph = in->graph;
    int64_t n = graph->n_values - 1;
    in->now = yoke_arena_grow(graph->arena, in->now, n, &in->now_capacity, sizeof *in->now);
    in->latest =
        yoke_arena_grow(graph->arena, in->latest, n, &in->latest_capacity, sizeof *in->latest);
    in->now[n] = (yoke_value)n;
    in->latest[n] = -1;
}

yoke_value yoke_inference_value_add(yoke_inference *in, const yoke_value_info *info)
{
    yoke_value value = yoke_graph_value_add(in->graph, info);
    track_value(in);
    return value;
}

static yoke_value find_version(const yoke_inference *in, yoke_value value, yoke_layout layout,
                               const yoke_node *node)
{
    for (int v = in->latest[value]; v >= 0; v = in->versions[v].next) {
        const yoke_version *made = &in->versions[v];
        if (yoke_version_is_visible(made, node) &&
            yoke_layout_equal(in->graph->values[made->value].layout, layout)) {
            return made->value;
        }
    }
    return YOKE_NO_VALUE;
}

static yoke_value add_version(yoke_inference *in, yoke_value source, const yoke_value_info *info,
                              const yoke_version *made)
{
    yoke_graph *graph = in->graph;
    yoke_value value = yoke_inference_value_add(in, info);
    in->versions = yoke_arena_grow(graph->arena, in->versions, in->n_versions,
                                   &in->versions_capacity, sizeof *in->versions);
    in->versions[in->n_versions] = *made;
    in->versions[in->n_versions].value = value;
    in->versions[in->n_versions].next = in->latest[source];
    in->latest[source] = (int)in->n_versions++;
    return value;
}

/* An input in another layout is loaded once more; all blocks may use it. */
static yoke_value load_again(yoke_inference *in, yoke_value value, yoke_layout layout,
                             const yoke_node *node)
{
    yoke_value found = find_version(in, value, layout, node);
    if (found != YOKE_NO_VALUE) {
        return found;
    }
    yoke_value_info info = in->graph->values[value];
    info.layout = layout;
    return add_version(in, value, &info, &(yoke_version){.region = YOKE_REGION_HEAD});
}

yoke_node yoke_inference_convert_node(yoke_graph *graph, yoke_value value, const yoke_node *node)
{
    const yoke_value_info *info = &graph->values[value];
    yoke_node convert = {
        .op = YOKE_OP_CONVERT,
        .region = node->region,
        .block = node->block,
        .n_in = 1,
        .n_out = 1,
        .in = YOKE_ARENA_NEW(graph->arena, yoke_value, 1),
        .in_rule = YOKE_ARENA_NEW(graph->arena, const char *, 1),
        .attributes = {.global = {info->shape}},
    };
    convert.in[0] = value;
    convert.in_rule[0] = convert.out_rule[0] = yoke_arena_copy_text(graph->arena, info->dims);
    return convert;
}

/* What a value is after a conversion for the use of `node`, but for its layout. */
static yoke_value_info converted(const yoke_graph *graph, yoke_value value, const yoke_node *node)
{
    yoke_value_info info = graph->values[value];
    bool inside = node->region == YOKE_REGION_FORWARD || node->region == YOKE_REGION_BACKWARD;
    if (info.kind == YOKE_VALUE_PARAMETER) {
        info.gathered_of = value;
    }
    info.kind =
        inside || info.kind == YOKE_VALUE_ACTIVATION ? YOKE_VALUE_ACTIVATION : YOKE_VALUE_STEP;
    info.output = false;
    info.n_uses = 0;
    return info;
}

/* `value` with another place along one axis, for the use of `node`. */
static yoke_value convert_axis(yoke_inference *in, yoke_value value, int axis, int place,
                               const yoke_node *node)
{
    yoke_graph *graph = in->graph;
    yoke_value_info info = converted(graph, value, node);
    int from = info.layout.place[axis];
    info.layout.place[axis] = (int8_t)place;
    yoke_value found = find_version(in, value, info.layout, node);
    if (found != YOKE_NO_VALUE) {
        return found;
    }
    yoke_node convert = yoke_inference_convert_node(graph, value, node);
    convert.axis = (yoke_axis)axis;
    convert.conversion = yoke_conversion_find(from, place);
    yoke_version made = {.region = node->region,
                         .block = node->block,
                         .gathered = convert.conversion == YOKE_CONVERT_ALL_GATHER};
    convert.out[0] = add_version(in, value, &info, &made);
    yoke_graph_node_append(graph, &convert);
    return convert.out[0];
}

/* `value` in layout `target`, for the use of `node`. */
static yoke_value convert(yoke_inference *in, yoke_value value, yoke_layout target,
                          const yoke_node *node)
{
    yoke_layout_step steps[YOKE_MAX_LAYOUT_STEPS];
    yoke_layout from = in->graph->values[value].layout;
    if (yoke_layout_equal(from, target)) {
        return value;
    }
    if (in->graph->values[value].kind == YOKE_VALUE_INPUT) {
        return load_again(in, value, target, node);
    }
    int n = yoke_layout_plan(&in->graph->mesh, from, target, steps);
    YOKE_ASSERT(n >= 0);
    for (int i = 0; i < n; i++) {
        value = convert_axis(in, value, (int)steps[i].axis, steps[i].to, node);
    }
    return value;
}

/* Parameters that are to be whole for the step: gathered at its start. */
static void gather_for_step(yoke_inference *in)
{
    const yoke_node start = {.region = YOKE_REGION_HEAD, .block = YOKE_NO_BLOCK};
    yoke_graph *graph = in->graph;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        yoke_layout whole = graph->values[graph->parameters[i]].layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            bool gathers = in->policies->axis[axis].storing == YOKE_STORE_GATHER_FOR_STEP;
            whole.place[axis] =
                gathers && yoke_inference_divides(in, axis) ? YOKE_REPLICATED : whole.place[axis];
        }
        (void)convert(in, graph->parameters[i], whole, &start);
    }
}

yoke_node yoke_inference_sum_node(yoke_graph *graph, const yoke_value *values, int n,
                                  const yoke_node *node)
{
    yoke_node sum = yoke_inference_convert_node(graph, values[0], node);
    const char *rule = sum.in_rule[0];
    sum.op = YOKE_OP_ADD;
    sum.n_in = n;
    sum.in = YOKE_ARENA_NEW(graph->arena, yoke_value, n);
    sum.in_rule = YOKE_ARENA_NEW(graph->arena, const char *, n);
    for (int i = 0; i < n; i++) {
        sum.in[i] = values[i];
        sum.in_rule[i] = rule;
    }
    return sum;
}

static yoke_layout target_of(const yoke_inference *in, const yoke_node *node,
                             const yoke_division *division, int i)
{
    yoke_layout target = yoke_layout_replicated();
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (yoke_inference_divides(in, axis)) {
            target.place[axis] = (int8_t)yoke_division_input(&division[axis], node, i);
        }
    }
    return target;
}

/* True if input i is a partial sum that has to be reduced for the node. */
static bool is_reduced(const yoke_inference *in, const yoke_node *node,
                       const yoke_division *division, int i)
{
    const yoke_layout *layout = &in->graph->values[in->now[node->in[i]]].layout;
    yoke_layout target = target_of(in, node, division, i);
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (layout->place[axis] == YOKE_PARTIAL_SUM && target.place[axis] != YOKE_PARTIAL_SUM) {
            return true;
        }
    }
    return false;
}

/* Partial sums that lie alike, and of which a gradient is the sum, are added before they are reduced:
 * one reduction serves all. */
static void join_partial_sums(yoke_inference *in, yoke_node *node, const yoke_division *division)
{
    yoke_graph *graph = in->graph;
    yoke_value *joined = YOKE_ARENA_NEW(graph->arena, yoke_value, node->n_in);
    yoke_value *kept = YOKE_ARENA_NEW(graph->arena, yoke_value, node->n_in + 1);
    int n = 0, n_kept = 0;
    for (int i = 0; i < node->n_in; i++) {
        yoke_value value = in->now[node->in[i]];
        bool alike = n == 0 || yoke_layout_equal(graph->values[value].layout,
                                                 graph->values[joined[0]].layout);
        if (is_reduced(in, node, division, i) && alike) {
            joined[n++] = value;
        } else {
            kept[n_kept++] = node->in[i];
        }
    }
    if (n < 2) {
        return;
    }
    yoke_value_info info = graph->values[joined[0]];
    info.gradient_of = YOKE_NO_VALUE;
    yoke_node sum = yoke_inference_sum_node(graph, joined, n, node);
    sum.out[0] = yoke_inference_value_add(in, &info);
    yoke_graph_node_append(graph, &sum);
    kept[n_kept++] = sum.out[0];
    node->in = kept;
    node->n_in = n_kept;
}

static void place_inputs(yoke_inference *in, yoke_node *node, const yoke_division *division)
{
    yoke_graph *graph = in->graph;
    if (node->op == YOKE_OP_ADD && node->region == YOKE_REGION_BACKWARD && node->n_in > 2) {
        join_partial_sums(in, node, division);
    }
    for (int i = 0; i < node->n_in; i++) {
        yoke_value value = in->now[node->in[i]];
        yoke_layout target = target_of(in, node, division, i);
        if (graph->values[value].kind == YOKE_VALUE_STATE) {
            graph->values[value].layout = target;
        }
        node->in[i] = yoke_node_reads(node, i) ? convert(in, value, target, node) : value;
    }
}

/* Where a gradient goes once a micro-batch: to the pieces of its parameter. */
static int scattered_place(const yoke_inference *in, yoke_value value, int axis, int place)
{
    yoke_value parameter = yoke_value_parameter(in->graph, value);
    bool early = in->policies->axis[axis].scatters_early && parameter != YOKE_NO_VALUE &&
                 in->graph->values[value].kind == YOKE_VALUE_ACCUMULATOR;
    return early ? in->graph->values[parameter].layout.place[axis] : place;
}

/* Where an output is to lie: at its pin, or where the division has it. Kept logits may be divided,
 * but whoever asks for them has no use for parts of sums. */
static int settled_place(const yoke_inference *in, yoke_value value, int axis, int place)
{
    int pin = yoke_inference_pin(in, value, axis);
    bool part = place == YOKE_PARTIAL_SUM || place == YOKE_PARTIAL_MAX;
    if (pin != YOKE_NO_PIN) {
        return pin;
    }
    bool asked_for = part && in->graph->values[value].output;
    return asked_for ? YOKE_REPLICATED : scattered_place(in, value, axis, place);
}

/* The sum over micro-batches of `part`, which a node made as one before it had to be converted. */
static yoke_value accumulate(yoke_inference *in, yoke_value part, const yoke_node *node)
{
    yoke_graph *graph = in->graph;
    yoke_node add = yoke_inference_sum_node(graph, &part, 1, node);
    yoke_value_info info = graph->values[part];
    info.kind = YOKE_VALUE_ACCUMULATOR;
    add.out[0] = yoke_inference_value_add(in, &info);
    yoke_graph_node_append(graph, &add);
    return add.out[0];
}

/* Gives the outputs of a node the layout of its division; true if one of them is to be elsewhere, in
 * `settled`. */
static bool divide_outputs(yoke_inference *in, const yoke_node *node, const yoke_division *division,
                           yoke_layout settled[YOKE_MAX_OUTPUTS])
{
    bool moves = false;
    for (int i = 0; i < node->n_out; i++) {
        yoke_layout *layout = &in->graph->values[node->out[i]].layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (yoke_inference_divides(in, axis)) {
                layout->place[axis] = (int8_t)yoke_division_output(&division[axis], node, i);
            }
        }
        settled[i] = *layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (yoke_inference_divides(in, axis)) {
                settled[i].place[axis] =
                    (int8_t)settled_place(in, node->out[i], axis, layout->place[axis]);
            }
        }
        moves = moves || !yoke_layout_equal(*layout, settled[i]);
    }
    return moves;
}

/* Where an output is to lie elsewhere, a conversion follows and takes the value's place. A sum over
 * micro-batches then begins behind the conversion; a kernel adds to all of its outputs or to none. */
static void settle_outputs(yoke_inference *in, const yoke_node *node,
                           const yoke_layout settled[YOKE_MAX_OUTPUTS])
{
    yoke_graph *graph = in->graph;
    for (int i = 0; i < node->n_out; i++) {
        yoke_value value = node->out[i];
        bool gradient = node->region == YOKE_REGION_BACKWARD ||
                        yoke_value_parameter(graph, value) != YOKE_NO_VALUE;
        bool sums = gradient && graph->values[value].kind == YOKE_VALUE_ACCUMULATOR;
        if (sums) {
            graph->values[value].kind = YOKE_VALUE_ACTIVATION;
        }
        yoke_value now = convert(in, value, settled[i], node);
        now = sums ? accumulate(in, now, node) : now;
        in->now[value] = now;
        if (now != value && graph->values[value].output) {
            graph->values[value].output = false;
            graph->values[now].output = true;
        }
    }
}

/* The axis along which the node's keys are passed round, or -1. */
static int ring_axis(const yoke_inference *in, const yoke_node *node, const yoke_division *division)
{
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (yoke_inference_divides(in, axis) && yoke_ring_applies(node, &division[axis])) {
            return axis;
        }
    }
    return -1;
}

static yoke_status infer_node(yoke_inference *in, const yoke_node *old)
{
    yoke_division division[YOKE_N_AXES] = {{0}};
    yoke_layout settled[YOKE_MAX_OUTPUTS];
    yoke_node node = *old;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        /* What is computed again is divided as the first time, so that it comes out the same. */
        if (node.recomputed) {
            division[axis] = in->made_by[node.repeats][axis];
        } else if (yoke_inference_divides(in, axis)) {
            YOKE_TRY(yoke_inference_choose(in, &node, axis, division));
        }
        if (node.n_out > 0) {
            in->made_by[node.out[0]][axis] = division[axis];
        }
    }
    YOKE_TRY(yoke_inference_order_node(in, &node));
    place_inputs(in, &node, division);
    bool moves = divide_outputs(in, &node, division, settled);
    int ring = ring_axis(in, &node, division);
    if (ring >= 0) {
        yoke_ring_append(in, &node, ring);
    } else {
        yoke_graph_node_append(in->graph, &node);
    }
    if (moves) {
        settle_outputs(in, &node, settled);
    }
    return YOKE_OK;
}

/* The graph's own references follow the values that were replaced; a whole gradient is what the
 * update reads. */
static void follow_replacements(yoke_inference *in)
{
    yoke_graph *graph = in->graph;
    yoke_value *const kept[] = {&graph->loss, &graph->n_valid, &graph->logits, &graph->control,
                                &graph->norms};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        *kept[i] = *kept[i] == YOKE_NO_VALUE ? YOKE_NO_VALUE : in->now[*kept[i]];
    }
    int64_t p = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].op == YOKE_OP_ADAMW) {
            while (graph->gradients[p] == YOKE_NO_VALUE) {
                p++;
            }
            graph->gradients[p++] = graph->nodes[i].in[3];
        }
    }
}

yoke_status yoke_layout_infer(yoke_graph *graph, const yoke_mesh *mesh,
                              const yoke_policies *policies)
{
    YOKE_ASSERT(!graph->has_layouts);
    graph->mesh = *mesh;
    graph->has_layouts = true;
    yoke_inference in = {
        .graph = graph, .policies = policies, .nodes = yoke_rewriting_begin(graph)};
    in.now_capacity = in.latest_capacity = graph->n_values;
    in.now = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_values);
    in.latest = YOKE_ARENA_NEW(graph->arena, int, graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        in.now[v] = (yoke_value)v;
        in.latest[v] = -1;
    }
    in.made_by = (yoke_division(*)[YOKE_N_AXES])yoke_arena_alloc(
        graph->arena, sizeof *in.made_by * (size_t)graph->n_values);
    YOKE_TRY(yoke_inference_order(&in));
    yoke_inference_fix(&in);
    gather_for_step(&in);
    for (int64_t i = 0; i < in.nodes.n_old; i++) {
        YOKE_TRY(infer_node(&in, &in.nodes.old[i]));
    }
    follow_replacements(&in);
    yoke_graph_count_uses(graph);
    return yoke_layout_verify(graph, policies);
}
