/* labels: quick threads */
/*
 * The rows of the redistribution table through the real transport: every pair of layouts that
 * differ along one axis, on meshes of 1, 2, 3, 4, 2x2 and 2x3 ranks, with uneven and empty shards,
 * against gather-then-scatter. Ranks are threads; some of the same as processes, with equal bits.
 * (test_redistribute.c tests the table itself, without a transport.)
 */
#include "ranks.h"

#include <math.h>

#include "layout_cases.h"

/* Work of one launch: all pairs on one mesh and one shape. */
typedef struct walk {
    const yoke_mesh *mesh;
    const yoke_shape *shape;
    bool rough; /* values with all bits in use, whose sums depend on the order; else whole */
    float *memory;
    float *results; /* [n_results][MOST_RANKS][MOST_ELEMENTS], or NULL */
    int *n_pairs;   /* [rank] */
} walk;

/* A conversion along one axis, as one rank sees it. */
typedef struct row {
    const walk *w;
    yoke_layout from, to;
    int axis;
    int rank;
    int n_members;
    int members[MOST_RANKS];
} row;

static bool is_partial(int place)
{
    return place == YOKE_PARTIAL_SUM || place == YOKE_PARTIAL_MAX;
}

static float truth(const walk *w, int64_t element)
{
    return w->rough ? value_of(0, element, 5) : (float)(element * 37 % 101 - 50);
}

/* What `rank` holds of a global element in a layout. Over the axes that are partial together the
 * parts make up the true value. */
static float held_value(const walk *w, yoke_layout layout, int rank, int64_t element)
{
    float value = truth(w, element);
    int place = YOKE_REPLICATED;
    int n = 1;
    int index = 0;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        if (is_partial(layout.place[a])) {
            place = layout.place[a];
            index = index * w->mesh->size[a] + yoke_mesh_coordinate(w->mesh, rank, (yoke_axis)a);
            n *= w->mesh->size[a];
        }
    }
    bool chosen = element % n == index;
    if (place == YOKE_PARTIAL_MAX) {
        return chosen ? value : value - (float)(1 + (element + index) % 3);
    }
    if (place == YOKE_PARTIAL_SUM) {
        /* The others hold 1, 2, ..., what is chosen makes up for them. */
        float others = (float)(n * (n - 1) / 2) - (float)(element % n);
        return chosen ? value - others : (float)index;
    }
    return value;
}

static int64_t global_element(const yoke_shape *shape, const yoke_shard *shard,
                              const int64_t *index)
{
    int64_t at[YOKE_MAX_DIMS];
    for (int d = 0; d < shape->n_dims; d++) {
        at[d] = shard->offset[d] + index[d];
    }
    return position(shape->n_dims, shape->extent, at);
}

static void fill_shard(const row *r, const yoke_shard *shard, float *out)
{
    int64_t index[YOKE_MAX_DIMS] = {0};
    if (yoke_shard_elements(shard) == 0) {
        return;
    }
    do {
        *out++ = held_value(r->w, r->from, r->rank, global_element(r->w->shape, shard, index));
    } while (next_index(shard->n_dims, shard->extent, index));
}

/* Slow twin: gathers the parts of all members from their definition and takes what this rank should
 * have, summed or maximised in member order along the converted axis. */
static float wanted_value(const row *r, int64_t element)
{
    int place = r->from.place[r->axis];
    float value = held_value(r->w, r->from, r->rank, element);
    if (!is_partial(place) || r->from.place[r->axis] == r->to.place[r->axis]) {
        return value;
    }
    for (int m = 0; m < r->n_members; m++) {
        float next = held_value(r->w, r->from, r->members[m], element);
        if (m == 0) {
            value = next;
        } else {
            value = place == YOKE_PARTIAL_MAX ? fmaxf(value, next) : value + next;
        }
    }
    return value;
}

