/* labels: quick threads */
/*
 * The transport with ranks as threads: every kind of transfer over groups of 1, 2, 3, 5, 8 and 16
 * and sizes around its thresholds against plain loops, many outstanding, waits in any order,
 * overlapping groups, equal bits, and sleep.
 */
#include "ranks.h"

#include <math.h>
#include "transport/world.h"

static const int64_t sizes[] = {0, 1, 15, 17, 1023, 1024, 1025, 100003};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static float reduced(int n_ranks, int64_t index, int salt, bool max)
{
    float result = value_of(0, index, salt);
    for (int r = 1; r < n_ranks; r++) {
        float next = value_of(r, index, salt);
        result = max ? fmaxf(result, next) : result + next;
    }
    return result;
}

static yoke_status try_all_reduce(yoke_endpoint *endpoint, const arena *a, int64_t n, bool max)
{
    int rank = yoke_endpoint_rank(endpoint);
    int salt = max ? 7 : 3;
    float *out = buffer_of(a, rank, 0);
    fill(out, rank, n, salt);
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = max ? YOKE_TRANSFER_ALL_REDUCE_MAX
                                                                 : YOKE_TRANSFER_ALL_REDUCE_SUM,
                                                     .elements = n,
                                                     .tag = 5,
                                                     .out = out}));
    for (int64_t i = 0; i < n; i++) {
        YOKE_TRY(
            check_bits(max ? "max" : "sum", rank, n, i, out[i], reduced(a->n_ranks, i, salt, max)));
    }
    return YOKE_OK;
}

static yoke_status try_broadcast(yoke_endpoint *endpoint, const arena *a, int64_t n, int root)
{
    int rank = yoke_endpoint_rank(endpoint);
    float *out = buffer_of(a, rank, 0);
    fill(out, rank, n, root);
    YOKE_TRY(run_transfer(
        endpoint, &(yoke_transfer){
                      .kind = YOKE_TRANSFER_BROADCAST, .peer = root, .elements = n, .out = out}));
    for (int64_t i = 0; i < n; i++) {
        YOKE_TRY(check_bits("broadcast", rank, n, i, out[i], value_of(root, i, root)));
    }
    return YOKE_OK;
}

static void split_shards(int64_t n, int n_ranks, yoke_shard *shards)
{
    for (int r = 0; r < n_ranks; r++) {
        shards[r] = line(0, 0);
        yoke_split(n, n_ranks, r, &shards[r].offset[0], &shards[r].extent[0]);
    }
}

static yoke_status try_all_gather(yoke_endpoint *endpoint, const arena *a, int64_t n)
{
    int rank = yoke_endpoint_rank(endpoint);
    yoke_shard shards[MOST_TEST_RANKS];
    split_shards(n, a->n_ranks, shards);
    yoke_shard whole = line(0, n);
    float *in = buffer_of(a, rank, 0);
    float *out = buffer_of(a, rank, 1);
    for (int64_t i = 0; i < shards[rank].extent[0]; i++) {
        in[i] = value_of(0, shards[rank].offset[0] + i, 1);
    }
    poison(out, n);
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY,
                                                     .in = in,
                                                     .out = out,
                                                     .in_shards = shards,
                                                     .out_shard = &whole}));
    for (int64_t i = 0; i < n; i++) {
        YOKE_TRY(check_bits("all_gather", rank, n, i, out[i], value_of(0, i, 1)));
    }
    return YOKE_OK;
}

