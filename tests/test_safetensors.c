/*
 * safetensors: what is written is read back, a file appears whole or not at all, and nothing in a
 * corrupt file is believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint/safetensors.h"

enum { PATH_BYTES = 512 };

static char folder[PATH_BYTES / 2];
static char path[PATH_BYTES];
static char partial[PATH_BYTES + 16];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/yoke-test-safetensors-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)snprintf(partial, sizeof partial, "%s.partial", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void check_good(yoke_status status)
{
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
}

static const yoke_safetensors_entry entries[] = {
    {"a matrix", {.n_dims = 2, .extent = {3, 5}}},
    {"empty", {.n_dims = 2, .extent = {0, 4}}},
    {"quoted \" and \\ and \xC3\xA4", {.n_dims = 1, .extent = {7}}},
    {"scalar", {.n_dims = 0}},
    {"cube", {.n_dims = 3, .extent = {2, 1, 3}}},
};

enum { N_ENTRIES = sizeof entries / sizeof entries[0], N_ELEMENTS = 15 + 0 + 7 + 1 + 6 };

static void fill(float data[N_ELEMENTS])
{
    for (int i = 0; i < N_ELEMENTS; i++) {
        data[i] = (float)i * 0.37f - 3.0f;
    }
}

static void write_whole(const float data[N_ELEMENTS])
{
    yoke_safetensors_writer *writer;
    check_good(yoke_safetensors_create(path, entries, N_ENTRIES, &writer));
    /* The pieces of a write need not be tensors. */
    check_good(yoke_safetensors_write(writer, data, 4));
    check_good(yoke_safetensors_write(writer, data + 4, 0));
    check_good(yoke_safetensors_write(writer, data + 4, N_ELEMENTS - 4));
    check_good(yoke_safetensors_finish(writer));
}

static void test_round_trip(void **state)
{
    (void)state;
    float data[N_ELEMENTS];
    fill(data);
    write_whole(data);
    assert_int_equal(access(partial, F_OK), -1);
    yoke_safetensors *file;
    check_good(yoke_safetensors_open(path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), N_ENTRIES);
    const float *expected = data;
    for (int i = 0; i < N_ENTRIES; i++) {
        float out[16] = {0};
        int index = yoke_safetensors_find(file, entries[i].name);
        assert_in_range(index, 0, N_ENTRIES - 1);
        assert_string_equal(yoke_safetensors_name(file, index), entries[i].name);
        const yoke_shape *shape = yoke_safetensors_shape(file, index);
        assert_int_equal(shape->n_dims, entries[i].shape.n_dims);
        assert_memory_equal(shape->extent, entries[i].shape.extent, sizeof shape->extent);
        int64_t n = yoke_shape_elements(shape);
        check_good(yoke_safetensors_read(file, index, out));
        assert_memory_equal(out, expected, (size_t)n * sizeof *out);
        expected += n;
    }
    assert_int_equal(yoke_safetensors_find(file, "b matrix"), -1);
    yoke_safetensors_close(file);
    yoke_safetensors_close(NULL);
}

/* The header as HuggingFace's own library would have written it, up to the order of keys. */
static void test_header_is_as_the_format_says(void **state)
{
    (void)state;
    static const yoke_safetensors_entry one = {"w", {.n_dims = 2, .extent = {1, 2}}};
    static const float data[] = {1.0f, -2.0f};
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}";
    yoke_safetensors_writer *writer;
    check_good(yoke_safetensors_create(path, &one, 1, &writer));
    check_good(yoke_safetensors_write(writer, data, 2));
    check_good(yoke_safetensors_finish(writer));
    unsigned char bytes[256];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t n = fread(bytes, 1, sizeof bytes, stream);
    assert_int_equal(fclose(stream), 0);
    size_t header_bytes = bytes[0];
    assert_int_equal(header_bytes % 8, 0);
    assert_int_equal(n, 8 + header_bytes + sizeof data);
    assert_memory_equal(bytes + 8, expected, sizeof expected - 1);
    for (size_t i = 8 + sizeof expected - 1; i < 8 + header_bytes; i++) {
        assert_int_equal(bytes[i], ' ');
    }
    assert_memory_equal(bytes + 8 + header_bytes, data, sizeof data);
}

