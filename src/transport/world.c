/*
 * The world: options, groups, and the layout of the shared mapping.
 *
 * Relies on mappings that forked children inherit. It starts no rank; launch.c does.
 */
/* sched_getaffinity is not in POSIX. */
#define _GNU_SOURCE
#include "transport/world.h"

#include <sched.h>
#include <string.h>

#include "base/memory.h"

/* Cores that this process may use, which in a container are fewer than the machine has. */
static int count_cores(void)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) {
        return 1;
    }
    return CPU_COUNT(&cores);
}

static yoke_status check_group(const yoke_world_options *options, int group)
{
    int n = options->group_size[group];
    const int *rank = options->group_ranks[group];
    if (n < 1 || n > options->n_ranks) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "group %d has %d ranks; it needs 1 to %d", group, n,
                         options->n_ranks);
    }
    for (int m = 0; m < n; m++) {
        if (rank[m] < 0 || rank[m] >= options->n_ranks || (m > 0 && rank[m] <= rank[m - 1])) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "group %d: member %d is rank %d; members are ascending ranks below %d",
                             group, m, rank[m], options->n_ranks);
        }
    }
    return YOKE_OK;
}

static yoke_status check_options(const yoke_world_options *options)
{
    if (options->n_ranks < 1 || options->n_ranks > YOKE_MAX_WORLD_RANKS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "%d ranks; a world has 1 to %d", options->n_ranks,
                         YOKE_MAX_WORLD_RANKS);
    }
    if (options->depth < 0 || options->depth > YOKE_MAX_DEPTH) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "depth %d; a channel keeps 1 to %d transfers outstanding (0: %d)",
                         options->depth, YOKE_MAX_DEPTH, YOKE_DEFAULT_DEPTH);
    }
    for (int g = 0; g < options->n_groups; g++) {
        YOKE_TRY(check_group(options, g));
    }
    return YOKE_OK;
}

static yoke_status copy_groups(yoke_world *world, const yoke_world_options *options)
{
    size_t n_members = 0;
    for (int g = 0; g < options->n_groups; g++) {
        n_members += (size_t)options->group_size[g];
    }
    size_t list_bytes = n_members * sizeof(int);
    size_t group_bytes = (size_t)options->n_groups * sizeof(yoke_ranks);
    world->group_ranks = yoke_block_alloc(list_bytes);
    world->groups = yoke_block_alloc(group_bytes);
    if (!world->group_ranks || !world->groups) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no %zu bytes for the lists of %d groups; use fewer ranks",
                         list_bytes + group_bytes, options->n_groups);
    }
    int *list = world->group_ranks;
    for (int g = 0; g < options->n_groups; g++) {
        int n = options->group_size[g];
        memcpy(list, options->group_ranks[g], (size_t)n * sizeof(int));
        world->groups[g] = (yoke_ranks){.n = n, .rank = list};
        list += n;
    }
    return YOKE_OK;
}

static yoke_status fill_world(yoke_world *world, const yoke_world_options *options)
{
    *world = (yoke_world){
        .n_ranks = options->n_ranks,
        .n_groups = options->n_groups,
        .depth = options->depth > 0 ? options->depth : YOKE_DEFAULT_DEPTH,
        .n_cores = options->n_cores > 0 ? options->n_cores : count_cores(),
        .timeout_s = options->timeout_s > 0 ? options->timeout_s : 600.0,
        .user_bytes = options->user_bytes,
    };
    /* Twice the depth, so that no start need wait for a slot: who starts collective s has waited
     * for s - depth, which every member has then started, each after its wait for s - 2 depth. */
    world->n_slots = 2 * world->depth;
    YOKE_TRY(copy_groups(world, options));
    return yoke_mapping_create(&world->user, options->user_bytes, true);
}

yoke_status yoke_world_create(const yoke_world_options *options, yoke_world **world)
{
    *world = NULL;
    YOKE_TRY(check_options(options));
    yoke_world *made = yoke_block_alloc(sizeof *made);
    if (!made) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no %zu bytes for a world of %d ranks", sizeof *made,
                         options->n_ranks);
    }
    yoke_status status = fill_world(made, options);
    if (status) {
        yoke_world_destroy(made);
        return status;
    }
    *world = made;
    return YOKE_OK;
}

void yoke_world_destroy(yoke_world *world)
{
    if (!world) {
        return;
    }
    yoke_world_unmap(world);
    yoke_mapping_destroy(world->user, world->user_bytes);
    yoke_block_free(world->groups);
    yoke_block_free(world->group_ranks);
    yoke_block_free(world);
}

void *yoke_world_user(yoke_world *world)
{
    return world->user;
}

/* Hands out pieces of a mapping; with start NULL it only counts. */
typedef struct cursor {
    char *start;
    size_t used_bytes;
} cursor;

static void *take(cursor *c, size_t bytes)
{
    void *piece = c->start ? c->start + c->used_bytes : NULL;
    c->used_bytes += (bytes + YOKE_CACHE_LINE - 1) / YOKE_CACHE_LINE * YOKE_CACHE_LINE;
    return piece;
}

/* Lays the shared parts out from `start`, or only counts; returns their bytes. */
static size_t lay_out(yoke_world *world, void *start)
{
    cursor c = {.start = start};
    size_t n_ranks = (size_t)world->n_ranks;
    size_t n_slots = (size_t)world->n_slots;
    world->control = take(&c, sizeof(yoke_control));
    world->states = take(&c, n_ranks * sizeof(yoke_rank_state));
    for (int g = 0; g < world->n_groups; g++) {
        yoke_ranks *group = &world->groups[g];
        group->slots = take(&c, n_slots * sizeof(yoke_slot));
        group->entries = take(&c, n_slots * (size_t)group->n * sizeof(yoke_entry));
    }
    /* The largest part, of which only the pairs that talk touch any page. */
    world->messages = take(&c, n_ranks * n_ranks * (size_t)world->depth * sizeof(yoke_message));
    return c.used_bytes;
}

yoke_status yoke_world_map(yoke_world *world)
{
    world->shared_bytes = lay_out(world, NULL);
    YOKE_TRY(yoke_mapping_create(&world->shared, world->shared_bytes, true));
    lay_out(world, world->shared);
    for (int r = 0; r < world->n_ranks; r++) {
        atomic_init(&world->states[r].instruction, -1);
        atomic_init(&world->states[r].waits_for, -1);
        world->states[r].report.waits_for = -1;
    }
    return YOKE_OK;
}

void yoke_world_unmap(yoke_world *world)
{
    yoke_mapping_destroy(world->shared, world->shared_bytes);
    world->shared = NULL;
}
