/*
 * Kernel calls for tests: operands by letters, filled at random, each between guard bytes, and comparison with a twin.
 */
#ifndef KERNEL_CASE_H
#define KERNEL_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bf16.h"
#include "kernel/kernel.h"
#include "kernel/piece.h"
#include "kernel/sets.h"
#include "op/op.h"

enum { CASE_MAX_IN = 6, CASE_MAX_OUT = 4, GUARD_BYTES = 256, MAX_LETTERS = 12 };

typedef struct letter_size {
    char letter;
    int64_t extent, offset;
} letter_size;

typedef struct case_sizes {
    const char *name;
    letter_size letter[MAX_LETTERS];
    int64_t n_heads, n_kv_heads; /* global */
} case_sizes;

/*
 * Operands by letters, "" a scalar, NULL the end. Fill of each input: n even in (-1.7, 1.7), q quarters from -1.5 to 1.5, of which sums are numbers of bf16, u even in (0.05, 1.05), i token ids of which some
 * lie outside of `v`, l labels of which some are -1, p positions, o one, + a small count, g gates [b,t,e] of which some are
 * 0, s slots [b,t,e] of which some are -1 and some outside of `c`.
 */
typedef struct op_case {
    yoke_op op;
    const char *in[CASE_MAX_IN];
    const char *out[CASE_MAX_OUT];
    const char *fill;
    yoke_contraction contraction;
    unsigned updates; /* inputs written in place, as a mask */
    unsigned aliases; /* inputs whose memory the first output may take, as a mask */
    bool accumulates;
    float tolerance;
} op_case;

typedef struct kernel_case {
    yoke_tensor in[CASE_MAX_IN], out[CASE_MAX_OUT];
    yoke_attributes attributes;
    yoke_optimizer optimizer;
    yoke_kernel_call call;
    size_t scratch_bytes;
} kernel_case;

/* Memory between guards, which guarded_check looks at and guarded_free gives back. */
static inline void *guarded_alloc(size_t bytes)
{
    size_t total = (bytes + 63) / 64 * 64 + 2 * GUARD_BYTES;
    unsigned char *start = aligned_alloc(64, total);
    if (!start) {
        abort();
    }
    memset(start, 0xA5, total);
    return start + GUARD_BYTES;
}

static inline void guarded_free(void *memory)
{
    if (memory) {
        free((unsigned char *)memory - GUARD_BYTES);
    }
}

static inline bool guarded_check(const void *memory, size_t bytes)
{
    const unsigned char *first = memory;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (first[-1 - (int64_t)i] != 0xA5 || first[bytes + i] != 0xA5) {
            return false;
        }
    }
    return true;
}

static inline size_t piece_bytes(const yoke_tensor *piece)
{
    return (size_t)(yoke_piece_elements(piece) * yoke_dtype_bytes(piece->dtype));
}

static inline letter_size letter_find(const case_sizes *sizes, char letter)
{
    for (int i = 0; i < MAX_LETTERS; i++) {
        if (sizes->letter[i].letter == letter) {
            return sizes->letter[i];
        }
    }
    return (letter_size){letter, 3, 0};
}

static inline yoke_tensor piece_create(const case_sizes *sizes, const char *letters)
{
    yoke_tensor piece = {.shard = {.n_dims = (int)strlen(letters)}};
    for (int i = 0; letters[i]; i++) {
        letter_size size = letter_find(sizes, letters[i]);
        piece.shard.extent[i] = size.extent;
        piece.shard.offset[i] = size.offset;
    }
    piece.data = guarded_alloc(piece_bytes(&piece));
    return piece;
}

