/*
 * Attention cut into pieces, by every set, against the whole by the book in double: scores, softmax and the gradient through its
 * Jacobian, not through lse. Queries and keys are cut unevenly, also to nothing. Outputs of the pieces are joined, and what all of
 * them add to is summed, as redistribution would; what queries find in pieces of the keys is combined. Some problems have their
 * tokens in balanced chunks: pieces are then cut from the tokens in that order, and the whole keeps the plain one.
 *
 * Included after cmocka.h by the quick test and the slow one.
 */
#ifndef ATTENTION_PIECES_H
#define ATTENTION_PIECES_H

#include "kernel_case.h"
#include "yoke/random.h"

enum { MAX_PIECES = 5 };

/* Global sizes: batch, tokens, query heads, key/value heads, head width. */
typedef struct problem {
    int64_t B, T, N, K, X;
    bool causal;
    float rate;
    int64_t n_chunks; /* 0: plain order */
} problem;

/* Largest distance of a float from the book's number, as a share of the largest number of the tensor. */
static const double tolerance = 1e-5;

/* Pieces of the tokens: their shares. */
typedef struct cut {
    int n;
    int64_t share[MAX_PIECES];
} cut;

static const cut cuts[] = {
    {1, {1}},       {2, {1, 1}},       {2, {0, 1}},          {2, {5, 1}},
    {3, {1, 5, 2}}, {4, {1, 1, 1, 1}}, {5, {3, 0, 1, 2, 4}},
};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

static inline letter_size cut_piece(const cut *c, char letter, int64_t T, int piece)
{
    int64_t before = 0;
    int64_t all = 0;
    for (int i = 0; i < c->n; i++) {
        before += i < piece ? c->share[i] : 0;
        all += c->share[i];
    }
    int64_t begin = T * before / all;
    return (letter_size){letter, T * (before + c->share[piece]) / all - begin, begin};
}

static const op_case forward_row = {
    YOKE_OP_ATTENTION, {"bthx", "bskx", "bskx"}, {"bthx", "bth"}, .fill = "nnn"};
static const op_case gradient_row = {YOKE_OP_ATTENTION_GRAD,
                                     {"bthx", "bskx", "bskx", "bthx", "bth", "bthx"},
                                     {"bthx", "bskx", "bskx"},
                                     .fill = "nnnnnn"};

static inline kernel_case *problem_case(const op_case *row, const problem *p, letter_size t,
                                        letter_size s)
{
    case_sizes sizes = {
        "", {{'b', p->B, 0}, t, s, {'h', p->N, 0}, {'k', p->K, 0}, {'x', p->X, 0}}, p->N, p->K};
    kernel_case *c = case_create(row, &sizes, 31);
    c->attributes.causal = p->causal;
    c->attributes.rate = p->rate;
    c->attributes.n_tokens = p->T;
    c->attributes.order = (yoke_order){.n_tokens = p->T, .n_chunks = p->n_chunks};
    return c;
}

/* --- By the book ------------------------------------------------------------------------------ */

typedef struct book {
    double *y, *lse, *dq, *dk, *dv;
} book;

static inline double *doubles_create(int64_t n)
{
    double *all = calloc((size_t)n, sizeof(*all));
    if (!all) {
        abort();
    }
    return all;
}

static inline void book_destroy(const book *k)
{
    free(k->y);
    free(k->lse);
    free(k->dq);
    free(k->dk);
    free(k->dv);
}

static inline double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

static inline double keep_get(const problem *p, const kernel_case *c, int64_t row, int64_t s)
{
    yoke_random_key key = yoke_random_stream_hashed(c->call.seed, c->attributes.site, c->call.step,
                                                    c->call.microbatch);
    if (p->rate == 0.0f) {
        return 1.0;
    }
    bool keep = yoke_random_uniform(key, (uint64_t)(row * p->T + s)) >= p->rate;
    return keep ? 1.0 / (1.0 - (double)p->rate) : 0.0;
}

