/* Placement: see placement.h. Relies on hwloc for the machine and for binding; knows no mesh. */
#include "run/placement.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include "base/memory.h"

enum { TEXT_BYTES = 192, LIST_BYTES = 96 };

struct yoke_placement {
    hwloc_topology_t topology; /* NULL: could not be read */
    bool imagined;             /* the topology is not that of this machine */
    int n_ranks, n_threads;
    hwloc_cpuset_t *sets; /* [n_ranks]; NULL: nothing is bound */
    char text[TEXT_BYTES];
};

/* --- The machine ------------------------------------------------------------------------------ */

static hwloc_topology_t read_machine(const char *description)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        return NULL;
    }
    bool good = true;
    if (description) {
        good = hwloc_topology_set_synthetic(topology, description) == 0;
    } else {
        /* A user's taskset is obeyed. */
        good =
            hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                                   HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING) == 0;
    }
    if (!good || hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    return topology;
}

static int count(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int n = topology ? hwloc_get_nbobjs_by_type(topology, type) : 0;
    return n > 0 ? n : 0;
}

static bool can_bind(hwloc_topology_t topology)
{
    const struct hwloc_topology_support *support = hwloc_topology_get_support(topology);
    return support->cpubind->set_thisthread_cpubind;
}

/* --- Who goes where --------------------------------------------------------------------------- */

/* Where threads may go: cores, or the hardware threads in them where cores do not suffice. */
typedef struct places {
    hwloc_obj_type_t type;
    int n;
} places;

static places choose_places(hwloc_topology_t topology, int64_t n_wanted)
{
    places cores = {HWLOC_OBJ_CORE, count(topology, HWLOC_OBJ_CORE)};
    places units = {HWLOC_OBJ_PU, count(topology, HWLOC_OBJ_PU)};
    return n_wanted <= cores.n ? cores : units;
}

/* Which domain of a type a place lies in; 0 for all where the machine has none of that type. */
static int domain_of(hwloc_topology_t topology, hwloc_obj_t place, hwloc_obj_type_t type)
{
    hwloc_obj_t domain = hwloc_get_ancestor_obj_by_type(topology, type, place);
    return domain ? (int)domain->logical_index : 0;
}

/* Gives each rank the next places that lie in one domain; `first` [n_ranks]. False if some rank
 * finds none. */
static bool pack(const yoke_placement *p, places where, hwloc_obj_type_t domain, int *first)
{
    int at = 0;
    for (int rank = 0; rank < p->n_ranks; rank++) {
        int held = 0;
        int last_domain = -1;
        while (held < p->n_threads && at < where.n) {
            hwloc_obj_t place = hwloc_get_obj_by_type(p->topology, where.type, (unsigned)at);
            int here = domain_of(p->topology, place, domain);
            held = here == last_domain ? held + 1 : 1;
            last_domain = here;
            at++;
        }
        if (held < p->n_threads) {
            return false;
        }
        first[rank] = at - p->n_threads;
    }
    return true;
}

/* The smallest domains that hold all ranks whole; the machine itself always does. */
static void place_ranks(const yoke_placement *p, places where, int *first)
{
    static const hwloc_obj_type_t domains[] = {HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_PACKAGE,
                                               HWLOC_OBJ_MACHINE};
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        bool known = count(p->topology, domains[i]) > 0 && where.type != domains[i];
        if (known && pack(p, where, domains[i], first)) {
            return;
        }
    }
    YOKE_ASSERT(false && "the machine holds as many threads as it has places");
}

static yoke_status fill_sets(yoke_placement *p, places where)
{
    int *first = yoke_block_alloc(sizeof(int) * (size_t)p->n_ranks);
    p->sets = yoke_block_alloc(sizeof(hwloc_cpuset_t) * (size_t)p->n_ranks);
    bool good = first && p->sets;
    if (good) {
        place_ranks(p, where, first);
    }
    for (int rank = 0; good && rank < p->n_ranks; rank++) {
        p->sets[rank] = hwloc_bitmap_alloc();
        good = p->sets[rank] != NULL;
        for (int i = 0; good && i < p->n_threads; i++) {
            hwloc_obj_t place =
                hwloc_get_obj_by_type(p->topology, where.type, (unsigned)(first[rank] + i));
            good = hwloc_bitmap_or(p->sets[rank], p->sets[rank], place->cpuset) == 0;
        }
    }
    yoke_block_free(first);
    return good ? YOKE_OK
                : YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the cores of %d ranks", p->n_ranks);
}

/* --- Making ----------------------------------------------------------------------------------- */

/* "1 L3", or nothing where the machine does not say. */
static const char *name_count(int n, const char *what, char *text, size_t text_bytes)
{
    text[0] = '\0';
    if (n > 0) {
        (void)snprintf(text, text_bytes, ", %d %s", n, what);
    }
    return text;
}

