/*
 * Export and import of HuggingFace model folders, over a session that is only a table of weights:
 * this program brings its own yoke_session_graph, fetch and load, so that names, shapes and the
 * joining of parts are tested apart from any run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint/export.h"
#include "checkpoint/hf_map.h"
#include "checkpoint/safetensors.h"
#include "graph/graph.h"

enum { PATH_BYTES = 512, MOST_PARAMETERS = 64, MOST_ELEMENTS = 1 << 14 };

struct yoke_session {
    yoke_graph *graph;
    int n_loads;
    float weights[MOST_PARAMETERS][MOST_ELEMENTS];
};

const yoke_graph *yoke_session_graph(const yoke_session *session)
{
    return session->graph;
}

static int64_t n_elements(const yoke_session *session, int index)
{
    const yoke_graph *graph = session->graph;
    return yoke_shape_elements(&yoke_value_get(graph, graph->parameters[index])->shape);
}

yoke_status yoke_session_fetch(yoke_session *session, yoke_fetch what, int index, float *out)
{
    assert_int_equal(what, YOKE_FETCH_WEIGHT);
    memcpy(out, session->weights[index], (size_t)n_elements(session, index) * sizeof *out);
    return YOKE_OK;
}

yoke_status yoke_session_load(yoke_session *session, int index, const float *in)
{
    memcpy(session->weights[index], in, (size_t)n_elements(session, index) * sizeof *in);
    session->n_loads++;
    return YOKE_OK;
}

static char folder[PATH_BYTES / 2];
static char weights_path[PATH_BYTES];
static char config_path[PATH_BYTES];
static yoke_session sessions[2];

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/yoke-test-export-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        return -1;
    }
    (void)snprintf(weights_path, sizeof weights_path, "%s/model.safetensors", folder);
    (void)snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(weights_path);
    (void)unlink(config_path);
    return rmdir(folder);
}

static void check_good(yoke_status status)
{
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
}

static yoke_model_config load_preset(const char *preset)
{
    yoke_model_config config;
    check_good(yoke_model_config_load(preset, &config));
    return config;
}

/* A session of this model whose weights say which parameter and element they are. */
static void open_session(yoke_session *session, const yoke_model_config *config)
{
    memset(session, 0, sizeof *session);
    check_good(yoke_graph_create(&session->graph));
    yoke_letter(session->graph, 'b', 1);
    yoke_letter(session->graph, 't', 2);
    yoke_build build = {
        .tokens = yoke_input(session->graph, "tokens", "bt"),
        .positions = yoke_input(session->graph, "positions", "bt"),
    };
    (void)config->model->logits(session->graph, config, &build);
    check_good(yoke_graph_finish(session->graph));
    assert_in_range(session->graph->n_parameters, 1, MOST_PARAMETERS);
    for (int i = 0; i < session->graph->n_parameters; i++) {
        assert_in_range(n_elements(session, i), 1, MOST_ELEMENTS);
        for (int64_t k = 0; k < n_elements(session, i); k++) {
            session->weights[i][k] = (float)(i * MOST_ELEMENTS + k);
        }
    }
}

static void close_session(yoke_session *session)
{
    yoke_graph_destroy(session->graph);
    session->graph = NULL;
}

static int find_parameter(const yoke_session *session, const char *name)
{
    for (int i = 0; i < session->graph->n_parameters; i++) {
        if (strcmp(yoke_value_get(session->graph, session->graph->parameters[i])->name, name) ==
            0) {
            return i;
        }
    }
    fail_msg("no parameter %s", name);
    return -1;
}

static void check_equal_weights(const yoke_session *a, const yoke_session *b)
{
    for (int i = 0; i < a->graph->n_parameters; i++) {
        for (int64_t k = 0; k < n_elements(a, i); k++) {
            if (a->weights[i][k] != b->weights[i][k]) {
                fail_msg("parameter %d, element %lld: %g and %g", i, (long long)k,
                         (double)a->weights[i][k], (double)b->weights[i][k]);
            }
        }
    }
}

