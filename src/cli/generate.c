/*
 * yoke generate: text from the weights of a run folder, on one rank.
 *
 * Each token costs a forward pass over the window: simple, and equal to what training computes. Relies on config.json and
 * model.safetensors, as any HuggingFace folder has them; config.yaml, if it is there, says how long the sequences of the
 * training were, beyond which learned positions mean nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/export.h"
#include "cli/command.h"
#include "cli/run_file.h"
#include "cli/sample.h"
#include "run/config_keys.h"
#include "yoke/random.h"
#include "yoke/session.h"

enum { BYTE_VOCABULARY = 257, END_OF_TEXT = 256, MOST_TOKENS = 1 << 24 };

typedef struct generate_state {
    const yoke_invocation *invocation;
    const char *folder;
    yoke_config config;
    yoke_model_config model;
    yoke_session *session;
    int64_t vocab_size;
    int64_t window;  /* tokens that a pass sees */
    int32_t *tokens; /* [capacity]: prompt, then what was generated */
    int64_t n, n_prompt, capacity;
    float *logits; /* [window, vocab_size] */
    int32_t *order;
} generate_state;

static yoke_status check_options(const yoke_invocation *invocation)
{
    double temperature = yoke_invocation_real(invocation, "temperature");
    int64_t top_k = yoke_invocation_int(invocation, "top-k");
    int64_t tokens = yoke_invocation_int(invocation, "tokens");
    int64_t seed = yoke_invocation_int(invocation, "seed");
    const char *run_folder = yoke_invocation_text(invocation, "run");
    if (!run_folder || !*run_folder) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "there is no run folder; name one with --run DIR");
    }
    if (temperature < 0.0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--temperature is %g; use 0 or more", temperature);
    }
    if (top_k < 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--top-k is %" PRId64 "; use 0 (all tokens) or more",
                         top_k);
    }
    if (tokens < 1 || tokens > MOST_TOKENS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--tokens is %" PRId64 "; use 1 to %d", tokens,
                         MOST_TOKENS);
    }
    if (seed < 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--seed is %" PRId64 "; use 0 or more", seed);
    }
    return YOKE_OK;
}

static void add_token(generate_state *generation, int64_t token)
{
    YOKE_ASSERT(generation->n < generation->capacity);
    generation->tokens[generation->n++] = (int32_t)token;
}

/* "12 7 99", separated by blanks or commas. */
static yoke_status read_ids(generate_state *generation, const char *text)
{
    yoke_arena *arena = generation->invocation->arena;
    while (*(text += strspn(text, " ,\t\n"))) {
        int64_t id;
        size_t length = strcspn(text, " ,\t\n");
        const char *word = yoke_arena_print(arena, "%.*s", (int)length, text);
        YOKE_TRY(yoke_number_parse_int("--prompt-ids", word, &id));
        if (id < 0 || id >= generation->vocab_size) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "--prompt-ids: %" PRId64 " is no token; the vocabulary has %" PRId64
                             ", use 0 to %" PRId64,
                             id, generation->vocab_size, generation->vocab_size - 1);
        }
        add_token(generation, id);
        text += length;
    }
    return YOKE_OK;
}

static yoke_status read_prompt(generate_state *generation)
{
    const yoke_invocation *invocation = generation->invocation;
    const char *ids = yoke_invocation_text(invocation, "prompt-ids");
    const char *prompt = yoke_invocation_text(invocation, "prompt");
    if (prompt && ids) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "both --prompt and --prompt-ids are given; use one");
    }
    if (!ids && generation->vocab_size != BYTE_VOCABULARY) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "the vocabulary has %" PRId64
                         " tokens, and only one of %d is bytes; give the "
                         "prompt as numbers with --prompt-ids",
                         generation->vocab_size, BYTE_VOCABULARY);
    }
    /* Without a prompt the text begins as after a line's end. */
    prompt = prompt && *prompt ? prompt : "\n";
    generation->capacity =
        (int64_t)strlen(ids ? ids : prompt) + yoke_invocation_int(invocation, "tokens");
    generation->tokens = YOKE_ARENA_NEW(invocation->arena, int32_t, generation->capacity);
    if (ids) {
        YOKE_TRY(read_ids(generation, ids));
    } else {
        for (; *prompt; prompt++) {
            add_token(generation, (unsigned char)*prompt);
        }
    }
    generation->n_prompt = generation->n;
    return generation->n > 0
               ? YOKE_OK
               : YOKE_FAIL(YOKE_BAD_INPUT, "--prompt-ids is empty; give at least one token");
}

