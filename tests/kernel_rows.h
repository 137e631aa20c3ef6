/*
 * Every kernel of every set against its twin in ref: values, guard bytes, inputs left alone, adding to outputs, outputs in
 * the place of inputs, and equal bits for 1, 2 and 4 threads. Sets that the processor lacks are skipped. The rows, one or
 * more for each operator, and small sizes; included after cmocka.h by the quick test and the slow one.
 *
 * Kernels of operands in bf16 are compared with the f32 kernel of ref on the same numbers, its results rounded: those of
 * ref are equal, others within one unit of the last place.
 */
#ifndef KERNEL_ROWS_H
#define KERNEL_ROWS_H

#include "kernel_case.h"

/* Sums in single precision over up to a few hundred elements; exact ones have 0. */
#define EXACT   0.0f
#define ROUNDED 3e-7f
#define SUMMED  5e-6f

static const op_case rows[] = {
    {YOKE_OP_EMBEDDING, {"vd", "bt"}, {"btd"}, "ni", .tolerance = EXACT},
    {YOKE_OP_EMBEDDING_GRAD, {"bt", "btd"}, {"vd"}, "in", .accumulates = true, .tolerance = EXACT},
    {YOKE_OP_MATMUL,
     {"btd", "df"},
     {"btf"},
     "nn",
     {2, 1, false, false, 0},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"btd", "fd"},
     {"btf"},
     "nn",
     {2, 1, false, true, 0},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"btd", "btf"},
     {"df"},
     "nn",
     {2, 2, true, false, 0},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"btd", "fbt"},
     {"df"},
     "nn",
     {2, 1, true, true, 0},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"bthx", "hxd"},
     {"btd"},
     "nn",
     {2, 2, false, false, 0},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"ebcd", "efd"},
     {"ebcf"},
     "nn",
     {2, 1, false, true, 1},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_MATMUL,
     {"ebcf", "ebcd"},
     {"efd"},
     "nn",
     {2, 2, true, false, 1},
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_ADD_BIAS, {"btd", "d"}, {"btd"}, "nn", .aliases = 1, .tolerance = EXACT},
    {YOKE_OP_ADD_BIAS, {"bthx", "hx"}, {"bthx"}, "nn", .aliases = 1, .tolerance = EXACT},
    {YOKE_OP_ADD_BIAS, {"btd", "d", "btd"}, {"btd"}, "nnn", .aliases = 5, .tolerance = EXACT},
    {YOKE_OP_SUM_ROWS, {"btd"}, {"d"}, "n", .accumulates = true, .tolerance = SUMMED},
    {YOKE_OP_SUM_ROWS, {"bthx"}, {"hx"}, "n", .accumulates = true, .tolerance = SUMMED},
    {YOKE_OP_ADD, {"btd"}, {"btd"}, "n", .accumulates = true, .tolerance = EXACT},
    {YOKE_OP_ADD,
     {"btd", "btd"},
     {"btd"},
     "nn",
     .accumulates = true,
     .aliases = 3,
     .tolerance = EXACT},
    {YOKE_OP_ADD, {"btd", "btd", "btd", "btd"}, {"btd"}, "nnnn", .aliases = 15, .tolerance = EXACT},
    {YOKE_OP_LAYER_NORM,
     {"btd", "d", "d"},
     {"btd", "bt", "bt"},
     "nnn",
     .aliases = 1,
     .tolerance = SUMMED},
    {YOKE_OP_LAYER_NORM,
     {"btd", "d", "d", "btd"},
     {"btd", "bt", "bt", "btd"},
     "qnnq",
     .aliases = 9,
     .tolerance = SUMMED},
    {YOKE_OP_LAYER_NORM,
     {"btd", "d", "d", "btd", "d"},
     {"btd", "bt", "bt", "btd"},
     "qnnqq",
     .aliases = 9,
     .tolerance = SUMMED},
    {YOKE_OP_LAYER_NORM_GRAD,
     {"btd", "btd", "d", "bt", "bt", "btd"},
     {"btd"},
     "nnnnun",
     .aliases = 35,
     .tolerance = SUMMED},
    {YOKE_OP_LAYER_NORM_GRAD,
     {"btd", "btd", "d", "bt", "bt"},
     {"btd"},
     "nnnnu",
     .aliases = 3,
     .tolerance = SUMMED},
    {YOKE_OP_LAYER_NORM_GRAD_GAIN,
     {"btd", "btd", "bt", "bt"},
     {"d", "d"},
     "nnnu",
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM, {"btd", "d"}, {"btd", "bt"}, "nn", .aliases = 1, .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM,
     {"btd", "d", "btd"},
     {"btd", "bt", "btd"},
     "qnq",
     .aliases = 5,
     .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM,
     {"btd", "d", "btd", "d"},
     {"btd", "bt", "btd"},
     "qnqq",
     .aliases = 5,
     .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM_GRAD,
     {"btd", "btd", "d", "bt", "btd"},
     {"btd"},
     "nnnun",
     .aliases = 19,
     .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM_GRAD,
     {"btd", "btd", "d", "bt"},
     {"btd"},
     "nnnu",
     .aliases = 3,
     .tolerance = SUMMED},
    {YOKE_OP_RMS_NORM_GRAD_GAIN,
     {"btd", "btd", "bt"},
     {"d"},
     "nnu",
     .accumulates = true,
     .tolerance = SUMMED},
    {YOKE_OP_ROPE, {"bthx", "bt"}, {"bthx"}, "np", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_ATTENTION, {"bthx", "bskx", "bskx"}, {"bthx", "bth"}, "nnn", .tolerance = SUMMED},
    {YOKE_OP_ATTENTION_GRAD,
     {"bthx", "bskx", "bskx", "bthx", "bth", "bthx"},
     {"bthx", "bskx", "bskx"},
     "nnnnnn",
     .tolerance = SUMMED},
    {YOKE_OP_ATTENTION_COMBINE,
     {"bthx", "bth", "bthx", "bth"},
     {"bthx", "bth"},
     "nnnn",
     .aliases = 5,
     .tolerance = ROUNDED},
    {YOKE_OP_GELU, {"btd"}, {"btd"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_GELU, {"btf", "f"}, {"btf"}, "nn", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_GELU, {"bthx", "hx"}, {"bthx"}, "nn", .aliases = 1, .tolerance = ROUNDED},
    /* With its bias a reaches to 2.8, where 1 - sigmoid loses more digits. */
    {YOKE_OP_GELU_GRAD,
     {"btf", "btf", "f"},
     {"btf"},
     "nnu",
     .aliases = 3,
     .tolerance = 2 * ROUNDED},
    {YOKE_OP_GELU_GRAD, {"btd", "btd"}, {"btd"}, "nn", .aliases = 3, .tolerance = ROUNDED},
    {YOKE_OP_GELU_ERF, {"btd"}, {"btd"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_GELU_ERF, {"btf", "f"}, {"btf"}, "nn", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_GELU_ERF_GRAD,
     {"btf", "btf", "f"},
     {"btf"},
     "nnu",
     .aliases = 3,
     .tolerance = ROUNDED},
    {YOKE_OP_GELU_ERF_GRAD, {"btd", "btd"}, {"btd"}, "nn", .aliases = 3, .tolerance = ROUNDED},
    {YOKE_OP_SWIGLU, {"btd", "btd"}, {"btd"}, "nn", .aliases = 3, .tolerance = ROUNDED},
    {YOKE_OP_SWIGLU_GRAD,
     {"btd", "btd", "btd"},
     {"btd", "btd"},
     "nnn",
     .aliases = 7,
     .tolerance = ROUNDED},
    {YOKE_OP_DROPOUT, {"btd"}, {"btd"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_DROPOUT, {"bthx"}, {"bthx"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_DROPOUT, {"vd"}, {"vd"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_JITTER, {"btd"}, {"btd"}, "n", .aliases = 1, .tolerance = ROUNDED},
    {YOKE_OP_ROUTER, {"btr"}, {"btr", "btr"}, "n", .tolerance = ROUNDED},
    {YOKE_OP_ROUTER_GRAD, {"btr", "btr", "btr"}, {"btr"}, "gun", .tolerance = SUMMED},
    {YOKE_OP_ROUTER_GRAD, {"btr", "btr", "btr", "btr"}, {"btr"}, "gunn", .tolerance = SUMMED},
    {YOKE_OP_EXPERT_SLOTS, {"bte"}, {"bte"}, "g", .tolerance = EXACT},
    {YOKE_OP_DISPATCH, {"btd", "bte"}, {"ebcd"}, "ns", .tolerance = EXACT},
    {YOKE_OP_DISPATCH, {"btd", "bte", "bte"}, {"ebcd"}, "nsg", .tolerance = ROUNDED},
    {YOKE_OP_COMBINE, {"ebcd", "bte"}, {"btd"}, "ns", .tolerance = SUMMED},
    {YOKE_OP_COMBINE, {"ebcd", "bte", "bte"}, {"btd"}, "nsg", .tolerance = SUMMED},
    {YOKE_OP_COMBINE_GRAD, {"ebcd", "bte", "btd"}, {"bte"}, "nsn", .tolerance = SUMMED},
    {YOKE_OP_EXPERT_LOAD, {"bte", "bte"}, {"be", "be"}, "gu", .tolerance = SUMMED},
    {YOKE_OP_SPREAD, {"be"}, {"bte"}, "n", .tolerance = EXACT},
    {YOKE_OP_BALANCE_LOSS, {"be", "be"}, {""}, "nu", .accumulates = true, .tolerance = ROUNDED},
    {YOKE_OP_BALANCE_LOSS_GRAD, {"be", ""}, {"be"}, "un", .tolerance = ROUNDED},
    {YOKE_OP_Z_LOSS, {"bte"}, {""}, "n", .accumulates = true, .tolerance = ROUNDED},
    {YOKE_OP_Z_LOSS_GRAD, {"bte", ""}, {"bte"}, "nn", .tolerance = ROUNDED},
    {YOKE_OP_ROW_SHARE, {"le"}, {"le"}, "u", .tolerance = ROUNDED},
    {YOKE_OP_ROW_MAX, {"btv"}, {"bt"}, "n", .tolerance = EXACT},
    {YOKE_OP_ROW_SUM_EXP, {"btv", "bt"}, {"bt"}, "nn", .tolerance = ROUNDED},
    {YOKE_OP_ROW_PICK, {"btv", "bt"}, {"bt"}, "nl", .tolerance = EXACT},
    {YOKE_OP_CROSS_ENTROPY,
     {"btv", "bt", "bt", "bt", "bt"},
     {""},
     "nnunl",
     .accumulates = true,
     .tolerance = ROUNDED},
    {YOKE_OP_CROSS_ENTROPY_GRAD,
     {"btv", "bt", "bt", "bt", ""},
     {"btv"},
     "nnulu",
     .aliases = 1,
     .tolerance = ROUNDED},
    {YOKE_OP_COUNT_VALID, {"bt"}, {""}, "l", .accumulates = true, .tolerance = EXACT},
    {YOKE_OP_RECIPROCAL, {""}, {""}, "+", .tolerance = ROUNDED},
    {YOKE_OP_MULTIPLY, {"", ""}, {""}, "nn", .tolerance = ROUNDED},
    {YOKE_OP_SUM_SQUARES, {"vd"}, {""}, "n", .tolerance = ROUNDED},
    {YOKE_OP_SUM_SQUARES, {"btd"}, {""}, "n", .tolerance = ROUNDED},
    {YOKE_OP_PACK, {"", "", ""}, {"n"}, "nnn", .tolerance = EXACT},
    {YOKE_OP_PACK, {"f", "f", "f"}, {"lf"}, "nnn", .tolerance = EXACT},
    {YOKE_OP_SUM, {"v"}, {""}, "n", .tolerance = ROUNDED},
    {YOKE_OP_ADAMW_CONTROL, {"", "", ""}, {"c"}, "u++", .updates = 4, .tolerance = EXACT},
    {YOKE_OP_ADAMW,
     {"btd", "btd", "btd", "btd", "c"},
     {NULL},
     "nnunu",
     .updates = 7,
     .tolerance = EXACT},
    {YOKE_OP_CAST, {"btd"}, {"btd"}, "n", .accumulates = true, .tolerance = EXACT},
    {YOKE_OP_CAST, {"vd", "vd"}, {"vd"}, "nn", .tolerance = EXACT},
    {YOKE_OP_CONVERT, {"btd"}, {"btd"}, "n", .tolerance = EXACT},
    /* Of dim 0, from its first index on; others in test_kernel_facts.c. */
    {YOKE_OP_STRIP, {"btd"}, {"btd"}, "n", .tolerance = EXACT},
    {YOKE_OP_JOIN, {"btd"}, {"btd"}, "n", .tolerance = EXACT},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const case_sizes small_sizes[] = {
    {"ones",
     {{'b', 1, 0},
      {'t', 1, 0},
      {'s', 1, 0},
      {'d', 1, 0},
      {'f', 1, 0},
      {'h', 1, 0},
      {'k', 1, 0},
      {'x', 2, 0},
      {'v', 1, 0},
      {'c', 8, 0}},
     1,
     1},
    {"odd",
     {{'b', 3, 0},
      {'t', 5, 0},
      {'s', 5, 0},
      {'d', 19, 0},
      {'f', 7, 0},
      {'h', 6, 0},
      {'k', 2, 0},
      {'x', 10, 0},
      {'v', 37, 0},
      {'c', 8, 0}},
     6,
     2},
    /* Heads 5 and 6 of 7 kv groups, tokens 50 to 69 of 70, a middle piece of batch,
     * vocabulary, experts and slots. */
    {"pieces",
     {{'b', 2, 3},
      {'t', 20, 50},
      {'s', 70, 0},
      {'d', 33, 0},
      {'f', 17, 0},
      {'h', 5, 9},
      {'k', 4, 3},
      {'x', 24, 0},
      {'v', 21, 11},
      {'e', 5, 2},
      {'c', 8, 3}},
     21,
     7},
    {"late keys",
     {{'b', 1, 0},
      {'t', 60, 0},
      {'s', 50, 10},
      {'d', 16, 0},
      {'f', 16, 0},
      {'h', 2, 0},
      {'k', 2, 0},
      {'x', 16, 0},
      {'v', 16, 0},
      {'c', 8, 0}},
     2,
     2},
    {"no vocabulary",
     {{'b', 2, 0},
      {'t', 3, 0},
      {'s', 3, 0},
      {'d', 6, 0},
      {'f', 0, 0},
      {'h', 2, 2},
      {'k', 1, 1},
      {'x', 4, 0},
      {'v', 0, 9},
      {'c', 8, 0}},
     4,
     2},
    {"no batch",
     {{'b', 0, 2},
      {'t', 3, 0},
      {'s', 3, 0},
      {'d', 6, 0},
      {'f', 5, 0},
      {'h', 2, 0},
      {'k', 2, 0},
      {'x', 4, 0},
      {'v', 5, 0},
      {'c', 8, 0}},
     2,
     2},
    {"no heads",
     {{'b', 2, 0},
      {'t', 3, 0},
      {'s', 3, 0},
      {'d', 6, 0},
      {'f', 5, 0},
      {'h', 0, 2},
      {'k', 0, 2},
      {'x', 4, 0},
      {'v', 5, 0},
      {'c', 8, 0}},
     2,
     2},
};
enum { N_SMALL_SIZES = sizeof small_sizes / sizeof small_sizes[0] };

static const char *const op_names[] = {
#define OP_NAME(upper, lower) #lower,
    YOKE_OP_LIST(OP_NAME)
#undef OP_NAME
};

static const char *const set_names[] = {
#define SET_NAME(name) #name,
    YOKE_KERNEL_SET_LIST(SET_NAME)
#undef SET_NAME
};
enum { N_SETS = sizeof set_names / sizeof set_names[0] };

/* One comparison: what is asked of the pair of cases. */
typedef struct question {
    const op_case *row;
    const case_sizes *sizes;
    yoke_kernel kernel;
    const char *set;
    case_storage storage;
    float rate;
    bool all_keys; /* attention that is not causal */
    bool accumulate;
    int alias; /* input whose place the first output takes, or -1 */
} question;

static inline kernel_case *question_inputs(const question *q, case_storage storage)
{
    kernel_case *c = case_create(q->row, q->sizes, 11);
    if (q->rate > 0.0f || q->all_keys) {
        c->attributes.rate = q->rate;
        c->attributes.causal = !q->all_keys;
        inputs_derive(c, q->row->op, yoke_kernel_set_find("ref"));
    }
    c->call.accumulate = q->accumulate;
    case_store(c, q->row->op, storage);
    return c;
}

static inline kernel_case *question_case(const question *q, int alias)
{
    kernel_case *c = question_inputs(q, q->storage);
    if (alias >= 0) {
        guarded_free(c->out[0].data);
        c->out[0].data = c->in[alias].data;
    }
    q->kernel(&c->call);
    return c;
}

static inline kernel_case *question_twin(const question *q)
{
    kernel_case *c = question_inputs(q, q->storage == STORED_NARROW ? STORED_ROUNDED : STORED_WIDE);
    yoke_kernel_set_find("ref")->run[q->row->op](&c->call);
    if (q->storage == STORED_NARROW) {
        outputs_store(c, q->row->op, STORED_ROUNDED);
    }
    return c;
}

static inline bool inputs_kept(const question *q, const kernel_case *c, const kernel_case *fresh)
{
    bool kept = true;
    for (int i = 0; i < c->call.n_in; i++) {
        bool written = (q->row->updates >> i & 1) || i == q->alias;
        size_t bytes = piece_bytes(&c->in[i]);
        kept = kept && (written || memcmp(c->in[i].data, fresh->in[i].data, bytes) == 0);
    }
    return kept;
}

static inline bool result_near(const char *what, const question *q, const yoke_tensor *a,
                               const yoke_tensor *expected)
{
    bool is_ref = strcmp(q->set, "ref") == 0 && q->storage == STORED_NARROW;
    double last_place = a->dtype == YOKE_BF16 && !is_ref ? 0x1p-7 : 0.0;
    float *values = piece_floats(a);
    bool near = floats_near_in_place(what, values, expected->data, yoke_piece_elements(a),
                                     is_ref ? 0.0 : (double)q->row->tolerance, last_place);
    free(values);
    return near;
}

static inline bool results_near(const char *what, const question *q, const kernel_case *c,
                                const kernel_case *expected)
{
    bool near = true;
    for (int i = 0; i < c->call.n_out; i++) {
        near = result_near(what, q, &c->out[i], &expected->out[i]) && near;
    }
    for (int i = 0; i < c->call.n_in; i++) {
        if (q->row->updates >> i & 1) {
            near = result_near(what, q, &c->in[i], &expected->in[i]) && near;
        }
    }
    return near;
}

static inline bool results_equal(const question *q, const kernel_case *a, const kernel_case *b)
{
    bool equal = true;
    for (int i = 0; i < a->call.n_out; i++) {
        equal = equal && memcmp(a->out[i].data, b->out[i].data, piece_bytes(&a->out[i])) == 0;
    }
    for (int i = 0; i < a->call.n_in; i++) {
        bool written = q->row->updates >> i & 1;
        size_t bytes = piece_bytes(&a->in[i]);
        equal = equal && (!written || memcmp(a->in[i].data, b->in[i].data, bytes) == 0);
    }
    return equal;
}

static inline void question_ask(const question *q)
{
    char what[160];
    (void)snprintf(what, sizeof what, "%s %s, row %d, sizes \"%s\"%s%s%s%s, in the place of %d",
                   q->set, op_names[q->row->op], (int)(q->row - rows), q->sizes->name,
                   q->storage == STORED_NARROW ? ", in bf16" : "", q->accumulate ? ", adding" : "",
                   q->rate > 0.0f ? ", with dropout" : "", q->all_keys ? ", of all keys" : "",
                   q->alias);
    kernel_case *fresh = question_inputs(q, q->storage);
    kernel_case *expected = question_twin(q);
    kernel_case *first = NULL;
    for (int n_threads = 1; n_threads <= 4; n_threads *= 2) {
        yoke_kernel_threads_set(n_threads);
        kernel_case *c = question_case(q, q->alias);
        bool good = case_guards_hold(c) && results_near(what, q, c, expected);
        good = good && inputs_kept(q, c, fresh);
        if (!good || (first && !results_equal(q, c, first))) {
            fail_msg("%s: %s with %d threads", what, good ? "other bits" : "wrong", n_threads);
        }
        if (!first) {
            first = c;
        } else {
            case_destroy(c);
        }
    }
    case_destroy(first);
    case_destroy(expected);
    case_destroy(fresh);
}

/* Plain, adding, with dropout, of all keys, and in the place of each input that allows it. */
static inline void row_ask(const yoke_kernel_set *set, const op_case *row, const case_sizes *sizes,
                           case_storage storage)
{
    question q = {.row = row, .sizes = sizes, .set = set->name, .storage = storage, .alias = -1};
    q.kernel = storage == STORED_NARROW ? set->run_narrow[row->op] : set->run[row->op];
    if (!q.kernel) {
        return;
    }
    question_ask(&q);
    if (row->accumulates) {
        q.accumulate = true;
        question_ask(&q);
        q.accumulate = false;
    }
    if (row->op == YOKE_OP_ATTENTION || row->op == YOKE_OP_ATTENTION_GRAD) {
        q.rate = 0.25f;
        question_ask(&q);
        q.all_keys = true;
        question_ask(&q);
        q.rate = 0.0f;
        question_ask(&q);
        q.all_keys = false;
    }
    for (int i = 0; i < CASE_MAX_IN; i++) {
        if (row->aliases >> i & 1) {
            q.alias = i;
            question_ask(&q);
        }
    }
}

/* Every row by every set, on all of the sizes. */
static inline void sets_ask(case_storage storage, const case_sizes *sizes, int n_sizes)
{
    for (int s = 0; s < (int)N_SETS; s++) {
        const yoke_kernel_set *set = yoke_kernel_set_find(set_names[s]);
        assert_non_null(set);
        if (set->supported && !set->supported()) {
            printf("set %s: not supported by this processor, skipped\n", set->name);
            continue;
        }
        for (int r = 0; r < (int)N_ROWS; r++) {
            /* Operands of products each have a type of their own, which test_matmul_types.c asks. */
            bool asked = storage == STORED_WIDE || rows[r].op != YOKE_OP_MATMUL;
            for (int i = 0; i < n_sizes && asked; i++) {
                row_ask(set, &rows[r], &sizes[i], storage);
            }
        }
    }
}

#endif