static void test_round_trip_of_each_family(void **state)
{
    (void)state;
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "bert-tiny", "mixtral-tiny"};
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        yoke_model_config config = load_preset(presets[i]);
        open_session(&sessions[0], &config);
        check_good(yoke_export_model(&sessions[0], &config, folder));
        yoke_model_config back;
        check_good(yoke_model_config_load(config_path, &back));
        assert_memory_equal(back.value, config.value, sizeof config.value);
        open_session(&sessions[1], &back);
        memset(sessions[1].weights, 0, sizeof sessions[1].weights);
        check_good(yoke_import_weights(&sessions[1], &back, weights_path));
        assert_int_equal(sessions[1].n_loads, sessions[1].graph->n_parameters);
        check_equal_weights(&sessions[0], &sessions[1]);
        close_session(&sessions[0]);
        close_session(&sessions[1]);
    }
}

static void check_shape(const yoke_safetensors *file, const char *name, yoke_shape expected)
{
    int index = yoke_safetensors_find(file, name);
    if (index < 0) {
        fail_msg("no tensor %s", name);
    }
    const yoke_shape *shape = yoke_safetensors_shape(file, index);
    assert_int_equal(shape->n_dims, expected.n_dims);
    assert_memory_equal(shape->extent, expected.extent, sizeof expected.extent);
}

/* The shapes of HuggingFace's GPT2LMHeadModel and LlamaForCausalLM of these sizes. */
static void test_shapes_are_huggingfaces(void **state)
{
    (void)state;
    yoke_safetensors *file;
    yoke_model_config config = load_preset("gpt2-tiny");
    open_session(&sessions[0], &config);
    check_good(yoke_export_model(&sessions[0], &config, folder));
    check_good(yoke_safetensors_open(weights_path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), 2 + 2 * 12 + 2);
    check_shape(file, "transformer.wte.weight", (yoke_shape){2, {257, 32}});
    check_shape(file, "transformer.wpe.weight", (yoke_shape){2, {64, 32}});
    check_shape(file, "transformer.h.1.attn.c_attn.weight", (yoke_shape){2, {32, 96}});
    check_shape(file, "transformer.h.1.attn.c_attn.bias", (yoke_shape){1, {96}});
    check_shape(file, "transformer.h.1.attn.c_proj.weight", (yoke_shape){2, {32, 32}});
    check_shape(file, "transformer.h.1.mlp.c_fc.weight", (yoke_shape){2, {32, 128}});
    check_shape(file, "transformer.h.1.mlp.c_proj.weight", (yoke_shape){2, {128, 32}});
    check_shape(file, "transformer.ln_f.bias", (yoke_shape){1, {32}});
    yoke_safetensors_close(file);
    close_session(&sessions[0]);

    config = load_preset("llama-tiny");
    open_session(&sessions[0], &config);
    check_good(yoke_export_model(&sessions[0], &config, folder));
    check_good(yoke_safetensors_open(weights_path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), 1 + 2 * 9 + 2);
    check_shape(file, "model.layers.0.self_attn.q_proj.weight", (yoke_shape){2, {32, 32}});
    check_shape(file, "model.layers.0.self_attn.k_proj.weight", (yoke_shape){2, {16, 32}});
    check_shape(file, "model.layers.0.self_attn.o_proj.weight", (yoke_shape){2, {32, 32}});
    check_shape(file, "model.layers.0.mlp.gate_proj.weight", (yoke_shape){2, {88, 32}});
    check_shape(file, "model.layers.0.mlp.down_proj.weight", (yoke_shape){2, {32, 88}});
    check_shape(file, "model.layers.0.input_layernorm.weight", (yoke_shape){1, {32}});
    check_shape(file, "lm_head.weight", (yoke_shape){2, {257, 32}});
    yoke_safetensors_close(file);
    close_session(&sessions[0]);
}

/* The shapes of HuggingFace's MixtralForCausalLM, which has a tensor for each matrix of each expert;
 * here they are slices of one parameter. */
