/*
 * A corpus: a mapped file and the format that says which tokens its bytes are. It knows no order;
 * see sampler.c.
 */
#include "yoke/data.h"

#include <string.h>
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/format.h"

struct yoke_corpus {
    const yoke_data_format *format;
    const void *bytes;
    size_t n_bytes;
    int64_t n_tokens;
    int64_t highest;
};

static const yoke_data_format *const formats[] = {
#define FORMAT_POINTER(name) &yoke_data_format_##name,
    YOKE_DATA_FORMAT_LIST(FORMAT_POINTER)
#undef FORMAT_POINTER
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static bool has_suffix_of(const yoke_data_format *format, const char *path)
{
    for (const char *const *suffix = format->suffixes; suffix && *suffix; suffix++) {
        if (ends_with(path, *suffix)) {
            return true;
        }
    }
    return false;
}

static const yoke_data_format *format_of_name(const char *path)
{
    for (int i = 0; i < N_FORMATS; i++) {
        if (has_suffix_of(formats[i], path)) {
            return formats[i];
        }
    }
    return formats[0];
}

static yoke_status find_format(const char *path, const char *name, const yoke_data_format **found)
{
    static const char *const names[] = {"auto",
#define FORMAT_NAME(name) #name,
                                        YOKE_DATA_FORMAT_LIST(FORMAT_NAME)
#undef FORMAT_NAME
    };
    if (strcmp(name, "auto") == 0) {
        *found = format_of_name(path);
        return YOKE_OK;
    }
    for (int i = 0; i < N_FORMATS; i++) {
        if (strcmp(name, formats[i]->name) == 0) {
            *found = formats[i];
            return YOKE_OK;
        }
    }
    const char *near = yoke_text_nearest(name, names, N_FORMATS + 1);
#define FORMAT_WORD(name) ", " #name
    return YOKE_FAIL(YOKE_BAD_INPUT, "data_format=%s is unknown; %s%s%suse one of auto%s", name,
                     near ? "did you mean " : "", near ? near : "", near ? "? " : "",
                     YOKE_DATA_FORMAT_LIST(FORMAT_WORD));
#undef FORMAT_WORD
}

static yoke_status map_and_scan(yoke_corpus *corpus, const char *path)
{
    YOKE_TRY(yoke_file_map(path, &corpus->bytes, &corpus->n_bytes));
    if (corpus->n_bytes == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "'%s' is empty (0 bytes); give a text, or a file of uint16 tokens", path);
    }
    YOKE_TRY(corpus->format->scan(path, corpus->bytes, corpus->n_bytes, &corpus->highest));
    corpus->n_tokens = corpus->format->n_tokens(corpus->n_bytes);
    return YOKE_OK;
}

yoke_status yoke_corpus_open(const char *path, const char *format, yoke_corpus **corpus)
{
    *corpus = NULL;
    const yoke_data_format *found = NULL;
    if (path[0] == '\0') {
        return YOKE_FAIL(YOKE_BAD_INPUT, "no corpus is given; set data to the path of a UTF-8 text "
                                         "or of a file of uint16 tokens");
    }
    YOKE_TRY(find_format(path, format, &found));
    yoke_corpus *opened = yoke_block_alloc(sizeof *opened);
    if (!opened) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to open '%s'", path);
    }
    opened->format = found;
    yoke_status status = map_and_scan(opened, path);
    if (status) {
        yoke_corpus_close(opened);
        return status;
    }
    *corpus = opened;
    return YOKE_OK;
}

void yoke_corpus_close(yoke_corpus *corpus)
{
    if (corpus) {
        yoke_file_unmap(corpus->bytes, corpus->n_bytes);
        yoke_block_free(corpus);
    }
}

int64_t yoke_corpus_n_tokens(const yoke_corpus *corpus)
{
    return corpus->n_tokens;
}

int64_t yoke_corpus_highest(const yoke_corpus *corpus)
{
    return corpus->highest;
}

int32_t yoke_corpus_token(const yoke_corpus *corpus, int64_t index)
{
    YOKE_ASSERT(index >= 0 && index < corpus->n_tokens);
    return corpus->format->token(corpus->bytes, corpus->n_bytes, index);
}