/* Length of the sequences that the run was trained on, if its config.yaml says so; 0 if not. */
static int64_t trained_tokens(const generate_state *generation)
{
    yoke_settings settings = {0};
    int64_t tokens = 0;
    yoke_arena *arena = generation->invocation->arena;
    const char *path = yoke_arena_print(arena, "%s/config.yaml", generation->folder);
    yoke_status status = yoke_run_file_read(arena, path, &settings);
    for (int64_t i = 0; i < settings.n && !status; i++) {
        if (strcmp(settings.item[i].key, "seq_len") == 0) {
            status = yoke_number_parse_int("seq_len", settings.item[i].value, &tokens);
        }
    }
    yoke_status_free(status);
    return tokens;
}

static void choose_window(generate_state *generation)
{
    const yoke_model *model = generation->model.model;
    int64_t window = generation->n_prompt + yoke_invocation_int(generation->invocation, "tokens");
    int64_t trained = trained_tokens(generation);
    if (model->max_tokens && model->max_tokens(&generation->model) < window) {
        window = model->max_tokens(&generation->model);
    }
    generation->window = trained > 0 && trained < window ? trained : window;
}

static yoke_status open_session(generate_state *generation)
{
    const yoke_invocation *invocation = generation->invocation;
    const char *weights =
        yoke_arena_print(invocation->arena, "%s/model.safetensors", generation->folder);
    generation->config = yoke_config_default();
    generation->config.batch_size = 1;
    generation->config.seq_len = generation->window;
    generation->config.threads = yoke_invocation_int(invocation, "threads");
    generation->config.ranks = "threads";
    YOKE_TRY(yoke_config_check(&generation->config));
    yoke_session_parts parts = {.config = &generation->config, .model = &generation->model};
    YOKE_TRY(yoke_session_create(&parts, &generation->session));
    return yoke_import_weights(generation->session, &generation->model, weights);
}

static yoke_status load(generate_state *generation)
{
    yoke_arena *arena = generation->invocation->arena;
    const char *path = yoke_arena_print(arena, "%s/config.json", generation->folder);
    yoke_status status = yoke_model_config_load(path, &generation->model);
    YOKE_TRY(yoke_status_prefix(status, "run folder %s (it takes a run that ended well)",
                                generation->folder));
    if (generation->model.model->objective != YOKE_NEXT_TOKEN) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "run folder %s holds a %s model, which fills in masked tokens and writes "
                         "no text; name the run of a model that predicts the next token",
                         generation->folder, generation->model.model->name);
    }
    generation->vocab_size = generation->model.model->vocab_size(&generation->model);
    YOKE_TRY(read_prompt(generation));
    choose_window(generation);
    /* Before the logits: it refuses a window that does not fit into the machine. */
    status = open_session(generation);
    if (yoke_status_code(status) == YOKE_NO_MEMORY) {
        status = yoke_status_prefix(status, "a window of %" PRId64 " tokens; use fewer --tokens",
                                    generation->window);
    }
    YOKE_TRY(status);
    size_t bytes = sizeof(float) * (size_t)(generation->window * generation->vocab_size);
    generation->logits = yoke_block_alloc(bytes);
    generation->order = yoke_block_alloc(sizeof(int32_t) * (size_t)generation->vocab_size);
    if (!generation->logits || !generation->order) {
        return YOKE_FAIL(YOKE_NO_MEMORY,
                         "no memory for the logits of %" PRId64
                         " tokens, %zu bytes; use fewer --tokens",
                         generation->window, bytes);
    }
    return YOKE_OK;
}

/* One pass over the last tokens; what follows them in the window is padding that causal attention never sees. */
static yoke_status next_token(generate_state *generation, int32_t *window,
                              const yoke_sampling *sampling)
{
    int32_t token;
    int64_t seen = generation->n < generation->window ? generation->n : generation->window;
    const yoke_random_key key = yoke_random_stream(
        (uint64_t)yoke_invocation_int(generation->invocation, "seed"), "generate", 0, 0);
    memset(window, 0, sizeof(int32_t) * (size_t)generation->window);
    memcpy(window, generation->tokens + generation->n - seen, sizeof(int32_t) * (size_t)seen);
    YOKE_TRY(yoke_session_logits(generation->session, window, generation->logits));
    double uniform = (double)yoke_random_uniform(key, (uint64_t)generation->n);
    YOKE_TRY(yoke_sample(sampling, generation->logits + (seen - 1) * generation->vocab_size,
                         generation->order, generation->vocab_size, uniform, &token));
    add_token(generation, token);
    return YOKE_OK;
}

