/*
 * BERT: logits against a slow twin in double, gradients against differences of the loss, and that it trains, on any mesh,
 * by the command line too, and refuses what an encoder cannot do. Masks by themselves are in test_mask.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli_run.h"
#include "graph/graph.h"
#include "parity_case.h"

#define DROPPED "hidden_dropout_prob=0.1 attention_probs_dropout_prob=0.1"

/* Of bert-tiny. */
enum { T = 7, D = 32, F = 128, N = 4, H = D / N, V = 258, L = 2, MOST_TENSORS = 64 };

/* --- The twin ---------------------------------------------------------------------------------------- */

/* The model's tensors in double, row-major, under HuggingFace's names. */
typedef struct twin {
    int n;
    const char *name[MOST_TENSORS];
    double *tensor[MOST_TENSORS];
    bool exact; /* GELU */
    double epsilon;
} twin;

static const double *find(const twin *w, const char *prefix, const char *name)
{
    char full[160];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    for (int i = 0; i < w->n; i++) {
        if (strcmp(w->name[i], full) == 0) {
            return w->tensor[i];
        }
    }
    fail_msg("no tensor %s", full);
    return NULL;
}

/* y = W x + b for each of T rows; the matrix is [n_out, n_in]. */
static void dense(const twin *w, const char *name, const double *x, int n_in, double *y, int n_out)
{
    const double *matrix = find(w, name, ".weight"), *bias = find(w, name, ".bias");
    for (int t = 0; t < T; t++) {
        for (int o = 0; o < n_out; o++) {
            double sum = bias[o];
            for (int i = 0; i < n_in; i++) {
                sum += matrix[o * n_in + i] * x[t * n_in + i];
            }
            y[t * n_out + o] = sum;
        }
    }
}

static void layer_norm(const twin *w, const char *name, double *x)
{
    const double *gain = find(w, name, ".weight"), *bias = find(w, name, ".bias");
    for (double *row = x; row < x + T * D; row += D) {
        double mean = 0, variance = 0;
        for (int i = 0; i < D; i++) {
            mean += row[i] / D;
        }
        for (int i = 0; i < D; i++) {
            variance += (row[i] - mean) * (row[i] - mean) / D;
        }
        for (int i = 0; i < D; i++) {
            row[i] = (row[i] - mean) / sqrt(variance + w->epsilon) * gain[i] + bias[i];
        }
    }
}

static void gelu(const twin *w, double *x, int n)
{
    for (int i = 0; i < n; i++) {
        double u = x[i];
        double cubic = sqrt(2.0 / 3.14159265358979323846) * (u + 0.044715 * u * u * u);
        x[i] = 0.5 * u * (1.0 + (w->exact ? erf(u / sqrt(2.0)) : tanh(cubic)));
    }
}

/* One query of one head over all tokens. */
static void attend(const double *q, const double *k, const double *v, double *y)
{
    double weight[T], sum = 0;
    for (int s = 0; s < T; s++) {
        double score = 0;
        for (int i = 0; i < H; i++) {
            score += q[i] * k[s * D + i];
        }
        weight[s] = exp(score / sqrt(H));
        sum += weight[s];
    }
    for (int i = 0; i < H; i++) {
        y[i] = 0;
        for (int s = 0; s < T; s++) {
            y[i] += weight[s] / sum * v[s * D + i];
        }
    }
}

static void add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] += y[i];
    }
}

static const char *in_layer(char text[128], int layer, const char *name)
{
    (void)snprintf(text, 128, "bert.encoder.layer.%d.%s", layer, name);
    return text;
}

static void transform(const twin *w, int layer, double *x)
{
    static double q[T * D], k[T * D], v[T * D], y[T * D], out[T * D], wide[T * F];
    char name[128];
    dense(w, in_layer(name, layer, "attention.self.query"), x, D, q, D);
    dense(w, in_layer(name, layer, "attention.self.key"), x, D, k, D);
    dense(w, in_layer(name, layer, "attention.self.value"), x, D, v, D);
    for (int t = 0; t < T; t++) {
        for (int h = 0; h < N; h++) {
            attend(q + t * D + h * H, k + h * H, v + h * H, y + t * D + h * H);
        }
    }
    dense(w, in_layer(name, layer, "attention.output.dense"), y, D, out, D);
    add(x, out, T * D);
    layer_norm(w, in_layer(name, layer, "attention.output.LayerNorm"), x);
    dense(w, in_layer(name, layer, "intermediate.dense"), x, D, wide, F);
    gelu(w, wide, T * F);
    dense(w, in_layer(name, layer, "output.dense"), wide, F, out, D);
    add(x, out, T * D);
    layer_norm(w, in_layer(name, layer, "output.LayerNorm"), x);
}