static void test_experts_are_tensors_of_their_own(void **state)
{
    (void)state;
    enum { F = 44, D = 32 };
    static const char whole[] = "model.layers.1.block_sparse_moe.experts.w2.weight";
    static float one[D * F];
    yoke_safetensors *file;
    yoke_model_config config = load_preset("mixtral-tiny");
    open_session(&sessions[0], &config);
    check_good(yoke_export_model(&sessions[0], &config, folder));
    check_good(yoke_safetensors_open(weights_path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), 1 + 2 * (4 + 2 + 1 + 3 * 4) + 2);
    check_shape(file, "model.layers.0.self_attn.k_proj.weight", (yoke_shape){2, {16, D}});
    check_shape(file, "model.layers.0.block_sparse_moe.gate.weight", (yoke_shape){2, {4, D}});
    check_shape(file, "model.layers.0.block_sparse_moe.experts.0.w1.weight",
                (yoke_shape){2, {F, D}});
    check_shape(file, "model.layers.1.block_sparse_moe.experts.3.w3.weight",
                (yoke_shape){2, {F, D}});
    check_shape(file, "model.layers.1.block_sparse_moe.experts.2.w2.weight",
                (yoke_shape){2, {D, F}});
    int index = yoke_safetensors_find(file, "model.layers.1.block_sparse_moe.experts.2.w2.weight");
    check_good(yoke_safetensors_read(file, index, one));
    const float *all = sessions[0].weights[find_parameter(&sessions[0], whole)];
    assert_memory_equal(one, all + 2 * D * F, sizeof one);
    yoke_safetensors_close(file);
    close_session(&sessions[0]);
}

/* The shapes of HuggingFace's BertForMaskedLM, which has no pooler. */
static void test_shapes_of_bert(void **state)
{
    (void)state;
    yoke_safetensors *file;
    yoke_model_config config = load_preset("bert-tiny");
    open_session(&sessions[0], &config);
    check_good(yoke_export_model(&sessions[0], &config, folder));
    check_good(yoke_safetensors_open(weights_path, &file));
    assert_int_equal(yoke_safetensors_n_tensors(file), 5 + 2 * 16 + 5);
    check_shape(file, "bert.embeddings.word_embeddings.weight", (yoke_shape){2, {258, 32}});
    check_shape(file, "bert.embeddings.position_embeddings.weight", (yoke_shape){2, {64, 32}});
    check_shape(file, "bert.embeddings.token_type_embeddings.weight", (yoke_shape){2, {2, 32}});
    check_shape(file, "bert.embeddings.LayerNorm.bias", (yoke_shape){1, {32}});
    check_shape(file, "bert.encoder.layer.1.attention.self.key.weight", (yoke_shape){2, {32, 32}});
    check_shape(file, "bert.encoder.layer.1.attention.self.key.bias", (yoke_shape){1, {32}});
    check_shape(file, "bert.encoder.layer.0.attention.output.dense.weight",
                (yoke_shape){2, {32, 32}});
    check_shape(file, "bert.encoder.layer.0.attention.output.LayerNorm.weight",
                (yoke_shape){1, {32}});
    check_shape(file, "bert.encoder.layer.0.intermediate.dense.weight", (yoke_shape){2, {128, 32}});
    check_shape(file, "bert.encoder.layer.0.output.dense.weight", (yoke_shape){2, {32, 128}});
    check_shape(file, "bert.encoder.layer.0.output.LayerNorm.bias", (yoke_shape){1, {32}});
    check_shape(file, "cls.predictions.transform.dense.weight", (yoke_shape){2, {32, 32}});
    check_shape(file, "cls.predictions.transform.LayerNorm.weight", (yoke_shape){1, {32}});
    check_shape(file, "cls.predictions.bias", (yoke_shape){1, {258}});
    yoke_safetensors_close(file);
    close_session(&sessions[0]);
}

/* Row r of c_attn is row r of q, of k and of v, one behind the other. */
static void test_thirds_are_joined_by_column(void **state)
{
    (void)state;
    enum { D = 32 };
    static const char *const names[3] = {"transformer.h.1.attn.c_attn.weight.q",
                                         "transformer.h.1.attn.c_attn.weight.k",
                                         "transformer.h.1.attn.c_attn.weight.v"};
    static float joined[D * 3 * D];
    yoke_model_config config = load_preset("gpt2-tiny");
    open_session(&sessions[0], &config);
    check_good(yoke_export_model(&sessions[0], &config, folder));
    yoke_safetensors *file;
    check_good(yoke_safetensors_open(weights_path, &file));
    int index = yoke_safetensors_find(file, "transformer.h.1.attn.c_attn.weight");
    check_good(yoke_safetensors_read(file, index, joined));
    for (int part = 0; part < 3; part++) {
        int parameter = find_parameter(&sessions[0], names[part]);
        for (int row = 0; row < D; row++) {
            for (int column = 0; column < D; column++) {
                float expected = sessions[0].weights[parameter][row * D + column];
                assert_true(joined[row * 3 * D + part * D + column] == expected);
            }
        }
    }
    yoke_safetensors_close(file);
    close_session(&sessions[0]);
}

