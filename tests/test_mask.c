/*
 * Masked tokens: how many, what stands in their place, and that each is a function of seed, sample and index alone,
 * whatever piece of a batch is filled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "yoke/data.h"

/* Tokens below the mask occur in the corpus, PADDING more often than others, and the mask itself too. */
enum { VOCABULARY = 50, MASK = 47, PADDING = 3, N_TOKENS = 40001, SEQ_LEN = 20 };

static yoke_corpus *corpus;

static int make_corpus(void **state)
{
    (void)state;
    static unsigned char bytes[2 * N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) {
        bytes[2 * i] = (unsigned char)(i % 11 == 0 ? PADDING : i % 13 == 0 ? MASK : i * 7 % MASK);
    }
    char path[] = "/tmp/yoke-test-mask-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || write(file, bytes, sizeof bytes) != (ssize_t)sizeof bytes || close(file) != 0) {
        return -1;
    }
    yoke_status status = yoke_corpus_open(path, "u16", &corpus);
    (void)unlink(path);
    return status ? -1 : 0;
}

static int drop_corpus(void **state)
{
    (void)state;
    yoke_corpus_close(corpus);
    return 0;
}

static yoke_sampler sampler_of(int64_t batch_size, int64_t microbatches)
{
    return (yoke_sampler){.corpus = corpus,
                          .n_tokens = N_TOKENS,
                          .seq_len = SEQ_LEN,
                          .batch_size = batch_size,
                          .microbatches = microbatches,
                          .ignore_token = PADDING,
                          .masking = {.rate = 0.15, .vocab_size = VOCABULARY, .token = MASK},
                          .seed = 4,
                          .shuffled = true};
}

static void fill(const yoke_sampler *s, const char *name, int64_t step, int64_t microbatch,
                 int32_t *out)
{
    yoke_shard all = {.n_dims = 2, .extent = {s->batch_size / s->microbatches, s->seq_len}};
    assert_true(yoke_sampler_fill(s, name, step, microbatch, &all, out));
}

static int32_t plain_token(const yoke_sampler *s, int64_t sample, int64_t t)
{
    return yoke_corpus_token(corpus, yoke_sampler_window(s, sample) * s->seq_len + t);
}

typedef struct counts {
    int tokens, chosen, mask, other, same;
    int random[VOCABULARY];
} counts;

/* What is seen and what is to be found agree with the corpus; counts which. */
static void count_token(counts *c, int32_t plain, int32_t seen, int32_t label)
{
    if (plain == MASK || plain == PADDING) {
        assert_int_equal(label, -1);
        assert_int_equal(seen, plain);
        return;
    }
    c->tokens++;
    if (label < 0) {
        assert_int_equal(label, -1);
        assert_int_equal(seen, plain);
        return;
    }
    assert_int_equal(label, plain);
    assert_in_range(seen, 0, VOCABULARY - 1);
    c->chosen++;
    c->mask += seen == MASK;
    c->same += seen == plain;
    c->other += seen != MASK && seen != plain;
    c->random[seen] += seen != MASK && seen != plain;
}

/* Within five deviations of a share of n. */
static void assert_share(const char *what, int count, int n, double share)
{
    double deviation = sqrt(n * share * (1.0 - share));
    if (!(fabs(count - n * share) <= 5.0 * deviation)) {
        fail_msg("%s: %d of %d, expected %.1f, deviation %.1f", what, count, n, n * share,
                 deviation);
    }
}

static void test_shares(void **state)
{
    (void)state;
    enum { BATCH = 100 };
    static int32_t seen[BATCH * SEQ_LEN], labels[BATCH * SEQ_LEN];
    counts c = {0};
    yoke_sampler s = sampler_of(BATCH, 1);
    for (int64_t step = 0; step < 60; step++) {
        fill(&s, "tokens", step, 0, seen);
        fill(&s, "labels", step, 0, labels);
        for (int i = 0; i < BATCH * SEQ_LEN; i++) {
            count_token(&c, plain_token(&s, step * BATCH + i / SEQ_LEN, i % SEQ_LEN), seen[i],
                        labels[i]);
        }
    }
    assert_share("chosen", c.chosen, c.tokens, 0.15);
    /* One in 50 of the random tokens is the mask, and one is the token itself. */
    assert_share("mask", c.mask, c.chosen, 0.8 + 0.1 / VOCABULARY);
    assert_share("same", c.same, c.chosen, 0.1 + 0.1 / VOCABULARY);
    assert_share("other", c.other, c.chosen, 0.1 - 0.2 / VOCABULARY);
    for (int token = 0; token < VOCABULARY; token++) {
        assert_true(token == MASK || c.random[token] > 0);
    }
}

static void test_all_or_few(void **state)
{
    (void)state;
    int32_t seen[4 * SEQ_LEN], labels[4 * SEQ_LEN];
    yoke_sampler s = sampler_of(4, 1);
    s.masking.rate = 1.0;
    fill(&s, "labels", 0, 0, labels);
    for (int i = 0; i < 4 * SEQ_LEN; i++) {
        int32_t plain = plain_token(&s, i / SEQ_LEN, i % SEQ_LEN);
        assert_int_equal(labels[i], plain == MASK || plain == PADDING ? -1 : plain);
    }
    s.masking.rate = 1e-9;
    fill(&s, "tokens", 0, 0, seen);
    fill(&s, "labels", 0, 0, labels);
    for (int i = 0; i < 4 * SEQ_LEN; i++) {
        assert_int_equal(seen[i], plain_token(&s, i / SEQ_LEN, i % SEQ_LEN));
        assert_int_equal(labels[i], -1);
    }
}

