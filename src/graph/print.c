/* Prints a graph, one line a node, in the order of execution; layouts stand behind the dims once
 * they are inferred. */
#include "graph/graph.h"

const char *yoke_region_name(yoke_region region)
{
    static const char *const names[] = {
        [YOKE_REGION_HEAD] = "head",
        [YOKE_REGION_FORWARD] = "forward",
        [YOKE_REGION_BACKWARD] = "backward",
        [YOKE_REGION_TAIL] = "tail",
    };
    return names[region];
}

static void print_value(const yoke_graph *graph, yoke_value value, FILE *file)
{
    const yoke_value_info *info = &graph->values[value];
    char layout[64] = "";
    if (graph->has_layouts) {
        yoke_layout_print(info->layout, layout, sizeof layout);
    }
    fprintf(file, "%s[%s]%s%s", info->name, info->dims, *layout ? " " : "", layout);
}

static void print_node(const yoke_graph *graph, const yoke_node *node, FILE *file)
{
    fprintf(file, "    ");
    for (int i = 0; i < node->n_out; i++) {
        fprintf(file, "%s", i ? ", " : "");
        print_value(graph, node->out[i], file);
    }
    if (node->op == YOKE_OP_CONVERT) {
        fprintf(file, " = %s over %s (", yoke_conversion_name(node->conversion),
                yoke_axis_name(node->axis));
    } else {
        fprintf(file, "%s%s (", node->n_out ? " = " : "", yoke_op_get(node->op)->name);
    }
    for (int i = 0; i < node->n_in; i++) {
        fprintf(file, "%s%s", i ? ", " : "", graph->values[node->in[i]].name);
    }
    fprintf(file, ")\n");
}

static void print_declared(const yoke_graph *graph, yoke_value_kind kind, const char *title,
                           FILE *file)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        const yoke_value_info *info = &graph->values[i];
        if (info->kind == kind) {
            fprintf(file, "%s ", title);
            print_value(graph, (yoke_value)i, file);
            for (int d = 0; d < info->shape.n_dims; d++) {
                fprintf(file, "%s%lld", d ? "x" : "  ", (long long)info->shape.extent[d]);
            }
            fprintf(file, "\n");
        }
    }
}

void yoke_graph_print(const yoke_graph *graph, FILE *file)
{
    print_declared(graph, YOKE_VALUE_INPUT, "input", file);
    print_declared(graph, YOKE_VALUE_PARAMETER, "parameter", file);
    yoke_region region = YOKE_REGION_TAIL;
    int block = YOKE_NO_BLOCK - 1;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->region != region || node->block != block) {
            region = node->region;
            block = node->block;
            fprintf(file, "%s %s\n", yoke_region_name(region),
                    block >= 0 ? graph->blocks[block] : "");
        }
        print_node(graph, node, file);
    }
}