/* A file of the session's tensors, its names without their prefix, and perhaps changed. */
typedef struct variant {
    const char *without_prefix; /* cut off where a name begins with it; NULL: none */
    const char *left_out;       /* tensor that is not written; NULL: none */
    const char *added;          /* name of one more tensor; NULL: none */
    yoke_shape added_shape;     /* [] if not given */
    const char *reshaped;       /* tensor that gets one more row; NULL: none */
} variant;

static bool is_name(const char *name, const char *wanted)
{
    return wanted && strcmp(name, wanted) == 0;
}

static void write_variant(const yoke_session *session, const yoke_model *model,
                          const variant *change)
{
    static const float zeros[MOST_ELEMENTS];
    yoke_hf_map map;
    yoke_safetensors_entry entries[MOST_PARAMETERS];
    int n = 0;
    check_good(yoke_hf_map_init(&map, session->graph, model));
    for (int i = 0; i < map.n_tensors; i++) {
        const char *name = map.tensors[i].name;
        size_t cut = change->without_prefix ? strlen(change->without_prefix) : 0;
        if (is_name(name, change->left_out)) {
            continue;
        }
        entries[n].shape = map.tensors[i].shape;
        entries[n].shape.extent[0] += is_name(name, change->reshaped);
        entries[n++].name =
            cut && strncmp(name, change->without_prefix, cut) == 0 ? name + cut : name;
    }
    if (change->added) {
        entries[n++] = (yoke_safetensors_entry){change->added, change->added_shape};
    }
    yoke_safetensors_writer *writer;
    check_good(yoke_safetensors_create(weights_path, entries, n, &writer));
    for (int i = 0; i < n; i++) {
        check_good(yoke_safetensors_write(writer, zeros, yoke_shape_elements(&entries[i].shape)));
    }
    check_good(yoke_safetensors_finish(writer));
    yoke_hf_map_fini(&map);
}

