/*
 * Corpora and the order in which they are read: what is refused and how, and that the stream of
 * samples is a function of seed and step alone, whatever the sharding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/utf8.h"
#include "yoke/data.h"

enum { PATH_BYTES = 512 };

/* A folder for the files of one test program. */
static char folder[PATH_BYTES / 2];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/yoke-test-data-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *path_of(char path[PATH_BYTES], const char *name)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static yoke_corpus *open_good(const char *path, const char *format)
{
    yoke_corpus *corpus = NULL;
    yoke_status status = yoke_corpus_open(path, format, &corpus);
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
    return corpus;
}

/* A corpus of bytes on disk that is open while its file is already gone. */
static yoke_corpus *corpus_of(const void *bytes, size_t n_bytes, const char *format)
{
    char path[PATH_BYTES];
    write_file(path_of(path, "corpus"), bytes, n_bytes);
    yoke_corpus *corpus = open_good(path, format);
    assert_int_equal(unlink(path), 0);
    return corpus;
}

/* n tokens 0, 1, 2, ...: a token is its own index. */
static yoke_corpus *counting_corpus(int n)
{
    unsigned char bytes[2 * 4096];
    assert_in_range(n, 1, 4096);
    for (int i = 0; i < n; i++) {
        bytes[2 * i] = (unsigned char)(i & 255);
        bytes[2 * i + 1] = (unsigned char)(i >> 8);
    }
    return corpus_of(bytes, 2 * (size_t)n, "u16");
}

static void test_text_is_bytes_and_an_end(void **state)
{
    (void)state;
    static const char text[] = "na\xC3\xAFve \xF0\x9F\x90\x82\n";
    yoke_corpus *corpus = corpus_of(text, sizeof text - 1, "text");
    int64_t n = yoke_corpus_n_tokens(corpus);
    assert_int_equal(n, sizeof text);
    assert_int_equal(yoke_corpus_highest(corpus), 256);
    for (int64_t i = 0; i < n - 1; i++) {
        assert_int_equal(yoke_corpus_token(corpus, i), (unsigned char)text[i]);
    }
    assert_int_equal(yoke_corpus_token(corpus, n - 1), YOKE_END_OF_TEXT);
    yoke_corpus_close(corpus);
    yoke_corpus_close(NULL);
}

static void test_u16_is_little_endian(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {1, 0, 0, 1, 0xFE, 0xFF, 9, 0};
    yoke_corpus *corpus = corpus_of(bytes, sizeof bytes, "u16");
    static const int32_t expected[] = {1, 256, 65534, 9};
    assert_int_equal(yoke_corpus_n_tokens(corpus), 4);
    assert_int_equal(yoke_corpus_highest(corpus), 65534);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(yoke_corpus_token(corpus, i), expected[i]);
    }
    yoke_corpus_close(corpus);
}

