/*
 * The ground floor: status, memory, random numbers, float mode, clock, text.
 *
 * The random numbers are held to the published vectors of Random123 and to facts about moments and bijections.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/float.h"
#include "base/memory.h"
#include "base/philox.h"
#include "base/text.h"
#include "yoke/random.h"
#include "yoke/status.h"

static yoke_status divide_heads(int heads, int tp)
{
    if (heads % tp != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%d heads do not divide over tp=%d", heads, tp);
    }
    return YOKE_OK;
}

static yoke_status forward(int heads, int tp, bool *reached)
{
    *reached = false;
    YOKE_TRY(divide_heads(heads, tp));
    *reached = true;
    return YOKE_OK;
}

static void test_status_carries_code_message_and_place(void **state)
{
    (void)state;
    bool reached;
    yoke_status status = forward(32, 6, &reached);
    assert_non_null(status);
    assert_false(reached);
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    assert_string_equal(yoke_status_message(status), "32 heads do not divide over tp=6");
    assert_non_null(strstr(yoke_status_file(status), "test_base.c"));
    assert_true(yoke_status_line(status) > 0);
    status = yoke_status_prefix(status, "layer %d %s", 3, "wq");
    assert_string_equal(yoke_status_message(status),
                        "layer 3 wq: 32 heads do not divide over tp=6");
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    yoke_status_free(status);
}

static void test_status_good_is_null(void **state)
{
    (void)state;
    bool reached;
    yoke_status status = forward(32, 8, &reached);
    assert_null(status);
    assert_true(reached);
    assert_null(yoke_status_prefix(YOKE_OK, "context %d", 1));
    assert_int_equal(yoke_status_code(YOKE_OK), YOKE_GOOD);
    assert_string_equal(yoke_status_message(YOKE_OK), "");
    assert_string_equal(yoke_status_file(YOKE_OK), "");
    assert_int_equal(yoke_status_line(YOKE_OK), 0);
    yoke_status_free(YOKE_OK);
}

static void test_status_keeps_long_messages_whole(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    yoke_status status = YOKE_FAIL(YOKE_IO, "%s!", text);
    assert_int_equal(strlen(yoke_status_message(status)), sizeof text);
    status = yoke_status_prefix(status, "file");
    assert_int_equal(strlen(yoke_status_message(status)), sizeof text + 6);
    yoke_status_free(status);
}

static void test_assert_ends_the_process_and_says_where(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        yoke_assert_failed("1 == 2", "somewhere.c", 42);
    }
    (void)close(ends[1]);
    char text[600] = {0};
    ssize_t got = read(ends[0], text, sizeof text - 1);
    assert_true(got > 0);
    (void)close(ends[0]);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGABRT);
    assert_non_null(strstr(text, "somewhere.c:42: expected (1 == 2)"));
}

static void test_arena_pieces_are_aligned_zeroed_and_stay(void **state)
{
    (void)state;
    yoke_arena *arena;
    assert_null(yoke_arena_create(&arena, 0));
    unsigned char *pieces[300];
    for (size_t i = 0; i < 300; i++) {
        size_t bytes = 1 + 37 * i;
        pieces[i] = yoke_arena_alloc(arena, bytes);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        for (size_t j = 0; j < bytes; j++) {
            assert_int_equal(pieces[i][j], 0);
        }
        memset(pieces[i], (int)(i % 251) + 1, bytes);
    }
    for (size_t i = 0; i < 300; i++) {
        for (size_t j = 0; j < 1 + 37 * i; j++) {
            assert_int_equal(pieces[i][j], i % 251 + 1);
        }
    }
    assert_true(yoke_arena_bytes(arena) >= 300 + 37 * 299 * 150);
    yoke_arena_destroy(arena);
    yoke_arena_destroy(NULL);
}

static void test_arena_uses_its_whole_reserve(void **state)
{
    (void)state;
    yoke_arena *arena;
    size_t bytes = (size_t)3 << 20;
    assert_null(yoke_arena_create(&arena, bytes));
    assert_int_equal(yoke_arena_bytes(arena), 0);
    unsigned char *piece = yoke_arena_alloc(arena, bytes);
    piece[bytes - 1] = 1;
    assert_int_equal(yoke_arena_bytes(arena), bytes);
    yoke_arena_destroy(arena);
}

static void test_arena_array_grows(void **state)
{
    (void)state;
    yoke_arena *arena;
    assert_null(yoke_arena_create(&arena, (size_t)1 << 24));
    int64_t *array = NULL;
    int64_t capacity = 0;
    for (int64_t n = 0; n < 10000; n++) {
        array = yoke_arena_grow(arena, array, n, &capacity, sizeof *array);
        assert_true(capacity > n);
        array[n] = n * n;
    }
    for (int64_t n = 0; n < 10000; n++) {
        assert_int_equal(array[n], n * n);
    }
    assert_true(capacity < 2 * 10000);
    yoke_arena_destroy(arena);
}

static void test_arena_texts(void **state)
{
    (void)state;
    yoke_arena *arena;
    assert_null(yoke_arena_create(&arena, 1 << 20));
    char *printed = yoke_arena_print(arena, "h.%d.%s", 11, "attn");
    char source[] = "wte";
    char *copied = yoke_arena_copy_text(arena, source);
    source[0] = 'x';
    assert_string_equal(printed, "h.11.attn");
    assert_string_equal(copied, "wte");
    yoke_arena_destroy(arena);
}

static void test_blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 400; bytes += 13) {
        unsigned char *block = yoke_block_alloc(bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(block[i], 0);
            block[i] = 0xff;
        }
        yoke_block_free(block);
    }
    assert_null(yoke_block_alloc(SIZE_MAX - 3));
    yoke_block_free(NULL);
}

/* Writes into a mapping from a child and returns what the parent then reads. */
static int write_in_child(bool shared)
{
    void *start;
    assert_null(yoke_mapping_create(&start, 5000, shared));
    assert_int_equal((uintptr_t)start % 4096, 0);
    unsigned char *bytes = start;
    assert_int_equal(bytes[4999], 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bytes[4999] = 7;
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    int seen = bytes[4999];
    yoke_mapping_destroy(start, 5000);
    return seen;
}

static void test_mappings_are_shared_or_not(void **state)
{
    (void)state;
    assert_int_equal(write_in_child(true), 7);
    assert_int_equal(write_in_child(false), 0);
    yoke_mapping_destroy(NULL, 5000);
}

static void test_mapping_beyond_the_machine_is_an_error(void **state)
{
    (void)state;
    void *start = &start;
    yoke_status status = yoke_mapping_create(&start, (size_t)1 << 60, false);
    assert_int_equal(yoke_status_code(status), YOKE_NO_MEMORY);
    assert_null(start);
    assert_non_null(strstr(yoke_status_message(status), "1.0 EiB"));
    assert_non_null(strstr(yoke_status_message(status), "available"));
    yoke_status_free(status);
}

static void test_requests_are_counted(void **state)
{
    (void)state;
    yoke_arena *arena;
    void *mapping;
    int64_t before = yoke_memory_requests();
    assert_null(yoke_arena_create(&arena, 1 << 20));
    (void)yoke_arena_alloc(arena, 10);
    yoke_block_free(yoke_block_alloc(10));
    assert_null(yoke_mapping_create(&mapping, 10, false));
    assert_int_equal(yoke_memory_requests() - before, 4);
    yoke_mapping_destroy(mapping, 10);
    yoke_arena_destroy(arena);
    assert_int_equal(yoke_memory_requests() - before, 4);
}

static void test_available_memory_is_sane(void **state)
{
    (void)state;
    int64_t available = yoke_memory_available_bytes();
    int64_t physical = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    assert_true(available > (int64_t)16 << 20);
    assert_true(available <= physical);
}

static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        yoke_philox_block counter;
        yoke_random_key key;
        yoke_philox_block answer;
    } cases[] = {
        {{{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xa4093822, 0x299f31d0}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_philox_block got = yoke_philox(cases[i].counter, cases[i].key);
        assert_memory_equal(&got, &cases[i].answer, sizeof got);
    }
}

static void test_words_are_lanes_of_blocks(void **state)
{
    (void)state;
    yoke_random_key zero = {{0, 0}};
    assert_int_equal(yoke_random_u32(zero, 0), 0x6627e8d5);
    assert_int_equal(yoke_random_u32(zero, 3), 0x9b00dbd8);
    uint64_t far = (UINT64_C(5) << 40) + 2;
    yoke_philox_block counter = {{(uint32_t)(far >> 2), (uint32_t)(far >> 34), 0, 0}};
    assert_int_equal(yoke_random_u32(zero, far), yoke_philox(counter, zero).word[2]);
}

static void test_streams_differ_in_every_argument(void **state)
{
    (void)state;
    const yoke_random_key keys[] = {
        yoke_random_stream(1, "wte", 0, 0),
        yoke_random_stream(2, "wte", 0, 0),
        yoke_random_stream(UINT64_C(1) << 32 | 1, "wte", 0, 0),
        yoke_random_stream(1, "wpe", 0, 0),
        yoke_random_stream(1, "wte", 1, 0),
        yoke_random_stream(1, "wte", INT64_C(1) << 32, 0),
        yoke_random_stream(1, "wte", 0, 1),
        yoke_random_stream(1, "wte", 0, INT64_C(1) << 32),
    };
    int n = (int)(sizeof keys / sizeof keys[0]);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(&keys[i], &keys[j], sizeof keys[0]);
        }
    }
    yoke_random_key hashed = yoke_random_stream_hashed(1, yoke_random_name("wte"), 0, 0);
    assert_memory_equal(&hashed, &keys[0], sizeof hashed);
    /* XXH64 of nothing, from the specification of xxHash. */
    assert_true(yoke_random_name("") == UINT64_C(0xEF46DB3751D8E999));
}

