/*
 * Mixture of experts, its kernels: the facts that they must keep, each against a twin in double or by hand, and pieces of every
 * letter that may be divided against the whole. Whole runs are in test_moe_runs.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"
#include "parity_case.h"

static void run_ref(yoke_op op, const yoke_tensor *in, int n_in, const yoke_tensor *out, int n_out,
                    const yoke_attributes *attributes)
{
    yoke_kernel_call call = {.in = in,
                             .out = out,
                             .n_in = n_in,
                             .n_out = n_out,
                             .attributes = attributes,
                             .seed = 5,
                             .step = 3,
                             .microbatch = 1};
    yoke_kernel_set_find("ref")->run[op](&call);
}

/* --- The router ------------------------------------------------------------------------------------- */

enum { E = 5 };

static void route(float logits[E], int64_t n_chosen, float gates[E], float p[E])
{
    yoke_shard row = {.n_dims = 3, .extent = {1, 1, E}};
    const yoke_tensor in[] = {{.data = logits, .shard = row}};
    const yoke_tensor out[] = {{.data = gates, .shard = row}, {.data = p, .shard = row}};
    run_ref(YOKE_OP_ROUTER, in, 1, out, 2, &(yoke_attributes){.n_chosen = n_chosen});
}

static void test_router_weights_the_chosen(void **state)
{
    (void)state;
    float logits[E] = {0.5f, 2.0f, -1.0f, 1.5f, 1.0f}, gates[E], p[E];
    route(logits, 2, gates, p);
    double sum = 0.0;
    for (int e = 0; e < E; e++) {
        sum += exp((double)logits[e]);
    }
    for (int e = 0; e < E; e++) {
        assert_near("probability", (double)p[e], exp((double)logits[e]) / sum, 1e-6);
    }
    assert_near("first", (double)gates[1], 1.0 / (1.0 + exp(-0.5)), 1e-6);
    assert_near("second", (double)gates[3], 1.0 / (1.0 + exp(0.5)), 1e-6);
    assert_true(gates[0] == 0.0f && gates[2] == 0.0f && gates[4] == 0.0f);
}

static void test_ties_go_to_the_lower_expert(void **state)
{
    (void)state;
    float logits[E] = {1.0f, 3.0f, 1.0f, 3.0f, 3.0f}, gates[E], p[E];
    route(logits, 2, gates, p);
    assert_true(gates[1] == 0.5f && gates[3] == 0.5f && gates[4] == 0.0f);
    route(logits, 4, gates, p);
    assert_true(gates[0] != 0.0f && gates[2] == 0.0f && gates[4] != 0.0f);
    float flat[E] = {0};
    route(flat, 3, gates, p);
    assert_true(gates[0] != 0.0f && gates[2] != 0.0f && gates[3] == 0.0f && gates[4] == 0.0f);
    route(flat, E, gates, p);
    assert_near("all", (double)gates[4], 0.2, 1e-6);
}

/* What is not a number must reach the loss, and must not stop the search for the largest. */
static void test_bad_logits_are_not_hidden(void **state)
{
    (void)state;
    float logits[E] = {1.0f, NAN, 2.0f, 0.0f, 0.5f}, gates[E], p[E];
    route(logits, 2, gates, p);
    assert_true(isnan(gates[0]) && isnan(gates[2]) && isnan(p[3]));
    logits[1] = INFINITY;
    route(logits, 2, gates, p);
    assert_true(isnan(gates[0]) && isnan(p[1]));
    logits[1] = -INFINITY;
    route(logits, 2, gates, p);
    assert_true(gates[1] == 0.0f && p[1] == 0.0f && gates[2] > 0.5f);
}

/* --- Both outputs of the router at once, by central differences --------------------------------------- */

static const case_sizes small = {
    "small",
    {{'b', 2, 0}, {'t', 5, 0}, {'d', 3, 0}, {'f', 7, 0}, {'e', 4, 0}, {'r', 4, 0}, {'c', 3, 0}},
    1,
    1};

