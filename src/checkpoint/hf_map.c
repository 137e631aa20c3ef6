/*
 * Names and shapes of HuggingFace's tensors, from the letters of a graph's parameters and the
 * family's hf_name. It moves no bytes to or from a file.
 */
#include "checkpoint/hf_map.h"

#include <stdio.h>
#include <string.h>
#include "base/memory.h"
#include "graph/graph.h"

/* Which tensor a parameter belongs to, or which tensors its slices are: then the name has a '#'. */
typedef struct place {
    char name[YOKE_HF_NAME_BYTES];
    int part, n_parts;
    int n_slices;
    yoke_shape shape; /* of the parameter or a slice of it, as the file sees it */
} place;

/* The file has no dim for heads: theirs and that of their width are one. */
static yoke_shape file_shape(const yoke_value_info *parameter)
{
    yoke_shape shape = {.n_dims = 0};
    for (int dim = 0; dim < parameter->shape.n_dims; dim++) {
        char before = dim > 0 ? parameter->dims[dim - 1] : '\0';
        bool joins = parameter->dims[dim] == 'x' && (before == 'h' || before == 'k');
        if (joins) {
            shape.extent[shape.n_dims - 1] *= parameter->shape.extent[dim];
        } else {
            shape.extent[shape.n_dims++] = parameter->shape.extent[dim];
        }
    }
    return shape;
}

static yoke_status find_place(const yoke_model *model, const yoke_value_info *parameter,
                              place *found)
{
    *found = (place){.part = 0, .n_parts = 1, .n_slices = 1, .shape = file_shape(parameter)};
    if (model->hf_name) {
        model->hf_name(parameter->name, found->name, sizeof found->name, &found->part,
                       &found->n_parts);
    } else {
        (void)snprintf(found->name, sizeof found->name, "%s", parameter->name);
    }
    if (strchr(found->name, '#') && found->shape.n_dims > 1 && found->n_parts == 1) {
        found->n_slices = (int)found->shape.extent[0];
        found->shape.n_dims--;
        memmove(found->shape.extent, found->shape.extent + 1,
                sizeof found->shape.extent[0] * (size_t)found->shape.n_dims);
        found->shape.extent[found->shape.n_dims] = 0;
    }
    bool good = found->n_parts >= 1 && found->n_parts <= YOKE_HF_MOST_PARTS && found->part >= 0 &&
                found->part < found->n_parts && (found->n_parts == 1 || found->shape.n_dims > 0);
    if (!good) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "model %s: hf_name makes parameter %s part %d of %d of %s; a part is from "
                         "0 to %d, and a scalar has none",
                         model->name, parameter->name, found->part, found->n_parts, found->name,
                         YOKE_HF_MOST_PARTS - 1);
    }
    return YOKE_OK;
}

static yoke_hf_tensor *find_tensor(yoke_hf_map *map, const place *p)
{
    for (int i = 0; i < map->n_tensors; i++) {
        if (strcmp(map->tensors[i].name, p->name) == 0) {
            return &map->tensors[i];
        }
    }
    yoke_hf_tensor *made = &map->tensors[map->n_tensors++];
    memcpy(made->name, p->name, sizeof made->name);
    made->n_slices = p->n_slices;
    made->shape = p->shape;
    made->n_parts = p->n_parts;
    if (p->n_parts > 1) {
        made->shape.extent[made->shape.n_dims - 1] *= p->n_parts;
    }
    for (int part = 0; part < YOKE_HF_MOST_PARTS; part++) {
        made->parameter[part] = -1;
    }
    return made;
}

static bool fits(const yoke_hf_tensor *tensor, const place *p)
{
    yoke_shape whole = p->shape;
    if (p->n_parts > 1) {
        whole.extent[whole.n_dims - 1] *= p->n_parts;
    }
    return tensor->n_parts == p->n_parts && tensor->parameter[p->part] < 0 &&
           tensor->shape.n_dims == whole.n_dims &&
           memcmp(tensor->shape.extent, whole.extent,
                  sizeof whole.extent[0] * (size_t)whole.n_dims) == 0;
}