static yoke_status try_reduce_scatter(yoke_endpoint *endpoint, const arena *a, int64_t n)
{
    int rank = yoke_endpoint_rank(endpoint);
    yoke_shard held[MOST_TEST_RANKS];
    yoke_shard wanted[MOST_TEST_RANKS];
    split_shards(n, a->n_ranks, wanted);
    for (int r = 0; r < a->n_ranks; r++) {
        held[r] = line(0, n);
    }
    float *in = buffer_of(a, rank, 0);
    float *out = buffer_of(a, rank, 1);
    fill(in, rank, n, 2);
    poison(out, wanted[rank].extent[0]);
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_REDISTRIBUTE_SUM,
                                                     .in = in,
                                                     .out = out,
                                                     .in_shards = held,
                                                     .out_shard = &wanted[rank]}));
    for (int64_t i = 0; i < wanted[rank].extent[0]; i++) {
        int64_t index = wanted[rank].offset[0] + i;
        YOKE_TRY(check_bits("reduce_scatter", rank, n, index, out[i],
                            reduced(a->n_ranks, index, 2, false)));
    }
    return YOKE_OK;
}

/* Each rank sends to the next; all wait for their sends first. */
static yoke_status try_ring(yoke_endpoint *endpoint, const arena *a, int64_t n)
{
    int rank = yoke_endpoint_rank(endpoint);
    int next = (rank + 1) % a->n_ranks;
    int previous = (rank + a->n_ranks - 1) % a->n_ranks;
    if (a->n_ranks == 1) {
        return YOKE_OK;
    }
    float *out = buffer_of(a, rank, 1);
    fill(buffer_of(a, rank, 0), rank, n, 4);
    poison(out, n);
    yoke_transfer send = {.kind = YOKE_TRANSFER_SEND,
                          .peer = next,
                          .elements = n,
                          .tag = rank,
                          .in = buffer_of(a, rank, 0)};
    yoke_transfer recv = {
        .kind = YOKE_TRANSFER_RECV, .peer = previous, .elements = n, .tag = previous, .out = out};
    yoke_request requests[2];
    YOKE_TRY(yoke_transfer_start(endpoint, &send, &requests[0]));
    YOKE_TRY(yoke_transfer_start(endpoint, &recv, &requests[1]));
    YOKE_TRY(yoke_transfer_wait(endpoint, &requests[0]));
    YOKE_TRY(yoke_transfer_wait(endpoint, &requests[1]));
    for (int64_t i = 0; i < n; i++) {
        YOKE_TRY(check_bits("message", rank, n, i, out[i], value_of(previous, i, 4)));
    }
    return YOKE_OK;
}

static yoke_status every_kind(yoke_endpoint *endpoint, void *user)
{
    const arena *a = user;
    for (int s = 0; s < N_SIZES; s++) {
        int64_t n = sizes[s];
        YOKE_TRY(try_all_reduce(endpoint, a, n, false));
        YOKE_TRY(try_all_reduce(endpoint, a, n, true));
        for (int root = 0; root < a->n_ranks; root += 2) {
            YOKE_TRY(try_broadcast(endpoint, a, n, root));
        }
        YOKE_TRY(try_all_gather(endpoint, a, n));
        YOKE_TRY(try_reduce_scatter(endpoint, a, n));
        YOKE_TRY(try_ring(endpoint, a, n));
    }
    return YOKE_OK;
}

static void test_every_kind_and_size(void **state)
{
    (void)state;
    static const int n_ranks[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof n_ranks / sizeof n_ranks[0]; i++) {
        run_in_arena(n_ranks[i], 0, every_kind);
    }
}

static void test_16_ranks(void **state)
{
    (void)state;
    run_in_arena(16, 0, every_kind);
}

static void test_spinning_gives_the_same(void **state)
{
    (void)state;
    run_in_arena(3, 64, every_kind);
}

/* An all_reduce in one, shared out in chunks, against many small ones done by one rank. */
static yoke_status equal_bits(yoke_endpoint *endpoint, void *user)
{
    enum { PIECE = 997 };
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    float *large = buffer_of(a, rank, 0);
    float *small = buffer_of(a, rank, 1);
    fill(large, rank, MOST, 11);
    fill(small, rank, MOST, 11);
    YOKE_TRY(run_transfer(
        endpoint,
        &(yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM, .elements = MOST, .out = large}));
    for (int64_t at = 0; at < MOST; at += PIECE) {
        int64_t n = MOST - at < PIECE ? MOST - at : PIECE;
        YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM,
                                                         .elements = n,
                                                         .out = small + at}));
    }
    for (int64_t i = 0; i < MOST; i++) {
        YOKE_TRY(check_bits("small against large", rank, MOST, i, small[i], large[i]));
    }
    return YOKE_OK;
}