/* Sum of both outputs of the router, weighted. */
static double routed(const yoke_tensor *logits, const yoke_tensor out[2],
                     const yoke_tensor weights[2])
{
    double sum = 0.0;
    run_ref(YOKE_OP_ROUTER, logits, 1, out, 2, &(yoke_attributes){.n_chosen = 2});
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < yoke_piece_elements(&out[k]); i++) {
            sum += (double)((float *)out[k].data)[i] * (double)((float *)weights[k].data)[i];
        }
    }
    return sum;
}

static void test_router_gradient_of_both_outputs(void **state)
{
    (void)state;
    static const float nudge = 1.0f / 256;
    yoke_tensor pieces[6]; /* logits, gates, probabilities, their weights, gradient */
    for (int i = 0; i < 6; i++) {
        pieces[i] = piece_create(&small, "btr");
        piece_fill(&pieces[i], 'n', &small, 30 + (uint64_t)i);
    }
    (void)routed(&pieces[0], pieces + 1, pieces + 3);
    const yoke_tensor in[] = {pieces[1], pieces[2], pieces[3], pieces[4]};
    run_ref(YOKE_OP_ROUTER_GRAD, in, 4, &pieces[5], 1, &(yoke_attributes){.n_chosen = 2});
    float *logit = pieces[0].data;
    for (int64_t i = 0; i < yoke_piece_elements(&pieces[0]); i++) {
        float kept = logit[i];
        logit[i] = kept + nudge;
        double above = routed(&pieces[0], pieces + 1, pieces + 3);
        logit[i] = kept - nudge;
        double below = routed(&pieces[0], pieces + 1, pieces + 3);
        logit[i] = kept;
        double slope = (above - below) / (2.0 * (double)nudge);
        assert_true(fabs(slope - (double)((float *)pieces[5].data)[i]) < 1e-3);
    }
    for (int i = 0; i < 6; i++) {
        guarded_free(pieces[i].data);
    }
}

/* --- Slots -------------------------------------------------------------------------------------------- */

/* Two experts, two slots each, five tokens: slots in the order of the sequence, then drops; the next sequence begins anew. */
static void test_slots_fill_in_order(void **state)
{
    (void)state;
    float gates[2][5][2] = {{{1, 0}, {.5f, .5f}, {1, 0}, {0, 1}, {.5f, .5f}},
                            {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {1, 0}}};
    static const float expected[2][5][2] = {{{0, -1}, {1, 0}, {-1, -1}, {-1, 1}, {-1, -1}},
                                            {{-1, 0}, {-1, 1}, {-1, -1}, {-1, -1}, {0, -1}}};
    float slots[2][5][2];
    yoke_shard shard = {.n_dims = 3, .extent = {2, 5, 2}};
    const yoke_tensor in = {.data = gates, .shard = shard}, out = {.data = slots, .shard = shard};
    run_ref(YOKE_OP_EXPERT_SLOTS, &in, 1, &out, 1, &(yoke_attributes){.n_slots = 2});
    assert_memory_equal(slots, expected, sizeof slots);
}

/* A token that no expert has a slot for adds nothing, in either direction; an empty slot holds 0. */
static void test_dropped_tokens_add_nothing(void **state)
{
    (void)state;
    float slots[1][3][2] = {{{0, -1}, {-1, -1}, {1, 0}}};
    float gates[1][3][2] = {{{1, 0}, {.25f, .75f}, {.5f, .5f}}};
    float x[1][3][2] = {{{1, 2}, {3, 4}, {5, 6}}}, u[2][1][2][2], y[1][3][2];
    static const float in_slots[2][1][2][2] = {{{{1, 2}, {5, 6}}}, {{{5, 6}, {0, 0}}}};
    static const float back[1][3][2] = {{{1, 2}, {0, 0}, {5, 6}}};
    yoke_shard routes = {.n_dims = 3, .extent = {1, 3, 2}};
    yoke_shard experts = {.n_dims = 4, .extent = {2, 1, 2, 2}};
    const yoke_tensor to[] = {{.data = x, .shard = routes}, {.data = slots, .shard = routes}};
    const yoke_tensor from[] = {{.data = u, .shard = experts},
                                {.data = slots, .shard = routes},
                                {.data = gates, .shard = routes}};
    const yoke_tensor out_u = {.data = u, .shard = experts}, out_y = {.data = y, .shard = routes};
    run_ref(YOKE_OP_DISPATCH, to, 2, &out_u, 1, &(yoke_attributes){0});
    assert_memory_equal(u, in_slots, sizeof u);
    run_ref(YOKE_OP_COMBINE, from, 3, &out_y, 1, &(yoke_attributes){0});
    assert_memory_equal(y, back, sizeof y);
}

