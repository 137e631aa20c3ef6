/*
 * Import: finds every tensor of the model in a model.safetensors, and only then loads the first.
 *
 * Relies on hf_map.c for names and shapes and on the session for handing whole tensors to the
 * ranks.
 */
#include "checkpoint/export.h"

#include <stdio.h>
#include <string.h>
#include "base/memory.h"
#include "checkpoint/hf_map.h"
#include "checkpoint/safetensors.h"

/* Found tensors: index in the file of each one of the map, and whether each of the file is
 * wanted. */
typedef struct match {
    int *file_index; /* [map->n_tensors] */
    bool *used;      /* [tensors of the file] */
} match;

/* What models keep in files although it follows from the config: masks, frequencies, indices. */
static const char *const derived_suffixes[] = {".attn.bias", ".attn.masked_bias",
                                               ".rotary_emb.inv_freq", ".embeddings.position_ids"};

/* Of another task: no logit depends on it, and HuggingFace leaves it out as well. */
static const char *const unread_prefixes[] = {"bert.pooler.", "cls.seq_relationship."};

/* What may be a copy of another tensor, to which it is tied. */
static const char *const tied_names[] = {"lm_head.weight", "cls.predictions.decoder.weight",
                                         "cls.predictions.decoder.bias"};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static bool is_unread(const char *name)
{
    for (size_t i = 0; i < sizeof unread_prefixes / sizeof unread_prefixes[0]; i++) {
        if (strncmp(name, unread_prefixes[i], strlen(unread_prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool may_be_tied(const char *name)
{
    for (size_t i = 0; i < sizeof tied_names / sizeof tied_names[0]; i++) {
        if (strcmp(name, tied_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_derived(const char *name)
{
    for (size_t i = 0; i < sizeof derived_suffixes / sizeof derived_suffixes[0]; i++) {
        if (ends_with(name, derived_suffixes[i])) {
            return true;
        }
    }
    return false;
}

/* A head that the model did not ask for, because its own is tied, is what that one is tied to: a tensor of the same bits is in use. */
static bool is_tied_head(const yoke_safetensors *file, int index, const match *found)
{
    if (!may_be_tied(yoke_safetensors_name(file, index))) {
        return false;
    }
    for (int i = 0; i < yoke_safetensors_n_tensors(file); i++) {
        if (found->used[i] && yoke_safetensors_equal(file, index, i)) {
            return true;
        }
    }
    return false;
}

/* BERT was first saved by TensorFlow, which calls the two parameters of a norm gamma and beta. */
static int find_old_name(const yoke_safetensors *file, const char *name)
{
    static const char *const names[][2] = {{"LayerNorm.weight", "gamma"},
                                           {"LayerNorm.bias", "beta"}};
    char old[256];
    for (int i = 0; i < 2; i++) {
        if (ends_with(name, names[i][0])) {
            int kept = (int)(strrchr(name, '.') - name) + 1;
            (void)snprintf(old, sizeof old, "%.*s%s", kept, name, names[i][1]);
            return yoke_safetensors_find(file, old);
        }
    }
    return -1;
}

static int find_in_file(const yoke_safetensors *file, const char *name)
{
    static const char *const prefixes[] = {"transformer.", "model."};
    int index = yoke_safetensors_find(file, name);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0] && index < 0; i++) {
        size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0) {
            index = yoke_safetensors_find(file, name + length);
        }
    }
    return index < 0 ? find_old_name(file, name) : index;
}

/* Writes "[2, 3]" into buf[n] and returns buf; 128 bytes are enough. */
static const char *print_shape(const yoke_shape *shape, char *buf, int n)
{
    int length = snprintf(buf, (size_t)n, "[");
    for (int dim = 0; dim < shape->n_dims && length < n; dim++) {
        length += snprintf(buf + length, (size_t)(n - length), "%s%lld", dim ? ", " : "",
                           (long long)shape->extent[dim]);
    }
    if (length < n) {
        (void)snprintf(buf + length, (size_t)(n - length), "]");
    }
    return buf;
}

static bool same_shape(const yoke_shape *a, const yoke_shape *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int dim = 0; same && dim < a->n_dims; dim++) {
        same = a->extent[dim] == b->extent[dim];
    }
    return same;
}

static yoke_status match_tensor(const yoke_safetensors *file, const yoke_hf_tensor *tensor,
                                int *index)
{
    *index = find_in_file(file, tensor->name);
    if (*index < 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "tensor '%s' is not among the %d of the file; give the config.json that "
                         "the weights were saved with",
                         tensor->name, yoke_safetensors_n_tensors(file));
    }
    const yoke_shape *shape = yoke_safetensors_shape(file, *index);
    if (!same_shape(shape, &tensor->shape)) {
        char in_file[128];
        char in_model[128];
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "tensor '%s' is %s in the file and %s in the model; give the config.json "
                         "that the weights were saved with",
                         tensor->name, print_shape(shape, in_file, sizeof in_file),
                         print_shape(&tensor->shape, in_model, sizeof in_model));
    }
    return yoke_safetensors_check_f32(file, *index);
}

static yoke_status match_all(const yoke_safetensors *file, const yoke_hf_map *map, match *found)
{
    for (int i = 0; i < map->n_tensors; i++) {
        YOKE_TRY(match_tensor(file, &map->tensors[i], &found->file_index[i]));
        found->used[found->file_index[i]] = true;
    }
    for (int i = 0; i < yoke_safetensors_n_tensors(file); i++) {
        const char *name = yoke_safetensors_name(file, i);
        bool known = found->used[i] || is_derived(name) || is_unread(name);
        if (!known && !is_tied_head(file, i, found)) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "tensor '%s' of the file has no place in the model, which has %d; "
                             "give the config.json that the weights were saved with%s",
                             name, map->n_tensors,
                             may_be_tied(name) && ends_with(name, ".weight")
                                 ? ", or set tie_word_embeddings=false"
                                 : "");
        }
    }
    return YOKE_OK;
}

/* `room` is twice that of the largest tensor or parameter: for the tensor, and for what is handed
 * over, a parameter once all of its slices are there. */
static yoke_status load_tensor(yoke_session *session, const yoke_hf_tensor *tensor,
                               const yoke_safetensors *file, int index, float *const room[2])
{
    YOKE_TRY(yoke_safetensors_read(file, index, room[0]));
    for (int part = 0; part < tensor->n_parts; part++) {
        yoke_hf_part_copy(tensor, part, false, room[0], room[1]);
        if (tensor->slice == tensor->n_slices - 1) {
            YOKE_TRY(yoke_session_load(session, tensor->parameter[part], room[1]));
        }
    }
    return YOKE_OK;
}

static yoke_status load_all(yoke_session *session, const yoke_hf_map *map,
                            const yoke_safetensors *file, const match *found)
{
    float *room = yoke_block_alloc(2 * (size_t)map->most_elements * sizeof *room);
    if (!room) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for a tensor of %lld elements",
                         (long long)map->most_elements);
    }
    float *const halves[] = {room, room + map->most_elements};
    yoke_status status = YOKE_OK;
    for (int i = 0; i < map->n_tensors && !status; i++) {
        status = load_tensor(session, &map->tensors[i], file, found->file_index[i], halves);
    }
    yoke_block_free(room);
    return status;
}

