/*
 * The speed of a whole training step against the rate at which this machine multiplies the step's own matrices, both
 * measured in this run.
 *
 *     build/release/bench/step [--model gpt2] [--steps 5] [--KEY VALUE ...] [--dtype f32] [--json]
 *     build/release/bench/step --export DIR [--KEY VALUE ...]
 *
 * KEY is any key of a run: mesh, threads, microbatches, batch_size (4), seq_len (256), ..., or of the model, such as
 * model.n_positions. The corpus is one batch of random tokens, so every step has the same, in another order; without
 * dropout the loss can be compared with what another program makes of it. --export writes that corpus (tokens.u16) and
 * the initial weights into a folder instead of measuring; --data and --weights read them.
 *
 * One step warms up; the median of the others counts. The rate is that of all products of the step
 * together, each by the kernel that the step uses or by oneDNN left to itself, whichever is faster, on as many threads as
 * the run has, or the machine if it has fewer; taken before and after the steps, and the better one counts.
 *
 * --json ends with one JSON object: tokens_per_s, roof_gflops, roof_share, peak_bytes (of all ranks), and what was run.
 */
#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/export.h"
#include "cli/restart.h"
#include "graph/graph.h"
#include "kernel/piece.h"
#include "run/config_keys.h"
#include "run/session.h"
#include "yoke/random.h"

enum { MAX_STEPS = 1000, WARM_UP = 1, STEPS = 5, MAX_PRODUCTS = 256, MAX_KEYS = 16 };

static const double seconds_a_product = 0.15;

typedef struct bench {
    const char *model, *export_to;
    yoke_config config;
    const char *model_keys[MAX_KEYS][2]; /* name and value */
    int n_model_keys;
    bool json, help;
    double seconds[WARM_UP + MAX_STEPS];
    double first_loss, last_loss;
    int n;
} bench;

/* --- Options ------------------------------------------------------------------------------------------- */

static void print_usage(void)
{
    printf(
        "usage: step [--model gpt2] [--steps %d] [--KEY VALUE ...] [--json]\n"
        "       step --export DIR [--KEY VALUE ...]\n\n"
        "Times training steps, and gives their rate of products as a share of this machine's own.\n"
        "KEY is any key of a run (yoke train --help), or of the model, such as "
        "model.n_positions.\n\n"
        "  --steps N      1 to %d; the median counts\n"
        "  --json         ends with one JSON object\n"
        "  --export DIR   writes the initial weights and the batch instead of measuring\n",
        STEPS, MAX_STEPS);
}

static yoke_status set_option(bench *b, const char *name, const char *value)
{
    if (strcmp(name, "model") == 0) {
        b->model = value;
        return YOKE_OK;
    }
    if (strcmp(name, "export") == 0) {
        b->export_to = value;
        return YOKE_OK;
    }
    if (strncmp(name, "model.", 6) == 0 && b->n_model_keys < MAX_KEYS) {
        b->model_keys[b->n_model_keys][0] = name + 6;
        b->model_keys[b->n_model_keys++][1] = value;
        return YOKE_OK;
    }
    const yoke_config_key *key = yoke_config_key_find(name);
    if (!key) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "unknown option --%s; there are --model, --json, --export and the "
                         "keys of a run (yoke train --help)",
                         name);
    }
    return yoke_config_set(&b->config, key, value);
}

static yoke_status parse(int argc, char **argv, bench *b)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            b->help = true;
            return YOKE_OK;
        }
        if (strcmp(argv[i], "--json") == 0) {
            b->json = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0 || i + 1 == argc) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%.80s: options are --NAME VALUE; --help lists them",
                             argv[i]);
        }
        YOKE_TRY(set_option(b, argv[i] + 2, argv[i + 1]));
        i++;
    }
    if (b->config.steps < 1 || b->config.steps > MAX_STEPS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "steps is %lld; use 1 to %d", (long long)b->config.steps,
                         MAX_STEPS);
    }
    return YOKE_OK;
}

/* --- The roof ------------------------------------------------------------------------------------------ */

/* A product of the step, and how often it has it. */
typedef struct bench_product {
    yoke_shape shape[3]; /* a, b, and what comes out; global */
    yoke_contraction contraction;
    int64_t n;
} bench_product;

typedef struct roof {
    bench_product products[MAX_PRODUCTS];
    int n_products;
    int n_threads;
    yoke_world *world; /* its memory holds the rate */
} roof;