static void test_a_file_is_whole_or_not_there(void **state)
{
    (void)state;
    float data[N_ELEMENTS];
    fill(data);
    (void)unlink(path);
    yoke_safetensors_writer *writer;
    check_good(yoke_safetensors_create(path, entries, N_ENTRIES, &writer));
    check_good(yoke_safetensors_write(writer, data, 4));
    assert_int_equal(access(path, F_OK), -1);
    yoke_safetensors_abandon(writer);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(partial, F_OK), -1);
    yoke_safetensors_abandon(NULL);
    /* An old file is still there until the new one is finished. */
    write_whole(data);
    check_good(yoke_safetensors_create(path, entries, N_ENTRIES, &writer));
    yoke_safetensors *file;
    check_good(yoke_safetensors_open(path, &file));
    yoke_safetensors_close(file);
    yoke_safetensors_abandon(writer);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    yoke_safetensors_writer *writer;
    yoke_status status =
        yoke_safetensors_create("/no/such/folder/model", entries, N_ENTRIES, &writer);
    assert_null(writer);
    assert_int_equal(yoke_status_code(status), YOKE_IO);
    assert_non_null(strstr(yoke_status_message(status), "/no/such/folder/model"));
    assert_non_null(strstr(yoke_status_message(status), "No such file"));
    yoke_status_free(status);
}

/* Writes a file of this header and so many bytes of data. */
static void write_raw(const char *header, uint64_t header_bytes, size_t data_bytes)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    for (int i = 0; i < 8; i++) {
        assert_int_not_equal(fputc((int)(header_bytes >> (8 * i) & 255), stream), EOF);
    }
    assert_true(fputs(header, stream) >= 0);
    for (size_t i = 0; i < data_bytes; i++) {
        assert_int_not_equal(fputc((int)i, stream), EOF);
    }
    assert_int_equal(fclose(stream), 0);
}

static void check_refused(const char *what, const char *const words[3])
{
    yoke_safetensors *file;
    yoke_status status = yoke_safetensors_open(path, &file);
    assert_null(file);
    if (!status) {
        fail_msg("accepted: %s", what);
    }
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_non_null(strstr(yoke_status_message(status), path));
    for (int i = 0; i < 3 && words[i]; i++) {
        if (!strstr(yoke_status_message(status), words[i])) {
            fail_msg("no \"%s\" in: %s", words[i], yoke_status_message(status));
        }
    }
    yoke_status_free(status);
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"

static void test_corrupt_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *words[3];
    } cases[] = {
        {"", 0, {"no JSON object", NULL, NULL}},
        {"{\"a\":", 0, {"no JSON object", NULL, NULL}},
        {"[]", 0, {"no JSON object", NULL, NULL}},
        {"{} x", 0, {"no JSON object", NULL, NULL}},
        {"{" ENTRY("a", "F32", "1", "0", "4") "," ENTRY("a", "F32", "1", "4", "8") "}",
         8,
         {"duplicate", NULL, NULL}},
        {"{\"a\":7}", 0, {"tensor 'a'", "no dtype", NULL}},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, {"tensor 'a'", "no shape", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, {"tensor 'a'", "data_offsets", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}",
         4,
         {"tensor 'a'", "no pair", NULL}},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}",
         4,
         {"tensor 'a'", "no pair", NULL}},
        {"{" ENTRY("a", "FP32", "1", "0", "4") "}", 4, {"tensor 'a'", "FP32", "unknown"}},
        {"{" ENTRY("a", "F32", "1,-1", "0", "4") "}", 4, {"tensor 'a'", "extent 1", NULL}},
        {"{" ENTRY("a", "F32", "\"1\"", "0", "4") "}", 4, {"tensor 'a'", "extent 0", NULL}},
        {"{" ENTRY("a", "F32", "1,1,1,1,1,1", "0", "4") "}", 4, {"'a'", "6 dims", "5"}},
        {"{" ENTRY("a", "F32", "4294967296,4294967296", "0", "4") "}",
         4,
         {"tensor 'a'", "too many elements", NULL}},
        {"{" ENTRY("a", "F32", "1073741824,1073741824", "0", "4") "}",
         4,
         {"tensor 'a'", "too many elements", NULL}},
        {"{" ENTRY("a", "F32", "2", "0", "4") "}", 4, {"'a'", "span 4 bytes", "shape 8"}},
        {"{" ENTRY("a", "F64", "2", "0", "8") "}", 8, {"'a'", "span 8 bytes", "shape 16"}},
        {"{" ENTRY("a", "F32", "2", "0", "8") "}", 7, {"'a'", "[0, 8]", "7 bytes of data"}},
        {"{" ENTRY("a", "F32", "1", "8", "4") "}", 8, {"'a'", "[8, 4]", "outside"}},
        {"{" ENTRY("a", "F32", "1", "-4", "0") "}", 8, {"'a'", "[-4, 0]", "outside"}},
        {"{" ENTRY("a", "F32", "2", "0", "8") "," ENTRY("b", "F32", "1", "4", "8") "}",
         8,
         {"'b' overlaps 'a' by 4 bytes", NULL, NULL}},
        {"{" ENTRY("a", "F32", "1", "0", "4") "," ENTRY("b", "F32", "1", "8", "12") "}",
         12,
         {"4 bytes before tensor 'b'", NULL, NULL}},
        {"{" ENTRY("a", "F32", "1", "0", "4") "}", 9, {"last 5 bytes", NULL, NULL}},
        {"{}", 3, {"last 3 bytes", NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_raw(cases[i].header, strlen(cases[i].header), cases[i].data_bytes);
        check_refused(cases[i].header, cases[i].words);
    }
}