static void describe_bound(yoke_placement *p, places where)
{
    char list[LIST_BYTES];
    char caches[32];
    char nodes[32];
    hwloc_bitmap_t all = hwloc_bitmap_alloc();
    for (int rank = 0; rank < p->n_ranks && all; rank++) {
        (void)hwloc_bitmap_or(all, all, p->sets[rank]);
    }
    (void)hwloc_bitmap_list_snprintf(list, sizeof list, all);
    hwloc_bitmap_free(all);
    (void)snprintf(p->text, sizeof p->text, "each thread has a %s, in %s (%d cores%s%s)",
                   where.type == HWLOC_OBJ_CORE ? "core" : "hardware thread", list,
                   count(p->topology, HWLOC_OBJ_CORE),
                   name_count(count(p->topology, HWLOC_OBJ_L3CACHE), "L3", caches, sizeof caches),
                   name_count(count(p->topology, HWLOC_OBJ_NUMANODE), "NUMA", nodes, sizeof nodes));
}

static yoke_status decide(yoke_placement *p, const char *wanted)
{
    int64_t n_threads = (int64_t)p->n_ranks * p->n_threads;
    int n_cores = count(p->topology, HWLOC_OBJ_CORE);
    if (strcmp(wanted, "none") == 0) {
        (void)snprintf(p->text, sizeof p->text, "not bound, as placement is none");
        return YOKE_OK;
    }
    if (!p->topology || (!p->imagined && !can_bind(p->topology))) {
        (void)snprintf(p->text, sizeof p->text, "not bound, as this system cannot");
        return YOKE_OK;
    }
    places where = choose_places(p->topology, n_threads);
    bool demanded = strcmp(wanted, "cores") == 0;
    if (n_threads > where.n && demanded) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "placement cores: %d ranks of %d threads need %lld cores, there are %d; use "
            "placement=auto or none, or fewer ranks or threads",
            p->n_ranks, p->n_threads, (long long)n_threads, where.n);
    }
    if (n_threads > where.n) {
        (void)snprintf(p->text, sizeof p->text, "not bound: %lld threads on %d cores",
                       (long long)n_threads, n_cores);
        return YOKE_OK;
    }
    if (!demanded && 2 * n_threads <= n_cores) {
        (void)snprintf(p->text, sizeof p->text, "not bound: %lld of %d cores, the others are free",
                       (long long)n_threads, n_cores);
        return YOKE_OK;
    }
    YOKE_TRY(fill_sets(p, where));
    describe_bound(p, where);
    return YOKE_OK;
}

yoke_status yoke_placement_create(const yoke_placement_request *request, yoke_placement **placement)
{
    yoke_placement *p = yoke_block_alloc(sizeof *p);
    if (!p) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the placement of %d ranks",
                         request->n_ranks);
    }
    *p = (yoke_placement){.topology = read_machine(request->machine),
                          .imagined = request->machine != NULL,
                          .n_ranks = request->n_ranks,
                          .n_threads = request->n_threads};
    yoke_status status = decide(p, request->wanted);
    if (status) {
        yoke_placement_destroy(p);
        return status;
    }
    *placement = p;
    return YOKE_OK;
}

void yoke_placement_destroy(yoke_placement *placement)
{
    if (!placement) {
        return;
    }
    for (int rank = 0; placement->sets && rank < placement->n_ranks; rank++) {
        hwloc_bitmap_free(placement->sets[rank]);
    }
    yoke_block_free(placement->sets);
    if (placement->topology) {
        hwloc_topology_destroy(placement->topology);
    }
    yoke_block_free(placement);
}

/* --- Questions and binding -------------------------------------------------------------------- */

const char *yoke_placement_text(const yoke_placement *placement)
{
    return placement->text;
}

bool yoke_placement_is_bound(const yoke_placement *placement)
{
    return placement->sets != NULL;
}

const char *yoke_placement_print(const yoke_placement *placement, int rank, char *buffer,
                                 int buffer_bytes)
{
    YOKE_ASSERT(rank >= 0 && rank < placement->n_ranks);
    buffer[0] = '\0';
    if (placement->sets) {
        (void)hwloc_bitmap_list_snprintf(buffer, (size_t)buffer_bytes, placement->sets[rank]);
    }
    return buffer;
}

void yoke_placement_bind(const yoke_placement *placement, int rank)
{
    YOKE_ASSERT(rank >= 0 && rank < placement->n_ranks);
    if (placement->sets && !placement->imagined) {
        /* Where the system refuses after all, the run is as good as without. */
        (void)hwloc_set_cpubind(placement->topology, placement->sets[rank], HWLOC_CPUBIND_THREAD);
    }
}
