/*
 * Formats of a corpus. Adding one: a file in this folder and a line in the list.
 *
 * A format sees the mapped bytes of a file, at least one, and says which tokens they are.
 */
#ifndef YOKE_DATA_FORMAT_H
#define YOKE_DATA_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_data_format {
    const char *name;
    const char *const
        *suffixes; /* names of files that "auto" takes for it; NULL-terminated, may be NULL */

    /* Reads all bytes once: refuses what is not in this format, else gives the highest token. */
    yoke_status (*scan)(const char *path, const unsigned char *bytes, size_t n_bytes,
                        int64_t *highest);
    int64_t (*n_tokens)(size_t n_bytes);
    int32_t (*token)(const unsigned char *bytes, size_t n_bytes, int64_t index);
} yoke_data_format;

/* X(name): `yoke_data_format_<name>`; "auto" takes the first whose suffix fits, or else the
 * first. */
#define YOKE_DATA_FORMAT_LIST(X) X(text) X(u16)

#define YOKE_DATA_FORMAT_DECLARE(name) extern const yoke_data_format yoke_data_format_##name;
YOKE_DATA_FORMAT_LIST(YOKE_DATA_FORMAT_DECLARE)
#undef YOKE_DATA_FORMAT_DECLARE

#ifdef __cplusplus
}
#endif
#endif
