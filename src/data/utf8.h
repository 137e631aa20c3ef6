/*
 * UTF-8, as far as a corpus needs it: whether bytes are valid, and where not. It decodes nothing.
 */
#ifndef YOKE_DATA_UTF8_H
#define YOKE_DATA_UTF8_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Offset of the first byte that cannot stand where it stands; `n_bytes` if all are valid. Of a
 * character that the end cuts off it is the first byte. */
size_t yoke_utf8_first_bad(const unsigned char *bytes, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