/* One rank's piece against the same part of the whole batch. */
static void check_piece(const yoke_sampler *s, const int32_t *whole, const char *name,
                        const yoke_shard *shard)
{
    int32_t part[12 * SEQ_LEN];
    assert_true(yoke_sampler_fill(s, name, 5, 0, shard, part));
    for (int64_t i = 0; i < shard->extent[0] * shard->extent[1]; i++) {
        int64_t row = shard->offset[0] + i / shard->extent[1];
        int64_t t = shard->offset[1] + i % shard->extent[1];
        assert_int_equal(part[i], whole[row * SEQ_LEN + t]);
    }
}

static void test_pieces_are_parts_of_the_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"tokens", "labels", "positions", "token_types"};
    static const int parts[][2] = {{2, 1}, {3, 1}, {5, 1}, {1, 2},
                                   {1, 3}, {2, 3}, {3, 7}, {13, 23}};
    yoke_sampler s = sampler_of(12, 1);
    for (int n = 0; n < 4; n++) {
        int32_t whole[12 * SEQ_LEN];
        fill(&s, names[n], 5, 0, whole);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            for (int p = 0; p < parts[i][0] * parts[i][1]; p++) {
                yoke_shard shard = {.n_dims = 2};
                yoke_split(12, parts[i][0], p / parts[i][1], &shard.offset[0], &shard.extent[0]);
                yoke_split(SEQ_LEN, parts[i][1], p % parts[i][1], &shard.offset[1],
                           &shard.extent[1]);
                check_piece(&s, whole, names[n], &shard);
            }
        }
    }
}

static void test_micro_batches_do_not_matter(void **state)
{
    (void)state;
    int32_t whole[12 * SEQ_LEN], part[12 * SEQ_LEN];
    static const char *const names[] = {"tokens", "labels"};
    for (int n = 0; n < 2; n++) {
        yoke_sampler s = sampler_of(12, 1);
        fill(&s, names[n], 7, 0, whole);
        for (int64_t microbatches = 2; microbatches <= 6; microbatches += 2) {
            s.microbatches = microbatches;
            for (int64_t m = 0; m < microbatches; m++) {
                fill(&s, names[n], 7, m, part);
                size_t elements = (size_t)(12 / microbatches * SEQ_LEN);
                assert_memory_equal(part, whole + (size_t)m * elements, elements * sizeof *part);
            }
        }
    }
}

/* True if the same places are to be found in two sequences. */
static bool same_places(const int32_t *a, const int32_t *b)
{
    bool same = true;
    for (int t = 0; t < SEQ_LEN; t++) {
        same = same && (a[t] < 0) == (b[t] < 0);
    }
    return same;
}

static void test_masks_change_with_seed_sample_and_epoch(void **state)
{
    (void)state;
    enum { ROWS = 40 };
    int32_t labels[ROWS * SEQ_LEN], later[ROWS * SEQ_LEN], other[ROWS * SEQ_LEN];
    yoke_sampler s = sampler_of(ROWS, 1);
    s.ignore_token = -1;
    s.masking.token = VOCABULARY - 1;
    fill(&s, "labels", 0, 0, labels);
    fill(&s, "labels", yoke_sampler_n_windows(&s) / ROWS, 0, later);
    s.seed++;
    fill(&s, "labels", 0, 0, other);
    int n_rows = 0, n_later = 0, n_seed = 0;
    for (int row = 0; row < ROWS; row++) {
        const int32_t *here = labels + row * SEQ_LEN;
        n_rows += row > 0 && same_places(here, here - SEQ_LEN);
        n_later += same_places(here, later + row * SEQ_LEN);
        n_seed += same_places(here, other + row * SEQ_LEN);
    }
    /* Two rows agree by chance once in 350. */
    assert_in_range(n_rows, 0, 3);
    assert_in_range(n_later, 0, 3);
    assert_in_range(n_seed, 0, 3);
}

/* Held-out windows in order, the same masks at each evaluation, and what fills the last batch up does not count. */
static void test_evaluation_is_fixed(void **state)
{
    (void)state;
    int32_t first[3 * SEQ_LEN], again[3 * SEQ_LEN];
    yoke_sampler s = sampler_of(3, 1);
    s.shuffled = false;
    s.n_tokens = 4 * SEQ_LEN + 1;
    fill(&s, "labels", 1, 0, first);
    fill(&s, "labels", 1, 0, again);
    assert_memory_equal(first, again, sizeof first);
    int n = 0;
    for (int i = 0; i < 3 * SEQ_LEN; i++) {
        n += first[i] >= 0;
        assert_true(i < SEQ_LEN || first[i] == -1);
    }
    assert_in_range(n, 1, SEQ_LEN / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_all_or_few),
        cmocka_unit_test(test_pieces_are_parts_of_the_whole),
        cmocka_unit_test(test_micro_batches_do_not_matter),
        cmocka_unit_test(test_masks_change_with_seed_sample_and_epoch),
        cmocka_unit_test(test_evaluation_is_fixed),
    };
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