static bool same_shape(const yoke_shape *a, const yoke_shape *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int d = 0; same && d < a->n_dims; d++) {
        same = a->extent[d] == b->extent[d];
    }
    return same;
}

static bool same_product(const bench_product *a, const bench_product *b)
{
    const yoke_contraction *x = &a->contraction, *y = &b->contraction;
    return same_shape(&a->shape[0], &b->shape[0]) && same_shape(&a->shape[1], &b->shape[1]) &&
           x->a_split == y->a_split && x->b_split == y->b_split && x->n_batch == y->n_batch &&
           x->a_transposed == y->a_transposed && x->b_transposed == y->b_transposed;
}

static void collect_products(roof *r, const yoke_graph *graph)
{
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->op != YOKE_OP_MATMUL) {
            continue;
        }
        bench_product product = {.shape = {graph->values[node->in[0]].shape,
                                           graph->values[node->in[1]].shape,
                                           graph->values[node->out[0]].shape},
                                 .contraction = node->attributes.contraction,
                                 .n = 1};
        int at = 0;
        while (at < r->n_products && !same_product(&r->products[at], &product)) {
            at++;
        }
        if (at < r->n_products) {
            r->products[at].n++;
        } else if (at < MAX_PRODUCTS) {
            r->products[r->n_products++] = product;
        }
    }
}

static yoke_tensor tensor_create(const yoke_shape *shape)
{
    yoke_tensor tensor = {.shard = {.n_dims = shape->n_dims}};
    int64_t n = yoke_shape_elements(shape);
    memcpy(tensor.shard.extent, shape->extent, sizeof shape->extent);
    tensor.data = yoke_block_alloc((size_t)n * sizeof(float));
    for (int64_t i = 0; tensor.data && i < n; i++) {
        ((float *)tensor.data)[i] = (float)(i % 7) - 3.0f;
    }
    return tensor;
}

/* The same product by oneDNN, which divides it among the threads as it likes. */
static void multiply_freely(const yoke_kernel_call *call)
{
    const yoke_contraction *c = &call->attributes->contraction;
    yoke_product size = yoke_piece_contract(call);
    const float *a = call->in[0].data, *b = call->in[1].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < size.n_batch; i++) {
        (void)dnnl_sgemm(c->a_transposed ? 'T' : 'N', c->b_transposed ? 'T' : 'N', size.m, size.n,
                         size.k, 1.0f, a + i * size.m * size.k, c->a_transposed ? size.m : size.k,
                         b + i * size.k * size.n, c->b_transposed ? size.k : size.n, 0.0f,
                         y + i * size.m * size.n, size.n);
    }
}

static double best_s(yoke_kernel kernel, const yoke_kernel_call *call)
{
    double best = (double)INFINITY;
    double end = yoke_clock_s() + seconds_a_product;
    kernel(call);
    do {
        double start = yoke_clock_s();
        kernel(call);
        best = fmin(best, yoke_clock_s() - start);
    } while (yoke_clock_s() < end);
    return best;
}

/* Flops of one product, and the least time that it takes. */
static yoke_status time_product(const bench_product *product, yoke_kernel own, double *flops,
                                double *taken_s)
{
    const yoke_attributes attributes = {.contraction = product->contraction};
    const yoke_tensor in[] = {tensor_create(&product->shape[0]), tensor_create(&product->shape[1])};
    const yoke_tensor out = tensor_create(&product->shape[2]);
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .attributes = &attributes};
    call.scratch = yoke_block_alloc(
        yoke_kernel_scratch_bytes(YOKE_OP_MATMUL, &call, yoke_kernel_threads_get()) + 64);
    yoke_status status = YOKE_OK;
    if (in[0].data && in[1].data && out.data && call.scratch) {
        yoke_product size = yoke_piece_contract(&call);
        *flops = 2.0 * (double)size.m * (double)size.n * (double)size.k * (double)size.n_batch;
        *taken_s = fmin(best_s(own, &call), best_s(multiply_freely, &call));
    } else {
        status = YOKE_FAIL(YOKE_NO_MEMORY, "no memory to measure a matrix product");
    }
    yoke_block_free(call.scratch);
    yoke_block_free(in[0].data);
    yoke_block_free(in[1].data);
    yoke_block_free(out.data);
    return status;
}

