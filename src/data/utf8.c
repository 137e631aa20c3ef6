/*
 * UTF-8 by table 3-7 of the Unicode Standard (well-formed byte sequences): which lead bytes there
 * are, how many bytes follow, and what the first of them may be. That excludes overlong forms,
 * surrogates and what lies beyond U+10FFFF.
 */
#include "data/utf8.h"

#include <stdint.h>
#include <string.h>

typedef struct lead {
    unsigned char first, last; /* lead bytes of this row */
    unsigned char n_following;
    unsigned char low, high; /* of the first following byte; the others are 80..BF */
} lead;

static const lead leads[] = {
    {0x00, 0x7F, 0, 0x00, 0x00}, {0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF},
    {0xE1, 0xEC, 2, 0x80, 0xBF}, {0xED, 0xED, 2, 0x80, 0x9F}, {0xEE, 0xEF, 2, 0x80, 0xBF},
    {0xF0, 0xF0, 3, 0x90, 0xBF}, {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F},
};

static const lead *find_lead(unsigned char byte)
{
    for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++) {
        if (byte >= leads[i].first && byte <= leads[i].last) {
            return &leads[i];
        }
    }
    return NULL;
}

/* Bytes before the first one that is not ASCII, eight at a time. */
static size_t skip_ascii(const unsigned char *bytes, size_t n_bytes)
{
    size_t i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }
    }
    while (i < n_bytes && bytes[i] < 0x80) {
        i++;
    }
    return i;
}

size_t yoke_utf8_first_bad(const unsigned char *bytes, size_t n_bytes)
{
    size_t i = skip_ascii(bytes, n_bytes);
    while (i < n_bytes) {
        const lead *row = find_lead(bytes[i]);
        if (!row) {
            return i;
        }
        for (size_t k = 1; k <= row->n_following; k++) {
            if (i + k == n_bytes) {
                return i;
            }
            unsigned char low = k == 1 ? row->low : 0x80;
            unsigned char high = k == 1 ? row->high : 0xBF;
            if (bytes[i + k] < low || bytes[i + k] > high) {
                return i + k;
            }
        }
        i += 1 + (size_t)row->n_following;
        i += skip_ascii(bytes + i, n_bytes - i);
    }
    return n_bytes;
}
