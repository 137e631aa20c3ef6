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
 * No rule mentions a parallel strategy; the published ones fall out of the policies.
 */
#include "layout/infer.h"
#include <math.h>
#include <string.h>
#include "layout/division.h"

/* A converted version of a value. */
typedef struct version {
    yoke_value value;
    yoke_region region;
    int block;
    bool gathered;
    int next; /* older version of the same source; -1: none */
} version;

enum { NO_PIN = -100 };

typedef struct inference {
    yoke_graph *graph;
    const yoke_policies *policies;
    const yoke_node *old; /* the nodes before; the graph's own array is written anew */
    int64_t n_old;
    yoke_value
        *now; /* [values] what a value was replaced by when it was pinned; grows with the values */
    int64_t now_capacity;
    int *latest; /* [values] newest version, or -1 */
    int64_t latest_capacity;
    version *versions;
    int64_t n_versions, versions_capacity;
    int8_t (*pins)[YOKE_N_AXES]; /* [values at the start] */
} inference;

/* A replicated tensor is cut or masked without a message, but not without touching it. */
static const double LOCAL_COST = 1e-3;

/* A collective costs as much as moving this many elements more: so many small ones lose against a
 * large one. */
static const double START_COST = 1024;

/* --- Layouts that policies fix ---------------------------------------------------------------- */

static int place_by_letters(const yoke_graph *graph, const yoke_value_info *info,
                            const char *letters, const char *even, int n_parts)
{
    for (const char *c = letters; *c; c++) {
        const char *found = strchr(info->dims, *c);
        if (found && !(strchr(even, *c) && yoke_letter_extent(graph, *c) % n_parts != 0)) {
            return (int)(found - info->dims);
        }
    }
    return YOKE_REPLICATED;
}

/* True if tensors can be divided along the axis. */
static bool divides(const inference *in, int axis)
{
    return in->graph->mesh.size[axis] > 1 && in->policies->axis[axis].compute;
}

static void place_by_policy(yoke_graph *graph, yoke_value_info *info, const yoke_policy *policy,
                            int axis)
{
    int n_parts = graph->mesh.size[axis];
    if (info->kind == YOKE_VALUE_PARAMETER) {
        info->layout.place[axis] =
            (int8_t)place_by_letters(graph, info, policy->parameter, policy->even, n_parts);
    } else if (info->kind == YOKE_VALUE_INPUT) {
        info->layout.place[axis] =
            (int8_t)place_by_letters(graph, info, policy->stream, "", n_parts);
    }
}

static bool is_divided(const yoke_value_info *info, int dim)
{
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (info->layout.place[axis] == dim) {
            return true;
        }
    }
    return false;
}

/* Where a parameter is stored in pieces: on the first dim that no axis divides and the ranks divide
 * evenly, else on the longest that no axis divides. */
static int stored_place(const yoke_value_info *info, int n_parts)
{
    int longest = YOKE_REPLICATED;
    for (int d = 0; d < info->shape.n_dims; d++) {
        int64_t extent = info->shape.extent[d];
        if (is_divided(info, d)) {
            continue;
        }
        if (extent % n_parts == 0) {
            return d;
        }
        longest = longest < 0 || extent > info->shape.extent[longest] ? d : longest;
    }
    return longest;
}

static void place_declared(inference *in)
{
    yoke_graph *graph = in->graph;
    for (int64_t i = 0; i < graph->n_values; i++) {
        yoke_value_info *info = &graph->values[i];
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (divides(in, axis)) {
                place_by_policy(graph, info, &in->policies->axis[axis], axis);
            }
        }
        for (int axis = YOKE_N_AXES - 1; axis >= 0; axis--) {
            bool stored = in->policies->axis[axis].storing != YOKE_STORE_WHOLE;
            if (divides(in, axis) && stored && info->kind == YOKE_VALUE_PARAMETER) {
                info->layout.place[axis] = (int8_t)stored_place(info, graph->mesh.size[axis]);
            }
        }
    }
}

/* --- Pins ------------------------------------------------------------------------------------- */

/* The gradient of a divided activation is wanted in the same pieces. */
static int pin_of_gradient(const inference *in, yoke_value value, int axis)
{
    const yoke_graph *graph = in->graph;
    yoke_value of = graph->values[value].gradient_of;
    if (of == YOKE_NO_VALUE || graph->values[of].kind != YOKE_VALUE_ACTIVATION) {
        return NO_PIN;
    }
    int place = graph->values[in->now[of]].layout.place[axis];
    return place >= 0 ? place : NO_PIN;
}