static void test_small_and_large_have_equal_bits(void **state)
{
    (void)state;
    run_in_arena(5, 0, equal_bits);
}

/* NaN survives a maximum from whichever rank, and a sum of -0 is -0. */
static yoke_status special_values(yoke_endpoint *endpoint, void *user)
{
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    float *out = buffer_of(a, rank, 0);
    for (int r = 0; r < a->n_ranks; r++) {
        out[r] = r == rank ? nanf("") : 1.0f;
    }
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_MAX,
                                                     .elements = a->n_ranks,
                                                     .out = out}));
    for (int r = 0; r < a->n_ranks; r++) {
        if (!isnan(out[r])) {
            return differs("NaN", rank, a->n_ranks, r, (const float[]){out[r], nanf("")});
        }
    }
    out[0] = -0.0f;
    YOKE_TRY(run_transfer(
        endpoint,
        &(yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM, .elements = 1, .out = out}));
    return check_bits("sum of -0", rank, 1, 0, out[0], -0.0f);
}

static void test_special_values(void **state)
{
    (void)state;
    run_in_arena(3, 0, special_values);
}

/* Members hold different parts, so that the number of terms differs by element: 3 ranks hold [0,6),
 * [4,10), [2,12). */
static yoke_status uneven_sum(yoke_endpoint *endpoint, void *user)
{
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    const yoke_shard held[3] = {line(0, 6), line(4, 6), line(2, 10)};
    yoke_shard wanted = line(1 + rank, 9);
    float *in = buffer_of(a, rank, 0);
    float *out = buffer_of(a, rank, 1);
    for (int64_t i = 0; i < held[rank].extent[0]; i++) {
        in[i] = value_of(rank, held[rank].offset[0] + i, 21);
    }
    poison(out, wanted.extent[0]);
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_REDISTRIBUTE_SUM,
                                                     .in = in,
                                                     .out = out,
                                                     .in_shards = held,
                                                     .out_shard = &wanted}));
    for (int64_t i = 0; i < wanted.extent[0]; i++) {
        int64_t index = wanted.offset[0] + i;
        float sum = -0.0f;
        for (int m = 0; m < 3; m++) {
            bool has = index >= held[m].offset[0] && index < held[m].offset[0] + held[m].extent[0];
            sum += has ? value_of(m, index, 21) : -0.0f;
        }
        YOKE_TRY(check_bits("uneven sum", rank, 9, index, out[i], sum));
    }
    return YOKE_OK;
}

static void test_sum_over_those_who_have_it(void **state)
{
    (void)state;
    run_in_arena(3, 0, uneven_sum);
}

/* Four of a kind under way at once, small and large mixed; each rank waits in an order of its own. */
static yoke_status outstanding(yoke_endpoint *endpoint, void *user)
{
    enum { DEPTH = 4, STRIDE = 24001, ROUNDS = 25 };
    static const int64_t lengths[DEPTH] = {24000, 3, 9000, 0};
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    float *start = buffer_of(a, rank, 0);
    for (int round = 0; round < ROUNDS; round++) {
        yoke_transfer transfers[DEPTH];
        yoke_request requests[DEPTH];
        for (int i = 0; i < DEPTH; i++) {
            fill(start + i * STRIDE, rank, lengths[i], round + i);
            transfers[i] = (yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM,
                                           .elements = lengths[i],
                                           .tag = i,
                                           .out = start + i * STRIDE};
            YOKE_TRY(yoke_transfer_start(endpoint, &transfers[i], &requests[i]));
        }
        for (int i = 0; i < DEPTH; i++) {
            int which = (i * (1 + 2 * (rank % 2)) + rank + round) % DEPTH;
            YOKE_TRY(yoke_transfer_wait(endpoint, &requests[which]));
            for (int64_t k = 0; k < lengths[which]; k += 101) {
                YOKE_TRY(check_bits("outstanding", rank, lengths[which], k,
                                    start[which * STRIDE + k],
                                    reduced(a->n_ranks, k, round + which, false)));
            }
        }
    }
    return YOKE_OK;
}