static void print_token(const generate_state *generation, int64_t index)
{
    int32_t token = generation->tokens[index];
    if (generation->vocab_size != BYTE_VOCABULARY) {
        (void)printf("%s%" PRId32, index > 0 ? " " : "", token);
    } else if (token != END_OF_TEXT) {
        (void)putchar(token);
    }
    (void)fflush(stdout);
}

static yoke_status generate(generate_state *generation)
{
    const yoke_invocation *invocation = generation->invocation;
    const yoke_sampling sampling = {
        .temperature = yoke_invocation_real(invocation, "temperature"),
        .top_k = yoke_invocation_int(invocation, "top-k"),
    };
    int32_t *window = YOKE_ARENA_NEW(invocation->arena, int32_t, generation->window);
    bool bytes = generation->vocab_size == BYTE_VOCABULARY;
    for (int64_t i = 0; i < generation->n_prompt; i++) {
        print_token(generation, i);
    }
    while (generation->n < generation->capacity &&
           generation->n < generation->n_prompt + yoke_invocation_int(invocation, "tokens")) {
        YOKE_TRY(next_token(generation, window, &sampling));
        print_token(generation, generation->n - 1);
        if (bytes && generation->tokens[generation->n - 1] == END_OF_TEXT) {
            break;
        }
    }
    (void)putchar('\n');
    return YOKE_OK;
}

/* Ids, because bytes need not be UTF-8 and JSON must. */
static void report(const generate_state *generation, json_t *result)
{
    json_t *tokens = json_array();
    for (int64_t i = generation->n_prompt; i < generation->n; i++) {
        (void)json_array_append_new(tokens, json_integer(generation->tokens[i]));
    }
    (void)json_object_set_new(result, "tokens", tokens);
    (void)json_object_set_new(result, "window", json_integer(generation->window));
}

static yoke_status run(const yoke_invocation *invocation, json_t *result)
{
    YOKE_TRY(check_options(invocation));
    generate_state generation = {.invocation = invocation,
                                 .folder = yoke_invocation_text(invocation, "run")};
    yoke_status status = load(&generation);
    if (!status) {
        status = generate(&generation);
        report(&generation, result);
    }
    yoke_session_destroy(generation.session);
    yoke_block_free(generation.logits);
    yoke_block_free(generation.order);
    return status;
}

static const yoke_option options[] = {
    {.name = "run", .kind = YOKE_OPTION_TEXT, .unit = "path", .help = "the run folder"},
    {.name = "prompt", .kind = YOKE_OPTION_TEXT, .help = "text to go on from; none: a new line"},
    {.name = "prompt-ids",
     .kind = YOKE_OPTION_TEXT,
     .help =
         "the prompt as token numbers, such as \"12 7 99\", for vocabularies that are not bytes"},
    {.name = "tokens",
     .kind = YOKE_OPTION_INT,
     .fallback = "400",
     .unit = "tokens",
     .help = "to generate at most"},
    {.name = "temperature",
     .kind = YOKE_OPTION_REAL,
     .fallback = "0.8",
     .help = "flattens above 1, sharpens below; 0: always the likeliest token"},
    {.name = "top-k",
     .kind = YOKE_OPTION_INT,
     .fallback = "0",
     .help = "choose among so many of the likeliest tokens; 0: among all"},
    {.name = "seed",
     .kind = YOKE_OPTION_INT,
     .fallback = "1",
     .help = "another seed, another text"},
    {.name = "threads",
     .kind = YOKE_OPTION_INT,
     .fallback = "0",
     .unit = "threads",
     .help = "0: one for each core"},
};

const yoke_command yoke_command_generate = {
    .name = "generate",
    .summary = "write text with the weights of a run",
    .details =
        "Reads config.json and model.safetensors of a run folder, or of any HuggingFace folder of "
        "a known family. Prints the prompt "
        "and what follows it; token numbers if the vocabulary is not bytes. One seed, one text.",
    .usage = "--run DIR [--prompt TEXT] [--OPTION VALUE ...]",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