static void test_auto_goes_by_the_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t n_tokens;
    } cases[] = {{"a.bin", 2}, {"a.u16", 2}, {"a.txt", 5}, {"bin", 5}, {"a.bin.md", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PATH_BYTES];
        write_file(path_of(path, cases[i].name), "abcd", 4);
        yoke_corpus *corpus = open_good(path, "auto");
        assert_int_equal(yoke_corpus_n_tokens(corpus), cases[i].n_tokens);
        yoke_corpus_close(corpus);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_utf8_finds_the_first_bad_byte(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n_bytes, first_bad;
    } cases[] = {
        {"", 0, 0},
        {"plain ascii of seventeen", 24, 24},
        {"\x7F\xC2\x80\xDF\xBF", 5, 5},
        {"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80", 9, 9},
        {"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 8, 8},
        {"a\x80", 2, 1},              /* a following byte without a lead */
        {"12345678901\xFFx", 13, 11}, /* behind a run that is skipped by words */
        {"\xC0\xAF", 2, 0},           /* overlong */
        {"\xC1\xBF", 2, 0},           /* overlong */
        {"\xE0\x9F\xBF", 3, 1},       /* overlong */
        {"\xF0\x8F\xBF\xBF", 4, 1},   /* overlong */
        {"\xED\xA0\x80", 3, 1},       /* surrogate */
        {"\xF4\x90\x80\x80", 4, 1},   /* beyond U+10FFFF */
        {"\xF5\x80\x80\x80", 4, 0},   /* beyond U+10FFFF */
        {"ab\xE2\x82", 4, 2},         /* cut off by the end */
        {"ab\xC3", 3, 2},             /* cut off by the end */
        {"\xE2\x82z", 3, 2},          /* a character that stops early */
        {"\xF0\x9F\x90\xC0", 4, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t found = yoke_utf8_first_bad((const unsigned char *)cases[i].bytes, cases[i].n_bytes);
        if (found != cases[i].first_bad) {
            fail_msg("case %zu: first bad byte %zu, expected %zu", i, found, cases[i].first_bad);
        }
    }
}

/* Opening fails as bad input with all of the given words in its message. */
static void check_refused(const char *path, const char *format, const char *const words[3])
{
    yoke_corpus *corpus = NULL;
    yoke_status status = yoke_corpus_open(path, format, &corpus);
    assert_null(corpus);
    if (!status) {
        fail_msg("'%s' as %s was accepted", path, format);
    }
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    for (int i = 0; i < 3 && words[i]; i++) {
        if (!strstr(yoke_status_message(status), words[i])) {
            fail_msg("no \"%s\" in: %s", words[i], yoke_status_message(status));
        }
    }
    yoke_status_free(status);
}

static void test_bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n_bytes;
        const char *format;
        const char *words[3];
    } cases[] = {
        {"", 0, "text", {"empty", "0 bytes", "give"}},
        {"", 0, "u16", {"empty", "0 bytes", "give"}},
        {"abc", 3, "u16", {"3 bytes", "odd", "data_format=text"}},
        {"ab\xFF", 3, "text", {"0xFF", "offset 2 of 3", "iconv"}},
        {"ab\xFF", 3, "auto", {"0xFF", "offset 2 of 3", "data_format=u16"}},
        {"abcd", 4, "u61", {"data_format=u61", "did you mean u16", "auto, text, u16"}},
        {"abcd", 4, "parquet", {"data_format=parquet", "auto, text, u16", NULL}},
    };
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(path_of(path, "bad"), cases[i].bytes, cases[i].n_bytes);
        check_refused(path, cases[i].format, cases[i].words);
        assert_int_equal(unlink(path), 0);
    }
    static const char *const missing[3] = {"No such file", "missing.txt", "check the path"};
    check_refused(path_of(path, "missing.txt"), "auto", missing);
    static const char *const nothing[3] = {"no corpus is given", "set data", NULL};
    check_refused("", "auto", nothing);
    static const char *const directory[3] = {folder, "is a directory", "give the path of a file"};
    check_refused(folder, "auto", directory);
    static const char *const pipe[3] = {"pipe or a device", "regular file", NULL};
    assert_int_equal(mkfifo(path_of(path, "pipe"), 0600), 0);
    check_refused(path, "auto", pipe);
    assert_int_equal(unlink(path), 0);
}

static void test_unreadable_file_is_refused(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    write_file(path_of(path, "secret"), "abcd", 4);
    assert_int_equal(chmod(path, 0), 0);
    static const char *const words[3] = {"Permission denied", "chmod", NULL};
    /* Root may read everything, so that root tries it as somebody else. */
    bool root = geteuid() == 0;
    if (root && seteuid(65534) != 0) {
        assert_int_equal(unlink(path), 0);
        skip();
    }
    check_refused(path, "auto", words);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(unlink(path), 0);
}