static void test_outstanding_in_any_order(void **state)
{
    (void)state;
    run_in_arena(5, 0, outstanding);
}

/* 2x3 ranks: rows, columns and all, under way together, waited for in orders that differ, with
 * messages between. Large, so that waiting members do the work of those that wait elsewhere. */
static yoke_status overlapping(yoke_endpoint *endpoint, void *user)
{
    enum { ROUNDS = 40, N = 30000, N_TRANSFERS = 5 };
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    float *start = buffer_of(a, rank, 0);
    int groups[3] = {rank / 3, 2 + rank % 3, 5};
    int peer = (rank + 3) % 6;
    for (int round = 0; round < ROUNDS; round++) {
        yoke_transfer transfers[N_TRANSFERS] = {
            {.kind = YOKE_TRANSFER_SEND, .peer = peer, .in = start + 3 * N},
            {.kind = YOKE_TRANSFER_RECV, .peer = peer, .out = start + 4 * N}};
        yoke_request requests[N_TRANSFERS];
        for (int i = 0; i < N_TRANSFERS; i++) {
            transfers[i].elements = N;
            fill(start + (i < 3 ? i : 3) * N, rank, N, round);
        }
        for (int i = 0; i < 3; i++) {
            transfers[2 + i] = (yoke_transfer){.kind = YOKE_TRANSFER_ALL_REDUCE_SUM,
                                               .group = groups[i],
                                               .elements = N,
                                               .out = start + i * N};
        }
        for (int i = 0; i < N_TRANSFERS; i++) {
            YOKE_TRY(yoke_transfer_start(endpoint, &transfers[i], &requests[i]));
        }
        for (int i = 0; i < N_TRANSFERS; i++) {
            int which = (i * (1 + rank % 4) + rank) % N_TRANSFERS;
            YOKE_TRY(yoke_transfer_wait(endpoint, &requests[which]));
        }
        for (int64_t k = 0; k < N; k += 97) {
            float row = value_of(rank / 3 * 3, k, round) + value_of(rank / 3 * 3 + 1, k, round) +
                        value_of(rank / 3 * 3 + 2, k, round);
            float column = value_of(rank % 3, k, round) + value_of(rank % 3 + 3, k, round);
            YOKE_TRY(check_bits("row", rank, N, k, start[k], row));
            YOKE_TRY(check_bits("column", rank, N, k, start[N + k], column));
            YOKE_TRY(check_bits("all", rank, N, k, start[2 * N + k], reduced(6, k, round, false)));
            YOKE_TRY(check_bits("message", rank, N, k, start[4 * N + k], value_of(peer, k, round)));
        }
    }
    return YOKE_OK;
}

static void test_overlapping_groups(void **state)
{
    (void)state;
    rank_options options = {
        .n_ranks = 6,
        .n_groups = 6,
        .group_size = {3, 3, 2, 2, 2, 6},
        .group = {{0, 1, 2}, {3, 4, 5}, {0, 3}, {1, 4}, {2, 5}, {0, 1, 2, 3, 4, 5}},
        .user_bytes = (size_t)6 * N_BUFFERS * MOST * sizeof(float)};
    yoke_world *world = open_world(&options);
    arena a = {.n_ranks = 6, .start = yoke_world_user(world)};
    run_ranks(world, true, overlapping, &a);
    yoke_world_destroy(world);
}