static int pin_of(const inference *in, yoke_value value, int axis)
{
    const yoke_graph *graph = in->graph;
    const yoke_value_info *info = &graph->values[value];
    const yoke_policy *policy = &in->policies->axis[axis];
    if (info->stream) {
        return place_by_letters(graph, info, policy->stream, "", graph->mesh.size[axis]);
    }
    bool asked_for = info->output && info->kind != YOKE_VALUE_ACTIVATION;
    return asked_for ? YOKE_REPLICATED : pin_of_gradient(in, value, axis);
}

/* Pins of all values, those seen through operators that keep dims included. */
static void find_pins(inference *in)
{
    yoke_graph *graph = in->graph;
    in->pins = (int8_t(*)[YOKE_N_AXES])yoke_arena_alloc(graph->arena,
                                                        sizeof *in->pins * (size_t)graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            bool pinned = in->policies->axis[axis].compute;
            in->pins[v][axis] = (int8_t)(pinned ? pin_of(in, (yoke_value)v, axis) : NO_PIN);
        }
    }
    for (int64_t i = in->n_old - 1; i >= 0; i--) {
        const yoke_node *node = &in->old[i];
        const yoke_op_def *def = yoke_op_get(node->op);
        for (int axis = 0; def->passes_pin && axis < YOKE_N_AXES; axis++) {
            for (int k = 0; k < node->n_in; k++) {
                int8_t *pin = &in->pins[node->in[k]][axis];
                bool same_dims = strcmp(node->in_rule[k], node->out_rule[0]) == 0;
                *pin = same_dims && *pin == NO_PIN ? in->pins[node->out[0]][axis] : *pin;
            }
        }
    }
}

/* --- Prices ----------------------------------------------------------------------------------- */

/* True if `node` may use a version that is there: one of its own block, or of the whole step. */
static bool visible(const version *made, const yoke_node *node)
{
    if (made->region == YOKE_REGION_TAIL || made->region == YOKE_REGION_HEAD) {
        return made->region <= node->region;
    }
    bool in_time = made->gathered ? made->region == node->region : made->region <= node->region;
    return made->block == node->block && in_time;
}

static double price(const yoke_graph *graph, int from, int to, const yoke_value_info *info,
                    int axis)
{
    yoke_conversion conversion = yoke_conversion_find(from, to);
    double elements = (double)yoke_shape_elements(&info->shape);
    double cost = yoke_conversion_elements(conversion, elements, graph->mesh.size[axis]);
    bool local = conversion == YOKE_CONVERT_SLICE || conversion == YOKE_CONVERT_MASK;
    bool free = conversion == YOKE_CONVERT_NONE;
    return local ? LOCAL_COST * elements : cost + (free ? 0 : START_COST);
}

static double price_input(const inference *in, const yoke_node *node, int i, int need, int axis)
{
    const yoke_graph *graph = in->graph;
    yoke_value value = in->now[node->in[i]];
    const yoke_value_info *info = &graph->values[value];
    int from = info->layout.place[axis];
    if (from == need) {
        return 0;
    }
    for (int v = in->latest[value]; v >= 0; v = in->versions[v].next) {
        const version *made = &in->versions[v];
        if (visible(made, node) && graph->values[made->value].layout.place[axis] == need) {
            return 0;
        }
    }
    bool mask = yoke_conversion_find(from, need) == YOKE_CONVERT_MASK;
    return mask && !yoke_op_get(node->op)->masks ? (double)INFINITY
                                                 : price(graph, from, need, info, axis);
}