static void test_sampler_check_says_the_numbers(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(40);
    static const struct {
        int64_t n_tokens, seq_len, batch_size, microbatches;
        const char *words[3];
    } cases[] = {
        {20, 20, 1, 1, {"20 of the corpus's 40 tokens", "seq_len + 1 = 21", "seq_len=19"}},
        {1, 4, 1, 1, {"1 of the corpus's 40", "needs 2", "longer corpus"}},
        {0, 4, 1, 1, {"0 of the corpus's 40", "needs 2", NULL}},
        {40, 4, 10, 3, {"batch_size=10", "microbatches=3", "batch_size=12"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_sampler sampler = {.corpus = corpus,
                                .n_tokens = cases[i].n_tokens,
                                .seq_len = cases[i].seq_len,
                                .batch_size = cases[i].batch_size,
                                .microbatches = cases[i].microbatches};
        yoke_status status = yoke_sampler_check(&sampler);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        for (int k = 0; k < 3 && cases[i].words[k]; k++) {
            assert_non_null(strstr(yoke_status_message(status), cases[i].words[k]));
        }
        yoke_status_free(status);
    }
    yoke_sampler exact = {
        .corpus = corpus, .n_tokens = 21, .seq_len = 20, .batch_size = 1, .microbatches = 1};
    assert_null(yoke_sampler_check(&exact));
    assert_int_equal(yoke_sampler_n_windows(&exact), 1);
    yoke_corpus_close(corpus);
}

/* Every window once an epoch, for sizes around powers of four, where the permutation walks most. */
static void test_each_window_once_an_epoch(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(1100);
    static const int64_t seq_lens[] = {1, 3, 4, 17, 64, 1099};
    for (size_t i = 0; i < sizeof seq_lens / sizeof seq_lens[0]; i++) {
        yoke_sampler sampler = {.corpus = corpus,
                                .n_tokens = 1100,
                                .seq_len = seq_lens[i],
                                .batch_size = 3,
                                .microbatches = 1,
                                .seed = 7,
                                .shuffled = true};
        int64_t n_windows = yoke_sampler_n_windows(&sampler);
        assert_int_equal(n_windows, 1099 / seq_lens[i]);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            char seen[1100] = {0};
            for (int64_t k = 0; k < n_windows; k++) {
                int64_t window = yoke_sampler_window(&sampler, epoch * n_windows + k);
                assert_in_range(window, 0, n_windows - 1);
                assert_int_equal(seen[window], 0);
                seen[window] = 1;
            }
        }
    }
    yoke_corpus_close(corpus);
}

static void test_order_depends_on_seed_and_epoch(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(1001);
    yoke_sampler sampler = {.corpus = corpus,
                            .n_tokens = 1001,
                            .seq_len = 10,
                            .batch_size = 4,
                            .microbatches = 1,
                            .seed = 1,
                            .shuffled = true};
    yoke_sampler other = sampler;
    other.seed = 2;
    yoke_sampler plain = sampler;
    plain.shuffled = false;
    int same_seed = 0;
    int same_epoch = 0;
    int in_place = 0;
    for (int64_t i = 0; i < 100; i++) {
        same_seed += yoke_sampler_window(&sampler, i) == yoke_sampler_window(&other, i);
        same_epoch += yoke_sampler_window(&sampler, i) == yoke_sampler_window(&sampler, 100 + i);
        in_place += yoke_sampler_window(&sampler, i) == i;
        assert_int_equal(yoke_sampler_window(&plain, i), i);
        assert_int_equal(yoke_sampler_window(&plain, 300 + i), i);
    }
    /* Of 100 windows about one stays in place by chance; 12 would be a wonder. */
    assert_in_range(same_seed, 0, 12);
    assert_in_range(same_epoch, 0, 12);
    assert_in_range(in_place, 0, 12);
    yoke_corpus_close(corpus);
}

static yoke_shard piece(int64_t row, int64_t rows, int64_t t, int64_t ts)
{
    return (yoke_shard){.n_dims = 2, .offset = {row, t}, .extent = {rows, ts}};
}

static void test_fill_gives_tokens_labels_positions(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(100);
    yoke_sampler sampler = {.corpus = corpus,
                            .first = 5,
                            .n_tokens = 30,
                            .seq_len = 7,
                            .batch_size = 4,
                            .microbatches = 2,
                            .ignore_token = 14,
                            .seed = 3};
    assert_null(yoke_sampler_check(&sampler));
    assert_int_equal(yoke_sampler_n_windows(&sampler), 4);
    int32_t tokens[14];
    int32_t labels[14];
    int32_t positions[14];
    yoke_shard all = piece(0, 2, 0, 7);
    assert_true(yoke_sampler_fill(&sampler, "tokens", 0, 0, &all, tokens));
    assert_true(yoke_sampler_fill(&sampler, "labels", 0, 0, &all, labels));
    assert_true(yoke_sampler_fill(&sampler, "positions", 0, 0, &all, positions));
    for (int i = 0; i < 14; i++) {
        assert_int_equal(tokens[i], 5 + i);
        assert_int_equal(labels[i], 6 + i == 14 ? -1 : 6 + i);
        assert_int_equal(positions[i], i % 7);
    }
    assert_false(yoke_sampler_fill(&sampler, "token", 1, 0, &all, tokens));
    yoke_corpus_close(corpus);
}

/* 4 windows in batches of 3: of the second batch one sample is new, and only in order does the rest not count. */
static void test_in_order_each_window_counts_once(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(100);
    yoke_sampler sampler = {.corpus = corpus,
                            .n_tokens = 30,
                            .seq_len = 7,
                            .batch_size = 3,
                            .microbatches = 1,
                            .ignore_token = -1};
    int32_t tokens[21];
    int32_t labels[21];
    yoke_shard all = piece(0, 3, 0, 7);
    assert_int_equal(yoke_sampler_n_windows(&sampler), 4);
    assert_true(yoke_sampler_fill(&sampler, "tokens", 1, 0, &all, tokens));
    assert_true(yoke_sampler_fill(&sampler, "labels", 1, 0, &all, labels));
    for (int i = 0; i < 21; i++) {
        assert_int_equal(tokens[i], (21 + i) % 28);
        assert_int_equal(labels[i], i < 7 ? 22 + i : -1);
    }
    sampler.shuffled = true;
    assert_true(yoke_sampler_fill(&sampler, "labels", 1, 0, &all, labels));
    for (int i = 0; i < 21; i++) {
        assert_true(labels[i] > 0);
    }
    yoke_corpus_close(corpus);
}

/* A whole micro-batch against the same one put together from pieces of rows and of tokens. */
static void check_pieces(const yoke_sampler *sampler, const char *name, const int parts[2])
{
    enum { MOST = 32 * 16 };
    int64_t n_rows = sampler->batch_size / sampler->microbatches;
    int32_t whole[MOST];
    int32_t part[MOST];
    assert_in_range(n_rows * sampler->seq_len, 1, MOST);
    yoke_shard all = piece(0, n_rows, 0, sampler->seq_len);
    assert_true(yoke_sampler_fill(sampler, name, 11, 1, &all, whole));
    for (int p = 0; p < parts[0] * parts[1]; p++) {
        yoke_shard shard = all;
        yoke_split(n_rows, parts[0], p / parts[1], &shard.offset[0], &shard.extent[0]);
        yoke_split(sampler->seq_len, parts[1], p % parts[1], &shard.offset[1], &shard.extent[1]);
        memset(part, 0x55, sizeof part);
        assert_true(yoke_sampler_fill(sampler, name, 11, 1, &shard, part));
        int64_t n = shard.extent[0] * shard.extent[1];
        for (int64_t i = 0; i < n; i++) {
            int64_t row = shard.offset[0] + i / shard.extent[1];
            int64_t t = shard.offset[1] + i % shard.extent[1];
            assert_int_equal(part[i], whole[row * sampler->seq_len + t]);
        }
        assert_int_equal(part[n < MOST ? n : MOST - 1], 0x55555555);
    }
}

static void test_stream_is_the_same_for_any_sharding(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(2000);
    yoke_sampler sampler = {.corpus = corpus,
                            .first = 100,
                            .n_tokens = 1800,
                            .seq_len = 13,
                            .batch_size = 14,
                            .microbatches = 2,
                            .ignore_token = -1,
                            .seed = 99,
                            .shuffled = true};
    static const int parts[][2] = {
        {1, 1}, {2, 1}, {3, 1}, {5, 1}, {9, 1},
        {1, 3}, {3, 2}, {1, 5}, {2, 20}}; /* of 13 tokens over 20, some have none */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        check_pieces(&sampler, "tokens", parts[i]);
        check_pieces(&sampler, "labels", parts[i]);
        check_pieces(&sampler, "positions", parts[i]);
        check_pieces(&sampler, "token_types", parts[i]);
    }
    yoke_corpus_close(corpus);
}