static yoke_status check_shard(const row *r, const yoke_shard *shard, const float *got)
{
    int64_t index[YOKE_MAX_DIMS] = {0};
    if (yoke_shard_elements(shard) == 0) {
        return YOKE_OK;
    }
    int64_t i = 0;
    do {
        int64_t element = global_element(r->w->shape, shard, index);
        float wanted = wanted_value(r, element);
        if (memcmp(&got[i], &wanted, sizeof wanted) != 0) {
            char from[64];
            char to[64];
            char mesh[64];
            return YOKE_FAIL(YOKE_CHECK, "%s, %s to %s: rank %d element %lld is %.9g, not %.9g",
                             yoke_mesh_print(r->w->mesh, mesh, sizeof mesh),
                             yoke_layout_print(r->from, from, sizeof from),
                             yoke_layout_print(r->to, to, sizeof to), r->rank, (long long)element,
                             (double)got[i], (double)wanted);
        }
        i++;
    } while (next_index(shard->n_dims, shard->extent, index));
    return YOKE_OK;
}

/* all_reduce in place; a maximum is cut afterwards, for the transport scatters sums only. */
static yoke_status convert_by_all_reduce(yoke_endpoint *endpoint, const row *r, int group,
                                         const yoke_shard *shard, float *in)
{
    bool max = r->from.place[r->axis] == YOKE_PARTIAL_MAX;
    fill_shard(r, shard, in);
    yoke_transfer transfer = {.kind =
                                  max ? YOKE_TRANSFER_ALL_REDUCE_MAX : YOKE_TRANSFER_ALL_REDUCE_SUM,
                              .group = group,
                              .elements = yoke_shard_elements(shard),
                              .out = in};
    YOKE_TRY(run_transfer(endpoint, &transfer));
    return check_shard(r, shard, in);
}

static yoke_status convert(yoke_endpoint *endpoint, const row *r, int group)
{
    yoke_conversion conversion = yoke_conversion_find(r->from.place[r->axis], r->to.place[r->axis]);
    yoke_shard shards[MOST_RANKS];
    for (int m = 0; m < r->n_members; m++) {
        shards[m] = yoke_layout_shard(r->w->mesh, r->from, r->w->shape, r->members[m]);
    }
    yoke_shard own = yoke_layout_shard(r->w->mesh, r->from, r->w->shape, r->rank);
    yoke_shard wanted = yoke_layout_shard(r->w->mesh, r->to, r->w->shape, r->rank);
    float *in = r->w->memory + (size_t)r->rank * 2 * MOST_ELEMENTS;
    float *out = in + MOST_ELEMENTS;
    bool sums = r->from.place[r->axis] == YOKE_PARTIAL_SUM;
    if (conversion == YOKE_CONVERT_ALL_REDUCE) {
        return convert_by_all_reduce(endpoint, r, group, &own, in);
    }
    if (conversion == YOKE_CONVERT_SLICE || conversion == YOKE_CONVERT_MASK ||
        conversion == YOKE_CONVERT_NONE || (conversion == YOKE_CONVERT_REDUCE_SCATTER && !sums)) {
        return YOKE_OK;
    }
    fill_shard(r, &own, in);
    poison(out, MOST_ELEMENTS);
    yoke_transfer transfer = {.kind = sums ? YOKE_TRANSFER_REDISTRIBUTE_SUM
                                           : YOKE_TRANSFER_REDISTRIBUTE_COPY,
                              .group = group,
                              .in = in,
                              .out = out,
                              .in_shards = shards,
                              .out_shard = &wanted};
    YOKE_TRY(run_transfer(endpoint, &transfer));
    if (r->w->results) {
        size_t at = (size_t)r->w->n_pairs[r->rank] * MOST_RANKS + (size_t)r->rank;
        memcpy(r->w->results + at * MOST_ELEMENTS, out,
               (size_t)yoke_shard_elements(&wanted) * sizeof(float));
    }
    r->w->n_pairs[r->rank]++;
    return check_shard(r, &wanted, out);
}