static void twin_logits(const twin *w, const int32_t *tokens, double *logits)
{
    static double x[T * D], y[T * D];
    const double *words = find(w, "bert.embeddings.word_embeddings", ".weight");
    const double *places = find(w, "bert.embeddings.position_embeddings", ".weight");
    const double *types = find(w, "bert.embeddings.token_type_embeddings", ".weight");
    for (int i = 0; i < T * D; i++) {
        x[i] = words[tokens[i / D] * D + i % D] + places[i] + types[i % D];
    }
    layer_norm(w, "bert.embeddings.LayerNorm", x);
    for (int layer = 0; layer < L; layer++) {
        transform(w, layer, x);
    }
    dense(w, "cls.predictions.transform.dense", x, D, y, D);
    gelu(w, y, T * D);
    layer_norm(w, "cls.predictions.transform.LayerNorm", y);
    const double *bias = find(w, "cls.predictions", ".bias");
    for (int i = 0; i < T * V; i++) {
        logits[i] = bias[i % V];
        for (int d = 0; d < D; d++) {
            logits[i] += y[i / V * D + d] * words[i % V * D + d];
        }
    }
}

/* --- Logits ------------------------------------------------------------------------------------------ */

static const session_case for_logits = {.preset = "bert-tiny", .batch = 2, .seq_len = T};

/* A session for logits alone whose weights are all drawn, biases and norms too, and the twin that has the same. */
static void open_twin(scene *s, twin *w, const char *mesh, bool exact)
{
    session_case c = for_logits;
    c.mesh = mesh;
    c.keys = exact ? "" : "hidden_act=gelu_new";
    scene_open(s, &c);
    yoke_session_parts parts = {.config = &s->config, .model = &s->model};
    assert_ok(yoke_session_create(&parts, &s->session), mesh);
    *w = (twin){.n = yoke_session_n_parameters(s->session), .exact = exact, .epsilon = 1e-12};
    assert_in_range(w->n, 1, MOST_TENSORS);
    for (int i = 0; i < w->n; i++) {
        int64_t n = parameter_elements(s->session, i);
        float *drawn = calloc((size_t)n, sizeof *drawn);
        w->tensor[i] = calloc((size_t)n, sizeof **w->tensor);
        w->name[i] = yoke_session_parameter_name(s->session, i);
        assert_true(drawn && w->tensor[i]);
        for (int64_t k = 0; k < n; k++) {
            yoke_random_key key = yoke_random_stream(3, w->name[i], 0, 0);
            drawn[k] = 0.3f * yoke_random_normal(key, (uint64_t)k);
            w->tensor[i][k] = (double)drawn[k];
        }
        assert_ok(yoke_session_load(s->session, i, drawn), w->name[i]);
        free(drawn);
    }
}

static void close_twin(scene *s, twin *w)
{
    for (int i = 0; i < w->n; i++) {
        free(w->tensor[i]);
    }
    scene_close(s);
}

static void fill_tokens(int32_t tokens[2 * T])
{
    for (int i = 0; i < 2 * T; i++) {
        tokens[i] = i * i * 31 % V;
    }
}

static void assert_logits(const char *mesh, bool exact)
{
    static float logits[2 * T * V];
    static double expected[T * V];
    int32_t tokens[2 * T];
    scene s;
    twin w;
    open_twin(&s, &w, mesh, exact);
    fill_tokens(tokens);
    assert_ok(yoke_session_logits(s.session, tokens, logits), mesh);
    for (int row = 0; row < 2; row++) {
        twin_logits(&w, tokens + row * T, expected);
        for (int i = 0; i < T * V; i++) {
            double got = (double)logits[row * T * V + i];
            if (!(fabs(got - expected[i]) <= 2e-5 * (1.0 + fabs(expected[i])))) {
                fail_msg("'%s', row %d, element %d: %.9g, expected %.9g", mesh, row, i, got,
                         expected[i]);
            }
        }
    }
    close_twin(&s, &w);
}