static void test_wrong_lengths_are_refused(void **state)
{
    (void)state;
    static const char *const cut[3] = {"header would have 100 bytes", "file has 10", "whole"};
    write_raw("{}", 100, 0);
    check_refused("100", cut);
    static const char *const huge[3] = {"18446744073709551615", "file has 10", NULL};
    write_raw("{}", UINT64_MAX, 0);
    check_refused("2^64 - 1", huge);
    static const char *const short_file[3] = {"3 bytes are too few", "8", NULL};
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_true(fputs("abc", stream) >= 0);
    assert_int_equal(fclose(stream), 0);
    check_refused("abc", short_file);
    static const char *const empty[3] = {"0 bytes are too few", NULL, NULL};
    stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fclose(stream), 0);
    check_refused("empty", empty);
    assert_int_equal(unlink(path), 0);
    static const char *const missing[3] = {"No such file", NULL, NULL};
    check_refused("missing", missing);
}

/* Tensors in any order of names, other dtypes beside float32, an empty one, and unaligned data. */
static void test_foreign_files_are_read(void **state)
{
    (void)state;
    static const char header[] =
        "{" ENTRY("late", "F32", "1", "3", "7") "," ENTRY("mask", "BOOL", "3", "0", "3") "," ENTRY(
            "none", "F32", "0", "3", "3") ",\"__metadata__\":{\"any\":\"thing\"}}";
    write_raw(header, sizeof header - 1, 7);
    yoke_safetensors *file;
    check_good(yoke_safetensors_open(path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), 3);
    assert_string_equal(yoke_safetensors_name(file, 0), "mask");
    assert_string_equal(yoke_safetensors_name(file, 1), "none");
    float out = 0.0f;
    check_good(yoke_safetensors_read(file, 2, &out));
    static const unsigned char bytes[] = {3, 4, 5, 6};
    assert_memory_equal(&out, bytes, sizeof bytes);
    yoke_status status = yoke_safetensors_read(file, 0, &out);
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_non_null(strstr(yoke_status_message(status), "'mask' is BOOL"));
    assert_non_null(strstr(yoke_status_message(status), "float32"));
    yoke_status_free(status);
    yoke_safetensors_close(file);
}

/* Every file that is one good file with one byte changed opens or is refused, and never crashes. */
static void test_any_changed_byte_is_survived(void **state)
{
    (void)state;
    float data[N_ELEMENTS];
    fill(data);
    write_whole(data);
    unsigned char bytes[2048];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t n = fread(bytes, 1, sizeof bytes, stream);
    assert_int_equal(fclose(stream), 0);
    assert_in_range(n, 200, sizeof bytes - 1);
    int refused = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char before = bytes[i];
        bytes[i] = (unsigned char)(before ^ (1u << i % 8));
        stream = fopen(path, "wb");
        assert_non_null(stream);
        assert_int_equal(fwrite(bytes, 1, n, stream), n);
        assert_int_equal(fclose(stream), 0);
        bytes[i] = before;
        yoke_safetensors *file;
        yoke_status status = yoke_safetensors_open(path, &file);
        for (int k = 0; file && k < yoke_safetensors_n_tensors(file); k++) {
            float out[16];
            assert_in_range(yoke_shape_elements(yoke_safetensors_shape(file, k)), 0, 15);
            yoke_status_free(yoke_safetensors_read(file, k, out));
        }
        refused += status != YOKE_OK;
        yoke_status_free(status);
        yoke_safetensors_close(file);
    }
    assert_in_range(refused, 100, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_header_is_as_the_format_says),
        cmocka_unit_test(test_a_file_is_whole_or_not_there),
        cmocka_unit_test(test_a_folder_that_is_not_there_is_an_error),
        cmocka_unit_test(test_corrupt_headers_are_refused),
        cmocka_unit_test(test_wrong_lengths_are_refused),
        cmocka_unit_test(test_foreign_files_are_read),
        cmocka_unit_test(test_any_changed_byte_is_survived),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
