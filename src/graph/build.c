/*
 * The graph builder: values, nodes, and the sticky first error. Shapes follow from letters, so a
 * node's outputs need only their dims.
 */
#include "graph/graph.h"
#include <stdarg.h>
#include <string.h>
#include "op/step.h"

/* Of one tensor, 4 TiB: sums of bytes over a plan stay far from 64 bits. */
static const int64_t MOST_ELEMENTS = INT64_C(1) << 40;

yoke_status yoke_graph_create(yoke_graph **graph)
{
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    yoke_graph *made = YOKE_ARENA_NEW(arena, yoke_graph, 1);
    *made = (yoke_graph){
        .arena = arena,
        .region = YOKE_REGION_FORWARD,
        .block = YOKE_NO_BLOCK,
        .loss_total = YOKE_NO_VALUE,
        .loss_share = YOKE_NO_VALUE,
        .loss = YOKE_NO_VALUE,
        .n_valid = YOKE_NO_VALUE,
        .logits = YOKE_NO_VALUE,
        .control = YOKE_NO_VALUE,
        .norms = YOKE_NO_VALUE,
        .auxiliary_loss = YOKE_NO_VALUE,
        .expert_load = YOKE_NO_VALUE,
        .mesh = yoke_mesh_single(),
    };
    *graph = made;
    return YOKE_OK;
}

void yoke_graph_destroy(yoke_graph *graph)
{
    if (graph) {
        yoke_status_free(graph->error);
        yoke_arena_destroy(graph->arena);
    }
}

void yoke_graph_fail(yoke_graph *graph, const char *format, ...)
{
    if (graph->error) {
        return;
    }
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *block = graph->block >= 0 ? graph->blocks[graph->block] : "model";
    graph->error = YOKE_FAIL(YOKE_BAD_INPUT, "%s: %s", block, text);
}

yoke_status yoke_graph_finish(yoke_graph *graph)
{
    yoke_status error = graph->error;
    graph->error = YOKE_OK;
    return error;
}

/* --- Letters, blocks, values ---------------------------------------------------------------- */

void yoke_letter(yoke_graph *graph, char letter, int64_t extent)
{
    bool fits = (letter >= 'a' && letter <= 'z') || letter == '*' || letter == '#';
    if (!fits || extent < 1 || graph->letters[(int)letter] > 0) {
        yoke_graph_fail(
            graph,
            "letter '%c' with extent %lld: wants a letter a..z, set once, and an extent of at "
            "least 1",
            letter, (long long)extent);
        return;
    }
    graph->letters[(int)letter] = extent;
}

int64_t yoke_letter_extent(const yoke_graph *graph, char letter)
{
    return graph->letters[letter & 127];
}

void yoke_block(yoke_graph *graph, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    graph->blocks = yoke_arena_grow(graph->arena, graph->blocks, graph->n_blocks,
                                    &graph->blocks_capacity, sizeof *graph->blocks);
    graph->blocks[graph->n_blocks] = yoke_arena_copy_text(graph->arena, text);
    graph->block = (int)graph->n_blocks++;
}

yoke_value yoke_graph_value_add(yoke_graph *graph, const yoke_value_info *info)
{
    graph->values = yoke_arena_grow(graph->arena, graph->values, graph->n_values,
                                    &graph->values_capacity, sizeof *graph->values);
    graph->values[graph->n_values] = *info;
    return (yoke_value)graph->n_values++;
}

void yoke_graph_node_append(yoke_graph *graph, const yoke_node *node)
{
    graph->nodes = yoke_arena_grow(graph->arena, graph->nodes, graph->n_nodes,
                                   &graph->nodes_capacity, sizeof *graph->nodes);
    for (int i = 0; i < node->n_out; i++) {
        graph->values[node->out[i]].producer = (int)graph->n_nodes;
    }
    graph->nodes[graph->n_nodes++] = *node;
}

yoke_rewriting yoke_rewriting_begin(yoke_graph *graph)
{
    yoke_rewriting r = {.old = graph->nodes, .n_old = graph->n_nodes};
    graph->nodes = NULL;
    graph->n_nodes = graph->nodes_capacity = 0;
    return r;
}

void yoke_graph_nodes_drop(yoke_graph *graph, const bool *gone)
{
    yoke_rewriting r = yoke_rewriting_begin(graph);
    for (int64_t v = 0; v < graph->n_values; v++) {
        graph->values[v].producer = YOKE_NO_NODE;
    }
    for (int64_t i = 0; i < r.n_old; i++) {
        if (!gone[i]) {
            yoke_graph_node_append(graph, &r.old[i]);
        }
    }
}