/* A number of 32 bits from two (Steele, Lea and Flood, "SplitMix", 2014): quicker than the library's, and not under test. */
static inline uint32_t mix(uint64_t seed, uint64_t index)
{
    uint64_t z = (seed << 40) + (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(z >> 32);
}

/* Each expert hands out its slots in ascending order, from the last one before the piece's first. */
static inline void slots_fill(yoke_tensor *piece, const case_sizes *sizes, uint64_t seed)
{
    const int64_t *extent = piece->shard.extent;
    float *slots = piece->data;
    int64_t columns = extent[0] > 0 ? extent[2] : 0;
    for (int64_t i = 0; i < extent[0] * columns; i++) {
        int64_t next = letter_find(sizes, 'c').offset - 1;
        for (int64_t t = 0; t < extent[1]; t++) {
            int64_t at = (i / columns * extent[1] + t) * columns + i % columns;
            bool chosen = next >= 0 && mix(seed, (uint64_t)at) % 3 > 0;
            slots[at] = chosen ? (float)next : -1.0f;
            next += chosen || next < 0;
        }
    }
}

static inline void piece_fill(yoke_tensor *piece, char fill, const case_sizes *sizes, uint64_t seed)
{
    letter_size v = letter_find(sizes, 'v');
    letter_size t = letter_find(sizes, 't');
    float *real = piece->data;
    int32_t *whole = piece->data;
    if (fill == 's') {
        slots_fill(piece, sizes, seed);
        return;
    }
    for (int64_t i = 0; i < yoke_piece_elements(piece); i++) {
        uint32_t random = mix(seed, (uint64_t)i);
        int64_t pick = (int64_t)(random % (uint32_t)(v.extent + 3));
        float uniform = (float)(random >> 8) * 0x1p-24f;
        switch (fill) {
        case 'n':
            real[i] = 3.4f * (uniform - 0.5f);
            break;
        case 'q':
            real[i] = 0.25f * (float)((int)(random % 13) - 6);
            break;
        case 'u':
            real[i] = 0.05f + uniform;
            break;
        case 'i':
            whole[i] = (int32_t)(v.offset + pick - 1);
            break;
        case 'l':
            whole[i] = (int32_t)(pick == 0 ? -1 : v.offset + pick - 2);
            break;
        case 'p':
            whole[i] = (int32_t)(t.offset + i % (t.extent > 0 ? t.extent : 1));
            break;
        case '+':
            real[i] = 7.0f;
            break;
        case 'g':
            real[i] = random % 2 ? 0.05f + uniform : 0.0f;
            break;
        default:
            real[i] = 1.0f;
        }
    }
}

static inline void attributes_fill(kernel_case *c, const op_case *row, const case_sizes *sizes)
{
    letter_size x = letter_find(sizes, 'x');
    letter_size s = letter_find(sizes, 's');
    bool drops = row->op == YOKE_OP_DROPOUT || row->op == YOKE_OP_JITTER;
    c->optimizer = (yoke_optimizer){.rate = YOKE_RATE_COSINE,
                                    .lr = 0.01,
                                    .min_lr = 0.001,
                                    .warmup_steps = 3,
                                    .total_steps = 50,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .epsilon = 1e-8,
                                    .clip = 1.0};
    c->attributes = (yoke_attributes){.epsilon = 1e-5f,
                                      .rate = drops ? 0.3f : 0.0f,
                                      .scale = x.extent > 0 ? 1.0f / sqrtf((float)x.extent) : 1.0f,
                                      .base = 10000.0f,
                                      .sign = 1,
                                      .site = 77,
                                      .n_heads = sizes->n_heads,
                                      .n_kv_heads = sizes->n_kv_heads,
                                      .n_chosen = 2,
                                      .n_slots = 2,
                                      .n_tokens = s.offset + s.extent,
                                      .causal = true,
                                      .decay = 0.1f,
                                      .contraction = row->contraction,
                                      .optimizer = &c->optimizer};
    c->attributes.global[0].n_dims = c->in[0].shard.n_dims;
    for (int dim = 0; dim < c->in[0].shard.n_dims; dim++) {
        const yoke_shard *shard = &c->in[0].shard;
        c->attributes.global[0].extent[dim] = shard->offset[dim] + shard->extent[dim] + 2;
    }
}

/* Inputs that only mean something together: what another operator makes of the first ones. */
static inline void inputs_derive(kernel_case *c, yoke_op op, const yoke_kernel_set *ref)
{
    yoke_kernel_call call = c->call;
    if (op == YOKE_OP_ROW_SUM_EXP || op == YOKE_OP_CROSS_ENTROPY_GRAD) {
        call.out = &c->in[1];
        ref->run[YOKE_OP_ROW_MAX](&call);
    }
    if (op == YOKE_OP_CROSS_ENTROPY_GRAD) {
        call.out = &c->in[2];
        ref->run[YOKE_OP_ROW_SUM_EXP](&call);
    }
    if (op == YOKE_OP_ATTENTION_GRAD) {
        call.out = &c->in[3];
        ref->run[YOKE_OP_ATTENTION](&call);
    }
}

/* Inputs are a function of the seed; outputs are filled with numbers to be added to, or overwritten. */
static inline kernel_case *case_create(const op_case *row, const case_sizes *sizes, uint64_t seed)
{
    kernel_case *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->call = (yoke_kernel_call){.in = c->in,
                                 .out = c->out,
                                 .attributes = &c->attributes,
                                 .seed = 5,
                                 .step = 3,
                                 .microbatch = 1};
    for (int i = 0; i < CASE_MAX_IN && row->in[i]; i++, c->call.n_in++) {
        c->in[i] = piece_create(sizes, row->in[i]);
        piece_fill(&c->in[i], row->fill[i], sizes, seed + (uint64_t)i);
    }
    for (int i = 0; i < CASE_MAX_OUT && row->out[i]; i++, c->call.n_out++) {
        c->out[i] = piece_create(sizes, row->out[i]);
        piece_fill(&c->out[i], 'n', sizes, seed + 100 + (uint64_t)i);
    }
    attributes_fill(c, row, sizes);
    c->scratch_bytes = yoke_kernel_scratch_bytes(row->op, &c->call, 4);
    c->call.scratch = guarded_alloc(c->scratch_bytes);
    if (row->op == YOKE_OP_ATTENTION_GRAD) {
        memset(c->call.scratch, 0xFF, c->scratch_bytes);
    }
    inputs_derive(c, row->op, yoke_kernel_set_find("ref"));
    memset(c->call.scratch, 0xFF, c->scratch_bytes);
    return c;
}

/* How the operands are held that may be bf16: as f32, as f32 whose values are numbers of bf16, as bf16. */
typedef enum case_storage { STORED_WIDE, STORED_ROUNDED, STORED_NARROW } case_storage;

/* The elements as floats, to be freed. */
static inline float *piece_floats(const yoke_tensor *piece)
{
    int64_t n = yoke_piece_elements(piece);
    float *all = calloc((size_t)n + 1, sizeof(*all));
    if (!all) {
        abort();
    }
    for (int64_t i = 0; i < n; i++) {
        all[i] = piece->dtype == YOKE_BF16 ? yoke_bf16_widen(((const yoke_bf16 *)piece->data)[i])
                                           : ((const float *)piece->data)[i];
    }
    return all;
}

static inline void piece_store(yoke_tensor *piece, case_storage storage)
{
    float *all = piece_floats(piece);
    if (storage == STORED_NARROW) {
        guarded_free(piece->data);
        piece->dtype = YOKE_BF16;
        piece->data = guarded_alloc(piece_bytes(piece));
    }
    for (int64_t i = 0; i < yoke_piece_elements(piece); i++) {
        yoke_bf16 rounded = yoke_bf16_round(all[i]);
        if (storage == STORED_NARROW) {
            ((yoke_bf16 *)piece->data)[i] = rounded;
        } else {
            ((float *)piece->data)[i] = yoke_bf16_widen(rounded);
        }
    }
    free(all);
}

static inline void outputs_store(kernel_case *c, yoke_op op, case_storage storage)
{
    for (int i = 0; i < c->call.n_out; i++) {
        if (storage != STORED_WIDE && (yoke_op_get(op)->narrow_out >> i & 1)) {
            piece_store(&c->out[i], storage);
        }
    }
}

static inline void case_store(kernel_case *c, yoke_op op, case_storage storage)
{
    for (int i = 0; i < c->call.n_in; i++) {
        if (storage != STORED_WIDE && (yoke_op_get(op)->narrow_in >> i & 1)) {
            piece_store(&c->in[i], storage);
        }
    }
    outputs_store(c, op, storage);
}

static inline void case_destroy(kernel_case *c)
{
    for (int i = 0; i < c->call.n_in; i++) {
        guarded_free(c->in[i].data);
    }
    for (int i = 0; i < c->call.n_out; i++) {
        bool is_alias = false;
        for (int j = 0; j < c->call.n_in; j++) {
            is_alias = is_alias || c->out[i].data == c->in[j].data;
        }
        if (!is_alias) {
            guarded_free(c->out[i].data);
        }
    }
    guarded_free(c->call.scratch);
    free(c);
}

static inline bool case_guards_hold(const kernel_case *c)
{
    bool hold = guarded_check(c->call.scratch, c->scratch_bytes);
    for (int i = 0; i < c->call.n_in; i++) {
        hold = hold && guarded_check(c->in[i].data, piece_bytes(&c->in[i]));
    }
    for (int i = 0; i < c->call.n_out; i++) {
        hold = hold && guarded_check(c->out[i].data, piece_bytes(&c->out[i]));
    }
    return hold;
}

/* Whether all elements agree within `tolerance` of themselves and of the tensor's root mean square, and `last_place` times
 * the power of two that each begins with; else says which does not. */
static inline bool floats_near_in_place(const char *what, const float *a, const float *expected,
                                        int64_t n, double tolerance, double last_place)
{
    double squares = 0.0;
    int64_t n_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(expected[i])) {
            squares += (double)expected[i] * (double)expected[i];
            n_finite++;
        }
    }
    /* Inputs are about 1, and what cancels to zero does so with errors of that size. */
    double scale = n_finite > 0 ? fmax(sqrt(squares / (double)n_finite), 0.05) : 0.0;
    for (int64_t i = 0; i < n; i++) {
        double distance = fabs((double)a[i] - (double)expected[i]);
        bool same = a[i] == expected[i] || (isnan(a[i]) && isnan(expected[i]));
        bool has_place = isfinite(expected[i]) && expected[i] != 0.0f;
        double allowed = tolerance * (fabs((double)expected[i]) + scale) +
                         (has_place ? ldexp(last_place, ilogb((double)expected[i])) : 0.0);
        if (!same && !(distance <= allowed)) {
            fprintf(stderr, "%s: element %lld is %.9g, expected %.9g, distance %.3g, scale %.3g\n",
                    what, (long long)i, (double)a[i], (double)expected[i], distance, scale);
            return false;
        }
    }
    return true;
}

static inline bool floats_near(const char *what, const float *a, const float *expected, int64_t n,
                               double tolerance)
{
    return floats_near_in_place(what, a, expected, n, tolerance, 0.0);
}

#endif
