/*
 * A model of your own, on any mesh: own_model --data FILE [--mesh dp=2,tp=2] [--steps N] [--parity]
 * Attention and feed-forward read one norm and run side by side (PaLM, Chowdhery et al. 2022). The
 * mathematics names no rank: yoke cuts it. Ends with 0, 1 (failed, or no parity) or 2 (bad input).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yoke/session.h>

enum { LAYERS = 4, WIDTH = 128, HEADS = 4, WIDE = 512, VOCABULARY = 257 }; /* bytes and an end */

static int64_t vocab_size(const yoke_model_config *config)
{
    (void)config; /* this model has no keys: its sizes stand above */
    return VOCABULARY;
}

/* A parameter of one dim is a gain and starts at 1; the others are drawn at random. */
static yoke_value weight(yoke_graph *g, int layer, const char *what, const char *dims)
{
    char name[64];
    (void)snprintf(name, sizeof name, "layers.%d.%s", layer, what);
    return dims[1] ? yoke_weight(g, name, dims, 0.02f) : yoke_gain(g, name, dims);
}

static yoke_value logits(yoke_graph *g, const yoke_model_config *config, const yoke_build *build)
{
    const int64_t extents[5] = {WIDTH, HEADS, WIDTH / HEADS, WIDE, vocab_size(config)};
    for (int i = 0; i < 5; i++) {
        yoke_letter(g, "dhxfv"[i], extents[i]);
    }
    yoke_block(g, "embed");
    yoke_value table = yoke_weight(g, "table", "vd", 0.02f);
    yoke_value x = yoke_embedding(g, table, build->tokens);
    for (int i = 0; i < LAYERS; i++) { /* x + Attention(n) Wo + gelu(n W1) W2, n = RMSNorm(x) */
        yoke_block(g, "layers.%d", i);
        yoke_value n = yoke_rms_norm(g, x, weight(g, i, "norm", "d"), 1e-6f);
        yoke_value q = yoke_matmul(g, "btd,dhx->bthx", n, weight(g, i, "wq", "dhx"));
        yoke_value k = yoke_matmul(g, "btd,dhx->bthx", n, weight(g, i, "wk", "dhx"));
        yoke_value v = yoke_matmul(g, "btd,dhx->bthx", n, weight(g, i, "wv", "dhx"));
        q = yoke_rope(g, q, build->positions, 1e4f);
        k = yoke_rope(g, k, build->positions, 1e4f);
        yoke_value heads =
            yoke_attention(g, "attention", (const yoke_value[]){q, k, v}, 0.0f, true);
        yoke_value wide = yoke_matmul(g, "btd,df->btf", n, weight(g, i, "w1", "df"));
        yoke_value y = yoke_matmul(g, "bthx,hxd->btd", heads, weight(g, i, "wo", "hxd"));
        yoke_value z = yoke_matmul(g, "btf,fd->btd", yoke_gelu(g, wide), weight(g, i, "w2", "fd"));
        x = yoke_add(g, x, yoke_add(g, y, z));
    }
    yoke_block(g, "head");
    return yoke_matmul(g, "btd,vd->btv", x, table);
}

static void print_step(void *user, const yoke_step_metrics *metrics)
{
    (void)fprintf(user, "step %lld loss %.4f\n", (long long)metrics->step, metrics->loss);
}

static yoke_status run(const yoke_session_parts *parts, bool parity)
{
    yoke_run_options how = {.n_steps = parts->config->steps, .on_step = print_step, .user = stdout};
    yoke_run_result result;
    yoke_parity_result same;
    yoke_session *session;
    if (parity) {
        YOKE_TRY(yoke_parity(parts, how.n_steps, &same));
        return same.ok ? YOKE_OK : YOKE_FAIL(YOKE_CHECK, "no parity: %s", same.first_difference);
    }
    YOKE_TRY(yoke_session_create(parts, &session));
    yoke_status status = yoke_session_run(session, &how, &result);
    yoke_session_destroy(session);
    return status;
}

int main(int argc, char **argv)
{
    static const yoke_model own = {.name = "own", .vocab_size = vocab_size, .logits = logits};
    yoke_model_config model = yoke_model_config_default(&own);
    yoke_config config = yoke_config_default();
    yoke_corpus *corpus = NULL;
    bool parity = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        parity |= strcmp(argv[i], "--parity") == 0;
        config.mesh = strcmp(argv[i], "--mesh") == 0 ? value : config.mesh;
        config.data = strcmp(argv[i], "--data") == 0 ? value : config.data;
        config.steps = strcmp(argv[i], "--steps") == 0 ? atoll(value) : config.steps;
    }
    yoke_status status = yoke_config_check(&config);
    status = status ? status : yoke_corpus_open(config.data, config.data_format, &corpus);
    yoke_session_parts parts = {.config = &config, .model = &model, .corpus = corpus};
    status = status ? status : run(&parts, parity);
    yoke_code code = yoke_status_code(status);
    (void)fprintf(stderr, "own_model: %s\n", status ? yoke_status_message(status) : "good");
    yoke_status_free(status);
    yoke_corpus_close(corpus);
    return code == YOKE_GOOD ? 0 : code == YOKE_BAD_INPUT ? 2 : 1;
}
