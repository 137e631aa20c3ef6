/*
 * The choice of a node's division along one axis: forced, or the cheapest. Prices are in elements
 * received.
 */
#include <math.h>
#include "layout/inference.h"

/* A replicated tensor is cut or masked without a message, but not without touching it. */
static const double LOCAL_COST = 1e-3;

/* A collective costs as much as moving this many elements more: so many small ones lose against a
 * large one. */
static const double START_COST = 1024;

bool yoke_version_is_visible(const yoke_version *made, const yoke_node *node)
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

static double price_input(const yoke_inference *in, const yoke_node *node, int i, int need,
                          int axis)
{
    const yoke_graph *graph = in->graph;
    yoke_value value = in->now[node->in[i]];
    const yoke_value_info *info = &graph->values[value];
    int from = info->layout.place[axis];
    if (from == need) {
        return 0;
    }
    for (int v = in->latest[value]; v >= 0; v = in->versions[v].next) {
        const yoke_version *made = &in->versions[v];
        if (yoke_version_is_visible(made, node) &&
            graph->values[made->value].layout.place[axis] == need) {
            return 0;
        }
    }
    const yoke_op_def *def = yoke_op_get(node->op);
    yoke_conversion conversion = yoke_conversion_find(from, need);
    bool refused = (conversion == YOKE_CONVERT_MASK && !def->masks) ||
                   (conversion == YOKE_CONVERT_REDUCE_SCATTER && def->sums_whole);
    return refused ? (double)INFINITY : price(graph, from, need, info, axis);
}

static double price_division(const yoke_inference *in, const yoke_node *node,
                             const yoke_division *division, int axis)
{
    double cost = 0;
    for (int i = 0; i < node->n_in; i++) {
        if (yoke_node_reads(node, i)) {
            cost += price_input(in, node, i, yoke_division_input(division, node, i), axis);
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        int pin = yoke_inference_pin_seen(in, node->out[i], axis);
        if (pin != YOKE_NO_PIN) {
            int out = yoke_division_output(division, node, i);
            cost += price(in->graph, out, pin, &in->graph->values[node->out[i]], axis);
        }
    }
    return cost;
}

/* Whether the pieces of a parameter stay where they are for this node: always if no policy gathers
 * them, else only where the step's update works on them. */
static bool stays_divided(const yoke_inference *in, const yoke_node *node, int axis)
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
static char forced_letter(const yoke_inference *in, const yoke_node *node, int axis)
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

yoke_status yoke_inference_choose(const yoke_inference *in, const yoke_node *node, int axis,
                                  yoke_division division[YOKE_N_AXES])
{
    yoke_division list[YOKE_MAX_DIVISIONS];
    const int *sizes = in->graph->mesh.size;
    yoke_parts parts = {.policy = &in->policies->axis[axis],
                        .n = sizes[axis],
                        .n_outer = axis,
                        .outer = division,
                        .outer_n = sizes};
    int n = yoke_division_list(in->graph, node, &parts, list);
    char forced = forced_letter(in, node, axis);
    double best = (double)INFINITY;
    for (int i = 0; i < n; i++) {
        bool whole = !list[i].letter && !list[i].linear;
        bool allowed = !forced || (forced == 'R' ? whole : list[i].letter == forced);
        double cost = allowed ? price_division(in, node, &list[i], axis) : (double)INFINITY;
        if (cost < best) {
            best = cost;
            division[axis] = list[i];
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
