/*
 * The speed of a whole training step against the machine's rate of plain matrix products, both measured in this run.
 *
 *     build/release/bench/step [--model gpt2] [--batch 4] [--seq 256] [--mesh dp=2] [--threads 2] [--steps 5] [--dtype f32] [--json]
 *
 * The rate is taken before and after the steps and the better one counts; the median step counts. The corpus is random
 * tokens: speed does not depend on them. --json ends with one JSON object: tokens_per_s, roof_gflops, roof_share, peak_bytes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "yoke/random.h"
#include "yoke/session.h"

enum { MAX_STEPS = 100, WARM_UP = 1 };

typedef struct bench {
    const char *model;
    yoke_config config;
    bool json;
    double seconds[MAX_STEPS];
    int n;
} bench;

static void keep_seconds(void *user, const yoke_step_metrics *metrics)
{
    bench *b = user;
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

static bool parse(int argc, char **argv, bench *b)
{
    for (int i = 1; i < argc; i++) {
        const char *key = argv[i];
        if (strcmp(key, "--json") == 0) {
            b->json = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[++i] : "";
        int64_t number = strtoll(value, NULL, 10);
        if (strcmp(key, "--model") == 0) {
            b->model = value;
        } else if (strcmp(key, "--mesh") == 0) {
            b->config.mesh = value;
        } else if (strcmp(key, "--batch") == 0) {
            b->config.batch_size = number;
        } else if (strcmp(key, "--microbatches") == 0) {
            b->config.microbatches = number;
        } else if (strcmp(key, "--seq") == 0) {
            b->config.seq_len = number;
        } else if (strcmp(key, "--threads") == 0) {
            b->config.threads = number;
        } else if (strcmp(key, "--steps") == 0 && number >= 1 && number + WARM_UP <= MAX_STEPS) {
            b->config.steps = number;
        } else if (strcmp(key, "--dtype") != 0 || strcmp(value, "f32") != 0) {
            fprintf(stderr, "step: cannot do %s %s; the options are in the head of bench/step.c\n",
                    key, value);
            return false;
        }
    }
    return true;
}

/* Random tokens in a file without a name that outlives the run. */
static yoke_status make_corpus(const char *path, int64_t n, int64_t vocab)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        return YOKE_FAIL(YOKE_IO, "%s: cannot be written", path);
    }
    yoke_random_key key = yoke_random_stream(1, "bench", 0, 0);
    for (int64_t i = 0; i < n; i++) {
        uint16_t token = (uint16_t)(yoke_random_u32(key, (uint64_t)i) % (uint32_t)vocab);
        fwrite(&token, sizeof token, 1, file);
    }
    return fclose(file) == 0 ? YOKE_OK : YOKE_FAIL(YOKE_IO, "%s: cannot be written", path);
}

static void report(bench *b, yoke_session *session, double roof)
{
    double step = median_step(b);
    double share = yoke_session_step_flops(session) / step / roof;
    double tokens = (double)(b->config.batch_size * b->config.seq_len) / step;
    int64_t peak = 0;
    for (int r = 0; r < yoke_session_n_ranks(session); r++) {
        peak += yoke_session_bytes(session, r).peak;
    }
    printf("%s, %lld x %lld tokens, %d ranks: step %.3f s, %.0f tokens/s, %.1f of %.1f GFLOP/s: "
           "%.1f %% of the "
           "matmul rate, peak %.2f GiB\n",
           b->model, (long long)b->config.batch_size, (long long)b->config.seq_len,
           yoke_session_n_ranks(session), step, tokens,
           yoke_session_step_flops(session) / step * 1e-9, roof * 1e-9, 100 * share,
           (double)peak / 0x1p30);
    if (b->json) {
        printf("{\"tokens_per_s\": %.3f, \"roof_gflops\": %.3f, \"roof_share\": %.4f, "
               "\"peak_bytes\": %lld}\n",
               tokens, roof * 1e-9, share, (long long)peak);
    }
}

static yoke_status measure(bench *b, const yoke_session_parts *parts)
{
    yoke_session *session;
    YOKE_TRY(yoke_session_create(parts, &session));
    yoke_run_options options = {
        .n_steps = b->config.steps + WARM_UP, .on_step = keep_seconds, .user = b};
    yoke_run_result result;
    double before = 0, after = 0;
    yoke_status status = yoke_session_matmul_rate(session, &before);
    if (!status) {
        status = yoke_session_run(session, &options, &result);
    }
    if (!status) {
        status = yoke_session_matmul_rate(session, &after);
    }
    if (!status) {
        report(b, session, fmax(before, after));
    }
    yoke_session_destroy(session);
    return status;
}

/* As benchmarks of this step are run elsewhere; a family without these keys has no dropout. */
static void without_dropout(yoke_model_config *model)
{
    static const char *const keys[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        yoke_status_free(yoke_model_config_set(model, keys[i], "0"));
    }
}

static yoke_status run(bench *b)
{
    yoke_model_config model;
    YOKE_TRY(yoke_model_config_load(b->model, &model));
    YOKE_TRY(yoke_config_check(&b->config));
    without_dropout(&model);
    char path[64];
    snprintf(path, sizeof path, "/tmp/yoke-bench-%ld.u16", (long)getpid());
    int64_t n = (b->config.seq_len + 1) * b->config.batch_size * 4;
    YOKE_TRY(make_corpus(path, n, model.model->vocab_size(&model)));
    yoke_corpus *corpus = NULL;
    yoke_status status = yoke_corpus_open(path, "u16", &corpus);
    remove(path);
    if (!status) {
        status = measure(
            b, &(yoke_session_parts){.config = &b->config, .model = &model, .corpus = corpus});
    }
    yoke_corpus_close(corpus);
    return status;
}

int main(int argc, char **argv)
{
    bench b = {.model = "gpt2", .config = yoke_config_default()};
    b.config.batch_size = 4;
    b.config.seq_len = 256;
    b.config.steps = 5;
    b.config.eval_fraction = 0;
    b.config.warmup_steps = 0;
    if (!parse(argc, argv, &b)) {
        return 2;
    }
    yoke_status status = run(&b);
    if (status) {
        fprintf(stderr, "step: %s\n", yoke_status_message(status));
        yoke_status_free(status);
        return 1;
    }
    return 0;
}