static void test_logits_equal_the_twins(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "tp=3", "dp=2,tp=2,pp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_logits(meshes[i], true);
    }
    assert_logits("", false);
}

/* The last token of the first sequence is seen by the first, and by no token of the second. */
static void test_a_token_sees_later_ones(void **state)
{
    (void)state;
    static float before[2 * T * V], after[2 * T * V];
    int32_t tokens[2 * T];
    scene s;
    twin w;
    open_twin(&s, &w, "", true);
    fill_tokens(tokens);
    assert_ok(yoke_session_logits(s.session, tokens, before), "before");
    tokens[T - 1] ^= 1;
    assert_ok(yoke_session_logits(s.session, tokens, after), "after");
    double apart = distance(before, after, V);
    assert_true(apart > 1e-3);
    assert_equal_floats("second sequence", before + T * V, after + T * V, T * V);
    close_twin(&s, &w);
}

/* --- Gradients --------------------------------------------------------------------------------------- */

/* The loss of the first step with the weights as loaded: the learning rate is too small to change any. */
static double loss_now(scene *s)
{
    outcome o = {0};
    run_steps(s, 0, 1, &o);
    assert_false(o.step[0].skipped);
    return o.step[0].loss;
}

/* The loss where parameter `index` is moved by `by` along its gradient. */
static double loss_moved(scene *s, int index, const float *weight, const float *gradient, double by)
{
    int64_t n = parameter_elements(s->session, index);
    float *moved = calloc((size_t)n, sizeof *moved);
    assert_non_null(moved);
    for (int64_t k = 0; k < n; k++) {
        moved[k] = (float)((double)weight[k] + by * (double)gradient[k]);
    }
    assert_ok(yoke_session_load(s->session, index, moved), "moved");
    double loss = loss_now(s);
    assert_ok(yoke_session_load(s->session, index, weight), "back");
    free(moved);
    return loss;
}

static void assert_slope(scene *s, int index, const float *weight, const float *gradient)
{
    double norm = 0, far = 0.02;
    for (int64_t k = 0; k < parameter_elements(s->session, index); k++) {
        norm += (double)gradient[k] * (double)gradient[k];
    }
    norm = sqrt(norm);
    const char *name = yoke_session_parameter_name(s->session, index);
    if (strstr(name, "self.key.bias")) {
        assert_true(norm == 0.0);
        return;
    }
    assert_true(norm > 1e-3);
    double above = loss_moved(s, index, weight, gradient, far / norm);
    double below = loss_moved(s, index, weight, gradient, -far / norm);
    double slope = (above - below) / (2.0 * far);
    if (!(fabs(slope - norm) <= 0.01 * norm + 1e-4)) {
        fail_msg("%s: the loss changes by %.6g, the gradient says %.6g", name, slope, norm);
    }
}

static void assert_slopes(const char *keys)
{
    const session_case c = {
        .preset = "bert-tiny", .keys = keys, .steps = 1, .microbatches = 2, .lr = 1e-30};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    fetch_all(&s, &o);
    int64_t at = 0;
    for (int i = 0; i < o.n; i++) {
        assert_slope(&s, i, o.weight + at, o.gradient + at);
        at += parameter_elements(s.session, i);
    }
    outcome_free(&o);
    scene_close(&s);
}

static int n_nodes(const scene *s, yoke_op op)
{
    int n = 0;
    const yoke_graph *graph = s->session->train.graph;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].op == op;
    }
    return n;
}

