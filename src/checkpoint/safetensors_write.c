/*
 * Writing safetensors: the header needs names and shapes only, so tensors can follow one at a time
 * and no more than one is in memory.
 *
 * Relies on a little-endian machine with IEEE floats, as all of yoke does, and on jansson to quote
 * names.
 */
#include "checkpoint/safetensors.h"

#include <jansson.h>
#include <string.h>
#include "base/file.h"
#include "base/memory.h"

enum { HEADER_ALIGNMENT = 8 };

struct yoke_safetensors_writer {
    yoke_file *file;
    int64_t elements_left;
};

static json_t *entry_json(const yoke_safetensors_entry *entry, int64_t first_element)
{
    json_t *shape = json_array();
    for (int dim = 0; dim < entry->shape.n_dims; dim++) {
        (void)json_array_append_new(shape, json_integer(entry->shape.extent[dim]));
    }
    json_int_t begin = 4 * first_element;
    json_int_t end = begin + 4 * yoke_shape_elements(&entry->shape);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets", begin,
                     end);
}

/* NULL without memory. `elements` is their number in all tensors. */
static json_t *header_json(const yoke_safetensors_entry *entries, int n_entries, int64_t *elements)
{
    *elements = 0;
    json_t *header = json_object();
    /* HuggingFace's loaders insist on knowing which library's conventions a file follows. */
    int failed = json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (int i = 0; i < n_entries && !failed; i++) {
        YOKE_ASSERT(json_object_get(header, entries[i].name) == NULL);
        json_t *entry = entry_json(&entries[i], *elements);
        failed = json_object_set_new(header, entries[i].name, entry);
        *elements += yoke_shape_elements(&entries[i].shape);
    }
    if (failed) {
        json_decref(header);
        return NULL;
    }
    return header;
}

static yoke_status write_header(yoke_file *file, const json_t *header)
{
    size_t text_bytes = json_dumpb(header, NULL, 0, JSON_COMPACT);
    size_t padded_bytes = (text_bytes + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    unsigned char *head = yoke_block_alloc(8 + padded_bytes);
    if (text_bytes == 0 || !head) {
        yoke_block_free(head);
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for a header of %zu bytes", text_bytes);
    }
    for (int i = 0; i < 8; i++) {
        head[i] = (unsigned char)((uint64_t)padded_bytes >> (8 * i));
    }
    memset(head + 8, ' ', padded_bytes);
    (void)json_dumpb(header, (char *)head + 8, padded_bytes, JSON_COMPACT);
    yoke_status status = yoke_file_write(file, head, 8 + padded_bytes);
    yoke_block_free(head);
    return status;
}

yoke_status yoke_safetensors_create(const char *path, const yoke_safetensors_entry *entries,
                                    int n_entries, yoke_safetensors_writer **writer)
{
    *writer = NULL;
    yoke_safetensors_writer *made = yoke_block_alloc(sizeof *made);
    json_t *header = made ? header_json(entries, n_entries, &made->elements_left) : NULL;
    if (!header) {
        yoke_block_free(made);
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the header of '%s'", path);
    }
    yoke_status status = yoke_file_create(path, &made->file);
    if (!status) {
        status = write_header(made->file, header);
    }
    json_decref(header);
    if (status) {
        yoke_safetensors_abandon(made);
        return status;
    }
    *writer = made;
    return YOKE_OK;
}

yoke_status yoke_safetensors_write(yoke_safetensors_writer *writer, const float *data, int64_t n)
{
    YOKE_ASSERT(n >= 0 && n <= writer->elements_left);
    writer->elements_left -= n;
    return yoke_file_write(writer->file, data, (size_t)n * sizeof *data);
}

yoke_status yoke_safetensors_finish(yoke_safetensors_writer *writer)
{
    YOKE_ASSERT(writer->elements_left == 0);
    yoke_status status = yoke_file_commit(writer->file);
    yoke_block_free(writer);
    return status;
}

void yoke_safetensors_abandon(yoke_safetensors_writer *writer)
{
    if (writer) {
        yoke_file_abandon(writer->file);
        yoke_block_free(writer);
    }
}
