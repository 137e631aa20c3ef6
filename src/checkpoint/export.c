/*
 * Export: fetches each parameter from the ranks and streams it into model.safetensors.
 *
 * Relies on hf_map.c for names and shapes and on the session for whole tensors.
 */
#include "checkpoint/export.h"

#include <stdio.h>
#include "base/memory.h"
#include "checkpoint/hf_map.h"
#include "checkpoint/safetensors.h"

/* Fetches the parts of a tensor and writes it. `whole` and `piece` hold the largest tensor or
 * parameter; a parameter of which slices are written is fetched for the first of them. */
static yoke_status write_tensor(yoke_session *session, const yoke_hf_tensor *tensor,
                                yoke_safetensors_writer *writer, float *whole, float *piece)
{
    for (int part = 0; part < tensor->n_parts; part++) {
        if (tensor->slice == 0) {
            YOKE_TRY(
                yoke_session_fetch(session, YOKE_FETCH_WEIGHT, tensor->parameter[part], piece));
        }
        yoke_hf_part_copy(tensor, part, true, whole, piece);
    }
    return yoke_safetensors_write(writer, whole, yoke_shape_elements(&tensor->shape));
}

static yoke_status write_tensors(yoke_session *session, const yoke_hf_map *map,
                                 yoke_safetensors_writer *writer)
{
    float *room = yoke_block_alloc(2 * (size_t)map->most_elements * sizeof *room);
    if (!room) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for a tensor of %lld elements",
                         (long long)map->most_elements);
    }
    yoke_status status = YOKE_OK;
    for (int i = 0; i < map->n_tensors && !status; i++) {
        status = write_tensor(session, &map->tensors[i], writer, room, room + map->most_elements);
    }
    yoke_block_free(room);
    return status;
}

static yoke_status begin(const yoke_hf_map *map, const char *path, yoke_safetensors_writer **writer)
{
    size_t n = (size_t)map->n_tensors;
    yoke_safetensors_entry *entries = yoke_block_alloc(n * sizeof *entries);
    if (!entries) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the names of %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++) {
        entries[i] = (yoke_safetensors_entry){map->tensors[i].name, map->tensors[i].shape};
    }
    yoke_status status = yoke_safetensors_create(path, entries, map->n_tensors, writer);
    yoke_block_free(entries);
    return status;
}

static yoke_status write_weights(yoke_session *session, const yoke_hf_map *map, const char *path)
{
    yoke_safetensors_writer *writer = NULL;
    YOKE_TRY(begin(map, path, &writer));
    yoke_status status = write_tensors(session, map, writer);
    if (status) {
        yoke_safetensors_abandon(writer);
        return status;
    }
    return yoke_safetensors_finish(writer);
}

yoke_status yoke_export_model(yoke_session *session, const yoke_model_config *config,
                              const char *folder)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/model.safetensors", folder) >= (int)sizeof path) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "the path of the folder '%s' is too long", folder);
    }
    yoke_hf_map map;
    YOKE_TRY(yoke_hf_map_init(&map, yoke_session_graph(session), config->model));
    yoke_status status = write_weights(session, &map, path);
    yoke_hf_map_fini(&map);
    YOKE_TRY(status);
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    return yoke_model_config_save(config, path);
}