static double price_division(const inference *in, const yoke_node *node,
                             const yoke_division *division, int axis)
{
    double cost = 0;
    for (int i = 0; i < node->n_in; i++) {
        if (yoke_node_reads(node, i)) {
            cost += price_input(in, node, i, yoke_division_input(division, node, i), axis);
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        int seen = in->pins[node->out[i]][axis];
        int pin = seen != NO_PIN ? seen : pin_of_gradient(in, node->out[i], axis);
        if (pin != NO_PIN) {
            int out = yoke_division_output(division, node, i);
            cost += price(in->graph, out, pin, &in->graph->values[node->out[i]], axis);
        }
    }
    return cost;
}

/* --- Choice ----------------------------------------------------------------------------------- */

/* Whether the pieces of a parameter stay where they are for this node: always if no policy gathers
 * them, else only where the step's update works on them. */
static bool stays_divided(const inference *in, const yoke_node *node, int axis)
{
    return node->region == YOKE_REGION_TAIL || in->policies->axis[axis].storing == YOKE_STORE_WHOLE;
}

/* The parameter that tells where input i lies: itself, or in the tail the one whose gradient is
 * read, unless the node still sums parts of that. */
static yoke_value parameter_read(const yoke_graph *graph, const yoke_node *node, int i)
{
    bool sums = node->n_out > 0 && yoke_value_parameter(graph, node->out[0]) != YOKE_NO_VALUE;
    if (!yoke_node_reads(node, i)) {
        return YOKE_NO_VALUE;
    }
    if (graph->values[node->in[i]].kind == YOKE_VALUE_PARAMETER) {
        return node->in[i];
    }
    bool alike = node->region == YOKE_REGION_TAIL && !sums;
    return alike ? yoke_value_parameter(graph, node->in[i]) : YOKE_NO_VALUE;
}

/* The division that rule 2 forces: '\0' none, 'R' for all of it, else its letter. */
static char forced_letter(const inference *in, const yoke_node *node, int axis)
{
    const yoke_graph *graph = in->graph;
    for (int i = 0; i < node->n_in && stays_divided(in, node, axis); i++) {
        yoke_value parameter = parameter_read(graph, node, i);
        int place = parameter == YOKE_NO_VALUE ? YOKE_REPLICATED
                                               : graph->values[parameter].layout.place[axis];
        if (place >= 0) {
            return node->in_rule[i][place];
        }
        if (parameter != YOKE_NO_VALUE && node->region == YOKE_REGION_TAIL) {
            return 'R';
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        yoke_value parameter = yoke_value_parameter(graph, node->out[i]);
        bool divided =
            parameter != YOKE_NO_VALUE && graph->values[parameter].layout.place[axis] >= 0;
        if (divided && in->policies->axis[axis].storing == YOKE_STORE_WHOLE) {
            return node->out_rule[i][graph->values[parameter].layout.place[axis]];
        }
    }
    return 0;
}

static yoke_status choose(const inference *in, const yoke_node *node, int axis,
                          yoke_division *chosen)
{
    yoke_division list[YOKE_MAX_DIVISIONS];
    yoke_parts parts = {&in->policies->axis[axis], in->graph->mesh.size[axis]};
    int n = yoke_division_list(in->graph, node, &parts, list);
    char forced = forced_letter(in, node, axis);
    double best = (double)INFINITY;
    for (int i = 0; i < n; i++) {
        bool whole = !list[i].letter && !list[i].linear;
        bool allowed = !forced || (forced == 'R' ? whole : list[i].letter == forced);
        double cost = allowed ? price_division(in, node, &list[i], axis) : (double)INFINITY;
        if (cost < best) {
            best = cost;
            *chosen = list[i];
        }
    }
    if (!(best < (double)INFINITY)) {
        const char *name =
            node->n_out ? in->graph->values[node->out[0]].name : yoke_op_get(node->op)->name;
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "%s over %s=%d: operator %s cannot be divided where its operands are ('%c'); "
            "give the parameter other letters, or use %s=1",
            name, yoke_axis_name((yoke_axis)axis), in->graph->mesh.size[axis],
            yoke_op_get(node->op)->name, forced ? forced : '-', yoke_axis_name((yoke_axis)axis));
    }
    return YOKE_OK;
}

/* --- Rewriting -------------------------------------------------------------------------------- */

static void track_values(inference *in)
{
    yoke_graph *graph = in->graph;
    int64_t n = graph->n_values - 1;
    in->now = yoke_arena_grow(graph->arena, in->now, n, &in->now_capacity, sizeof *in->now);
    in->latest =
        yoke_arena_grow(graph->arena, in->latest, n, &in->latest_capacity, sizeof *in->latest);
    in->now[n] = (yoke_value)n;
    in->latest[n] = -1;
}

static void append(yoke_graph *graph, const yoke_node *node)
{
    graph->nodes = yoke_arena_grow(graph->arena, graph->nodes, graph->n_nodes,
                                   &graph->nodes_capacity, sizeof *graph->nodes);
    for (int i = 0; i < node->n_out; i++) {
        graph->values[node->out[i]].producer = (int)graph->n_nodes;
    }
    graph->nodes[graph->n_nodes++] = *node;
}

static yoke_value find_version(const inference *in, yoke_value value, yoke_layout layout,
                               const yoke_node *node)
{
    for (int v = in->latest[value]; v >= 0; v = in->versions[v].next) {
        const version *made = &in->versions[v];
        if (visible(made, node) &&
            yoke_layout_equal(in->graph->values[made->value].layout, layout)) {
            return made->value;
        }
    }
    return YOKE_NO_VALUE;
}

static yoke_value add_version(inference *in, yoke_value source, const yoke_value_info *info,
                              const version *made)
{
    yoke_graph *graph = in->graph;
    yoke_value value = yoke_graph_value_add(graph, info);
    track_values(in);
    in->versions = yoke_arena_grow(graph->arena, in->versions, in->n_versions,
                                   &in->versions_capacity, sizeof *in->versions);
    in->versions[in->n_versions] = *made;
    in->versions[in->n_versions].value = value;
    in->versions[in->n_versions].next = in->latest[source];
    in->latest[source] = (int)in->n_versions++;
    return value;
}

/* An input in another layout is loaded once more; all blocks may use it. */
static yoke_value load_again(inference *in, yoke_value value, yoke_layout layout,
                             const yoke_node *node)
{
    yoke_value found = find_version(in, value, layout, node);
    if (found != YOKE_NO_VALUE) {
        return found;
    }
    yoke_value_info info = in->graph->values[value];
    info.layout = layout;
    return add_version(in, value, &info, &(version){.region = YOKE_REGION_HEAD});
}

static yoke_node convert_node(yoke_graph *graph, yoke_value value, const yoke_node *node)
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
static yoke_value convert_axis(inference *in, yoke_value value, int axis, int place,
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
    yoke_node convert = convert_node(graph, value, node);
    convert.axis = (yoke_axis)axis;
    convert.conversion = yoke_conversion_find(from, place);
    version made = {.region = node->region,
                    .block = node->block,
                    .gathered = convert.conversion == YOKE_CONVERT_ALL_GATHER};
    convert.out[0] = add_version(in, value, &info, &made);
    append(graph, &convert);
    return convert.out[0];
}

/* `value` in layout `target`, for the use of `node`. */
static yoke_value convert(inference *in, yoke_value value, yoke_layout target,
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
static void gather_for_step(inference *in)
{
    const yoke_node start = {.region = YOKE_REGION_HEAD, .block = YOKE_NO_BLOCK};
    yoke_graph *graph = in->graph;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        yoke_layout whole = graph->values[graph->parameters[i]].layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            bool gathers = in->policies->axis[axis].storing == YOKE_STORE_GATHER_FOR_STEP;
            whole.place[axis] = gathers && divides(in, axis) ? YOKE_REPLICATED : whole.place[axis];
        }
        (void)convert(in, graph->parameters[i], whole, &start);
    }
}

