/*
 * The format "text": a UTF-8 file, a token a byte, and the end of text behind the last one.
 *
 * Validity is asked for although the tokens are bytes, because a file that is not UTF-8 is nearly
 * always not the text that its user takes it for.
 */
#include "data/format.h"
#include "data/utf8.h"
#include "yoke/data.h"

static yoke_status scan(const char *path, const unsigned char *bytes, size_t n_bytes,
                        int64_t *highest)
{
    size_t bad = yoke_utf8_first_bad(bytes, n_bytes);
    if (bad < n_bytes) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "'%s' is not UTF-8 text: byte 0x%02X at offset %zu of %zu cannot stand there; convert "
            "the file (iconv -t UTF-8), or set data_format=u16 if it holds uint16 tokens",
            path, (unsigned)bytes[bad], bad, n_bytes);
    }
    *highest = YOKE_END_OF_TEXT;
    return YOKE_OK;
}

static int64_t n_tokens(size_t n_bytes)
{
    return (int64_t)n_bytes + 1;
}

static int32_t token(const unsigned char *bytes, size_t n_bytes, int64_t index)
{
    return (size_t)index < n_bytes ? bytes[index] : YOKE_END_OF_TEXT;
}

const yoke_data_format yoke_data_format_text = {
    .name = "text",
    .scan = scan,
    .n_tokens = n_tokens,
    .token = token,
};