/* 145 samples, batch 16: an epoch is 145 samples long whatever dp is, and the tenth step goes on
 * into the second. */
static void test_steps_follow_from_global_counts(void **state)
{
    (void)state;
    yoke_corpus *corpus = counting_corpus(145 * 4 + 1);
    yoke_sampler sampler = {.corpus = corpus,
                            .n_tokens = 145 * 4 + 1,
                            .seq_len = 4,
                            .batch_size = 16,
                            .microbatches = 1,
                            .ignore_token = -1,
                            .seed = 5,
                            .shuffled = true};
    assert_int_equal(yoke_sampler_n_windows(&sampler), 145);
    int seen[145] = {0};
    for (int64_t step = 0; step < 29; step++) {
        for (int dp = 1; dp <= 3; dp++) {
            int64_t n_rows = 0;
            for (int rank = 0; rank < dp; rank++) {
                yoke_shard shard = piece(0, 16, 0, 4);
                yoke_split(16, dp, rank, &shard.offset[0], &shard.extent[0]);
                int32_t tokens[64];
                assert_true(yoke_sampler_fill(&sampler, "tokens", step, 0, &shard, tokens));
                for (int64_t row = 0; row < shard.extent[0]; row++) {
                    seen[tokens[4 * row] / 4]++;
                }
                n_rows += shard.extent[0];
            }
            assert_int_equal(n_rows, 16);
        }
    }
    /* 29 steps are 464 samples, 3 epochs and 29 more, each seen at dp = 1, 2 and 3. */
    int n_more = 0;
    for (int i = 0; i < 145; i++) {
        assert_true(seen[i] == 9 || seen[i] == 12);
        n_more += seen[i] == 12;
    }
    assert_int_equal(n_more, 29);
    yoke_corpus_close(corpus);
}

