/* labels: slow */
/*
 * Models that nobody would write, on meshes that nobody would choose: blocks of a few random
 * operators, with parameters that are shared, frozen or both, and values that skip blocks, by every
 * schedule. The run must be that of one rank, and so must the logits. A failure prints the case, by
 * which the model is drawn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

enum { N_CASES = 600, MOST_BLOCKS = 6, MOST_RANKS = 8, N_SHARED = 3 };

/* --- Drawing ---------------------------------------------------------------------------------- */

typedef struct dice {
    yoke_random_key key;
    uint64_t n_thrown;
} dice;

/* 0 to n - 1. */
static int throw(dice * d, int n)
{
    return (int)(yoke_random_u32(d->key, d->n_thrown++) % (uint32_t)n);
}

typedef struct random_case {
    int number;
    int size[YOKE_N_AXES];
    int zero;
    bool sequence;       /* parallelism of it along tp */
    const char *context; /* how attention is divided along cp */
    const char *recompute;
    int microbatches, rows, seq_len;
    int n_kv, n_heads, head_width;
    const char *schedule;
} random_case;

static random_case now; /* what the model function is to draw */

/* Up to three axes, of 2 to 4 ranks, as long as there are not too many. */
static void draw_mesh(random_case *c, dice *d)
{
    static const char *const contexts[] = {"gather", "heads", "ring"};
    static const char *const levels[] = {"none", "light", "selective", "full"};
    int n_ranks = 1;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        c->size[axis] = 1;
    }
    for (int i = 1 + throw(d, 3); i > 0; i--) {
        int axis = throw(d, YOKE_N_AXES), size = 2 + throw(d, 3);
        if (c->size[axis] == 1 && n_ranks * size <= MOST_RANKS) {
            c->size[axis] = size;
            n_ranks *= size;
        }
    }
    c->zero = throw(d, 4);
    c->sequence = throw(d, 2);
    c->context = contexts[throw(d, COUNT(contexts))];
    c->recompute = levels[throw(d, COUNT(levels))];
}

static random_case draw_case(int number)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zb-h1", "zb-v", "interleaved"};
    dice d = {.key = yoke_random_stream(1, "tests.case", number, 0)};
    random_case c = {.number = number};
    draw_mesh(&c, &d);
    c.schedule = schedules[throw(&d, COUNT(schedules))];
    c.microbatches =
        strcmp(c.schedule, "interleaved") == 0 ? c.size[YOKE_AXIS_PP] : 1 + throw(&d, 4);
    c.rows = 1 + throw(&d, 3);
    c.seq_len = 2 + throw(&d, 6);
    c.n_kv = 1 + throw(&d, 3);
    c.n_heads = c.n_kv * (1 + throw(&d, 3));
    c.head_width = 2 * (1 + throw(&d, 2));
    return c;
}

/* --- A random model --------------------------------------------------------------------------- */

typedef struct writer {
    yoke_graph *g;
    const yoke_build *build;
    dice dice;
    yoke_value table;
    yoke_value shared[N_SHARED];      /* no value before the first use */
    yoke_value seen[MOST_BLOCKS + 1]; /* after each block so far */
    int n_seen;
    int n_names;
} writer;

static const char *fresh_name(writer *w, char text[32])
{
    (void)snprintf(text, 32, "p%d", w->n_names++);
    return text;
}

static yoke_value fresh_weight(writer *w, const char *dims)
{
    char name[32];
    return yoke_weight(w->g, fresh_name(w, name), dims, 0.2f);
}

static yoke_value norm(writer *w, yoke_value x, bool may_freeze)
{
    char name[32];
    yoke_value gain = yoke_gain(w->g, fresh_name(w, name), "d");
    yoke_value bias = yoke_bias(w->g, fresh_name(w, name), "d");
    if (may_freeze && throw(&w->dice, 3) == 0) {
        yoke_freeze(w->g, throw(&w->dice, 2) ? gain : bias);
    }
    return yoke_layer_norm(w->g, x, gain, bias, 1e-5f);
}