/* --- Pieces ------------------------------------------------------------------------------------------- */

typedef struct piece_case {
    yoke_op op;
    const char *in[4], *out[3];
    const char *fill;
    const char *letters; /* that may be divided */
    float tolerance;     /* of what is summed over pieces; 0: nothing is */
} piece_case;

static const piece_case piece_cases[] = {
    {YOKE_OP_JITTER, {"btd"}, {"btd"}, "n", "btd", 0},
    {YOKE_OP_ROUTER, {"btr"}, {"btr", "btr"}, "n", "bt", 0},
    {YOKE_OP_ROUTER_GRAD, {"btr", "btr", "btr", "btr"}, {"btr"}, "gunn", "bt", 0},
    {YOKE_OP_EXPERT_SLOTS, {"bte"}, {"bte"}, "g", "be", 0},
    {YOKE_OP_DISPATCH, {"btd", "bte"}, {"ebcd"}, "ns", "btdec", 1e-9f},
    {YOKE_OP_DISPATCH, {"btd", "bte", "bte"}, {"ebcd"}, "nsg", "btdec", 1e-9f},
    {YOKE_OP_COMBINE, {"ebcd", "bte", "bte"}, {"btd"}, "nsg", "btdec", 1e-6f},
    {YOKE_OP_COMBINE, {"ebcd", "bte"}, {"btd"}, "ns", "btdec", 1e-6f},
    {YOKE_OP_COMBINE_GRAD, {"ebcd", "bte", "btd"}, {"bte"}, "nsn", "btdec", 1e-6f},
    {YOKE_OP_EXPERT_LOAD, {"btr", "btr"}, {"br", "br"}, "gu", "bt", 1e-6f},
    {YOKE_OP_SPREAD, {"br"}, {"btr"}, "n", "bt", 0},
    {YOKE_OP_BALANCE_LOSS, {"br", "br"}, {""}, "uu", "br", 1e-6f},
    {YOKE_OP_BALANCE_LOSS_GRAD, {"br", ""}, {"br"}, "un", "br", 0},
    {YOKE_OP_Z_LOSS, {"btr"}, {""}, "n", "bt", 1e-6f},
    {YOKE_OP_Z_LOSS_GRAD, {"btr", ""}, {"btr"}, "nn", "bt", 0},
    {YOKE_OP_MATMUL, {"ebcd", "efd"}, {"ebcf"}, "nn", "ebcdf", 1e-6f},
};

/* The sizes with `letter` cut down to its part `index` of `n`. */
static case_sizes sizes_cut(const case_sizes *whole, char letter, int n, int index)
{
    case_sizes cut = *whole;
    for (int i = 0; i < MAX_LETTERS; i++) {
        if (cut.letter[i].letter == letter) {
            yoke_split(whole->letter[i].extent, n, index, &cut.letter[i].offset,
                       &cut.letter[i].extent);
        }
    }
    return cut;
}

/* Copies a piece out of a whole tensor, or adds it there. */
static void piece_move(const yoke_tensor *whole, const yoke_tensor *piece, bool adds)
{
    for (int64_t i = 0; i < yoke_piece_elements(piece); i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = piece->shard.n_dims - 1; d >= 0; d--) {
            at += (piece->shard.offset[d] + rest % piece->shard.extent[d]) * stride;
            rest /= piece->shard.extent[d];
            stride *= whole->shard.extent[d];
        }
        if (adds) {
            ((float *)whole->data)[at] += ((float *)piece->data)[i];
        } else {
            ((float *)piece->data)[i] = ((float *)whole->data)[at];
        }
    }
}