/* Groups in the order in which open_groups lists them. */
static int group_of(const yoke_mesh *mesh, int rank, int axis)
{
    int n = 0;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        for (int r = 0; r < yoke_mesh_n_ranks(mesh); r++) {
            if (yoke_mesh_coordinate(mesh, r, (yoke_axis)a) != 0) {
                continue;
            }
            if (a == axis && yoke_mesh_neighbour(mesh, rank, (yoke_axis)a, 0) == r) {
                return n;
            }
            n++;
        }
    }
    return -1;
}

static yoke_status convert_all(yoke_endpoint *endpoint, void *user)
{
    const walk *w = user;
    yoke_layout layouts[MOST_LAYOUTS];
    int n = list_layouts(w->mesh, w->shape->n_dims, layouts);
    row r = {.w = w, .rank = yoke_endpoint_rank(endpoint)};
    for (int i = 0; i < n; i++) {
        for (r.axis = 0; r.axis < YOKE_N_AXES; r.axis++) {
            r.n_members = yoke_mesh_group(w->mesh, r.rank, 1u << r.axis, r.members);
            int group = group_of(w->mesh, r.rank, r.axis);
            for (int to = YOKE_PARTIAL_MAX; to < w->shape->n_dims; to++) {
                r.from = layouts[i];
                r.to = layouts[i];
                r.to.place[r.axis] = (int8_t)to;
                if (yoke_layout_is_convertible(w->mesh, r.from, (yoke_axis)r.axis, to)) {
                    YOKE_TRY(convert(endpoint, &r, group));
                }
            }
        }
    }
    return YOKE_OK;
}

/* A world with all groups along single axes, larger than rank_options has room for. */
static yoke_world *open_groups(const yoke_mesh *mesh, size_t user_bytes)
{
    enum { MOST_GROUPS = YOKE_N_AXES * MOST_RANKS };
    int members[MOST_GROUPS][MOST_RANKS];
    const int *lists[MOST_GROUPS];
    int group_sizes[MOST_GROUPS];
    int n_groups = 0;
    for (int a = 0; a < YOKE_N_AXES; a++) {
        for (int r = 0; r < yoke_mesh_n_ranks(mesh); r++) {
            if (yoke_mesh_coordinate(mesh, r, (yoke_axis)a) == 0) {
                lists[n_groups] = members[n_groups];
                group_sizes[n_groups] = yoke_mesh_group(mesh, r, 1u << a, members[n_groups]);
                n_groups++;
            }
        }
    }
    yoke_world_options options = {.n_ranks = yoke_mesh_n_ranks(mesh),
                                  .n_groups = n_groups,
                                  .group_size = group_sizes,
                                  .group_ranks = lists,
                                  .user_bytes = user_bytes};
    yoke_world *world = NULL;
    yoke_status status = yoke_world_create(&options, &world);
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
    return world;
}

enum { BUFFER_FLOATS = 2 * MOST_RANKS * MOST_ELEMENTS, MOST_PAIRS = 512 };

static void test_every_row_in_threads(void **state)
{
    (void)state;
    int n_meshes;
    int n_checked = 0;
    const yoke_mesh *meshes = all_meshes(&n_meshes);
    for (int i = 0; i < n_meshes; i++) {
        yoke_world *world = open_groups(&meshes[i], sizeof(float) * BUFFER_FLOATS);
        for (int s = 0; s < N_SHAPES; s++) {
            int n_pairs[MOST_RANKS] = {0};
            walk w = {.mesh = &meshes[i],
                      .shape = &shapes[s],
                      .memory = yoke_world_user(world),
                      .n_pairs = n_pairs};
            run_ranks(world, true, convert_all, &w);
            n_checked += n_pairs[0];
        }
        yoke_world_destroy(world);
    }
    assert_true(n_checked > 500);
}