/* Up and down with one weight, or with two of which others may use the first. */
static yoke_value feed_forward(writer *w, yoke_value x)
{
    yoke_value *up = &w->shared[throw(&w->dice, N_SHARED)];
    *up = *up == YOKE_NO_VALUE ? fresh_weight(w, "df") : *up;
    yoke_value h = yoke_gelu(w->g, yoke_matmul(w->g, "btd,df->btf", x, *up));
    yoke_value y = throw(&w->dice, 2) ? yoke_matmul(w->g, "btf,df->btd", h, *up)
                                      : yoke_matmul(w->g, "btf,fd->btd", h, fresh_weight(w, "fd"));
    return yoke_add(w->g, x, y);
}

static yoke_value attention(writer *w, yoke_value x)
{
    char name[32];
    yoke_value q = yoke_matmul(w->g, "btd,dhx->bthx", x, fresh_weight(w, "dhx"));
    yoke_value k = yoke_matmul(w->g, "btd,dkx->btkx", x, fresh_weight(w, "dkx"));
    yoke_value v = yoke_matmul(w->g, "btd,dkx->btkx", x, fresh_weight(w, "dkx"));
    if (throw(&w->dice, 2)) {
        q = yoke_rope(w->g, q, w->build->positions, 1000);
        k = yoke_rope(w->g, k, w->build->positions, 1000);
    }
    bool drops = throw(&w->dice, 2) && w->build->training;
    const yoke_value qkv[] = {q, k, v};
    yoke_value y = yoke_attention(w->g, fresh_name(w, name), qkv, drops ? 0.1f : 0.0f, true);
    return yoke_add(w->g, x, yoke_matmul(w->g, "bthx,hxd->btd", y, fresh_weight(w, "hxd")));
}

static yoke_value random_operator(writer *w, yoke_value x)
{
    char name[32];
    switch (throw(&w->dice, 7)) {
    case 0:
        return norm(w, x, true);
    case 1:
        return yoke_add(w->g, x, yoke_gelu(w->g, x));
    case 2:
        return yoke_add(w->g, x, w->seen[throw(&w->dice, w->n_seen)]);
    case 3:
        return yoke_add(w->g, x, yoke_embedding(w->g, w->table, w->build->tokens));
    case 4:
        fresh_name(w, name);
        return w->build->training ? yoke_dropout(w->g, name, x, 0.2f) : x;
    case 5:
        return attention(w, x);
    default:
        return feed_forward(w, x);
    }
}

static yoke_value head(writer *w, yoke_value x)
{
    x = norm(w, x, false);
    switch (throw(&w->dice, 3)) {
    case 0:
        return yoke_matmul(w->g, "btd,vd->btv", x, w->table);
    case 1:
        return yoke_matmul(w->g, "btd,vd->btv", x, fresh_weight(w, "vd"));
    default:
        x = yoke_gelu(w->g, yoke_matmul(w->g, "btd,df->btf", x, fresh_weight(w, "df")));
        return yoke_matmul(w->g, "btf,fv->btv", x, fresh_weight(w, "fv"));
    }
}

static int64_t vocabulary_of(const yoke_model_config *config)
{
    (void)config;
    return VOCABULARY;
}

static void letters(yoke_graph *g)
{
    yoke_letter(g, 'v', VOCABULARY);
    yoke_letter(g, 'd', 8);
    yoke_letter(g, 'f', 12);
    yoke_letter(g, 'h', now.n_heads);
    yoke_letter(g, 'k', now.n_kv);
    yoke_letter(g, 'x', now.head_width);
}

static yoke_value random_model(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    writer w = {.g = g,
                .build = build,
                .dice = {.key = yoke_random_stream(1, "tests.model", now.number, 0)},
                .shared = {YOKE_NO_VALUE, YOKE_NO_VALUE, YOKE_NO_VALUE}};
    letters(g);
    w.table = fresh_weight(&w, "vd");
    if (throw(&w.dice, 4) == 0) {
        yoke_freeze(g, w.table);
    }
    yoke_value x = yoke_embedding(g, w.table, build->tokens);
    w.seen[w.n_seen++] = x;
    for (int i = 1 + throw(&w.dice, MOST_BLOCKS); i > 0; i--) {
        yoke_block(g, "block.%d", i);
        for (int n = throw(&w.dice, 4); n > 0; n--) {
            x = random_operator(&w, x);
        }
        w.seen[w.n_seen++] = x;
    }
    if (throw(&w.dice, 2)) {
        yoke_block(g, "head");
    }
    return head(&w, x);
}

