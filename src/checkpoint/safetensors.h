/*
 * safetensors: named tensors in one file (https://huggingface.co/docs/safetensors): 8 bytes of
 * header length, little-endian, a JSON header, and the tensors one behind the other without gaps.
 *
 * float32 is written, and of what is read only float32 is handed out. Local; one thread.
 */
#ifndef YOKE_CHECKPOINT_SAFETENSORS_H
#define YOKE_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "yoke/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Writing: the list of tensors first, then their elements in that order --- */

typedef struct yoke_safetensors_entry {
    const char *name; /* borrowed until create returns */
    yoke_shape shape;
} yoke_safetensors_entry;

typedef struct yoke_safetensors_writer yoke_safetensors_writer;

/* Begins `path`; what stands there now stays until finish. YOKE_IO if the file cannot be made. */
yoke_status yoke_safetensors_create(const char *path, const yoke_safetensors_entry *entries,
                                    int n_entries, yoke_safetensors_writer **writer) YOKE_MUST_USE;

/* The next `n` elements. */
yoke_status yoke_safetensors_write(yoke_safetensors_writer *writer, const float *data,
                                   int64_t n) YOKE_MUST_USE;

/* After the last element: the file is on the disk and has its name. Frees `writer` also on failure,
 * and then leaves nothing behind. */
yoke_status yoke_safetensors_finish(yoke_safetensors_writer *writer) YOKE_MUST_USE;
void yoke_safetensors_abandon(yoke_safetensors_writer *writer); /* NULL is fine */

/* --- Reading --- */

typedef struct yoke_safetensors yoke_safetensors;

/* Maps the file and checks its header against its size: YOKE_BAD_INPUT if anything does not fit. */
yoke_status yoke_safetensors_open(const char *path, yoke_safetensors **file) YOKE_MUST_USE;
void yoke_safetensors_close(yoke_safetensors *file); /* NULL is fine */

/* Tensors, in the order of their elements in the file. */
int yoke_safetensors_n_tensors(const yoke_safetensors *file);
const char *yoke_safetensors_name(const yoke_safetensors *file, int index);
const yoke_shape *yoke_safetensors_shape(const yoke_safetensors *file, int index);
int yoke_safetensors_find(const yoke_safetensors *file, const char *name); /* -1 if there is none */

/* True if dtype, shape and bits of two tensors are the same. */
bool yoke_safetensors_equal(const yoke_safetensors *file, int a, int b);

/* YOKE_BAD_INPUT if the tensor is not float32. */
yoke_status yoke_safetensors_check_f32(const yoke_safetensors *file, int index) YOKE_MUST_USE;

/* Copies the tensor, row-major. YOKE_BAD_INPUT if it is not float32. `out` [shape]. */
yoke_status yoke_safetensors_read(const yoke_safetensors *file, int index,
                                  float *out) YOKE_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
