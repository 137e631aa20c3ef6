/*
 * Reading safetensors. Nothing in a file is believed: lengths, offsets and shapes are checked
 * against the file's size and against each other before a byte of a tensor is touched.
 */
#include "checkpoint/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/memory.h"

/* The format's own limit, which keeps a hostile length from costing memory. */
static const uint64_t most_header_bytes = 100000000;

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {
    {"F32", 4}, {"F64", 8}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0], DTYPE_F32 = 0 };

typedef struct tensor {
    const char *name; /* of the header's JSON */
    int dtype;        /* index of dtypes */
    yoke_shape shape;
    int64_t begin, end; /* bytes, from the first one behind the header */
} tensor;

struct yoke_safetensors {
    const unsigned char *bytes;
    size_t n_bytes;
    size_t data_start;
    json_t *header;
    tensor *tensors; /* by offset */
    int n_tensors;
};

static yoke_status read_dtype(const json_t *entry, tensor *t)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "its header gives no dtype");
    }
    for (t->dtype = 0; t->dtype < N_DTYPES; t->dtype++) {
        if (strcmp(dtypes[t->dtype].name, name) == 0) {
            return YOKE_OK;
        }
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "its dtype \"%s\" is unknown", name);
}

static yoke_status read_shape(const json_t *entry, tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "its header gives no shape");
    }
    if (json_array_size(shape) > YOKE_MAX_DIMS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "it has %zu dims; at most %d are supported",
                         json_array_size(shape), YOKE_MAX_DIMS);
    }
    t->shape.n_dims = (int)json_array_size(shape);
    int64_t elements = 1;
    for (int dim = 0; dim < t->shape.n_dims; dim++) {
        const json_t *item = json_array_get(shape, (size_t)dim);
        int64_t extent = json_is_integer(item) ? json_integer_value(item) : -1;
        if (extent < 0) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "extent %d of its shape is no count", dim);
        }
        t->shape.extent[dim] = extent;
        /* 2^59 elements of 8 bytes still fit into 63 bits. */
        if (extent > 0 && elements > ((int64_t)1 << 59) / extent) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "its shape has too many elements to count");
        }
        elements *= extent;
    }
    return YOKE_OK;
}

static yoke_status read_offsets(const json_t *entry, int64_t data_bytes, tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "its header gives no pair of data_offsets");
    }
    t->begin = json_integer_value(begin);
    t->end = json_integer_value(end);
    if (t->begin < 0 || t->end < t->begin || t->end > data_bytes) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "its data_offsets [%lld, %lld] lie outside of the %lld bytes of data; is "
                         "the file cut off?",
                         (long long)t->begin, (long long)t->end, (long long)data_bytes);
    }
    int64_t wanted = yoke_shape_elements(&t->shape) * dtypes[t->dtype].bytes;
    if (t->end - t->begin != wanted) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "its data_offsets span %lld bytes, its shape %lld",
                         (long long)(t->end - t->begin), (long long)wanted);
    }
    return YOKE_OK;
}

static yoke_status read_entry(const json_t *entry, int64_t data_bytes, tensor *t)
{
    YOKE_TRY(read_dtype(entry, t));
    YOKE_TRY(read_shape(entry, t));
    return read_offsets(entry, data_bytes, t);
}

static int compare_offsets(const void *a, const void *b)
{
    const tensor *x = a;
    const tensor *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    /* An empty tensor stands before the one that begins where it does. */
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* The tensors cover the data exactly. */
static yoke_status check_cover(const yoke_safetensors *file)
{
    int64_t covered = 0;
    for (int i = 0; i < file->n_tensors; i++) {
        const tensor *t = &file->tensors[i];
        if (t->begin < covered) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "tensor '%s' overlaps '%s' by %lld bytes", t->name,
                             file->tensors[i - 1].name, (long long)(covered - t->begin));
        }
        if (t->begin > covered) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%lld bytes before tensor '%s' belong to none",
                             (long long)(t->begin - covered), t->name);
        }
        covered = t->end;
    }
    int64_t rest = (int64_t)(file->n_bytes - file->data_start) - covered;
    if (rest > 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "the last %lld bytes belong to no tensor",
                         (long long)rest);
    }
    return YOKE_OK;
}

static yoke_status read_tensors(yoke_safetensors *file)
{
    int64_t data_bytes = (int64_t)(file->n_bytes - file->data_start);
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        tensor *t = &file->tensors[file->n_tensors++];
        t->name = name;
        YOKE_TRY(yoke_status_prefix(read_entry(entry, data_bytes, t), "tensor '%s'", name));
    }
    qsort(file->tensors, (size_t)file->n_tensors, sizeof *file->tensors, compare_offsets);
    return check_cover(file);
}

