/*
 * N ranks equal one rank, for every dimension alone, for each pair of them, and for many together.
 *
 * The rows know no model and a family is one struct, so that a new family is one test file of a few
 * lines. Sizes go round with the rows, so that what does not divide meets everything: 5 layers, 257
 * tokens of vocabulary, 6 heads, sequences of 17 and 30, 5 and 6 sequences in a step, micro-batches
 * smaller than the ranks. Included after cmocka.h; relies on parity_case.h for the comparison.
 */
#ifndef PARITY_MESHES_H
#define PARITY_MESHES_H

#include "parity_case.h"

typedef enum family_sizes { AS_PRESET, FIVE_LAYERS, SIX_HEADS, OTHER_TIE, N_SIZES } family_sizes;

typedef struct family {
    const char *preset;
    /* Of the model, by which it gets these sizes. With six heads goes all that draws random numbers. */
    const char *keys[N_SIZES];
} family;

/* One dimension: its axis, and the option that gives the axis its policy. */
typedef struct dimension {
    const char *axis;
    const char *options;
} dimension;

static const dimension dimensions[] = {
    {"dp", ""},
    {"dp", "zero=1"},
    {"dp", "zero=2"},
    {"dp", "zero=3"},
    {"fsdp", ""},
    {"ep", ""},
    {"cp", "context_parallel=gather"},
    {"cp", "context_parallel=heads"},
    {"cp", "context_parallel=ring"},
    {"tp", ""},
    {"tp", "sequence_parallel=true"},
    {"pp", ""},
};

/* Sequences, micro-batches and tokens that go round with the rows. */
static const struct {
    int64_t batch, microbatches, seq_len;
} rounds[] = {{6, 1, 16}, {6, 2, 17}, {6, 3, 30}, {5, 1, 17}, {8, 4, 16}};

/* Runs row `index` of a family's table; returns 1 if it fails, which is printed. */
static inline int count_failure(const family *f, const session_case *row, family_sizes sizes,
                                int index)
{
    parity_case p = {.base = *row};
    p.base.preset = f->preset;
    p.base.keys = f->keys[sizes];
    p.base.steps = 3;
    /* Where a gradient is nearly 0, AdamW's first steps turn its rounding into another update. */
    p.base.epsilon = 1e-6;
    if (!row->batch) {
        p.base.batch = rounds[index % COUNT(rounds)].batch;
        p.base.microbatches = rounds[index % COUNT(rounds)].microbatches;
        p.base.seq_len = rounds[index % COUNT(rounds)].seq_len;
    }
    return !has_parity(&p);
}

static inline void assert_each_alone(const family *f)
{
    int n_failed = 0;
    for (int i = 0; i < COUNT(dimensions) * 3; i++) {
        char mesh[32];
        (void)snprintf(mesh, sizeof mesh, "%s=%d", dimensions[i / 3].axis, 2 + i % 3);
        session_case row = {.mesh = mesh, .options = dimensions[i / 3].options};
        family_sizes sizes =
            strncmp(mesh, "pp", 2) == 0 ? FIVE_LAYERS : (family_sizes)(i % N_SIZES);
        n_failed += count_failure(f, &row, sizes, i);
    }
    assert_int_equal(n_failed, 0);
}

static inline void assert_all_pairs(const family *f)
{
    int n_failed = 0, n = 0;
    for (int i = 0; i < COUNT(dimensions); i++) {
        for (int k = i + 1; k < COUNT(dimensions); k++) {
            const dimension *a = &dimensions[i], *b = &dimensions[k];
            char mesh[32], options[64];
            if (strcmp(a->axis, b->axis) == 0) {
                continue;
            }
            (void)snprintf(mesh, sizeof mesh, "%s=%d,%s=%d", a->axis, 2 + n % 2, b->axis,
                           2 + n / 2 % 2);
            (void)snprintf(options, sizeof options, "%s %s", a->options, b->options);
            session_case row = {.mesh = mesh, .options = options};
            bool cut = strcmp(b->axis, "pp") == 0;
            n_failed += count_failure(f, &row, cut ? FIVE_LAYERS : (family_sizes)(n % N_SIZES), n);
            n++;
        }
    }
    assert_int_equal(n_failed, 0);
}

typedef struct together {
    session_case base;
    family_sizes sizes;
} together;

#define SP       "sequence_parallel=true"
#define HEADS    "context_parallel=heads"
#define SP_HEADS SP " " HEADS
#define RING     "context_parallel=ring"
#define FULL     "recompute=full"
#define SELECTED "recompute=selective"

