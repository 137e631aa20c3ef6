/*
 * Files: a whole one read in place, and one written so that it appears whole or not at all.
 *
 * A mapped file is never loaded: its pages come as they are read, and forked ranks share them. It
 * must not be truncated while it is mapped; the system ends a process that reads a page which is
 * gone.
 */
#ifndef YOKE_BASE_FILE_H
#define YOKE_BASE_FILE_H

#include <stddef.h>
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps a regular file to read it. An empty one is good: 0 bytes, and a start that is not NULL.
 * YOKE_BAD_INPUT, with the path and a way out, where there is no file, it is a directory or a
 * device, or it may not be read. */
yoke_status yoke_file_map(const char *path, const void **start, size_t *bytes) YOKE_MUST_USE;
void yoke_file_unmap(const void *start, size_t bytes); /* NULL is fine */

typedef struct yoke_file yoke_file;

/* Begins a file under a temporary name in the folder of `path`, which must exist. What is there
 * under `path` stays until the commit. YOKE_IO if it cannot be made. */
yoke_status yoke_file_create(const char *path, yoke_file **file) YOKE_MUST_USE;
yoke_status yoke_file_write(yoke_file *file, const void *data, size_t bytes) YOKE_MUST_USE;

/* Brings the file to the disk and gives it its name. Frees `file` also on failure, and then
 * leaves nothing behind. */
yoke_status yoke_file_commit(yoke_file *file) YOKE_MUST_USE;
void yoke_file_abandon(yoke_file *file); /* leaves nothing behind; NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
