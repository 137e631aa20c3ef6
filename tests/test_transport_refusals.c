/* labels: quick threads */
/*
 * What the transport refuses: transfers that do not agree, which must be an error on every rank
 * that takes part; redistributions without a source; too many starts; bad worlds. And the parts of
 * boxes, by which large ones are shared out.
 */
#include "ranks.h"

#include "transport/box.h"

/* One row: what rank 2 of 3 starts where the others start `usual`, and what all must then say. */
typedef struct mismatch {
    yoke_transfer usual;
    yoke_transfer odd;
    const char *said[3];
} mismatch;

static const yoke_shard thirds[3] = {{.n_dims = 1, .offset = {0}, .extent = {4}},
                                     {.n_dims = 1, .offset = {4}, .extent = {4}},
                                     {.n_dims = 1, .offset = {8}, .extent = {4}}};
static const yoke_shard others[3] = {{.n_dims = 1, .offset = {0}, .extent = {5}},
                                     {.n_dims = 1, .offset = {5}, .extent = {3}},
                                     {.n_dims = 1, .offset = {8}, .extent = {4}}};
static const yoke_shard twelve = {.n_dims = 1, .offset = {0}, .extent = {12}};

#define SUM_OF(n, t)                                                                               \
    {                                                                                              \
        .kind = YOKE_TRANSFER_ALL_REDUCE_SUM, .elements = (n), .tag = (t)                          \
    }

static const mismatch mismatches[] = {
    {SUM_OF(409598, 1), SUM_OF(409600, 1), {"rank 2 starts", "409600", "409598"}},
    {SUM_OF(100, 1), SUM_OF(200, 1), {"rank 2 starts", "100", "200"}},
    /* Equal in 32 bits, both as counts and as bytes: 2^32 + 8 and 2^30 + 8 against 8. */
    {SUM_OF(8, 1), SUM_OF(4294967304, 1), {"rank 2 starts", "4294967304", " 8 elements"}},
    {SUM_OF(8, 1), SUM_OF(1073741832, 1), {"rank 2 starts", "1073741832", " 8 elements"}},
    {SUM_OF(8, 1), SUM_OF(8, -2), {"rank 2 starts", "tag -2", "tag 1"}},
    {SUM_OF(8, 1),
     {.kind = YOKE_TRANSFER_ALL_REDUCE_MAX, .elements = 8, .tag = 1},
     {"rank 2 starts all_reduce (max)", "all_reduce (sum)", "2 of 3 agree"}},
    {SUM_OF(8, 1),
     {.kind = YOKE_TRANSFER_BARRIER, .tag = 1},
     {"rank 2 starts barrier", "all_reduce (sum)", ""}},
    {{.kind = YOKE_TRANSFER_BROADCAST, .elements = 8, .peer = 0},
     {.kind = YOKE_TRANSFER_BROADCAST, .elements = 8, .peer = 1},
     {"rank 2 starts broadcast from member 1", "broadcast from member 0", ""}},
    {{.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY, .in_shards = thirds, .out_shard = &twelve},
     {.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY, .in_shards = others, .out_shard = &twelve},
     {"rank 2 starts", "shards", "12 elements"}},
    {{.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY, .in_shards = thirds, .out_shard = &twelve},
     {.kind = YOKE_TRANSFER_REDISTRIBUTE_SUM, .in_shards = thirds, .out_shard = &twelve},
     {"rank 2 starts redistribute (sum)", "redistribute (copy)", ""}},
};
enum { N_MISMATCHES = sizeof mismatches / sizeof mismatches[0] };

static yoke_status must_say(yoke_status status, const char *const *said)
{
    bool right = yoke_status_code(status) == YOKE_CHECK;
    for (int i = 0; i < 3; i++) {
        right = right && strstr(yoke_status_message(status), said[i]);
    }
    if (right) {
        yoke_status_free(status);
        return YOKE_OK;
    }
    yoke_status wrong = YOKE_FAIL(YOKE_CHECK, "wanted '%s', '%s', '%s'; got: %s", said[0], said[1],
                                  said[2], status ? yoke_status_message(status) : "no error");
    yoke_status_free(status);
    return wrong;
}