void yoke_graph_count_uses(yoke_graph *graph)
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

/* One more dim; false, and a failed graph, if its letter has no extent or stands there already. */
static bool add_dim(yoke_graph *graph, yoke_value_info *info, char letter)
{
    if (strchr(info->dims, letter)) {
        yoke_graph_fail(graph,
                        "%s [%s%c]: letter '%c' stands for two dims; give one another letter",
                        info->name, info->dims, letter, letter);
        return false;
    }
    int d = info->shape.n_dims++;
    info->dims[d] = letter;
    info->shape.extent[d] = yoke_letter_extent(graph, letter);
    if (info->shape.extent[d] < 1) {
        yoke_graph_fail(graph, "%s [%s]: letter '%c' has no extent; set it with yoke_letter",
                        info->name, info->dims, letter);
        return false;
    }
    return true;
}

/* Sets dims and shape from letters; false, and a failed graph, if that is no tensor. */
static bool set_dims(yoke_graph *graph, yoke_value_info *info, const char *dims)
{
    if (strlen(dims) > YOKE_MAX_DIMS) {
        yoke_graph_fail(graph, "%s [%s]: at most %d dims", info->name, dims, YOKE_MAX_DIMS);
        return false;
    }
    int64_t elements = 1;
    for (const char *letter = dims; *letter; letter++) {
        if (!add_dim(graph, info, *letter)) {
            return false;
        }
        int64_t extent = info->shape.extent[info->shape.n_dims - 1];
        if (extent > MOST_ELEMENTS / elements) {
            yoke_graph_fail(graph, "%s [%s]: more than 2^40 elements; use smaller sizes",
                            info->name, dims);
            return false;
        }
        elements *= extent;
    }
    return true;
}