static void place_inputs(inference *in, yoke_node *node, const yoke_division *division)
{
    yoke_graph *graph = in->graph;
    for (int i = 0; i < node->n_in; i++) {
        yoke_value value = in->now[node->in[i]];
        yoke_layout target = yoke_layout_replicated();
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (divides(in, axis)) {
                target.place[axis] = (int8_t)yoke_division_input(&division[axis], node, i);
            }
        }
        if (graph->values[value].kind == YOKE_VALUE_STATE) {
            graph->values[value].layout = target;
        }
        node->in[i] = yoke_node_reads(node, i) ? convert(in, value, target, node) : value;
    }
}

/* Where a gradient goes once a micro-batch: to the pieces of its parameter. */
static int scattered_place(const inference *in, yoke_value value, int axis, int place)
{
    yoke_value parameter = yoke_value_parameter(in->graph, value);
    bool early = in->policies->axis[axis].scatters_early && parameter != YOKE_NO_VALUE &&
                 in->graph->values[value].kind == YOKE_VALUE_ACCUMULATOR;
    return early ? in->graph->values[parameter].layout.place[axis] : place;
}

/* Where an output is to lie: at its pin, or where the division has it. Kept logits may be divided,
 * but whoever asks for them has no use for parts of sums. */
static int settled_place(const inference *in, yoke_value value, int axis, int place)
{
    int pin = pin_of(in, value, axis);
    bool part = place == YOKE_PARTIAL_SUM || place == YOKE_PARTIAL_MAX;
    if (pin != NO_PIN) {
        return pin;
    }
    bool asked_for = part && in->graph->values[value].output;
    return asked_for ? YOKE_REPLICATED : scattered_place(in, value, axis, place);
}