/* Three and more at a time. */
static const together many[] = {
    {{.mesh = "fsdp=2,pp=2,tp=2"}, FIVE_LAYERS},
    {{.mesh = "fsdp=3,pp=2,tp=2", .schedule = "zb-h1"}, AS_PRESET},
    {{.mesh = "fsdp=2,pp=2,tp=2", .schedule = "zb-v", .batch = 8, .microbatches = 4}, FIVE_LAYERS},
    {{.mesh = "dp=2,pp=2,tp=2", .options = "zero=2", .batch = 6, .microbatches = 3}, FIVE_LAYERS},
    {{.mesh = "dp=3,pp=3", .options = "zero=2", .batch = 6, .microbatches = 3}, FIVE_LAYERS},
    {{.mesh = "dp=2,pp=2,tp=2", .options = "zero=1 " SP}, OTHER_TIE},
    {{.mesh = "dp=2,pp=2,tp=2", .options = "zero=3 " SP}, OTHER_TIE},
    {{.mesh = "pp=2,fsdp=3"}, OTHER_TIE},
    {{.mesh = "pp=2,fsdp=4"}, AS_PRESET},
    {{.mesh = "pp=3,fsdp=2,tp=2"}, FIVE_LAYERS},
    {{.mesh = "ep=2,tp=2,pp=2"}, FIVE_LAYERS},
    {{.mesh = "ep=4,tp=2,pp=2", .options = SP}, AS_PRESET},
    {{.mesh = "ep=2,fsdp=2,tp=2"}, SIX_HEADS},
    {{.mesh = "ep=2,fsdp=4"}, OTHER_TIE},
    {{.mesh = "ep=2,cp=2,pp=2"}, FIVE_LAYERS},
    {{.mesh = "cp=2,tp=2,fsdp=2", .options = SP}, SIX_HEADS},
    {{.mesh = "cp=3,tp=2,fsdp=2", .options = SP}, AS_PRESET},
    {{.mesh = "cp=2,tp=4,fsdp=2", .options = SP_HEADS}, AS_PRESET},
    {{.mesh = "cp=2,tp=2,pp=2", .options = SP_HEADS}, FIVE_LAYERS},
    {{.mesh = "cp=3,tp=2,fsdp=2", .options = SP " " RING}, FIVE_LAYERS},
    {{.mesh = "cp=4,fsdp=2,pp=2", .options = RING, .schedule = "zb-h1"}, FIVE_LAYERS},
    {{.mesh = "fsdp=2,pp=2,tp=2", .options = SP " " FULL}, FIVE_LAYERS},
    {{.mesh = "fsdp=2,ep=2,cp=2", .options = RING " " FULL}, SIX_HEADS},
    {{.mesh = "dp=2,cp=2,tp=3", .options = "zero=2 " HEADS " " SELECTED}, SIX_HEADS},
    /* So many tokens that starting a collective counts for nothing when divisions are chosen. */
    {{.mesh = "fsdp=2,tp=2", .options = SP, .batch = 64, .microbatches = 1, .seq_len = 64},
     AS_PRESET},
    {{.mesh = "cp=2,tp=2", .options = SP_HEADS, .batch = 64, .microbatches = 1, .seq_len = 64},
     AS_PRESET},
    {{.mesh = "dp=2,fsdp=2"}, OTHER_TIE},
    {{.mesh = "dp=2,fsdp=2,tp=2", .options = SP}, SIX_HEADS},
    {{.mesh = "dp=2,fsdp=3", .options = "zero=1"}, AS_PRESET},
    {{.mesh = "dp=2,fsdp=2,pp=2", .options = "zero=2"}, FIVE_LAYERS},
    {{.mesh = "dp=2,fsdp=2,ep=2,pp=2"}, FIVE_LAYERS},
    {{.mesh = "dp=2,ep=2,cp=2,tp=2", .options = SP}, AS_PRESET},
    {{.mesh = "pp=2,fsdp=2,cp=2,tp=2", .options = SP, .schedule = "zb-v"}, FIVE_LAYERS},
    {{.mesh = "pp=2,fsdp=2,ep=2,tp=2", .options = SP, .schedule = "zb-h1"}, FIVE_LAYERS},
    {{.mesh = "dp=2,pp=2,cp=2,tp=2", .options = "zero=1 " HEADS}, OTHER_TIE},
    {{.mesh = "dp=4,tp=4", .options = "zero=3 " SP, .batch = 6, .microbatches = 2, .seq_len = 30},
     SIX_HEADS},
    {{.mesh = "dp=4,tp=4", .options = "zero=2", .batch = 6, .microbatches = 2, .seq_len = 17},
     SIX_HEADS},
};

static inline void assert_many_together(const family *f)
{
    int n_failed = 0;
    for (int i = 0; i < COUNT(many); i++) {
        n_failed += count_failure(f, &many[i].base, many[i].sizes, i);
    }
    assert_int_equal(n_failed, 0);
}

static inline void test_each_alone(void **state)
{
    assert_each_alone(*state);
}

static inline void test_all_pairs(void **state)
{
    assert_all_pairs(*state);
}

static inline void test_many_together(void **state)
{
    assert_many_together(*state);
}

/* The whole test program of a family. */
static inline int run_family(family *f)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_each_alone, f),
        cmocka_unit_test_prestate(test_all_pairs, f),
        cmocka_unit_test_prestate(test_many_together, f),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