/* The two forms of GELU are too near each other for slopes to tell their gradients apart. */
static void test_each_gelu_has_its_own_gradient(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        const session_case c = {.preset = "bert-tiny",
                                .keys = exact ? "hidden_act=gelu" : "hidden_act=gelu_pytorch_tanh",
                                .options = "recompute=none"};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        assert_int_equal(n_nodes(&s, YOKE_OP_GELU_ERF), exact ? L + 1 : 0);
        assert_int_equal(n_nodes(&s, YOKE_OP_GELU_ERF_GRAD), exact ? L + 1 : 0);
        assert_int_equal(n_nodes(&s, YOKE_OP_GELU), exact ? 0 : L + 1);
        assert_int_equal(n_nodes(&s, YOKE_OP_GELU_GRAD), exact ? 0 : L + 1);
        scene_close(&s);
    }
}

static void test_gradients_are_slopes_of_the_loss(void **state)
{
    (void)state;
    assert_slopes("initializer_range=0.2 " DROPPED);
    assert_slopes("initializer_range=0.2 tie_word_embeddings=false hidden_act=gelu_new");
}

/* --- Runs -------------------------------------------------------------------------------------------- */

static void test_meshes(void **state)
{
    (void)state;
    static const parity_case table[] = {
        {.base = {.keys = DROPPED, .mesh = "dp=2", .microbatches = 3}},
        {.base = {.mesh = "dp=3"}},
        {.base = {.keys = DROPPED, .mesh = "tp=2", .microbatches = 2}},
        {.base = {.keys = "num_hidden_layers=5", .mesh = "pp=2", .microbatches = 3}, .bits = true},
        {.base = {.keys = "tie_word_embeddings=false vocab_size=259", .mesh = "tp=4"}},
        {.base = {.keys = DROPPED,
                  .mesh = "dp=2,tp=2,pp=2",
                  .batch = 9,
                  .microbatches = 3,
                  .masked = true,
                  .valid = {40, 16, 5}}},
    };
    assert_parity_table("bert-tiny", table, COUNT(table));
}

/* A text in which each token follows from its neighbours. */
static void test_it_learns(void **state)
{
    (void)state;
    enum { STEPS = 60, N_TOKENS = 4001 };
    static uint16_t tokens[N_TOKENS];
    const session_case c = {
        .preset = "bert-tiny", .steps = STEPS, .batch = 16, .microbatches = 2, .lr = 5e-3};
    scene s;
    outcome o = {0};
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (uint16_t)(i % 8);
    }
    scene_open(&s, &c);
    yoke_corpus_close(s.corpus);
    FILE *file = fopen(s.path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(tokens, sizeof *tokens, N_TOKENS, file), N_TOKENS);
    assert_int_equal(fclose(file), 0);
    assert_ok(yoke_corpus_open(s.path, "u16", &s.corpus), "corpus");
    scene_plan(&s);
    run_steps(&s, 0, STEPS, &o);
    assert_true(o.step[0].loss > 5.0);
    assert_true(o.step[STEPS - 1].loss < 1.0); /* without the neighbours, log(8) = 2.08 at best */
    assert_true(o.step[0].n_valid > 10 && o.step[0].n_valid < 80); /* 15 % of 256 */
    scene_close(&s);
}

static double evaluation_loss(const char *mesh)
{
    const session_case c = {.preset = "bert-tiny", .mesh = mesh, .steps = 2, .lr = 1e-30};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    s.config.eval_fraction = 0.5;
    s.config.eval_batches = 2;
    s.config.eval_interval = 1;
    scene_plan(&s);
    run_steps(&s, 0, 2, &o);
    assert_true(o.step[0].evaluated && o.step[1].evaluated);
    assert_true(o.step[0].eval_loss == o.step[1].eval_loss); /* nothing was learnt */
    scene_close(&s);
    return o.step[1].eval_loss;
}

static void test_evaluation_is_fixed_on_any_mesh(void **state)
{
    (void)state;
    double single = evaluation_loss("");
    assert_true(single > 5.0 && single < 6.5);
    assert_near("dp=3,tp=2", evaluation_loss("dp=3,tp=2"), single, YOKE_PARITY_LOSS);
}

/* Hardly anything is masked: steps without a label are skipped, and too many of them end the run. */
static void test_nothing_to_find(void **state)
{
    (void)state;
    const session_case c = {.preset = "bert-tiny", .steps = 10};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    s.config.mask_rate = 1e-9;
    s.config.max_skipped = 3;
    scene_plan(&s);
    assert_int_equal(s.session->train_sampler.masking.token, V - 1); /* if nothing else is said */
    assert_status_says(try_steps(&s, 0, 10, &o), YOKE_CHECK,
                       SAYS("3 steps in a row", "no label", "raise mask_rate"));
    assert_int_equal(o.n_steps, 3);
    assert_true(o.step[2].skipped && o.step[2].n_valid == 0.0);
    scene_close(&s);
}