static void test_names_as_huggingface_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        variant change;
    } cases[] = {
        {"gpt2-tiny", {.without_prefix = "transformer."}},
        {"gpt2-tiny", {.without_prefix = "transformer.", .added = "h.0.attn.bias"}},
        {"gpt2-tiny", {.added = "transformer.h.1.attn.masked_bias"}},
        {"gpt2-tiny", {.added = "lm_head.weight", .added_shape = {2, {257, 32}}}},
        {"llama-tiny", {.without_prefix = "model."}},
        {"bert-tiny", {.added = "bert.embeddings.position_ids"}},
        {"bert-tiny", {.added = "bert.pooler.dense.bias", .added_shape = {1, {32}}}},
        {"bert-tiny", {.added = "cls.seq_relationship.bias", .added_shape = {1, {2}}}},
        {"bert-tiny", {.added = "cls.predictions.decoder.bias", .added_shape = {1, {258}}}},
        {"bert-tiny", {.added = "cls.predictions.decoder.weight", .added_shape = {2, {258, 32}}}},
        {"bert-tiny",
         {.left_out = "bert.embeddings.LayerNorm.weight",
          .added = "bert.embeddings.LayerNorm.gamma",
          .added_shape = {1, {32}}}},
        {"bert-tiny",
         {.left_out = "cls.predictions.transform.LayerNorm.bias",
          .added = "cls.predictions.transform.LayerNorm.beta",
          .added_shape = {1, {32}}}},
        {"llama-tiny", {.added = "model.layers.0.self_attn.rotary_emb.inv_freq"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config = load_preset(cases[i].preset);
        open_session(&sessions[0], &config);
        write_variant(&sessions[0], config.model, &cases[i].change);
        check_good(yoke_import_weights(&sessions[0], &config, weights_path));
        assert_int_equal(sessions[0].n_loads, sessions[0].graph->n_parameters);
        close_session(&sessions[0]);
    }
}

static void test_files_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        variant change;
        const char *words[3];
    } cases[] = {
        {"gpt2-tiny",
         {.left_out = "transformer.h.1.ln_2.bias"},
         {"'transformer.h.1.ln_2.bias'", "not among the 27", "config.json"}},
        {"gpt2-tiny",
         {.added = "transformer.h.2.ln_1.weight"},
         {"'transformer.h.2.ln_1.weight'", "no place", "config.json"}},
        /* A head of its own, where the model's is tied: its weights would be lost. */
        {"gpt2-tiny",
         {.added = "lm_head.weight", .added_shape = {2, {258, 32}}},
         {"'lm_head.weight'", "no place", "tie_word_embeddings=false"}},
        {"gpt2-tiny",
         {.reshaped = "transformer.wpe.weight"},
         {"'transformer.wpe.weight'", "[65, 32] in the file", "[64, 32] in the model"}},
        {"llama-tiny",
         {.left_out = "lm_head.weight"},
         {"'lm_head.weight'", "not among the 20", "config.json"}},
        {"llama-tiny",
         {.reshaped = "model.norm.weight"},
         {"'model.norm.weight'", "[33] in the file", "[32] in the model"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model_config config = load_preset(cases[i].preset);
        open_session(&sessions[0], &config);
        write_variant(&sessions[0], config.model, &cases[i].change);
        yoke_status status = yoke_import_weights(&sessions[0], &config, weights_path);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        assert_non_null(strstr(yoke_status_message(status), weights_path));
        for (int k = 0; k < 3; k++) {
            if (!strstr(yoke_status_message(status), cases[i].words[k])) {
                fail_msg("no \"%s\" in: %s", cases[i].words[k], yoke_status_message(status));
            }
        }
        yoke_status_free(status);
        assert_int_equal(sessions[0].n_loads, 0);
        close_session(&sessions[0]);
    }
}

static void test_a_missing_folder_is_an_error(void **state)
{
    (void)state;
    yoke_model_config config = load_preset("gpt2-tiny");
    open_session(&sessions[0], &config);
    yoke_status status = yoke_export_model(&sessions[0], &config, "/no/such/folder");
    assert_int_equal(yoke_status_code(status), YOKE_IO);
    yoke_status_free(status);
    status = yoke_import_weights(&sessions[0], &config, "/no/such/model.safetensors");
    assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
    yoke_status_free(status);
    close_session(&sessions[0]);
}

static void both_first_halves(const char *name, char *hf, int hf_bytes, int *part, int *n_parts)
{
    (void)name;
    (void)snprintf(hf, (size_t)hf_bytes, "same");
    *part = 0;
    *n_parts = 2;
}

static void one_half_only(const char *name, char *hf, int hf_bytes, int *part, int *n_parts)
{
    (void)snprintf(hf, (size_t)hf_bytes, "%s", name);
    *part = 1;
    *n_parts = 2;
}

/* A family of the user's own may map names wrongly. */
static void test_wrong_maps_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*hf_name)(const char *name, char *hf, int hf_bytes, int *part, int *n_parts);
        const char *word;
    } cases[] = {{both_first_halves, "taken"}, {one_half_only, "no parameter for part 0 of 2"}};
    yoke_model_config config = load_preset("gpt2-tiny");
    open_session(&sessions[0], &config);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model model = *config.model;
        model.hf_name = cases[i].hf_name;
        yoke_hf_map map;
        yoke_status status = yoke_hf_map_init(&map, sessions[0].graph, &model);
        assert_int_equal(yoke_status_code(status), YOKE_BAD_INPUT);
        assert_non_null(strstr(yoke_status_message(status), cases[i].word));
        yoke_status_free(status);
    }
    close_session(&sessions[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_of_each_family),
        cmocka_unit_test(test_shapes_are_huggingfaces),
        cmocka_unit_test(test_shapes_of_bert),
        cmocka_unit_test(test_experts_are_tensors_of_their_own),
        cmocka_unit_test(test_thirds_are_joined_by_column),
        cmocka_unit_test(test_names_as_huggingface_writes_them),
        cmocka_unit_test(test_files_that_do_not_fit_are_refused),
        cmocka_unit_test(test_a_missing_folder_is_an_error),
        cmocka_unit_test(test_wrong_maps_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