static void test_uniform_range_and_moments(void **state)
{
    (void)state;
    const int n = 400000;
    yoke_random_key key = yoke_random_stream(7, "uniform", 0, 0);
    double sum = 0;
    double square = 0;
    for (int i = 0; i < n; i++) {
        float value = yoke_random_uniform(key, (uint64_t)i);
        assert_true(value >= 0.0f && value < 1.0f);
        float scaled = value * 0x1p24f;
        assert_true(scaled == floorf(scaled));
        sum += (double)value;
        square += (double)value * (double)value;
    }
    /* Five standard errors: sqrt(1/12/n) and sqrt(4/45/n). */
    assert_true(fabs(sum / n - 0.5) < 5 * sqrt(1.0 / 12 / n));
    assert_true(fabs(square / n - 1.0 / 3) < 5 * sqrt(4.0 / 45 / n));
}

static void test_normal_moments(void **state)
{
    (void)state;
    const int n = 400000;
    yoke_random_key key = yoke_random_stream(7, "normal", 0, 0);
    double moment[5] = {0};
    double neighbours = 0;
    double last = 0;
    for (int i = 0; i < n; i++) {
        double value = (double)yoke_random_normal(key, (uint64_t)i);
        assert_true(isfinite(value));
        double power = 1;
        for (int k = 0; k < 5; k++) {
            moment[k] += power / n;
            power *= value;
        }
        neighbours += value * last / n;
        last = value;
    }
    /* The variance of the k-th power of a normal: 1, 2, 15, 96. */
    static const double expected[] = {1, 0, 1, 0, 3};
    static const double variance[] = {0, 1, 2, 15, 96};
    for (int k = 1; k < 5; k++) {
        assert_true(fabs(moment[k] - expected[k]) < 5 * sqrt(variance[k] / n));
    }
    assert_true(fabs(neighbours) < 5 * sqrt(1.0 / n));
}