/* Runs all pairs of one mesh and shape, and leaves the results of all ranks in the world's memory. */
static yoke_world *run_for_results(const yoke_mesh *mesh, const yoke_shape *shape, bool threads,
                                   walk *w)
{
    size_t result_floats = (size_t)MOST_PAIRS * MOST_RANKS * MOST_ELEMENTS;
    yoke_world *world =
        open_groups(mesh, sizeof(float) * (BUFFER_FLOATS + result_floats) + 64 * MOST_RANKS);
    float *memory = yoke_world_user(world);
    *w = (walk){.mesh = mesh,
                .shape = shape,
                .rough = true,
                .memory = memory,
                .results = memory + BUFFER_FLOATS,
                .n_pairs = (int *)(void *)(memory + BUFFER_FLOATS + result_floats)};
    run_ranks(world, threads, convert_all, w);
    assert_true(w->n_pairs[0] < MOST_PAIRS);
    return world;
}

static void test_processes_give_equal_bits(void **state)
{
    (void)state;
    const yoke_mesh meshes[] = {mesh_of(1, 1, 3), mesh_of(1, 2, 2), mesh_of(1, 2, 3)};
    const yoke_shape uneven = {.n_dims = 2, .extent = {5, 7}};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        walk by_threads;
        walk by_processes;
        yoke_world *first = run_for_results(&meshes[i], &uneven, true, &by_threads);
        yoke_world *second = run_for_results(&meshes[i], &uneven, false, &by_processes);
        size_t n_pairs = (size_t)by_threads.n_pairs[0];
        assert_true(n_pairs >= 6);
        assert_int_equal(by_threads.n_pairs[0], by_processes.n_pairs[0]);
        assert_memory_equal(by_threads.results, by_processes.results,
                            n_pairs * MOST_RANKS * MOST_ELEMENTS * sizeof(float));
        yoke_world_destroy(first);
        yoke_world_destroy(second);
    }
}

/* A cut whose inner axis is in the way: the members along the outer axis do not hold what the outer
 * row of the table would need, and the start says so. */
static yoke_status start_in_the_way(yoke_endpoint *endpoint, void *user)
{
    const yoke_mesh *mesh = user;
    int rank = yoke_endpoint_rank(endpoint);
    yoke_shape shape = {.n_dims = 1, .extent = {8}};
    yoke_layout from = yoke_layout_replicated();
    from.place[YOKE_AXIS_DP] = 0;
    from.place[YOKE_AXIS_TP] = 0;
    yoke_layout to = from;
    to.place[YOKE_AXIS_DP] = YOKE_REPLICATED;
    int members[2];
    (void)yoke_mesh_group(mesh, rank, 1u << YOKE_AXIS_DP, members);
    yoke_shard shards[2] = {yoke_layout_shard(mesh, from, &shape, members[0]),
                            yoke_layout_shard(mesh, from, &shape, members[1])};
    yoke_shard wanted = yoke_layout_shard(mesh, to, &shape, rank);
    yoke_transfer transfer = {.kind = YOKE_TRANSFER_REDISTRIBUTE_COPY,
                              .group = group_of(mesh, rank, YOKE_AXIS_DP),
                              .in_shards = shards,
                              .out_shard = &wanted};
    yoke_request request;
    yoke_status status = yoke_transfer_start(endpoint, &transfer, &request);
    bool right = yoke_status_code(status) == YOKE_BAD_INPUT;
    yoke_status_free(status);
    return right ? YOKE_OK : YOKE_FAIL(YOKE_CHECK, "rank %d: not refused", rank);
}

static void test_inner_cut_in_the_way_is_refused(void **state)
{
    (void)state;
    yoke_mesh mesh = mesh_of(1, 2, 2);
    yoke_world *world = open_groups(&mesh, 64);
    run_ranks(world, true, start_in_the_way, &mesh);
    yoke_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_in_threads),
        cmocka_unit_test(test_processes_give_equal_bits),
        cmocka_unit_test(test_inner_cut_in_the_way_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