static yoke_status add_tensor(yoke_hf_map *map, const yoke_model *model,
                              const yoke_value_info *parameter, const place *p, int index)
{
    yoke_hf_tensor *tensor = find_tensor(map, p);
    if (!fits(tensor, p)) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "model %s: hf_name makes parameter %s part %d of %d of %s, which is taken "
                         "or of another shape",
                         model->name, parameter->name, p->part, p->n_parts, p->name);
    }
    tensor->parameter[p->part] = index;
    int64_t elements = yoke_shape_elements(&tensor->shape) * tensor->n_slices;
    map->most_elements = elements > map->most_elements ? elements : map->most_elements;
    return YOKE_OK;
}

static yoke_status add_slice(yoke_hf_map *map, const yoke_model *model,
                             const yoke_value_info *parameter, const place *p, int slice, int index)
{
    place one = *p;
    int before = (int)strcspn(p->name, "#");
    (void)snprintf(one.name, sizeof one.name, "%.*s%d%s", before, p->name, slice,
                   p->name + before + 1);
    YOKE_TRY(add_tensor(map, model, parameter, &one, index));
    map->tensors[map->n_tensors - 1].slice = slice;
    return YOKE_OK;
}

static yoke_status add_parameter(yoke_hf_map *map, const yoke_model *model,
                                 const yoke_value_info *parameter, int index)
{
    place p;
    YOKE_TRY(find_place(model, parameter, &p));
    if (p.n_slices == 1 && !strchr(p.name, '#')) {
        return add_tensor(map, model, parameter, &p, index);
    }
    for (int slice = 0; slice < p.n_slices; slice++) {
        YOKE_TRY(add_slice(map, model, parameter, &p, slice, index));
    }
    return YOKE_OK;
}

static yoke_status check_whole(const yoke_hf_map *map, const yoke_model *model)
{
    for (int i = 0; i < map->n_tensors; i++) {
        const yoke_hf_tensor *tensor = &map->tensors[i];
        for (int part = 0; part < tensor->n_parts; part++) {
            if (tensor->parameter[part] < 0) {
                return YOKE_FAIL(YOKE_BAD_INPUT,
                                 "model %s: hf_name gives no parameter for part %d of %d of %s",
                                 model->name, part, tensor->n_parts, tensor->name);
            }
        }
    }
    return YOKE_OK;
}

static yoke_status add_all(yoke_hf_map *map, const yoke_graph *graph, const yoke_model *model)
{
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        const yoke_value_info *parameter = yoke_value_get(graph, graph->parameters[i]);
        YOKE_TRY(add_parameter(map, model, parameter, (int)i));
    }
    return check_whole(map, model);
}

/* A tensor for each parameter, or for each of its slices, at the most. */
static yoke_status count_tensors(const yoke_graph *graph, const yoke_model *model, size_t *n)
{
    *n = 0;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        place p;
        YOKE_TRY(find_place(model, yoke_value_get(graph, graph->parameters[i]), &p));
        *n += (size_t)p.n_slices;
    }
    return YOKE_OK;
}

yoke_status yoke_hf_map_init(yoke_hf_map *map, const yoke_graph *graph, const yoke_model *model)
{
    size_t n;
    *map = (yoke_hf_map){0};
    YOKE_TRY(count_tensors(graph, model, &n));
    map->tensors = yoke_block_alloc(n * sizeof *map->tensors);
    if (!map->tensors) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the names of %zu tensors", n);
    }
    yoke_status status = add_all(map, graph, model);
    if (status) {
        yoke_hf_map_fini(map);
    }
    return status;
}

void yoke_hf_map_fini(yoke_hf_map *map)
{
    yoke_block_free(map->tensors);
    *map = (yoke_hf_map){0};
}

void yoke_hf_part_copy(const yoke_hf_tensor *tensor, int part, bool join, float *whole,
                       float *piece)
{
    int64_t columns = tensor->n_parts == 1 ? yoke_shape_elements(&tensor->shape)
                                           : tensor->shape.extent[tensor->shape.n_dims - 1];
    int64_t n_rows = columns ? yoke_shape_elements(&tensor->shape) / columns : 0;
    int64_t part_columns = columns / tensor->n_parts;
    piece += tensor->slice * yoke_shape_elements(&tensor->shape);
    for (int64_t row = 0; row < n_rows; row++) {
        float *in_whole = whole + row * columns + part * part_columns;
        float *in_piece = piece + row * part_columns;
        size_t bytes = (size_t)part_columns * sizeof *whole;
        memcpy(join ? in_whole : in_piece, join ? in_piece : in_whole, bytes);
    }
}