static yoke_status disagree(yoke_endpoint *endpoint, void *user)
{
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    for (int i = 0; i < N_MISMATCHES; i++) {
        yoke_transfer transfer = rank == 2 ? mismatches[i].odd : mismatches[i].usual;
        transfer.in = buffer_of(a, rank, 0);
        transfer.out = buffer_of(a, rank, 1);
        YOKE_TRY(must_say(run_transfer(endpoint, &transfer), mismatches[i].said));
    }
    return YOKE_OK;
}

static void test_mismatch_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run_in_arena(3, 0, disagree);
}

static yoke_status disagree_in_messages(yoke_endpoint *endpoint, void *user)
{
    static const int64_t lengths[][2] = {{10, 11}, {20000, 20001}, {8, 4294967304}};
    static const char *const said[][3] = {{"10 elements", "expected 11", "from rank 0 to rank 1"},
                                          {"20000 elements", "expected 20001", "rank 1"},
                                          {"sent are 8", "expected 4294967304", "rank 1"}};
    static const char *const tags[3] = {"with tag 3,", "with tag 4;", "5 elements"};
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    yoke_transfer transfer = {.kind = rank == 0 ? YOKE_TRANSFER_SEND : YOKE_TRANSFER_RECV,
                              .peer = 1 - rank,
                              .in = buffer_of(a, rank, 0),
                              .out = buffer_of(a, rank, 0)};
    for (int i = 0; i < 3; i++) {
        transfer.elements = lengths[i][rank];
        YOKE_TRY(must_say(run_transfer(endpoint, &transfer), said[i]));
    }
    transfer.elements = 5;
    transfer.tag = 3 + rank;
    return must_say(run_transfer(endpoint, &transfer), tags);
}

static void test_mismatch_of_a_message_is_an_error_at_both_ends(void **state)
{
    (void)state;
    run_in_arena(2, 0, disagree_in_messages);
}

/* What nobody has is refused at the start; so is a copy with two sources. */
static yoke_status no_source(yoke_endpoint *endpoint, void *user)
{
    static const yoke_shard gap[2] = {{.n_dims = 1, .offset = {0}, .extent = {5}},
                                      {.n_dims = 1, .offset = {6}, .extent = {6}}};
    static const yoke_shard twice[2] = {{.n_dims = 1, .offset = {0}, .extent = {7}},
                                        {.n_dims = 1, .offset = {6}, .extent = {6}}};
    /* As many sources as elements, and still a gap. */
    static const yoke_shard both[2] = {{.n_dims = 1, .offset = {0}, .extent = {6}},
                                       {.n_dims = 1, .offset = {0}, .extent = {6}}};
    const yoke_shard *const held[] = {gap, gap, twice, both};
    static const yoke_transfer_kind kinds[] = {
        YOKE_TRANSFER_REDISTRIBUTE_COPY, YOKE_TRANSFER_REDISTRIBUTE_SUM,
        YOKE_TRANSFER_REDISTRIBUTE_COPY, YOKE_TRANSFER_REDISTRIBUTE_COPY};
    (void)user;
    for (int i = 0; i < 4; i++) {
        yoke_transfer transfer = {.kind = kinds[i], .in_shards = held[i], .out_shard = &twelve};
        yoke_request request;
        yoke_status status = yoke_transfer_start(endpoint, &transfer, &request);
        bool right = yoke_status_code(status) == YOKE_BAD_INPUT &&
                     strstr(yoke_status_message(status), "12 elements wanted");
        yoke_status_free(status);
        if (!right) {
            return YOKE_FAIL(YOKE_CHECK, "case %d was not refused", i);
        }
    }
    return run_barrier(endpoint, 0);
}

static void test_missing_sources_are_refused(void **state)
{
    (void)state;
    run_in_arena(2, 0, no_source);
}

/* One start more than the depth is refused, on the second round too. */
static yoke_status too_many(yoke_endpoint *endpoint, void *user)
{
    int depth = *(const int *)user;
    const yoke_transfer barrier = {.kind = YOKE_TRANSFER_BARRIER};
    yoke_request requests[YOKE_MAX_DEPTH];
    for (int i = 0; i < depth / 2; i++) {
        YOKE_TRY(run_barrier(endpoint, 0));
    }
    for (int i = 0; i < depth; i++) {
        YOKE_TRY(yoke_transfer_start(endpoint, &barrier, &requests[i]));
    }
    yoke_request another;
    yoke_status status = yoke_transfer_start(endpoint, &barrier, &another);
    char said[64];
    (void)snprintf(said, sizeof said, "at most %d may be outstanding", depth);
    bool right =
        yoke_status_code(status) == YOKE_CHECK && strstr(yoke_status_message(status), said);
    yoke_status_free(status);
    if (!right) {
        return YOKE_FAIL(YOKE_CHECK, "one more than %d starts were not refused", depth);
    }
    for (int i = depth - 1; i >= 0; i--) {
        YOKE_TRY(yoke_transfer_wait(endpoint, &requests[i]));
    }
    return run_barrier(endpoint, 0);
}