static yoke_status measure_roof(yoke_endpoint *endpoint, void *user)
{
    const roof *r = user;
    double *rate = yoke_world_user(r->world);
    double flops = 0, taken_s = 0;
    yoke_kernel kernels[YOKE_N_OPS];
    (void)endpoint;
    YOKE_TRY(yoke_kernel_choose(NULL, kernels));
    yoke_kernel_threads_set(r->n_threads);
    for (int i = 0; i < r->n_products; i++) {
        double n = (double)r->products[i].n;
        double once = 0, once_s = 0;
        YOKE_TRY(time_product(&r->products[i], kernels[YOKE_OP_MATMUL], &once, &once_s));
        flops += n * once;
        taken_s += n * once_s;
    }
    *rate = flops / taken_s;
    return YOKE_OK;
}

/* In a process of its own: one that has threads cannot fork ranks. */
static yoke_status take_roof(const yoke_session *session, double *flops_per_s)
{
    static roof r;
    int n_cores = yoke_session_cores();
    int64_t n_threads = (int64_t)session->n_ranks * session->n_threads;
    r = (roof){.n_threads = n_threads < n_cores ? (int)n_threads : n_cores};
    collect_products(&r, yoke_session_graph(session));
    yoke_world_options options = {.n_ranks = 1, .user_bytes = sizeof(double)};
    YOKE_TRY(yoke_world_create(&options, &r.world));
    yoke_rank_report report;
    yoke_status status =
        yoke_world_launch(r.world, &(yoke_launch){.run = measure_roof, .user = &r}, &report);
    double rate = *(const double *)yoke_world_user(r.world);
    *flops_per_s = fmax(*flops_per_s, rate);
    yoke_world_destroy(r.world);
    return status;
}

/* --- The step ------------------------------------------------------------------------------------------ */

static void keep_metrics(void *user, const yoke_step_metrics *metrics)
{
    bench *b = user;
    b->first_loss = b->n == 0 ? metrics->loss : b->first_loss;
    b->last_loss = metrics->loss;
    b->seconds[b->n++] = metrics->seconds;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_step(bench *b)
{
    qsort(b->seconds + WARM_UP, (size_t)(b->n - WARM_UP), sizeof(double), ascending);
    return b->seconds[WARM_UP + (b->n - WARM_UP) / 2];
}

static int64_t peak_bytes(const yoke_session *session)
{
    int64_t peak = 0;
    for (int r = 0; r < session->n_ranks; r++) {
        peak += yoke_session_bytes(session, r).peak;
    }
    return peak;
}

static void report(bench *b, const yoke_session *session, double roof_flops_per_s)
{
    double step = median_step(b);
    double rate = yoke_session_step_flops(session) / step;
    double tokens = (double)(b->config.batch_size * b->config.seq_len) / step;
    long long peak = (long long)peak_bytes(session);
    printf("%s in %s, %lld x %lld tokens, %d ranks of %d threads: step %.4f s, %.0f tokens/s, %.1f "
           "of %.1f "
           "GFLOP/s: %.1f %% of the matmul rate, peak %.2f GiB, loss %.4f to %.4f\n",
           b->model, b->config.dtype, (long long)b->config.batch_size, (long long)b->config.seq_len,
           session->n_ranks, session->n_threads, step, tokens, rate * 1e-9, roof_flops_per_s * 1e-9,
           100 * rate / roof_flops_per_s, (double)peak / 0x1p30, b->first_loss, b->last_loss);
    if (b->json) {
        printf(
            "{\"model\": \"%s\", \"dtype\": \"%s\", \"mesh\": \"%s\", \"threads\": %d, "
            "\"steps\": %d, \"step_s\": %.6f, \"tokens_per_s\": %.3f, \"roof_gflops\": %.3f, "
            "\"roof_share\": %.4f, \"peak_bytes\": %lld, \"first_loss\": %.6f, \"loss\": %.6f}\n",
            b->model, b->config.dtype, b->config.mesh, session->n_threads, b->n - WARM_UP, step,
            tokens, roof_flops_per_s * 1e-9, rate / roof_flops_per_s, peak, b->first_loss,
            b->last_loss);
    }
}

static yoke_status run_steps(bench *b, yoke_session *session)
{
    double roof_flops_per_s = 0;
    yoke_run_result result;
    yoke_run_options options = {
        .n_steps = b->config.steps + WARM_UP, .on_step = keep_metrics, .user = b};
    YOKE_TRY(take_roof(session, &roof_flops_per_s));
    YOKE_TRY(yoke_session_run(session, &options, &result));
    YOKE_TRY(take_roof(session, &roof_flops_per_s));
    report(b, session, roof_flops_per_s);
    return YOKE_OK;
}

/* --- Corpus, model, session ---------------------------------------------------------------------------- */

static yoke_status make_corpus(const char *path, int64_t n, int64_t vocab)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        return YOKE_FAIL(YOKE_IO, "%s: cannot be written", path);
    }
    yoke_random_key key = yoke_random_stream(1, "bench", 0, 0);
    for (int64_t i = 0; i < n; i++) {
        uint16_t token = (uint16_t)(yoke_random_u32(key, (uint64_t)i) % (uint32_t)vocab);
        (void)fwrite(&token, sizeof token, 1, file);
    }
    return fclose(file) == 0 ? YOKE_OK : YOKE_FAIL(YOKE_IO, "%s: cannot be written", path);
}