static yoke_corpus *real_corpus(const char *name)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/../shared/data/%s", YOKE_SOURCE_DIR, name);
    return access(path, R_OK) == 0 ? open_good(path, "auto") : NULL;
}

static void test_real_text(void **state)
{
    (void)state;
    yoke_corpus *corpus = real_corpus("tinyshakespeare.txt");
    if (!corpus) {
        skip();
    }
    assert_int_equal(yoke_corpus_n_tokens(corpus), 1115394 + 1);
    static const char begin[] = "First Citizen:\nBefore we proceed";
    for (int64_t i = 0; i < (int64_t)sizeof begin - 1; i++) {
        assert_int_equal(yoke_corpus_token(corpus, i), begin[i]);
    }
    yoke_corpus_close(corpus);
}

static void test_real_tokens(void **state)
{
    (void)state;
    yoke_corpus *corpus = real_corpus("megatron/meg-gpt2-openwebtext_text_document.bin");
    if (!corpus) {
        skip();
    }
    assert_int_equal(yoke_corpus_n_tokens(corpus), 1361845);
    assert_int_equal(yoke_corpus_highest(corpus), 4999);
    yoke_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_bytes_and_an_end),
        cmocka_unit_test(test_u16_is_little_endian),
        cmocka_unit_test(test_auto_goes_by_the_name),
        cmocka_unit_test(test_utf8_finds_the_first_bad_byte),
        cmocka_unit_test(test_bad_files_are_refused),
        cmocka_unit_test(test_unreadable_file_is_refused),
        cmocka_unit_test(test_sampler_check_says_the_numbers),
        cmocka_unit_test(test_each_window_once_an_epoch),
        cmocka_unit_test(test_order_depends_on_seed_and_epoch),
        cmocka_unit_test(test_fill_gives_tokens_labels_positions),
        cmocka_unit_test(test_in_order_each_window_counts_once),
        cmocka_unit_test(test_stream_is_the_same_for_any_sharding),
        cmocka_unit_test(test_steps_follow_from_global_counts),
        cmocka_unit_test(test_real_text),
        cmocka_unit_test(test_real_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