/* One query: its rows of y, lse and dq, and what it adds to dk and dv. `prob` and `dp` hold T numbers. */
static inline void book_query(const problem *p, const kernel_case *c, book *k, const int64_t at[3],
                              double *prob, double *dp)
{
    int64_t X = p->X;
    int64_t b = at[0], t = at[1], h = at[2];
    int64_t n = p->causal ? t + 1 : p->T;
    int64_t row = yoke_piece_head(&c->in[0], b, t, h);
    const float *q = (const float *)c->in[0].data + row;
    const float *dy = (const float *)c->in[5].data + row;
    double scale = (double)c->attributes.scale;
    double sum = 0.0;
    double mean = 0.0;
    for (int64_t s = 0; s < n; s++) {
        int64_t key = yoke_piece_head(&c->in[1], b, s, h / (p->N / p->K));
        prob[s] = exp(scale * dot(q, (const float *)c->in[1].data + key, X));
        sum += prob[s];
    }
    k->lse[row / X] = log(sum);
    for (int64_t s = 0; s < n; s++) {
        int64_t key = yoke_piece_head(&c->in[1], b, s, h / (p->N / p->K));
        double keep = keep_get(p, c, (b * p->N + h) * p->T + t, s);
        prob[s] /= sum;
        dp[s] = keep * dot(dy, (const float *)c->in[2].data + key, X);
        mean += prob[s] * dp[s];
        for (int64_t x = 0; x < X; x++) {
            k->y[row + x] += prob[s] * keep * (double)((const float *)c->in[2].data)[key + x];
            k->dv[key + x] += prob[s] * keep * (double)dy[x];
        }
    }
    for (int64_t s = 0; s < n; s++) {
        int64_t key = yoke_piece_head(&c->in[1], b, s, h / (p->N / p->K));
        double ds = scale * prob[s] * (dp[s] - mean);
        for (int64_t x = 0; x < X; x++) {
            k->dq[row + x] += ds * (double)((const float *)c->in[1].data)[key + x];
            k->dk[key + x] += ds * (double)q[x];
        }
    }
}

static inline book book_create(const problem *p, const kernel_case *c)
{
    int64_t n_rows = p->B * p->T * p->N;
    int64_t n_keys = p->B * p->T * p->K * p->X;
    book k = {doubles_create(n_rows * p->X), doubles_create(n_rows), doubles_create(n_rows * p->X),
              doubles_create(n_keys), doubles_create(n_keys)};
    double *rows = doubles_create(2 * p->T);
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at[3] = {i / p->N / p->T, i / p->N % p->T, i % p->N};
        book_query(p, c, &k, at, rows, rows + p->T);
    }
    free(rows);
    return k;
}

/* --- By pieces -------------------------------------------------------------------------------- */

/* What the pieces of one run come to. */
typedef struct joined {
    yoke_tensor y, lse; /* floats, of the whole's shape */
    double *dq, *dk, *dv;
} joined;

/* One run: by which kernels, on which pieces. */
typedef struct run {
    const yoke_kernel_set *set;
    const problem *p;
    const cut *queries, *keys;
    const kernel_case *whole;
    int index; /* of the problem, for messages */
} run;

static inline yoke_tensor tensor_like(const yoke_tensor *whole)
{
    yoke_tensor copy = *whole;
    copy.data = guarded_alloc(piece_bytes(whole));
    memset(copy.data, 0xFF, piece_bytes(whole));
    return copy;
}

/* Where local token `t` of sample `b` of a piece begins in the whole [b, T, heads, x], whose order is plain. */
static inline int64_t token_in_whole(const problem *p, const yoke_tensor *piece, int64_t b,
                                     int64_t t)
{
    const yoke_order order = {.n_tokens = p->T, .n_chunks = p->n_chunks};
    int64_t position = yoke_order_position(order, piece->shard.offset[1] + t);
    return (b * p->T + position) * yoke_piece_product(piece, 2, piece->shard.n_dims);
}

/* Copies tokens between a whole and a piece of it. */
static inline void tokens_copy(const problem *p, const yoke_tensor *whole, const yoke_tensor *piece,
                               bool to_piece)
{
    int64_t row = yoke_piece_product(piece, 2, piece->shard.n_dims);
    int64_t n = piece->shard.extent[1];
    for (int64_t i = 0; i < piece->shard.extent[0] * n; i++) {
        float *in_whole = (float *)whole->data + token_in_whole(p, piece, i / n, i % n);
        float *in_piece = (float *)piece->data + i * row;
        memcpy(to_piece ? in_piece : in_whole, to_piece ? in_whole : in_piece,
               (size_t)row * sizeof(float));
    }
}

