/*
 * Runs to be compared: a config, a model and a corpus made for the case, and what came out of it.
 *
 * Included by one test program each, after cmocka.h. A corpus is a temporary file of uint16 tokens, in which the labels
 * that count are placed by step and micro-batch: what the sampler will read where is known before the file is written.
 */
#ifndef SESSION_CASE_H
#define SESSION_CASE_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/config_keys.h"
#include "run/session.h"
#include "yoke/random.h"

/* Vocabulary of the presets for tests: bytes and one token more, which the cases use as "does not count". */
enum { VOCABULARY = 257, IGNORED = 256, MOST_MICROBATCHES = 8, MOST_STEPS = 64 };

typedef struct session_case {
    const char *preset;      /* NULL: gpt2-tiny */
    const char *keys;        /* of the model, "n_layer=5 n_head=6"; may be NULL */
    const yoke_model *model; /* instead of a preset */
    const char *mesh;        /* NULL: one rank */
    const char *options;  /* other keys of the run, "zero=1 context_parallel=heads"; may be NULL */
    const char *schedule; /* NULL: 1f1b */
    const char *ranks;    /* NULL: threads */
    int64_t batch;        /* 0: 6 */
    int64_t microbatches; /* 0: 1 */
    int64_t seq_len;      /* 0: 16 */
    int64_t steps;        /* 0: 3; of the run and of the corpus, which is one epoch long */
    bool masked;          /* each micro-batch has `valid` labels that count, instead of all */
    int valid[MOST_MICROBATCHES];
    int empty_step;           /* from 1: a step of which no label counts; 0: none */
    int token;                /* every label that counts; 0: drawn */
    double clip, lr, epsilon; /* 0: as the defaults */
} session_case;

typedef struct scene {
    char path[64];
    char options[128]; /* of the case, taken apart: texts of the config point here */
    yoke_config config;
    yoke_model_config model;
    yoke_corpus *corpus;
    yoke_session *session;
} scene;

/* --- Failing ---------------------------------------------------------------------------------------- */

static inline void assert_ok(yoke_status status, const char *what)
{
    if (status) {
        fail_msg("%s: %s", what, yoke_status_message(status));
    }
}

