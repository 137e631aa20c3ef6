/*
 * Classes: which ranks can share a program.
 *
 * Lowering and planning ask a rank for nothing but its pipeline stage and the extents of its
 * pieces; so ranks of one stage whose pieces of everything that the stage holds have equal extents
 * are of one class. Where every cut divides evenly that is all ranks of a stage; uneven cuts give
 * more classes, at most one a rank. The verifier does not rely on this reasoning (verify_class.c).
 */
#include "program/lower.h"

/* A sort of pieces: values of one shape and layout, of which ranks may have unequal pieces. */
typedef struct sort {
    yoke_shape shape;
    yoke_layout layout;
    uint64_t stages; /* that hold some such value */
} sort;

typedef struct classing {
    const yoke_program_set *set, *beside;
    sort *sorts;
    int64_t n_sorts, capacity;
    int *slots; /* [n_slots] table of classes by digest, -1 where empty */
    int64_t n_slots;
    int *first_rank; /* [classes] */
} classing;

static bool shapes_equal(const yoke_shape *a, const yoke_shape *b)
{
    bool equal = a->n_dims == b->n_dims;
    for (int d = 0; equal && d < a->n_dims; d++) {
        equal = a->extent[d] == b->extent[d];
    }
    return equal;
}

bool yoke_layout_is_even(const yoke_mesh *mesh, yoke_layout layout, const yoke_shape *shape)
{
    for (int d = 0; d < shape->n_dims; d++) {
        int64_t parts = 1;
        for (int a = 0; a < YOKE_N_AXES; a++) {
            parts *= layout.place[a] == d ? mesh->size[a] : 1;
        }
        if (shape->extent[d] % parts != 0) {
            return false;
        }
    }
    return true;
}

static void add_sort(classing *c, const yoke_value_info *info, uint64_t stages)
{
    if (yoke_layout_is_even(&c->set->mesh, info->layout, &info->shape)) {
        return;
    }
    for (int64_t i = 0; i < c->n_sorts; i++) {
        sort *s = &c->sorts[i];
        if (yoke_layout_equal(s->layout, info->layout) && shapes_equal(&s->shape, &info->shape)) {
            s->stages |= stages;
            return;
        }
    }
    c->sorts = yoke_arena_grow(c->set->arena, c->sorts, c->n_sorts, &c->capacity, sizeof *c->sorts);
    c->sorts[c->n_sorts++] = (sort){info->shape, info->layout, stages};
}

static int stage_of(const classing *c, int rank)
{
    return yoke_mesh_coordinate(&c->set->mesh, rank, YOKE_AXIS_PP);
}

/* Plans of more stages than a mask has bits are refused before they come here. */
static bool is_held_by(const sort *s, int stage)
{
    YOKE_ASSERT(stage < 64);
    return s->stages >> stage & 1;
}

static yoke_shard piece_of(const classing *c, const sort *s, int rank)
{
    return yoke_layout_shard(&c->set->mesh, s->layout, &s->shape, rank);
}

/* FNV-1a, a number at a time. */
static uint64_t digest(const classing *c, int rank)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)stage_of(c, rank);
    uint64_t other = c->beside ? (uint64_t)c->beside->class_of[rank] : 0;
    hash = (hash ^ other << 8) * UINT64_C(1099511628211);
    for (int64_t i = 0; i < c->n_sorts; i++) {
        if (!is_held_by(&c->sorts[i], stage_of(c, rank))) {
            continue;
        }
        yoke_shard piece = piece_of(c, &c->sorts[i], rank);
        for (int d = 0; d < piece.n_dims; d++) {
            hash = (hash ^ (uint64_t)piece.extent[d]) * UINT64_C(1099511628211);
        }
    }
    return hash ^ hash >> 32;
}

/* A set beside another finds its lasting memory as the class there has it. */
static bool are_alike(const classing *c, int a, int b)
{
    bool alike = stage_of(c, a) == stage_of(c, b) &&
                 (!c->beside || c->beside->class_of[a] == c->beside->class_of[b]);
    for (int64_t i = 0; alike && i < c->n_sorts; i++) {
        if (is_held_by(&c->sorts[i], stage_of(c, a))) {
            yoke_shard x = piece_of(c, &c->sorts[i], a), y = piece_of(c, &c->sorts[i], b);
            for (int d = 0; d < x.n_dims; d++) {
                alike = alike && x.extent[d] == y.extent[d];
            }
        }
    }
    return alike;
}

/* The class of a rank, made if it is new. */
static int find_class(classing *c, int *n_classes, int rank)
{
    int64_t slot = (int64_t)(digest(c, rank) & (uint64_t)(c->n_slots - 1));
    while (c->slots[slot] >= 0 && !are_alike(c, c->first_rank[c->slots[slot]], rank)) {
        slot = (slot + 1) & (c->n_slots - 1);
    }
    if (c->slots[slot] < 0) {
        c->first_rank[*n_classes] = rank;
        c->slots[slot] = (*n_classes)++;
    }
    return c->slots[slot];
}

static void open_table(classing *c)
{
    c->n_slots = 2;
    while (c->n_slots < 2 * (int64_t)c->set->n_ranks) {
        c->n_slots *= 2;
    }
    c->slots = YOKE_ARENA_NEW(c->set->arena, int, c->n_slots);
    for (int64_t i = 0; i < c->n_slots; i++) {
        c->slots[i] = -1;
    }
    c->first_rank = YOKE_ARENA_NEW(c->set->arena, int, c->set->n_ranks);
}

void yoke_classes_find(yoke_program_set *set, const uint64_t *readers,
                       const yoke_program_request *request)
{
    classing c = {.set = set, .beside = request->beside};
    for (int64_t v = 0; v < set->graph->n_values; v++) {
        add_sort(&c, &set->graph->values[v], set->stages[v] | readers[v]);
    }
    open_table(&c);
    set->class_of = YOKE_ARENA_NEW(set->arena, int, set->n_ranks);
    int n = 0;
    for (int rank = 0; rank < set->n_ranks; rank++) {
        set->class_of[rank] = request->apart ? n++ : find_class(&c, &n, rank);
    }
    set->n_classes = n;
    set->classes = YOKE_ARENA_NEW(set->arena, yoke_program, n);
    for (int rank = set->n_ranks - 1; rank >= 0; rank--) {
        yoke_program *program = &set->classes[set->class_of[rank]];
        program->rank = rank;
        program->n_ranks++;
    }
}