static inline void tokens_add(const problem *p, double *whole, const yoke_tensor *piece)
{
    int64_t row = yoke_piece_product(piece, 2, piece->shard.n_dims);
    int64_t n = piece->shard.extent[1];
    for (int64_t i = 0; i < piece->shard.extent[0] * n; i++) {
        double *to = whole + token_in_whole(p, piece, i / n, i % n);
        for (int64_t x = 0; x < row; x++) {
            to[x] += (double)((const float *)piece->data)[i * row + x];
        }
    }
}

/* Runs a kernel on pieces of which the empty ones have no memory. */
static inline void case_run(const yoke_kernel_set *set, yoke_op op, const kernel_case *c)
{
    yoke_tensor in[CASE_MAX_IN];
    yoke_tensor out[CASE_MAX_OUT];
    yoke_kernel_call call = c->call;
    for (int i = 0; i < call.n_in; i++) {
        in[i] = c->in[i];
        in[i].data = yoke_piece_elements(&in[i]) > 0 ? in[i].data : NULL;
    }
    for (int i = 0; i < call.n_out; i++) {
        out[i] = c->out[i];
        out[i].data = yoke_piece_elements(&out[i]) > 0 ? out[i].data : NULL;
    }
    call.in = in;
    call.out = out;
    set->run[op](&call);
    assert_true(case_guards_hold(c));
}

/* Joins what a further piece of the keys gave with what the earlier ones gave, in the latter's place. */
static inline void pieces_combine(const yoke_kernel_set *set, const yoke_tensor so_far[2],
                                  const yoke_tensor further[2])
{
    const yoke_tensor in[4] = {so_far[0], so_far[1], further[0], further[1]};
    const yoke_tensor out[2] = {so_far[0], tensor_like(&so_far[1])};
    yoke_kernel_call call = {.in = in, .out = out, .n_in = 4, .n_out = 2};
    set->run[YOKE_OP_ATTENTION_COMBINE](&call);
    memcpy(so_far[1].data, out[1].data, piece_bytes(&out[1]));
    assert_true(guarded_check(out[1].data, piece_bytes(&out[1])));
    guarded_free(out[1].data);
}

/* Forward of a piece of the queries over all pieces of the keys, in the order in which a ring brings them. */
static inline void piece_forward(const run *r, int piece, joined *result)
{
    kernel_case *first = NULL;
    for (int step = 0; step < r->keys->n; step++) {
        int key_piece = (piece + r->keys->n - step) % r->keys->n;
        kernel_case *f =
            problem_case(&forward_row, r->p, cut_piece(r->queries, 't', r->p->T, piece),
                         cut_piece(r->keys, 's', r->p->T, key_piece));
        for (int i = 0; i < 3; i++) {
            tokens_copy(r->p, &r->whole->in[i], &f->in[i], true);
        }
        case_run(r->set, YOKE_OP_ATTENTION, f);
        if (!first) {
            first = f;
            continue;
        }
        pieces_combine(r->set, first->out, f->out);
        case_destroy(f);
    }
    assert_true(case_guards_hold(first));
    tokens_copy(r->p, &result->y, &first->out[0], false);
    tokens_copy(r->p, &result->lse, &first->out[1], false);
    case_destroy(first);
}

/* Backward of a piece of the queries and one of the keys, with y and lse over all keys. */
static inline void pair_backward(const run *r, int piece, int key_piece, joined *result)
{
    kernel_case *g = problem_case(&gradient_row, r->p, cut_piece(r->queries, 't', r->p->T, piece),
                                  cut_piece(r->keys, 's', r->p->T, key_piece));
    const yoke_tensor *from[6] = {&r->whole->in[0], &r->whole->in[1], &r->whole->in[2],
                                  &result->y,       &result->lse,     &r->whole->in[5]};
    for (int i = 0; i < 6; i++) {
        tokens_copy(r->p, from[i], &g->in[i], true);
    }
    case_run(r->set, YOKE_OP_ATTENTION_GRAD, g);
    tokens_add(r->p, result->dq, &g->out[0]);
    tokens_add(r->p, result->dk, &g->out[1]);
    tokens_add(r->p, result->dv, &g->out[2]);
    case_destroy(g);
}

static inline joined pieces_run(const run *r)
{
    int64_t n_queries = yoke_piece_elements(&r->whole->in[0]);
    int64_t n_keys = yoke_piece_elements(&r->whole->in[1]);
    joined result = {tensor_like(&r->whole->in[0]), tensor_like(&r->whole->in[4]),
                     doubles_create(n_queries), doubles_create(n_keys), doubles_create(n_keys)};
    for (int i = 0; i < r->queries->n; i++) {
        piece_forward(r, i, &result);
        for (int j = 0; j < r->keys->n; j++) {
            pair_backward(r, i, j, &result);
        }
    }
    return result;
}