/* Fails with a message that has all the parts, which end with NULL. */
static inline void assert_status_says(yoke_status status, yoke_code code, const char *const *parts)
{
    assert_non_null(status);
    for (; *parts; parts++) {
        if (!strstr(yoke_status_message(status), *parts)) {
            fail_msg("'%s' is not in: %s", *parts, yoke_status_message(status));
        }
    }
    if (yoke_status_code(status) != code) {
        fail_msg("code %d, not %d: %s", (int)yoke_status_code(status), (int)code,
                 yoke_status_message(status));
    }
    yoke_status_free(status);
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* --- The corpus ------------------------------------------------------------------------------------- */

/* The labels of sample `row` of a micro-batch of `n_rows` that count: early rows are filled first, so that the ranks of a
 * batch axis have unequal shares, some of them none. */
static inline int64_t valid_labels(const scene *s, const session_case *c, int64_t step,
                                   int64_t microbatch, int64_t row)
{
    int64_t length = s->config.seq_len;
    if (step + 1 == c->empty_step) {
        return 0;
    }
    int64_t left = c->masked ? c->valid[microbatch] - row * length : length;
    return left < 0 ? 0 : left > length ? length : left;
}

static inline void fill_window(uint16_t *labels, int64_t length, int64_t n_valid, int token,
                               int64_t salt)
{
    yoke_random_key key = yoke_random_stream(7, "tests.corpus", salt, 0);
    for (int64_t t = 0; t < length; t++) {
        uint32_t drawn = yoke_random_u32(key, (uint64_t)t) % IGNORED;
        uint32_t counts = token ? (uint32_t)token : drawn;
        labels[t] = (uint16_t)(t < n_valid ? counts : IGNORED);
    }
}

static inline void write_corpus(scene *s, const session_case *c)
{
    const yoke_config *config = &s->config;
    int64_t n_windows = config->batch_size * config->steps;
    int64_t n_tokens = n_windows * config->seq_len + 1;
    int64_t n_rows = config->batch_size / config->microbatches;
    uint16_t *tokens = calloc((size_t)n_tokens, sizeof *tokens);
    assert_non_null(tokens);
    yoke_sampler sampler = {.n_tokens = n_tokens,
                            .seq_len = config->seq_len,
                            .batch_size = config->batch_size,
                            .microbatches = config->microbatches,
                            .seed = (uint64_t)config->seed,
                            .shuffled = true};
    for (int64_t i = 0; i < n_windows; i++) {
        int64_t within = i % config->batch_size;
        int64_t n_valid =
            valid_labels(s, c, i / config->batch_size, within / n_rows, within % n_rows);
        uint16_t *labels = tokens + yoke_sampler_window(&sampler, i) * config->seq_len + 1;
        fill_window(labels, config->seq_len, n_valid, c->token, i);
    }
    (void)snprintf(s->path, sizeof s->path, "%s", "/tmp/yoke-case-XXXXXX");
    int file = mkstemp(s->path);
    assert_true(file >= 0);
    size_t bytes = (size_t)n_tokens * sizeof *tokens;
    assert_int_equal(write(file, tokens, bytes), bytes);
    assert_int_equal(close(file), 0);
    free(tokens);
}

/* --- A scene ---------------------------------------------------------------------------------------- */

static inline void set_keys(yoke_model_config *model, const char *keys)
{
    char text[256];
    char *rest = NULL;
    (void)snprintf(text, sizeof text, "%s", keys ? keys : "");
    for (char *key = strtok_r(text, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        assert_non_null(value);
        *value = '\0';
        assert_ok(yoke_model_config_set(model, key, value + 1), key);
    }
}

static inline yoke_config config_of(const session_case *c)
{
    yoke_config config = yoke_config_default();
    config.mesh = c->mesh ? c->mesh : "";
    config.schedule = c->schedule ? c->schedule : "1f1b";
    config.ranks = c->ranks ? c->ranks : "threads";
    config.batch_size = c->batch ? c->batch : 6;
    config.microbatches = c->microbatches ? c->microbatches : 1;
    config.seq_len = c->seq_len ? c->seq_len : 16;
    config.steps = c->steps ? c->steps : 3;
    config.eval_fraction = 0;
    config.ignore_token = IGNORED;
    config.warmup_steps = 2;
    config.threads = 1;
    config.grad_clip = c->clip > 0 ? c->clip : config.grad_clip;
    config.lr = c->lr > 0 ? c->lr : config.lr;
    config.epsilon = c->epsilon > 0 ? c->epsilon : config.epsilon;
    config.min_lr = config.lr / 10;
    config.timeout_s = 60;
    return config;
}

static inline void set_options(scene *s, const char *options)
{
    char *rest = NULL;
    (void)snprintf(s->options, sizeof s->options, "%s", options ? options : "");
    for (char *key = strtok_r(s->options, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        assert_non_null(value);
        *value = '\0';
        const yoke_config_key *known = yoke_config_key_find(key);
        assert_non_null(known);
        assert_ok(yoke_config_set(&s->config, known, value + 1), key);
    }
}

/* Config, model and corpus of a case; the session is not yet made. */
static inline void scene_open(scene *s, const session_case *c)
{
    *s = (scene){.config = config_of(c)};
    set_options(s, c->options);
    if (c->model) {
        s->model = yoke_model_config_default(c->model);
    } else {
        assert_ok(yoke_model_config_load(c->preset ? c->preset : "gpt2-tiny", &s->model), "preset");
        set_keys(&s->model, c->keys);
        assert_ok(yoke_model_config_check(&s->model), "model");
    }
    assert_ok(yoke_config_check(&s->config), "config");
    write_corpus(s, c);
    assert_ok(yoke_corpus_open(s->path, "u16", &s->corpus), "corpus");
}

static inline yoke_session_parts scene_parts(const scene *s)
{
    return (yoke_session_parts){.config = &s->config, .model = &s->model, .corpus = s->corpus};
}

static inline void scene_plan(scene *s)
{
    yoke_session_parts parts = scene_parts(s);
    assert_ok(yoke_session_create(&parts, &s->session), s->config.mesh);
}

static inline void scene_close(scene *s)
{
    yoke_session_destroy(s->session);
    yoke_corpus_close(s->corpus);
    (void)unlink(s->path);
}

/* --- What came out ----------------------------------------------------------------------------------- */

typedef struct outcome {
    int64_t n_steps;
    yoke_step_metrics step[MOST_STEPS];
    yoke_run_result result;
    int n;            /* parameters */
    int64_t elements; /* of all of them */
    float *weight, *gradient;
} outcome;

static inline void keep_metrics(void *user, const yoke_step_metrics *metrics)
{
    outcome *o = user;
    assert_true(o->n_steps < MOST_STEPS);
    o->step[o->n_steps++] = *metrics;
}

static inline yoke_status try_steps(scene *s, int64_t first, int64_t n, outcome *o)
{
    yoke_run_options options = {
        .first_step = first, .n_steps = n, .on_step = keep_metrics, .user = o};
    return yoke_session_run(s->session, &options, &o->result);
}

static inline void run_steps(scene *s, int64_t first, int64_t n, outcome *o)
{
    assert_ok(try_steps(s, first, n, o), s->config.mesh);
}

static inline int64_t parameter_elements(const yoke_session *session, int index)
{
    yoke_shape shape = yoke_session_parameter_shape(session, index);
    return yoke_shape_elements(&shape);
}

/* Weights, and gradients of the last step, one parameter after the other. All replicas are compared on the way. */
static inline void fetch_all(scene *s, outcome *o)
{
    o->n = yoke_session_n_parameters(s->session);
    o->elements = yoke_session_parameter_count(s->session);
    o->weight = realloc(o->weight, (size_t)o->elements * sizeof(float));
    o->gradient = realloc(o->gradient, (size_t)o->elements * sizeof(float));
    assert_true(o->weight && o->gradient);
    int64_t at = 0;
    for (int i = 0; i < o->n; i++) {
        const char *name = yoke_session_parameter_name(s->session, i);
        assert_ok(yoke_session_fetch(s->session, YOKE_FETCH_WEIGHT, i, o->weight + at), name);
        assert_ok(yoke_session_fetch(s->session, YOKE_FETCH_GRADIENT, i, o->gradient + at), name);
        at += parameter_elements(s->session, i);
    }
}

static inline void outcome_free(outcome *o)
{
    free(o->weight);
    free(o->gradient);
}

/* The whole case, from nothing. */
static inline void run_case(const session_case *c, outcome *o)
{
    scene s;
    *o = (outcome){0};
    scene_open(&s, c);
    scene_plan(&s);
    run_steps(&s, 0, s.config.steps, o);
    fetch_all(&s, o);
    scene_close(&s);
}

static inline void assert_equal_floats(const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) {
            fail_msg("%s: element %lld of %lld is %.9g and %.9g", what, (long long)i, (long long)n,
                     (double)a[i], (double)b[i]);
        }
    }
}

/* Loss and norm of every step, weights and gradients: the same bits. */
static inline void assert_equal_outcomes(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n_steps, b->n_steps);
    for (int64_t i = 0; i < a->n_steps; i++) {
        const double x[] = {a->step[i].loss, a->step[i].grad_norm};
        const double y[] = {b->step[i].loss, b->step[i].grad_norm};
        if (memcmp(x, y, sizeof x) != 0) {
            fail_msg("step %lld: loss %.17g and %.17g, norm %.17g and %.17g", (long long)i, x[0],
                     y[0], x[1], y[1]);
        }
    }
    assert_int_equal(a->elements, b->elements);
    assert_equal_floats("gradients", a->gradient, b->gradient, a->elements);
    assert_equal_floats("weights", a->weight, b->weight, a->elements);
}