static void test_permutation_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 145, 1000};
    static bool hit[1000];
    yoke_random_key key = yoke_random_stream(3, "order", 0, 0);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        memset(hit, 0, sizeof hit);
        for (uint64_t i = 0; i < sizes[s]; i++) {
            uint64_t to = yoke_random_permute(key, sizes[s], i);
            assert_true(to < sizes[s]);
            assert_false(hit[to]);
            hit[to] = true;
        }
    }
    uint64_t huge = (UINT64_C(1) << 63) + 12345;
    assert_true(yoke_random_permute(key, huge, huge - 1) < huge);
}

/* Over many keys each element must reach each place about equally often (chi-square with 6 * 6 degrees of freedom). */
static void test_permutation_is_uniform(void **state)
{
    (void)state;
    enum { N = 7, KEYS = 7000 };
    int count[N][N] = {{0}};
    for (int64_t k = 0; k < KEYS; k++) {
        yoke_random_key key = yoke_random_stream(5, "order", k, 0);
        for (uint64_t i = 0; i < N; i++) {
            count[i][yoke_random_permute(key, N, i)]++;
        }
    }
    double chi_square = 0;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            double off = count[i][j] - KEYS / (double)N;
            chi_square += off * off / (KEYS / (double)N);
        }
    }
    assert_true(chi_square < 36 + 5 * sqrt(2.0 * 36));
}