static yoke_status parse_header(yoke_safetensors *file)
{
    uint64_t header_bytes = 0;
    if (file->n_bytes < 8) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%zu bytes are too few for a safetensors file, which has at least 8",
                         file->n_bytes);
    }
    for (int i = 0; i < 8; i++) {
        header_bytes |= (uint64_t)file->bytes[i] << (8 * i);
    }
    if (header_bytes > file->n_bytes - 8 || header_bytes > most_header_bytes) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "the header would have %llu bytes, but the file has %zu; is it a "
                         "safetensors file, and whole?",
                         (unsigned long long)header_bytes, file->n_bytes);
    }
    file->data_start = 8 + (size_t)header_bytes;
    json_error_t error;
    const char *text = (const char *)file->bytes + 8;
    file->header = json_loadb(text, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(file->header)) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "the header is no JSON object: byte %d: %s",
                         file->header ? 0 : error.position,
                         file->header ? "another JSON value" : error.text);
    }
    size_t room = json_object_size(file->header) + 1;
    file->tensors = yoke_block_alloc(room * sizeof *file->tensors);
    return file->tensors ? YOKE_OK : YOKE_FAIL(YOKE_NO_MEMORY, "no memory for %zu tensors", room);
}

static yoke_status map_and_parse(yoke_safetensors *file, const char *path)
{
    const void *bytes;
    YOKE_TRY(yoke_file_map(path, &bytes, &file->n_bytes));
    file->bytes = bytes;
    yoke_status status = parse_header(file);
    if (!status) {
        status = read_tensors(file);
    }
    return yoke_status_prefix(status, "'%s'", path);
}

yoke_status yoke_safetensors_open(const char *path, yoke_safetensors **file)
{
    *file = NULL;
    yoke_safetensors *opened = yoke_block_alloc(sizeof *opened);
    if (!opened) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to open '%s'", path);
    }
    yoke_status status = map_and_parse(opened, path);
    if (status) {
        yoke_safetensors_close(opened);
        return status;
    }
    *file = opened;
    return YOKE_OK;
}

void yoke_safetensors_close(yoke_safetensors *file)
{
    if (file) {
        yoke_file_unmap(file->bytes, file->n_bytes);
        json_decref(file->header);
        yoke_block_free(file->tensors);
        yoke_block_free(file);
    }
}

int yoke_safetensors_n_tensors(const yoke_safetensors *file)
{
    return file->n_tensors;
}

const char *yoke_safetensors_name(const yoke_safetensors *file, int index)
{
    YOKE_ASSERT(index >= 0 && index < file->n_tensors);
    return file->tensors[index].name;
}

const yoke_shape *yoke_safetensors_shape(const yoke_safetensors *file, int index)
{
    YOKE_ASSERT(index >= 0 && index < file->n_tensors);
    return &file->tensors[index].shape;
}

int yoke_safetensors_find(const yoke_safetensors *file, const char *name)
{
    for (int i = 0; i < file->n_tensors; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

bool yoke_safetensors_equal(const yoke_safetensors *file, int a, int b)
{
    YOKE_ASSERT(a >= 0 && a < file->n_tensors && b >= 0 && b < file->n_tensors);
    const tensor *x = &file->tensors[a];
    const tensor *y = &file->tensors[b];
    const unsigned char *data = file->bytes + file->data_start;
    return x->dtype == y->dtype && x->end - x->begin == y->end - y->begin &&
           x->shape.n_dims == y->shape.n_dims &&
           memcmp(x->shape.extent, y->shape.extent,
                  sizeof x->shape.extent[0] * (size_t)x->shape.n_dims) == 0 &&
           memcmp(data + x->begin, data + y->begin, (size_t)(x->end - x->begin)) == 0;
}

yoke_status yoke_safetensors_check_f32(const yoke_safetensors *file, int index)
{
    YOKE_ASSERT(index >= 0 && index < file->n_tensors);
    const tensor *t = &file->tensors[index];
    if (t->dtype != DTYPE_F32) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "tensor '%s' is %s, and only F32 is read; save the model as float32",
                         t->name, dtypes[t->dtype].name);
    }
    return YOKE_OK;
}

yoke_status yoke_safetensors_read(const yoke_safetensors *file, int index, float *out)
{
    YOKE_TRY(yoke_safetensors_check_f32(file, index));
    const tensor *t = &file->tensors[index];
    /* The header's length decides where data begin, so they need not be aligned. */
    memcpy(out, file->bytes + file->data_start + t->begin, (size_t)(t->end - t->begin));
    return YOKE_OK;
}