typedef struct operands {
    yoke_tensor in[4], out[3];
    int n_in, n_out;
} operands;

static operands operands_create(const piece_case *c, const case_sizes *sizes)
{
    operands o = {.n_in = 0};
    for (; o.n_in < 4 && c->in[o.n_in]; o.n_in++) {
        o.in[o.n_in] = piece_create(sizes, c->in[o.n_in]);
    }
    for (; o.n_out < 3 && c->out[o.n_out]; o.n_out++) {
        o.out[o.n_out] = piece_create(sizes, c->out[o.n_out]);
        memset(o.out[o.n_out].data, 0, piece_bytes(&o.out[o.n_out]));
    }
    return o;
}

static void operands_free(operands *o)
{
    for (int i = 0; i < o->n_in; i++) {
        guarded_free(o->in[i].data);
    }
    for (int i = 0; i < o->n_out; i++) {
        guarded_free(o->out[i].data);
    }
}

static void operands_run(const piece_case *c, const operands *o, const case_sizes *whole)
{
    yoke_attributes attributes = {.rate = 0.3f,
                                  .scale = 0.7f,
                                  .site = 9,
                                  .n_chosen = 2,
                                  .n_slots = 3,
                                  .contraction = {2, 1, false, true, 1}};
    attributes.global[0].n_dims = (int)strlen(c->in[0]);
    for (int d = 0; c->in[0][d]; d++) {
        attributes.global[0].extent[d] = letter_find(whole, c->in[0][d]).extent;
    }
    run_ref(c->op, o->in, o->n_in, o->out, o->n_out, &attributes);
}

/* The operator on the pieces of one letter, put together: side by side where an output has the letter, else summed. */
static void join_pieces(const piece_case *c, char letter, int n, const operands *whole,
                        operands *joined)
{
    for (int index = 0; index < n; index++) {
        case_sizes cut = sizes_cut(&small, letter, n, index);
        operands o = operands_create(c, &cut);
        for (int i = 0; i < o.n_in; i++) {
            piece_move(&whole->in[i], &o.in[i], false);
        }
        operands_run(c, &o, &small);
        for (int i = 0; i < o.n_out; i++) {
            assert_true(guarded_check(o.out[i].data, piece_bytes(&o.out[i])));
            piece_move(&joined->out[i], &o.out[i], true);
        }
        operands_free(&o);
    }
}

/* Four parts of three slots: one is empty. */
static void test_pieces_make_the_whole(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(piece_cases); k++) {
        const piece_case *c = &piece_cases[k];
        operands whole = operands_create(c, &small);
        for (int i = 0; i < whole.n_in; i++) {
            piece_fill(&whole.in[i], c->fill[i], &small, 50 + (uint64_t)i);
        }
        operands_run(c, &whole, &small);
        for (const char *letter = c->letters; *letter; letter++) {
            for (int n = 2; n <= 4; n++) {
                operands joined = operands_create(c, &small);
                join_pieces(c, *letter, n, &whole, &joined);
                for (int i = 0; i < whole.n_out; i++) {
                    char what[64];
                    (void)snprintf(what, sizeof what, "case %d, %c in %d", k, *letter, n);
                    assert_true(floats_near(what, joined.out[i].data, whole.out[i].data,
                                            yoke_piece_elements(&whole.out[i]),
                                            (double)c->tolerance));
                }
                operands_free(&joined);
            }
        }
        operands_free(&whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_weights_the_chosen),
        cmocka_unit_test(test_ties_go_to_the_lower_expert),
        cmocka_unit_test(test_bad_logits_are_not_hidden),
        cmocka_unit_test(test_router_gradient_of_both_outputs),
        cmocka_unit_test(test_slots_fill_in_order),
        cmocka_unit_test(test_dropped_tokens_add_nothing),
        cmocka_unit_test(test_pieces_make_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