static void test_denormals_are_flushed(void **state)
{
    (void)state;
#if defined(__SSE2__) || defined(__aarch64__)
    yoke_float_flush_denormals();
    volatile float smallest = FLT_MIN;
    volatile float half = 0.5f;
    volatile float result = smallest * half;
    uint32_t bits;
    float stored = result;
    memcpy(&bits, &stored, sizeof bits);
    assert_int_equal(bits, 0);
    uint32_t denormal_bits = 1;
    float denormal;
    memcpy(&denormal, &denormal_bits, sizeof denormal);
    volatile float operand = denormal;
    volatile float huge = 0x1p100f;
    stored = operand * huge;
    memcpy(&bits, &stored, sizeof bits);
    assert_int_equal(bits, 0);
#else
    skip();
#endif
}

static void test_clock_does_not_run_backwards(void **state)
{
    (void)state;
    double last = yoke_clock_s();
    double start = last;
    for (int i = 0; i < 10000; i++) {
        double now = yoke_clock_s();
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > start);
}

static void test_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"steps",         "seed", "mesh",
                                        "learning_rate", "dp",   "eval_every"};
    static const struct {
        const char *word;
        const char *nearest;
    } cases[] = {
        {"setps", "steps"},
        {"step", "steps"},
        {"Mesh", "mesh"},
        {"learning-rate", "learning_rate"},
        {"learning", "learning_rate"},
        {"laerning_rat", "learning_rate"},
        {"tp", "dp"},
        {"eval_evrey", "eval_every"},
        {"banana", NULL},
        {"", NULL},
        {"x", NULL},
        {"sdeeds", "seed"},
        {"steps", "steps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = yoke_text_nearest(cases[i].word, names, 6);
        if (cases[i].nearest) {
            assert_non_null(got);
            assert_string_equal(got, cases[i].nearest);
        } else {
            assert_null(got);
        }
    }
    char longest[200];
    memset(longest, 's', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(yoke_text_nearest(longest, names, 6));
    assert_null(yoke_text_nearest("steps", names, 0));
}

static void test_bytes_as_text(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {1024.0 * 1024 - 1, "1.0 MiB"},
        {1.2 * (1 << 30), "1.2 GiB"},
        {0x1p60, "1.0 EiB"},
        {0x1p80, "1048576.0 EiB"},
    };
    char buf[16];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(yoke_text_bytes(cases[i].bytes, buf, sizeof buf), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_carries_code_message_and_place),
        cmocka_unit_test(test_status_good_is_null),
        cmocka_unit_test(test_status_keeps_long_messages_whole),
        cmocka_unit_test(test_assert_ends_the_process_and_says_where),
        cmocka_unit_test(test_arena_pieces_are_aligned_zeroed_and_stay),
        cmocka_unit_test(test_arena_uses_its_whole_reserve),
        cmocka_unit_test(test_arena_array_grows),
        cmocka_unit_test(test_arena_texts),
        cmocka_unit_test(test_blocks_are_aligned_and_zeroed),
        cmocka_unit_test(test_mappings_are_shared_or_not),
        cmocka_unit_test(test_mapping_beyond_the_machine_is_an_error),
        cmocka_unit_test(test_requests_are_counted),
        cmocka_unit_test(test_available_memory_is_sane),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_words_are_lanes_of_blocks),
        cmocka_unit_test(test_streams_differ_in_every_argument),
        cmocka_unit_test(test_uniform_range_and_moments),
        cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_permutation_is_a_bijection),
        cmocka_unit_test(test_permutation_is_uniform),
        cmocka_unit_test(test_denormals_are_flushed),
        cmocka_unit_test(test_clock_does_not_run_backwards),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_bytes_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
