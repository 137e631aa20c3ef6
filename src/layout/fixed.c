/* What axis policies fix: the layouts of parameters and inputs, and the pins of other values. */
#include "layout/inference.h"
#include <string.h>

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

bool yoke_inference_divides(const yoke_inference *in, int axis)
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

static void place_declared(yoke_inference *in)
{
    yoke_graph *graph = in->graph;
    for (int64_t i = 0; i < graph->n_values; i++) {
        yoke_value_info *info = &graph->values[i];
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            if (yoke_inference_divides(in, axis)) {
                place_by_policy(graph, info, &in->policies->axis[axis], axis);
            }
        }
        for (int axis = YOKE_N_AXES - 1; axis >= 0; axis--) {
            bool stored = in->policies->axis[axis].storing != YOKE_STORE_WHOLE;
            if (yoke_inference_divides(in, axis) && stored && info->kind == YOKE_VALUE_PARAMETER) {
                info->layout.place[axis] = (int8_t)stored_place(info, graph->mesh.size[axis]);
            }
        }
    }
}

/* The gradient of a divided activation is wanted in the same pieces. */
static int pin_of_gradient(const yoke_inference *in, yoke_value value, int axis)
{
    const yoke_graph *graph = in->graph;
    yoke_value of = graph->values[value].gradient_of;
    if (of == YOKE_NO_VALUE || graph->values[of].kind != YOKE_VALUE_ACTIVATION) {
        return YOKE_NO_PIN;
    }
    int place = graph->values[in->now[of]].layout.place[axis];
    return place >= 0 ? place : YOKE_NO_PIN;
}

int yoke_inference_pin(const yoke_inference *in, yoke_value value, int axis)
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
static void find_pins(yoke_inference *in)
{
    yoke_graph *graph = in->graph;
    in->pins = (int8_t(*)[YOKE_N_AXES])yoke_arena_alloc(graph->arena,
                                                        sizeof *in->pins * (size_t)graph->n_values);
    for (int64_t v = 0; v < graph->n_values; v++) {
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            bool pinned = in->policies->axis[axis].compute;
            in->pins[v][axis] =
                (int8_t)(pinned ? yoke_inference_pin(in, (yoke_value)v, axis) : YOKE_NO_PIN);
        }
    }
    for (int64_t i = in->nodes.n_old - 1; i >= 0; i--) {
        const yoke_node *node = &in->nodes.old[i];
        const yoke_op_def *def = yoke_op_get(node->op);
        for (int axis = 0; def->passes_pin && axis < YOKE_N_AXES; axis++) {
            for (int k = 0; k < node->n_in; k++) {
                int8_t *pin = &in->pins[node->in[k]][axis];
                bool same_dims = strcmp(node->in_rule[k], node->out_rule[0]) == 0;
                *pin = same_dims && *pin == YOKE_NO_PIN ? in->pins[node->out[0]][axis] : *pin;
            }
        }
    }
}

int yoke_inference_pin_seen(const yoke_inference *in, yoke_value value, int axis)
{
    int seen = in->pins[value][axis];
    return seen != YOKE_NO_PIN ? seen : pin_of_gradient(in, value, axis);
}

void yoke_inference_fix(yoke_inference *in)
{
    place_declared(in);
    find_pins(in);
}
