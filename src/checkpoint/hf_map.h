/*
 * Which tensors a HuggingFace model.safetensors has for the parameters of a graph.
 *
 * A tensor is one parameter, or several side by side along the last dim, or one slice of a parameter
 * along its first dim, as the family's hf_name says.
 */
#ifndef YOKE_CHECKPOINT_HF_MAP_H
#define YOKE_CHECKPOINT_HF_MAP_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { YOKE_HF_MOST_PARTS = 4, YOKE_HF_NAME_BYTES = 160 };

typedef struct yoke_hf_tensor {
    char name[YOKE_HF_NAME_BYTES];
    yoke_shape shape; /* in the file: heads and their width are one dim */
    int n_parts;
    int parameter[YOKE_HF_MOST_PARTS]; /* [n_parts], in the order of the graph's parameters */
    int slice, n_slices; /* which of how many slices of its one parameter; 0 of 1: all */
} yoke_hf_tensor;

typedef struct yoke_hf_map {
    yoke_hf_tensor *tensors; /* in the order of their first parameters; slices in theirs */
    int n_tensors;
    int64_t most_elements; /* of a tensor or a parameter */
} yoke_hf_map;

/* Of a finished graph. YOKE_BAD_INPUT where hf_name leaves a part of a tensor open or gives it
 * twice. */
yoke_status yoke_hf_map_init(yoke_hf_map *map, const yoke_graph *graph,
                             const yoke_model *model) YOKE_MUST_USE;
void yoke_hf_map_fini(yoke_hf_map *map);

/* Copies part `part` out of a whole tensor, or, if `join`, into it. `piece` is compact; of a slice it
 * is the whole parameter. */
void yoke_hf_part_copy(const yoke_hf_tensor *tensor, int part, bool join, float *whole,
                       float *piece);

#ifdef __cplusplus
}
#endif
#endif