static void test_depth_is_kept(void **state)
{
    (void)state;
    int depths[] = {4, 63, 64, 65, 130, YOKE_MAX_DEPTH};
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        yoke_world *world = open_world(&(rank_options){.n_ranks = 2, .depth = depths[i]});
        run_ranks(world, true, too_many, &depths[i]);
        yoke_world_destroy(world);
    }
}

/* Parts of a box cover each element once and are no larger than asked, also beyond 2^32. */
static void test_parts_of_a_box(void **state)
{
    (void)state;
    static const yoke_shard boxes[] = {
        {.n_dims = 0},
        {.n_dims = 1, .offset = {3}, .extent = {100003}},
        {.n_dims = 3, .offset = {1, 2, 3}, .extent = {5, 17, 1000}},
        {.n_dims = 3, .offset = {0, 0, 0}, .extent = {2, 3, 40000}},
        {.n_dims = 2, .offset = {0, 7}, .extent = {70000, 1}},
        {.n_dims = 2, .offset = {0, 0}, .extent = {0, 4}},
        {.n_dims = 2, .offset = {0, 0}, .extent = {INT64_C(1) << 20, INT64_C(1) << 14}},
    };
    for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
        int64_t n_parts = yoke_box_n_parts(&boxes[b], 16384);
        int64_t elements = 0;
        yoke_shard before = {.n_dims = boxes[b].n_dims};
        for (int64_t i = 0; i < n_parts; i++) {
            yoke_shard part = yoke_box_part(&boxes[b], 16384, i);
            yoke_shard common;
            int64_t n = yoke_shard_elements(&part);
            assert_true(n <= 16384);
            assert_true(n == 0 || yoke_box_intersect(&part, &boxes[b], &common));
            assert_true(n == 0 || yoke_box_equal(&part, &common));
            assert_false(i > 0 && n > 0 && yoke_box_intersect(&part, &before, &common));
            elements += n;
            before = part;
        }
        assert_true(elements == yoke_shard_elements(&boxes[b]));
    }
}

static void test_bad_worlds_are_refused(void **state)
{
    (void)state;
    static const int pair[2] = {0, 1};
    static const int descending[2] = {1, 0};
    static const int outside[2] = {0, 2};
    static const int *const lists[] = {pair, descending, outside};
    static const int two = 2;
    static const int three = 3;
    const struct {
        yoke_world_options options;
        const char *said;
    } cases[] = {
        {{.n_ranks = 0}, "0 ranks; a world has 1 to 1024"},
        {{.n_ranks = 2, .depth = 257}, "depth 257; a channel keeps 1 to 256"},
        {{.n_ranks = 2, .n_groups = 1, .group_size = &three, .group_ranks = lists},
         "group 0 has 3 ranks; it needs 1 to 2"},
        {{.n_ranks = 2, .n_groups = 1, .group_size = &two, .group_ranks = lists + 1},
         "group 0: member 1 is rank 0"},
        {{.n_ranks = 2, .n_groups = 1, .group_size = &two, .group_ranks = lists + 2},
         "group 0: member 1 is rank 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_world *world = (yoke_world *)(uintptr_t)1;
        yoke_status status = yoke_world_create(&cases[i].options, &world);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        assert_non_null(strstr(yoke_status_message(status), cases[i].said));
        assert_null(world);
        yoke_status_free(status);
    }
    yoke_world_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch_is_an_error_on_all_ranks),
        cmocka_unit_test(test_mismatch_of_a_message_is_an_error_at_both_ends),
        cmocka_unit_test(test_missing_sources_are_refused),
        cmocka_unit_test(test_depth_is_kept),
        cmocka_unit_test(test_parts_of_a_box),
        cmocka_unit_test(test_bad_worlds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