/* Between two barriers nobody is more than one ahead or behind. */
static yoke_status rapid_barriers(yoke_endpoint *endpoint, void *user)
{
    enum { ROUNDS = 1000 };
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    for (int round = 0; round < ROUNDS; round++) {
        *buffer_of(a, rank, 0) = (float)round;
        YOKE_TRY(run_barrier(endpoint, 0));
        for (int r = 0; r < a->n_ranks; r++) {
            YOKE_TRY(check_bits("round", rank, ROUNDS, r, *buffer_of(a, r, 0), (float)round));
        }
        YOKE_TRY(run_barrier(endpoint, 0));
    }
    return YOKE_OK;
}

static void test_rapid_barriers(void **state)
{
    (void)state;
    run_in_arena(5, 0, rapid_barriers);
}

/* Both start their send first and wait for it first; messages match in the order of their starts. */
static yoke_status ping_pong(yoke_endpoint *endpoint, void *user)
{
    enum { ROUNDS = 500, LARGE = 20000 };
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    int peer = 1 - rank;
    float *from = buffer_of(a, rank, 0);
    float *to = buffer_of(a, rank, 1);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t n = round % 3 == 0 ? LARGE : round;
        fill(from, rank, n, round);
        yoke_transfer send = {
            .kind = YOKE_TRANSFER_SEND, .peer = peer, .elements = n, .tag = round, .in = from};
        yoke_transfer recv = {
            .kind = YOKE_TRANSFER_RECV, .peer = peer, .elements = n, .tag = round, .out = to};
        yoke_request requests[2];
        YOKE_TRY(yoke_transfer_start(endpoint, &send, &requests[0]));
        YOKE_TRY(yoke_transfer_start(endpoint, &recv, &requests[1]));
        YOKE_TRY(yoke_transfer_wait(endpoint, &requests[0]));
        YOKE_TRY(yoke_transfer_wait(endpoint, &requests[1]));
        for (int64_t i = 0; i < n; i += 13) {
            YOKE_TRY(check_bits("ping-pong", rank, n, i, to[i], value_of(peer, i, round)));
        }
    }
    return YOKE_OK;
}

static void test_ping_pong_with_sends_first(void **state)
{
    (void)state;
    run_in_arena(2, 0, ping_pong);
}

/* Three messages under way in one direction, received in reverse. */
static yoke_status reverse_recv(yoke_endpoint *endpoint, void *user)
{
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    yoke_transfer transfers[3];
    yoke_request requests[3];
    for (int i = 0; i < 3; i++) {
        float *at = buffer_of(a, rank, 0) + i * 10000;
        fill(at, rank, 9999, i);
        transfers[i] = (yoke_transfer){.kind = rank == 0 ? YOKE_TRANSFER_SEND : YOKE_TRANSFER_RECV,
                                       .peer = 1 - rank,
                                       .elements = 9999,
                                       .tag = i,
                                       .in = at,
                                       .out = at};
        YOKE_TRY(yoke_transfer_start(endpoint, &transfers[i], &requests[i]));
    }
    for (int k = 0; k < 3; k++) {
        int i = rank == 0 ? k : 2 - k;
        YOKE_TRY(yoke_transfer_wait(endpoint, &requests[i]));
        const float *at = buffer_of(a, rank, 0) + i * 10000;
        for (int64_t e = 0; e < 9999; e++) {
            YOKE_TRY(check_bits("reverse", rank, 9999, e, at[e], value_of(0, e, i)));
        }
    }
    return YOKE_OK;
}

static void test_messages_received_in_reverse(void **state)
{
    (void)state;
    run_in_arena(2, 0, reverse_recv);
}