static bool name_taken(const yoke_graph *graph, const char *name)
{
    for (int64_t i = 0; i < graph->n_values; i++) {
        if (graph->values[i].kind <= YOKE_VALUE_STATE && strcmp(graph->values[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static yoke_value declare(yoke_graph *graph, yoke_value_info info, const char *dims)
{
    if (graph->error || !set_dims(graph, &info, dims)) {
        return YOKE_NO_VALUE;
    }
    if (name_taken(graph, info.name)) {
        yoke_graph_fail(graph, "the name %s is declared twice", info.name);
        return YOKE_NO_VALUE;
    }
    info.name = yoke_arena_copy_text(graph->arena, info.name);
    info.producer = YOKE_NO_NODE;
    info.gradient_of = info.gathered_of = YOKE_NO_VALUE;
    info.layout = yoke_layout_replicated();
    return yoke_graph_value_add(graph, &info);
}

yoke_value yoke_input(yoke_graph *graph, const char *name, const char *dims)
{
    return declare(
        graph, (yoke_value_info){.name = name, .kind = YOKE_VALUE_INPUT, .dtype = YOKE_I32}, dims);
}

static yoke_value parameter(yoke_graph *graph, yoke_value_info info, const char *dims)
{
    info.kind = YOKE_VALUE_PARAMETER;
    yoke_value value = declare(graph, info, dims);
    if (value != YOKE_NO_VALUE) {
        graph->parameters = yoke_arena_grow(graph->arena, graph->parameters, graph->n_parameters,
                                            &graph->parameters_capacity, sizeof *graph->parameters);
        graph->parameters[graph->n_parameters++] = value;
    }
    return value;
}

yoke_value yoke_weight(yoke_graph *graph, const char *name, const char *dims, float deviation)
{
    return parameter(graph, (yoke_value_info){.name = name, .deviation = deviation, .decays = true},
                     dims);
}

yoke_value yoke_bias(yoke_graph *graph, const char *name, const char *dims)
{
    return parameter(graph, (yoke_value_info){.name = name}, dims);
}

yoke_value yoke_gain(yoke_graph *graph, const char *name, const char *dims)
{
    return parameter(graph, (yoke_value_info){.name = name, .fill = 1}, dims);
}

void yoke_freeze(yoke_graph *graph, yoke_value parameter)
{
    if (yoke_values_good(graph, &parameter, 1)) {
        YOKE_ASSERT(graph->values[parameter].kind == YOKE_VALUE_PARAMETER);
        graph->values[parameter].frozen = true;
    }
}

const yoke_value_info *yoke_value_get(const yoke_graph *graph, yoke_value value)
{
    YOKE_ASSERT(value >= 0 && value < graph->n_values);
    return &graph->values[value];
}

yoke_value yoke_value_parameter(const yoke_graph *graph, yoke_value value)
{
    yoke_value of = yoke_value_get(graph, value)->gradient_of;
    bool parameter = of != YOKE_NO_VALUE && graph->values[of].kind == YOKE_VALUE_PARAMETER;
    return parameter ? of : YOKE_NO_VALUE;
}

bool yoke_values_good(const yoke_graph *graph, const yoke_value *values, int n)
{
    for (int i = 0; i < n; i++) {
        if (values[i] < 0 || values[i] >= graph->n_values) {
            return false;
        }
    }
    return !graph->error;
}

bool yoke_value_is_gradient(const yoke_graph *graph, yoke_value value)
{
    return yoke_value_get(graph, value)->bucket ||
           yoke_value_parameter(graph, value) != YOKE_NO_VALUE;
}

bool yoke_value_expect(yoke_graph *graph, const char *what, yoke_value value, const char *dims)
{
    const yoke_value_info *info = yoke_value_get(graph, value);
    if (strcmp(info->dims, dims) == 0) {
        return true;
    }
    yoke_graph_fail(graph, "%s: %s has dims [%s], wants [%s]", what, info->name, info->dims, dims);
    return false;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

static yoke_value_kind kind_of_output(const yoke_graph *graph)
{
    bool inside = graph->region == YOKE_REGION_FORWARD || graph->region == YOKE_REGION_BACKWARD;
    return inside ? YOKE_VALUE_ACTIVATION : YOKE_VALUE_STEP;
}

/* "h.1.gelu.30", by block, operator and node; a further output of the node has its number behind. */
static const char *output_name(yoke_graph *graph, const char *what, int i)
{
    const char *block = graph->block >= 0 ? graph->blocks[graph->block] : "step";
    long long node = graph->n_nodes;
    return i == 0 ? yoke_arena_print(graph->arena, "%s.%s.%lld", block, what, node)
                  : yoke_arena_print(graph->arena, "%s.%s.%lld.%d", block, what, node, i);
}

static bool add_output(yoke_graph *graph, yoke_node *node, const yoke_node_spec *spec, int i)
{
    const yoke_op_def *def = yoke_op_get(spec->op);
    yoke_value_info info = {
        .name = output_name(graph, def->name, i),
        .kind = kind_of_output(graph),
        .producer = (int)graph->n_nodes,
        .gradient_of = YOKE_NO_VALUE,
        .gathered_of = YOKE_NO_VALUE,
        .stream = def->stream && graph->region == YOKE_REGION_FORWARD && i == 0,
        .layout = yoke_layout_replicated(),
    };
    if (!set_dims(graph, &info, spec->out_dims[i])) {
        return false;
    }
    node->out[i] = yoke_graph_value_add(graph, &info);
    const char *rule = spec->out_rules[i] ? spec->out_rules[i] : spec->out_dims[i];
    node->out_rule[i] = yoke_arena_copy_text(graph->arena, rule);
    return true;
}

static void add_inputs(yoke_graph *graph, yoke_node *node, const yoke_node_spec *spec)
{
    node->in = YOKE_ARENA_NEW(graph->arena, yoke_value, spec->n_in);
    node->in_rule = YOKE_ARENA_NEW(graph->arena, const char *, spec->n_in);
    for (int i = 0; i < spec->n_in; i++) {
        yoke_value_info *info = &graph->values[spec->in[i]];
        node->in[i] = spec->in[i];
        node->in_rule[i] =
            yoke_arena_copy_text(graph->arena, spec->in_rules ? spec->in_rules[i] : info->dims);
        info->n_uses++;
    }
}

yoke_value yoke_node_add(yoke_graph *graph, const yoke_node_spec *spec,
                         yoke_value out[YOKE_MAX_OUTPUTS])
{
    if (!yoke_values_good(graph, spec->in, spec->n_in)) {
        return YOKE_NO_VALUE;
    }
    if (graph->region == YOKE_REGION_FORWARD && graph->block == YOKE_NO_BLOCK) {
        yoke_block(graph, "model");
    }
    yoke_node node = {
        .op = spec->op,
        .region = graph->region,
        .block = graph->block,
        .n_in = spec->n_in,
        .attributes = spec->attributes,
        .out = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE},
    };
    add_inputs(graph, &node, spec);
    while (node.n_out < YOKE_MAX_OUTPUTS && spec->out_dims[node.n_out]) {
        if (!add_output(graph, &node, spec, node.n_out)) {
            return YOKE_NO_VALUE;
        }
        node.n_out++;
    }
    yoke_graph_node_append(graph, &node);
    if (out) {
        memcpy(out, node.out, sizeof node.out);
    }
    return node.out[0];
}