/* Relative distance of two vectors in the 2-norm. */
static inline double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0, reference = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        reference += (double)b[i] * (double)b[i];
    }
    return sqrt(difference) / (reference > 0 ? sqrt(reference) : 1.0);
}

static inline void assert_near(const char *what, double a, double b, double bound)
{
    double apart = fabs(a - b) / (fabs(b) > 0 ? fabs(b) : 1.0);
    if (!(apart <= bound)) {
        fail_msg("%s: %.9g and %.9g are %.3g apart, over %.3g", what, a, b, apart, bound);
    }
}

/* Two outcomes of the case's model, in bf16 and in float32: each gradient is near, and something has been rounded. */
static inline void assert_rounded_gradients(const session_case *c, const outcome *narrow,
                                            const outcome *wide)
{
    scene s;
    scene_open(&s, c);
    scene_plan(&s);
    int64_t at = 0;
    for (int i = 0; i < wide->n; i++) {
        int64_t n = parameter_elements(s.session, i);
        double apart = distance(narrow->gradient + at, wide->gradient + at, n);
        if (!(apart <= 2e-2)) {
            fail_msg("%s on %s, %s: gradient of %s is %.3g apart",
                     c->preset ? c->preset : "gpt2-tiny", c->mesh ? c->mesh : "one rank",
                     c->options ? c->options : "", yoke_session_parameter_name(s.session, i),
                     apart);
        }
        at += n;
    }
    assert_int_equal(at, wide->elements);
    assert_false(memcmp(narrow->gradient, wide->gradient, (size_t)at * sizeof(float)) == 0);
    scene_close(&s);
}

#endif