static void refuse_plan(const char *preset, int64_t mask_token, const char *const *words)
{
    const session_case c = {.preset = preset};
    scene s;
    scene_open(&s, &c);
    s.config.mask_token = mask_token;
    yoke_session_parts parts = scene_parts(&s);
    assert_status_says(yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT, words);
    scene_close(&s);
}

static void test_masks_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    refuse_plan("bert-tiny", 258, SAYS("mask_token 258", "258 tokens", "0 to 257", "259"));
    refuse_plan("gpt2-tiny", 5, SAYS("mask_token is 5", "gpt2", "mask_token=-1", "bert"));
    yoke_config config = yoke_config_default();
    config.mask_rate = 0;
    assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT,
                       SAYS("mask_rate is 0", "(0, 1]"));
    config.mask_rate = 1.5;
    assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT, SAYS("mask_rate is 1.5"));
}

/* --- The command line -------------------------------------------------------------------------------- */

/* A run, its repetition from its own files, and what an encoder cannot do. */
static void test_command_line(void **state)
{
    (void)state;
    cli_place *place = cli_place_create();
    static char text[4001];
    for (int i = 0; i < 4000; i++) {
        text[i] = "oxen pull logs. "[i % 16];
    }
    cli_write_text(place, "text.txt", text);
    cli_expect(place, 0,
               CLI_ARGS("train", "--model", "bert-tiny", "--data", "text.txt", "--steps", "2",
                        "--seq_len", "16", "--batch_size", "4", "--set",
                        "model.hidden_act=gelu_new", "--run_dir", "run", "--threads", "1"));
    char path[CLI_PATH_BYTES];
    cli_path(place, "run/config.yaml", path);
    assert_true(cli_read(path, place->out));
    assert_non_null(strstr(place->out, "  hidden_act: gelu_new\n"));
    cli_expect(place, 0,
               CLI_ARGS("train", "run/config.yaml", "--weights", "run/model.safetensors",
                        "--run_dir", "again"));
    cli_expect(place, 2, CLI_ARGS("generate", "--run", "run", "--prompt", "oxen"));
    assert_non_null(strstr(place->err, "bert model, which fills in masked tokens"));
    cli_place_destroy(place);
}

/* Norms stand behind the sums here, so the gradient of a layer's input adds partial sums of q, k and v
 * to a whole one from the stream: still one all_reduce for each half of a layer and direction. */
static void test_one_reduction_for_each_half(void **state)
{
    (void)state;
    const session_case c = {.preset = "bert-tiny", .keys = "num_hidden_layers=3", .mesh = "tp=2"};
    scene s;
    scene_open(&s, &c);
    scene_plan(&s);
    const yoke_graph *graph = yoke_session_graph(s.session);
    int n[YOKE_REGION_TAIL + 1] = {0};
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        const char *dims = graph->values[node->in[0]].dims;
        n[node->region] += node->conversion == YOKE_CONVERT_ALL_REDUCE && strcmp(dims, "btd") == 0;
    }
    assert_int_equal(n[YOKE_REGION_FORWARD], 2 * 3 + 1); /* and the embedding */
    assert_int_equal(n[YOKE_REGION_BACKWARD], 2 * 3);    /* the head has a letter of its own */
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_reduction_for_each_half),
        cmocka_unit_test(test_logits_equal_the_twins),
        cmocka_unit_test(test_a_token_sees_later_ones),
        cmocka_unit_test(test_each_gelu_has_its_own_gradient),
        cmocka_unit_test(test_gradients_are_slopes_of_the_loss),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_it_learns),
        cmocka_unit_test(test_evaluation_is_fixed_on_any_mesh),
        cmocka_unit_test(test_nothing_to_find),
        cmocka_unit_test(test_masks_that_do_not_fit_are_refused),
        cmocka_unit_test(test_command_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