/* The sum over micro-batches of `part`, which a node made as one before it had to be converted. */
static yoke_value accumulate(inference *in, yoke_value part, const yoke_node *node)
{
    yoke_graph *graph = in->graph;
    yoke_node add = convert_node(graph, part, node);
    yoke_value_info info = graph->values[part];
    add.op = YOKE_OP_ADD;
    info.kind = YOKE_VALUE_ACCUMULATOR;
    add.out[0] = yoke_graph_value_add(graph, &info);
    track_values(in);
    append(graph, &add);
    return add.out[0];
}

/* Gives the outputs of a node the layout of its division; true if one of them is to be elsewhere. */
static bool divide_outputs(inference *in, const yoke_node *node, const yoke_division *division,
                           yoke_layout settled[YOKE_MAX_OUTPUTS])
{
    bool moves = false;
    for (int i = 0; i < node->n_out; i++) {
        yoke_layout *layout = &in->graph->values[node->out[i]].layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (divides(in, axis)) {
                layout->place[axis] = (int8_t)yoke_division_output(&division[axis], node, i);
            }
        }
        settled[i] = *layout;
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (divides(in, axis)) {
                settled[i].place[axis] =
                    (int8_t)settled_place(in, node->out[i], axis, layout->place[axis]);
            }
        }
        moves = moves || !yoke_layout_equal(*layout, settled[i]);
    }
    return moves;
}

/* Outputs get the layout that the division gives; where it is to be another, a conversion follows
 * and takes the value's place. A sum over micro-batches then begins behind the conversion; a kernel
 * adds to all of its outputs or to none. */
static void place_outputs(inference *in, const yoke_node *node, const yoke_division *division)
{
    yoke_graph *graph = in->graph;
    yoke_layout settled[YOKE_MAX_OUTPUTS];
    bool moves = divide_outputs(in, node, division, settled);
    for (int i = 0; moves && i < node->n_out; i++) {
        yoke_value value = node->out[i];
        bool sums = node->region == YOKE_REGION_BACKWARD &&
                    graph->values[value].kind == YOKE_VALUE_ACCUMULATOR;
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

static yoke_status infer_node(inference *in, const yoke_node *old)
{
    yoke_graph *graph = in->graph;
    yoke_division division[YOKE_N_AXES] = {{0}};
    yoke_node node = *old;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        if (divides(in, axis)) {
            YOKE_TRY(choose(in, &node, axis, &division[axis]));
        }
    }
    place_inputs(in, &node, division);
    append(graph, &node);
    place_outputs(in, &node, division);
    return YOKE_OK;
}

static void count_uses(yoke_graph *graph)
{
    for (int64_t v = 0; v < graph->n_values; v++) {
        graph->values[v].n_uses = 0;
    }
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        for (int k = 0; k < graph->nodes[i].n_in; k++) {
            graph->values[graph->nodes[i].in[k]].n_uses++;
        }
    }
}

/* The graph's own references follow the values that were replaced; a whole gradient is what the
 * update reads. */
static void follow_replacements(inference *in)
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
    inference in = {
        .graph = graph, .policies = policies, .old = graph->nodes, .n_old = graph->n_nodes};
    in.now_capacity = in.latest_capacity = graph->n_values;
    in.now = YOKE_ARENA_NEW(graph->arena, yoke_value, graph->n_values);
    in.latest = YOKE_ARENA_NEW(graph->arena, int, graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        in.now[v] = (yoke_value)v;
        in.latest[v] = -1;
    }
    place_declared(&in);
    find_pins(&in);
    graph->nodes = NULL;
    graph->n_nodes = graph->nodes_capacity = 0;
    gather_for_step(&in);
    for (int64_t i = 0; i < in.n_old; i++) {
        YOKE_TRY(infer_node(&in, &in.old[i]));
    }
    follow_replacements(&in);
    count_uses(graph);
    return yoke_layout_verify(graph, policies);
}
