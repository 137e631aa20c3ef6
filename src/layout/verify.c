/* Checks inferred layouts against the operators' rules, and prints what they come to. */
#include "layout/division.h"
#include "layout/infer.h"

static bool division_fits(const yoke_graph *graph, const yoke_node *node,
                          const yoke_division *division, int axis)
{
    unsigned lends = yoke_op_get(node->op)->lends;
    for (int i = 0; i < node->n_in; i++) {
        bool read = yoke_node_reads(node, i) && !yoke_mask_has(lends, i);
        if (read && graph->values[node->in[i]].layout.place[axis] !=
                        yoke_division_input(division, node, i)) {
            return false;
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        if (graph->values[node->out[i]].layout.place[axis] !=
            yoke_division_output(division, node, i)) {
            return false;
        }
    }
    return true;
}

static bool convert_fits(const yoke_graph *graph, const yoke_node *node, int axis)
{
    int from = graph->values[node->in[0]].layout.place[axis];
    int to = graph->values[node->out[0]].layout.place[axis];
    if (axis != (int)node->axis) {
        return from == to;
    }
    if (node->conversion == YOKE_CONVERT_ROTATE) {
        return from == to && from >= 0;
    }
    return node->conversion == yoke_conversion_find(from, to) &&
           node->conversion != YOKE_CONVERT_ILLEGAL && node->conversion != YOKE_CONVERT_NONE;
}

/* Finds division[axis], given those of the axes further out. */
static bool node_fits(const yoke_graph *graph, const yoke_node *node, int axis,
                      const yoke_policy *policy, yoke_division division[YOKE_N_AXES])
{
    if (node->op == YOKE_OP_CONVERT) {
        return convert_fits(graph, node, axis);
    }
    yoke_division list[YOKE_MAX_DIVISIONS];
    const int *sizes = graph->mesh.size;
    yoke_parts parts = {
        .policy = policy, .n = sizes[axis], .n_outer = axis, .outer = division, .outer_n = sizes};
    int n = yoke_division_list(graph, node, &parts, list);
    for (int i = 0; i < n; i++) {
        if (division_fits(graph, node, &list[i], axis)) {
            division[axis] = list[i];
            return true;
        }
    }
    return false;
}

yoke_status yoke_layout_verify(const yoke_graph *graph, const yoke_policies *policies)
{
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        yoke_division division[YOKE_N_AXES] = {{0}};
        for (int axis = 0; axis < YOKE_N_AXES; axis++) {
            const yoke_policy *policy = &policies->axis[axis];
            bool divides = graph->mesh.size[axis] > 1 && policy->compute;
            if (divides && !node_fits(graph, node, axis, policy, division)) {
                const char *name = node->n_out ? graph->values[node->out[0]].name : "update";
                return YOKE_FAIL(
                    YOKE_CHECK,
                    "layouts: node %lld, %s: its operands are no legal division of %s over %s",
                    (long long)i, name, yoke_op_get(node->op)->name,
                    yoke_axis_name((yoke_axis)axis));
            }
        }
    }
    return YOKE_OK;
}

static void print_parameters(const yoke_graph *graph, FILE *file)
{
    fprintf(file, "parameters\n");
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        const yoke_value_info *info = &graph->values[graph->parameters[i]];
        char layout[64];
        fprintf(file, "    %-44s [%s]%*s %s\n", info->name, info->dims,
                YOKE_MAX_DIMS - info->shape.n_dims, "",
                yoke_layout_print(info->layout, layout, sizeof layout));
    }
}

void yoke_layout_table_print(const yoke_graph *graph, FILE *file)
{
    print_parameters(graph, file);
    fprintf(file,
            "redistributions of a micro-batch (forward, backward) and of a step (head, tail)\n");
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op != YOKE_OP_CONVERT) {
            continue;
        }
        const yoke_value_info *from = &graph->values[node->in[0]],
                              *to = &graph->values[node->out[0]];
        char before[64], after[64];
        double elements =
            yoke_conversion_elements(node->conversion, (double)yoke_shape_elements(&from->shape),
                                     graph->mesh.size[node->axis]);
        fprintf(file, "    %-8s %-14s over %s  %-16s -> %-16s %12.0f elements  %s\n",
                yoke_region_name(node->region), yoke_conversion_name(node->conversion),
                yoke_axis_name(node->axis), yoke_layout_print(from->layout, before, sizeof before),
                yoke_layout_print(to->layout, after, sizeof after), elements, from->name);
    }
}
