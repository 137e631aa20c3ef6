/*
 * Boxes as nested loops over rows: trailing dims that both pieces hold whole are joined into one
 * long run, so that gathering or cutting along the first dim is one copy.
 */
#include "transport/box.h"

#include "transport/element.h"

bool yoke_box_intersect(const yoke_shard *a, const yoke_shard *b, yoke_shard *common)
{
    *common = (yoke_shard){.n_dims = a->n_dims};
    for (int d = 0; d < a->n_dims; d++) {
        int64_t a_end = a->offset[d] + a->extent[d];
        int64_t b_end = b->offset[d] + b->extent[d];
        int64_t start = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        int64_t end = a_end < b_end ? a_end : b_end;
        if (start >= end) {
            return false;
        }
        common->offset[d] = start;
        common->extent[d] = end - start;
    }
    return true;
}

bool yoke_box_equal(const yoke_shard *a, const yoke_shard *b)
{
    for (int d = 0; d < a->n_dims; d++) {
        if (a->offset[d] != b->offset[d] || a->extent[d] != b->extent[d]) {
            return false;
        }
    }
    return true;
}

bool yoke_box_is_covered(const yoke_shard *box, const yoke_shard *others, int n)
{
    if (yoke_shard_elements(box) == 0) {
        return true;
    }
    yoke_shard common;
    int first = 0;
    while (first < n && !yoke_box_intersect(box, &others[first], &common)) {
        first++;
    }
    if (first >= n) {
        return false;
    }
    /* What is left around the common part, cut off dim by dim, is for the boxes that follow. */
    yoke_shard rest = *box;
    for (int d = 0; d < box->n_dims; d++) {
        yoke_shard below = rest;
        below.extent[d] = common.offset[d] - rest.offset[d];
        yoke_shard above = rest;
        above.offset[d] = common.offset[d] + common.extent[d];
        above.extent[d] = rest.offset[d] + rest.extent[d] - above.offset[d];
        if (!yoke_box_is_covered(&below, others + first + 1, n - first - 1) ||
            !yoke_box_is_covered(&above, others + first + 1, n - first - 1)) {
            return false;
        }
        rest.offset[d] = common.offset[d];
        rest.extent[d] = common.extent[d];
    }
    return true;
}

/* How a box is cut: `dim` in `n_cuts` ranges of `rows`, dims outside it index by index. */
typedef struct cut {
    int dim; /* -1: not at all */
    int64_t rows;
    int64_t n_cuts;
} cut;

static cut cut_of(const yoke_shard *box, int64_t limit)
{
    int64_t inner = 1;
    int dim = box->n_dims - 1;
    while (dim >= 0 && box->extent[dim] <= limit / inner) {
        inner *= box->extent[dim];
        dim--;
    }
    if (dim < 0) {
        return (cut){.dim = -1, .rows = 0, .n_cuts = 1};
    }
    int64_t most = limit / inner;
    int64_t n_cuts = (box->extent[dim] + most - 1) / most;
    return (cut){dim, (box->extent[dim] + n_cuts - 1) / n_cuts, n_cuts};
}

int64_t yoke_box_n_parts(const yoke_shard *box, int64_t limit)
{
    if (yoke_shard_elements(box) == 0) {
        return 0;
    }
    cut c = cut_of(box, limit);
    int64_t n = c.n_cuts;
    for (int d = 0; d < c.dim; d++) {
        n *= box->extent[d];
    }
    return n;
}

yoke_shard yoke_box_part(const yoke_shard *box, int64_t limit, int64_t index)
{
    cut c = cut_of(box, limit);
    yoke_shard part = *box;
    if (c.dim < 0) {
        return part;
    }
    int64_t start = index % c.n_cuts * c.rows;
    int64_t left = box->extent[c.dim] - start;
    part.offset[c.dim] += start < box->extent[c.dim] ? start : box->extent[c.dim];
    part.extent[c.dim] = left < 0 ? 0 : left < c.rows ? left : c.rows;
    index /= c.n_cuts;
    for (int d = c.dim - 1; d >= 0; d--) {
        part.offset[d] += index % box->extent[d];
        part.extent[d] = 1;
        index /= box->extent[d];
    }
    return part;
}

/* The walk over a box: `n_dims` outer dims, and runs of `run` elements at each step. */
typedef struct walk {
    int n_dims;
    int64_t extent[YOKE_MAX_DIMS];
    int64_t from_stride[YOKE_MAX_DIMS];
    int64_t to_stride[YOKE_MAX_DIMS];
    int64_t from_start;
    int64_t to_start;
    int64_t run;
} walk;

static walk walk_of(const yoke_shard *box, const yoke_shard *from, const yoke_shard *to)
{
    walk w = {.run = 1};
    int64_t from_stride = 1;
    int64_t to_stride = 1;
    int inner = box->n_dims;
    for (int d = box->n_dims - 1; d >= 0; d--) {
        w.from_start += (box->offset[d] - from->offset[d]) * from_stride;
        w.to_start += (box->offset[d] - to->offset[d]) * to_stride;
        w.extent[d] = box->extent[d];
        w.from_stride[d] = from_stride;
        w.to_stride[d] = to_stride;
        /* A run goes on as long as neither piece has elements between this dim's rows. */
        if (inner == d + 1 && w.run == from_stride && w.run == to_stride) {
            w.run *= box->extent[d];
            inner = d;
        }
        from_stride *= from->extent[d];
        to_stride *= to->extent[d];
    }
    w.n_dims = inner;
    return w;
}

/* Advances the index of the outer dims and both positions; false after the last. */
static bool step(const walk *w, int64_t *index, int64_t *from, int64_t *to)
{
    for (int d = w->n_dims - 1; d >= 0; d--) {
        *from += w->from_stride[d];
        *to += w->to_stride[d];
        if (++index[d] < w->extent[d]) {
            return true;
        }
        *from -= w->extent[d] * w->from_stride[d];
        *to -= w->extent[d] * w->to_stride[d];
        index[d] = 0;
    }
    return false;
}

void yoke_box_run(const yoke_box_move *move)
{
    if (yoke_shard_elements(move->box) == 0) {
        return;
    }
    YOKE_ASSERT(!move->adds || move->to_dtype == YOKE_F32);
    walk w = walk_of(move->box, move->from_shard, move->to_shard);
    int64_t index[YOKE_MAX_DIMS] = {0};
    int64_t from_at = w.from_start;
    int64_t to_at = w.to_start;
    do {
        const void *from = yoke_element_of(move->from, move->from_dtype, from_at);
        void *to = yoke_element_at(move->to, move->to_dtype, to_at);
        if (move->adds) {
            yoke_elements_add(to, from, move->from_dtype, w.run);
        } else {
            yoke_elements_copy(to, move->to_dtype, from, move->from_dtype, w.run);
        }
    } while (step(&w, index, &from_at, &to_at));
}

void yoke_box_fill(const yoke_shard *box, const yoke_shard *to_shard, float *to, float value)
{
    if (yoke_shard_elements(box) == 0) {
        return;
    }
    walk w = walk_of(box, to_shard, to_shard);
    int64_t index[YOKE_MAX_DIMS] = {0};
    int64_t from_at = w.from_start;
    int64_t to_at = w.to_start;
    do {
        for (int64_t i = 0; i < w.run; i++) {
            to[to_at + i] = value;
        }
    } while (step(&w, index, &from_at, &to_at));
}