static yoke_status match_and_load(yoke_session *session, const yoke_hf_map *map,
                                  const yoke_safetensors *file, match *found)
{
    YOKE_TRY(match_all(file, map, found));
    return load_all(session, map, file, found);
}

static yoke_status import_file(yoke_session *session, const yoke_hf_map *map,
                               const yoke_safetensors *file)
{
    size_t n_file = (size_t)yoke_safetensors_n_tensors(file);
    match found = {
        .file_index = yoke_block_alloc((size_t)map->n_tensors * sizeof *found.file_index),
        .used = yoke_block_alloc(n_file * sizeof *found.used),
    };
    yoke_status status = found.file_index && found.used
                             ? match_and_load(session, map, file, &found)
                             : YOKE_FAIL(YOKE_NO_MEMORY, "no memory to match %zu tensors", n_file);
    yoke_block_free(found.file_index);
    yoke_block_free(found.used);
    return status;
}

yoke_status yoke_import_weights(yoke_session *session, const yoke_model_config *config,
                                const char *safetensors_path)
{
    yoke_hf_map map;
    yoke_safetensors *file;
    YOKE_TRY(yoke_hf_map_init(&map, yoke_session_graph(session), config->model));
    yoke_status status = yoke_safetensors_open(safetensors_path, &file);
    if (!status) {
        status = yoke_status_prefix(import_file(session, &map, file), "'%s'", safetensors_path);
        yoke_safetensors_close(file);
    }
    yoke_hf_map_fini(&map);
    return status;
}
