/*
 * The format "u16": a flat file of little-endian uint16 tokens, such as nanoGPT, llm.c and
 * Megatron's .bin hold. It has no header; borders between documents are tokens like any other.
 */
#include "data/format.h"

static int32_t token(const unsigned char *bytes, size_t n_bytes, int64_t index)
{
    (void)n_bytes;
    return bytes[2 * index] | bytes[2 * index + 1] << 8;
}

static yoke_status scan(const char *path, const unsigned char *bytes, size_t n_bytes,
                        int64_t *highest)
{
    if (n_bytes % 2 != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "'%s' has %zu bytes, an odd number, which no uint16 tokens fill; write it "
                         "anew, or set data_format=text if it is text",
                         path, n_bytes);
    }
    int32_t most = 0;
    for (int64_t i = 0; i < (int64_t)(n_bytes / 2); i++) {
        int32_t here = token(bytes, n_bytes, i);
        most = here > most ? here : most;
    }
    *highest = most;
    return YOKE_OK;
}

static int64_t n_tokens(size_t n_bytes)
{
    return (int64_t)(n_bytes / 2);
}

static const char *const suffixes[] = {".bin", ".u16", NULL};

const yoke_data_format yoke_data_format_u16 = {
    .name = "u16",
    .suffixes = suffixes,
    .scan = scan,
    .n_tokens = n_tokens,
    .token = token,
};