/* As benchmarks of this step are run elsewhere; a family without these keys has no dropout. */
static void without_dropout(yoke_model_config *model)
{
    static const char *const keys[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        yoke_status_free(yoke_model_config_set(model, keys[i], "0"));
    }
}

static yoke_status use_session(bench *b, const yoke_session_parts *parts)
{
    yoke_session *session;
    YOKE_TRY(yoke_session_create(parts, &session));
    yoke_status status = YOKE_OK;
    if (*b->config.weights) {
        status = yoke_import_weights(session, parts->model, b->config.weights);
    }
    if (!status && b->export_to) {
        yoke_run_result result;
        /* No step: the weights as they begin. */
        status = yoke_session_run(session, &(yoke_run_options){.n_steps = 0}, &result);
        status = status ? status : yoke_export_model(session, parts->model, b->export_to);
    } else if (!status) {
        status = run_steps(b, session);
    }
    yoke_session_destroy(session);
    return status;
}

static yoke_status run(bench *b)
{
    yoke_model_config model;
    char path[4096];
    YOKE_TRY(yoke_model_config_load(b->model, &model));
    without_dropout(&model);
    for (int i = 0; i < b->n_model_keys; i++) {
        YOKE_TRY(yoke_model_config_set(&model, b->model_keys[i][0], b->model_keys[i][1]));
    }
    YOKE_TRY(yoke_model_config_check(&model));
    YOKE_TRY(yoke_config_check(&b->config));
    if (b->export_to) {
        (void)snprintf(path, sizeof path, "%s/tokens.u16", b->export_to);
    } else {
        (void)snprintf(path, sizeof path, "/tmp/yoke-bench-%ld.u16", (long)getpid());
    }
    bool made = !*b->config.data;
    if (made) {
        int64_t n = b->config.seq_len * b->config.batch_size + 1;
        YOKE_TRY(make_corpus(path, n, model.model->vocab_size(&model)));
    }
    yoke_corpus *corpus = NULL;
    yoke_status status = yoke_corpus_open(made ? path : b->config.data, "u16", &corpus);
    if (made && !b->export_to) {
        (void)remove(path);
    }
    if (!status) {
        status = use_session(
            b, &(yoke_session_parts){.config = &b->config, .model = &model, .corpus = corpus});
    }
    yoke_corpus_close(corpus);
    return status;
}

int main(int argc, char **argv)
{
    yoke_restart_with_short_waits(argv);
    bench b = {.model = "gpt2", .config = yoke_config_default()};
    b.config.batch_size = 4;
    b.config.seq_len = 256;
    b.config.steps = STEPS;
    b.config.eval_fraction = 0;
    b.config.warmup_steps = 0;
    b.config.lr = b.config.min_lr = 1e-4;
    b.config.lr_schedule = "constant";
    yoke_status status = parse(argc, argv, &b);
    if (!status && b.help) {
        print_usage();
        return 0;
    }
    if (!status) {
        status = run(&b);
    }
    if (status) {
        int code = yoke_status_code(status) == YOKE_BAD_INPUT ? 2 : 1;
        fprintf(stderr, "step: %s\n", yoke_status_message(status));
        yoke_status_free(status);
        return code;
    }
    return 0;
}