/* A tensor of 2^40 rows of which every rank holds a few: offsets pass 2^32 in elements and bytes. */
static yoke_status far_away(yoke_endpoint *endpoint, void *user)
{
    const int64_t start = INT64_C(1) << 39;
    const arena *a = user;
    int rank = yoke_endpoint_rank(endpoint);
    yoke_shard held[3];
    for (int r = 0; r < 3; r++) {
        held[r] = (yoke_shard){.n_dims = 2, .offset = {start + 2 * r, 0}, .extent = {2, 5}};
    }
    yoke_shard wanted = {.n_dims = 2, .offset = {start, 1 + rank}, .extent = {6, 2}};
    float *in = buffer_of(a, rank, 0);
    float *out = buffer_of(a, rank, 1);
    for (int64_t i = 0; i < 10; i++) {
        in[i] = (float)(100 * (2 * rank + i / 5) + i % 5);
    }
    YOKE_TRY(run_transfer(endpoint, &(yoke_transfer){.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY,
                                                     .in = in,
                                                     .out = out,
                                                     .in_shards = held,
                                                     .out_shard = &wanted}));
    for (int64_t i = 0; i < 12; i++) {
        float right = (float)(100 * (i / 2) + 1 + rank + i % 2);
        YOKE_TRY(check_bits("far away", rank, 12, i, out[i], right));
    }
    return YOKE_OK;
}

static void test_offsets_beyond_32_bits(void **state)
{
    (void)state;
    run_in_arena(3, 0, far_away);
}

/* Rank 1 sleeps until rank 0 changes the word; then a sleep that nobody ends. */
static yoke_status sleep_and_wake(yoke_endpoint *endpoint, void *user)
{
    yoke_world *world = user;
    uint32_t *word = yoke_world_user(world);
    if (yoke_endpoint_rank(endpoint) == 0) {
        YOKE_TRY(yoke_endpoint_sleep(endpoint, word + 1, 0, 0.02));
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        yoke_world_wake(world, word);
        return YOKE_OK;
    }
    YOKE_TRY(yoke_endpoint_sleep(endpoint, word, 0, 60.0));
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) == 1
               ? YOKE_OK
               : YOKE_FAIL(YOKE_CHECK, "woken before the word changed");
}

static void test_sleep_and_wake(void **state)
{
    (void)state;
    rank_options options = {.n_ranks = 2, .user_bytes = 64};
    yoke_world *world = open_world(&options);
    run_ranks(world, true, sleep_and_wake, world);
    yoke_world_destroy(world);
}

/* Rank 0 comes only once it has seen rank 1 sleep: who waits long leaves the cores alone. */
static yoke_status wait_long(yoke_endpoint *endpoint, void *user)
{
    enum { MOST_LOOKS = 30000 };
    yoke_world *world = user;
    uint32_t *never = yoke_world_user(world);
    for (int i = 0; yoke_endpoint_rank(endpoint) == 0; i++) {
        /* Only asks whether it sleeps; nothing is read because of it. */
        if (atomic_load_explicit(&world->states[1].sleeps_on, memory_order_relaxed) != 0) {
            break;
        }
        if (i == MOST_LOOKS) {
            return YOKE_FAIL(YOKE_CHECK, "rank 1 waits without sleeping");
        }
        YOKE_TRY(yoke_endpoint_sleep(endpoint, never, 0, 0.001));
    }
    return run_barrier(endpoint, 0);
}

static void test_long_waits_sleep(void **state)
{
    (void)state;
    const int n_cores[] = {1, 64};
    for (int i = 0; i < 2; i++) {
        rank_options options = {.n_ranks = 2, .n_cores = n_cores[i], .user_bytes = 64};
        yoke_world *world = open_world(&options);
        run_ranks(world, true, wait_long, world);
        yoke_world_destroy(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_and_size),
        cmocka_unit_test(test_16_ranks),
        cmocka_unit_test(test_spinning_gives_the_same),
        cmocka_unit_test(test_small_and_large_have_equal_bits),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_sum_over_those_who_have_it),
        cmocka_unit_test(test_outstanding_in_any_order),
        cmocka_unit_test(test_overlapping_groups),
        cmocka_unit_test(test_rapid_barriers),
        cmocka_unit_test(test_ping_pong_with_sends_first),
        cmocka_unit_test(test_messages_received_in_reverse),
        cmocka_unit_test(test_offsets_beyond_32_bits),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_long_waits_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