static inline void joined_destroy(const joined *result)
{
    guarded_free(result->y.data);
    guarded_free(result->lse.data);
    free(result->dq);
    free(result->dk);
    free(result->dv);
}

/* --- Comparison ------------------------------------------------------------------------------- */

static inline double distance(const double *a, const double *expected, int64_t n)
{
    double largest = 0.0;
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - expected[i]);
        largest = fmax(largest, fabs(expected[i]));
        worst = d <= worst ? worst : d; /* what is not a number is the worst */
    }
    return largest > 0.0 ? worst / largest : worst;
}

static inline double tensor_distance(const yoke_tensor *a, const double *expected)
{
    int64_t n = yoke_piece_elements(a);
    double *wide = doubles_create(n);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = (double)((const float *)a->data)[i];
    }
    double d = distance(wide, expected, n);
    free(wide);
    return d;
}

static inline void assert_by_the_book(const run *r, const joined *a, const book *k)
{
    int64_t n_queries = yoke_piece_elements(&r->whole->in[0]);
    int64_t n_keys = yoke_piece_elements(&r->whole->in[1]);
    const double d[] = {tensor_distance(&a->y, k->y), tensor_distance(&a->lse, k->lse),
                        distance(a->dq, k->dq, n_queries), distance(a->dk, k->dk, n_keys),
                        distance(a->dv, k->dv, n_keys)};
    static const char *const names[] = {"y", "lse", "dq", "dk", "dv"};
    for (int i = 0; i < 5; i++) {
        if (!(d[i] < tolerance)) {
            fail_msg("%s, problem %d, queries cut %d, keys %d: %s is off by %g of its largest",
                     r->set->name, r->index, (int)(r->queries - cuts), (int)(r->keys - cuts),
                     names[i], d[i]);
        }
    }
}

/* Queries do not know of each other and take keys by position, so a piece gives the bits of the whole in plain order. */
static inline void assert_same_bits(const run *r, const joined *a, const joined *whole)
{
    size_t n_queries = (size_t)yoke_piece_elements(&r->whole->in[0]);
    assert_memory_equal(a->y.data, whole->y.data, piece_bytes(&a->y));
    assert_memory_equal(a->lse.data, whole->lse.data, piece_bytes(&a->lse));
    assert_memory_equal(a->dq, whole->dq, n_queries * sizeof(double));
}

static inline void problem_ask(const yoke_kernel_set *set, const problem *p, int index)
{
    kernel_case *whole =
        problem_case(&gradient_row, p, (letter_size){'t', p->T, 0}, (letter_size){'s', p->T, 0});
    book k = book_create(p, whole);
    const problem plain = {p->B, p->T, p->N, p->K, p->X, p->causal, p->rate, 0};
    run r = {set, &plain, &cuts[0], &cuts[0], whole, index};
    joined first = pieces_run(&r);
    r.p = p;
    for (int i = 0; i < (int)(N_CUTS * N_CUTS); i++) {
        r.queries = &cuts[i % N_CUTS];
        r.keys = &cuts[i / N_CUTS];
        joined result = pieces_run(&r);
        assert_by_the_book(&r, &result, &k);
        if (r.keys->n == 1) {
            assert_same_bits(&r, &result, &first);
        }
        joined_destroy(&result);
    }
    joined_destroy(&first);
    book_destroy(&k);
    case_destroy(whole);
}

static const yoke_kernel_set *const sets[] = {
#define SET_ADDRESS(name) &yoke_kernel_set_##name,
    YOKE_KERNEL_SET_LIST(SET_ADDRESS)
#undef SET_ADDRESS
};
enum { N_SETS = sizeof sets / sizeof sets[0] };

static inline bool has_attention(const yoke_kernel_set *set)
{
    return set->run[YOKE_OP_ATTENTION_GRAD] && (!set->supported || set->supported());
}

static inline void problems_ask(const problem *problems, int n)
{
    yoke_kernel_threads_set(2);
    for (int i = 0; i < (int)N_SETS; i++) {
        for (int j = 0; j < n && has_attention(sets[i]); j++) {
            problem_ask(sets[i], &problems[j], j);
        }
    }
}

#endif