/* --- Comparing -------------------------------------------------------------------------------- */

static float *logits_of(const scene *s, const char *mesh, const char *schedule, int64_t *n)
{
    yoke_config config = s->config;
    config.mesh = mesh;
    config.schedule = schedule;
    yoke_session_parts parts = {.config = &config, .model = &s->model};
    yoke_session *session = NULL;
    int64_t n_tokens = config.batch_size * config.seq_len;
    int32_t *tokens = calloc((size_t)n_tokens, sizeof *tokens);
    float *logits = calloc((size_t)(n_tokens * VOCABULARY), sizeof *logits);
    assert_true(tokens && logits);
    for (int64_t i = 0; i < n_tokens; i++) {
        tokens[i] = (int32_t)(i * 11 % VOCABULARY);
    }
    assert_ok(yoke_session_create(&parts, &session), mesh);
    assert_ok(yoke_session_logits(session, tokens, logits), mesh);
    yoke_session_destroy(session);
    free(tokens);
    *n = n_tokens * VOCABULARY;
    return logits;
}

static void assert_equal_logits(const scene *s)
{
    int64_t n = 0;
    float *divided = logits_of(s, s->config.mesh, s->config.schedule, &n);
    float *single = logits_of(s, "", "1f1b", &n);
    assert_near("logits", distance(divided, single, n), 0, 1e-5);
    free(divided);
    free(single);
}

/* False if the model has too few blocks for the mesh, which is refused. */
static bool check_case(scene *s, const char *text, int *n_failed)
{
    yoke_session_parts parts = scene_parts(s);
    yoke_parity_result result;
    yoke_status status = yoke_parity(&parts, s->config.steps, &result);
    if (status && yoke_status_code(status) == YOKE_BAD_INPUT &&
        strstr(yoke_status_message(status), "blocks")) {
        yoke_status_free(status);
        return false;
    }
    if (status) {
        print_error("%s: %s\n", text, yoke_status_message(status));
        yoke_status_free(status);
        (*n_failed)++;
        return false;
    }
    if (!result.ok) {
        (*n_failed)++;
        print_error("%s: gradients %.3g, norm %.3g, loss %.3g, weights %.3g apart; first %s\n",
                    text, result.grad_rel, result.norm_rel, result.loss_rel, result.weights_rel,
                    result.first_difference);
    }
    assert_equal_logits(s);
    return true;
}

static void print_mesh(char *text, size_t bytes)
{
    yoke_mesh mesh;
    memcpy(mesh.size, now.size, sizeof mesh.size);
    (void)yoke_mesh_print(&mesh, text, (int)bytes);
}

static void test_random_models(void **state)
{
    (void)state;
    static const yoke_model model = {
        .name = "random", .vocab_size = vocabulary_of, .logits = random_model};
    int n_run = 0, n_failed = 0;
    for (int i = 0; i < N_CASES; i++) {
        char mesh[64], options[128], text[256];
        scene s;
        now = draw_case(i);
        print_mesh(mesh, sizeof mesh);
        (void)snprintf(options, sizeof options,
                       "zero=%d sequence_parallel=%s context_parallel=%s recompute=%s", now.zero,
                       now.sequence ? "true" : "false", now.context, now.recompute);
        (void)snprintf(text, sizeof text, "case %d, %s, %s, %s, %d micro-batches of %d x %d", i,
                       mesh, options, now.schedule, now.microbatches, now.rows, now.seq_len);
        const session_case c = {.model = &model,
                                .mesh = mesh,
                                .options = options,
                                .schedule = now.schedule,
                                .microbatches = now.microbatches,
                                .batch = now.microbatches * now.rows,
                                .seq_len = now.seq_len,
                                .epsilon = 1e-6, /* as in parity_meshes.h */
                                .steps = 2};
        scene_open(&s, &c);
        s.config.kernels = "ref"; /* with few tokens some gradients are but rounding */
        n_run += check_case(&s, text, &n_failed);
        scene_close(&s);
    }
    assert_int_equal(n_failed, 0);
    assert_true(n_run > N_CASES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
