/*
 * Writes the text in an R data base (Rdata.rdb, as R packages carry it): every string of every vector, a line each, and an
 * empty line after each vector (R lays a book down as one vector of lines).
 *
 *   rdb_text Rdata.rdb > out.txt
 *
 * The file is a sequence of entries, each a big-endian u32 with the length of the entry unpacked, and a zlib stream. An
 * entry is an object in R's XDR serialisation; those that are not plain vectors of strings are refused. Missing strings
 * (NA) count as empty lines. Entries are written in the order of the file.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Bytes of which the first `at` have been read. */
typedef struct reader {
    const unsigned char *bytes;
    size_t n;
    size_t at;
    bool broken; /* something was read past the end, or was not what it should be */
} reader;

static const unsigned char *take(reader *from, size_t n)
{
    if (from->broken || n > from->n - from->at) {
        from->broken = true;
        return NULL;
    }
    from->at += n;
    return from->bytes + from->at - n;
}

static uint32_t take_u32(reader *from)
{
    const unsigned char *b = take(from, 4);
    return b ? (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3] : 0;
}

/* The header of R's format, versions 2 and 3; version 3 also names the native encoding. */
static void skip_header(reader *from)
{
    const unsigned char *format = take(from, 2);
    if (!format || memcmp(format, "X\n", 2) != 0) {
        from->broken = true;
        return;
    }
    uint32_t version = take_u32(from);
    (void)take_u32(from);
    (void)take_u32(from);
    if (version == 3) {
        (void)take(from, take_u32(from));
    } else if (version != 2) {
        from->broken = true;
    }
}

/* Object types are in the low byte of their flags. */
enum { TYPE_CHARACTERS = 9, TYPE_STRINGS = 16 };

static void write_strings(reader *from, FILE *out)
{
    skip_header(from);
    if ((take_u32(from) & 0xff) != TYPE_STRINGS) {
        from->broken = true;
        return;
    }
    uint32_t n = take_u32(from);
    for (uint32_t i = 0; i < n && !from->broken; i++) {
        from->broken |= (take_u32(from) & 0xff) != TYPE_CHARACTERS;
        uint32_t length = take_u32(from);
        const uint32_t missing = UINT32_MAX;
        const unsigned char *text = length == missing ? NULL : take(from, length);
        if (text) {
            (void)fwrite(text, 1, length, out);
        }
        (void)fputc('\n', out);
    }
    (void)fputc('\n', out);
}

/* Unpacks one entry and writes its strings; false if the file is not what it should be. */
static bool write_entry(reader *file, FILE *out)
{
    uint32_t n = take_u32(file);
    unsigned char *unpacked = n ? malloc(n) : NULL;
    if (!unpacked) {
        return false;
    }
    z_stream stream = {0};
    bool good = inflateInit(&stream) == Z_OK;
    if (good) {
        stream.next_in = (z_const Bytef *)(uintptr_t)(file->bytes + file->at);
        stream.avail_in = (uInt)(file->n - file->at);
        stream.next_out = unpacked;
        stream.avail_out = n;
        good = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0;
        file->at = file->n - stream.avail_in;
        (void)inflateEnd(&stream);
    }
    if (good) {
        reader entry = {.bytes = unpacked, .n = n};
        write_strings(&entry, out);
        good = !entry.broken;
    }
    free(unpacked);
    return good;
}

/* The whole file in a block that the caller frees; NULL if it cannot be read. */
static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        return NULL;
    }
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    unsigned char *bytes = length > 0 ? malloc((size_t)length) : NULL;
    rewind(file);
    *n = bytes ? fread(bytes, 1, (size_t)length, file) : 0;
    (void)fclose(file);
    if (bytes && *n != (size_t)length) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: rdb_text Rdata.rdb > out.txt\n");
        return 2;
    }
    size_t n;
    unsigned char *bytes = read_file(argv[1], &n);
    if (!bytes) {
        (void)fprintf(stderr, "rdb_text: cannot read '%s'\n", argv[1]);
        return 2;
    }
    reader file = {.bytes = bytes, .n = n};
    bool good = true;
    while (good && file.at < file.n) {
        size_t start = file.at;
        good = write_entry(&file, stdout);
        if (!good) {
            (void)fprintf(stderr, "rdb_text: '%s' at byte %zu: not a zlib stream of R strings\n",
                          argv[1], start);
        }
    }
    free(bytes);
    if (fflush(stdout) != 0) {
        (void)fprintf(stderr, "rdb_text: cannot write\n");
        good = false;
    }
    return good ? 0 : 2;
}
