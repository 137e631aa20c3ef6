/* labels: quick threads */
/*
 * Faults of others, each in the smallest situation that shows it: initial weights, tied tables, dropout, and layers on
 * stages. The letters are those of the list of faults that the project keeps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include "parity_case.h"

/* --- A21: initial weights ----------------------------------------------------------------------------- */

static void initial_weights(const char *preset, const char *mesh, outcome *o)
{
    const session_case c = {.preset = preset, .mesh = mesh};
    scene s;
    *o = (outcome){0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 0, o);
    fetch_all(&s, o);
    scene_close(&s);
}

static void test_a21_initial_weights_know_no_mesh(void **state)
{
    (void)state;
    static const char *const meshes[] = {"dp=2", "tp=3", "pp=3", "dp=2,tp=2", "dp=2,tp=4,pp=2"};
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny"};
    for (int i = 0; i < 2; i++) {
        outcome single, o;
        initial_weights(presets[i], "", &single);
        for (int m = 0; m < COUNT(meshes); m++) {
            initial_weights(presets[i], meshes[m], &o);
            assert_equal_floats(meshes[m], o.weight, single.weight, single.elements);
            outcome_free(&o);
        }
        outcome_free(&single);
    }
}

/* --- A1, A2: a table on two stages --------------------------------------------------------------------- */

enum { TABLE = 0 }; /* transformer.wte.weight */

static float *piece_of(const scene *s, int rank, yoke_value value)
{
    const yoke_program *program = yoke_program_of(s->session->train.set, rank);
    int id = yoke_program_find(program, value, YOKE_ONCE_A_STEP);
    return id == YOKE_NO_BUFFER
               ? NULL
               : (float *)(void *)(s->session->slabs[rank] + program->buffers[id].offset);
}

/* How many stages hold the table; each of them with the moments for it. */
static int stages_of_table(const scene *s)
{
    const yoke_graph *graph = s->session->train.graph;
    int n = 0;
    for (int r = 0; r < s->session->n_ranks; r++) {
        bool first = yoke_mesh_coordinate(&s->session->mesh, r, YOKE_AXIS_DP) == 0 &&
                     yoke_mesh_coordinate(&s->session->mesh, r, YOKE_AXIS_TP) == 0;
        n += first && piece_of(s, r, graph->parameters[TABLE]);
    }
    return n;
}

static void assert_tied(const char *preset, const char *keys, const char *mesh)
{
    const session_case c = {
        .preset = preset, .keys = keys, .mesh = mesh, .microbatches = 2, .steps = 20};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    assert_int_equal(stages_of_table(&s), 2);
    for (int64_t step = 1; step <= 20; step++) {
        fetch_all(&s, &o); /* compares weights and gradients of all replicas */
        if (step < 20) {
            run_steps(&s, step, 1, &o);
        }
    }
    outcome_free(&o);
    scene_close(&s);
}

static void test_a2_tied_tables_stay_equal(void **state)
{
    (void)state;
    assert_tied("gpt2-tiny", "", "dp=2,pp=2");
    assert_tied("gpt2-tiny", "n_layer=5", "tp=2,pp=3");
    assert_tied("llama-tiny", "tie_word_embeddings=true", "dp=2,tp=2,pp=2");
}

/* The gradient of the table, from both its uses, is that of one rank. */
static void test_a1_tied_gradient_is_whole(void **state)
{
    (void)state;
    static const char *const meshes[] = {"pp=2", "dp=2,pp=2", "dp=3,tp=2,pp=2"};
    const session_case alone = {.steps = 1};
    outcome single, o;
    run_case(&alone, &single);
    for (int i = 0; i < COUNT(meshes); i++) {
        const session_case c = {.mesh = meshes[i], .steps = 1};
        run_case(&c, &o);
        assert_true(distance(o.gradient, single.gradient, 257 * 32) <= YOKE_PARITY_GRAD);
        outcome_free(&o);
    }
    outcome_free(&single);
}

/* What the tests above rely on: fetching sees one wrong bit in one replica, across stages and across ranks. */
static void test_a2_one_wrong_bit_is_seen(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=2,pp=2"};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    float *whole = malloc(sizeof(float) * 257 * 32);
    assert_non_null(whole);
    for (int rank = 1; rank < 4; rank++) {
        char name[16];
        uint32_t *bits =
            (uint32_t *)(void *)piece_of(&s, rank, s.session->train.graph->parameters[TABLE]);
        assert_non_null(bits);
        (void)snprintf(name, sizeof name, "rank %d", rank);
        bits[100] ^= 1;
        assert_status_says(yoke_session_fetch(s.session, YOKE_FETCH_WEIGHT, TABLE, whole),
                           YOKE_CHECK, SAYS("transformer.wte.weight", name));
        bits[100] ^= 1;
    }
    assert_ok(yoke_session_fetch(s.session, YOKE_FETCH_WEIGHT, TABLE, whole), "fetch");
    free(whole);
    scene_close(&s);
}

/* --- A19, A20: masks of dropout ------------------------------------------------------------------------ */

/* One mask as a kernel drew it: a hash of its pattern, and where it belongs. */
typedef struct mask {
    int rank, microbatch;
    int64_t step;
    uint64_t site, hash;
} mask;

enum { MOST_MASKS = 512, MOST_ELEMENTS = 1 << 14 };

/* Filled by the ranks, which are threads: no assertion of cmocka's there. */
static struct {
    yoke_kernel dropout, attention;
    scene *scene;
    pthread_mutex_t lock;
    mask list[MOST_MASKS];
    int n;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int rank_of(const void *data)
{
    const char *at = data;
    const yoke_session *session = seen.scene->session;
    for (int r = 0; r < session->n_ranks; r++) {
        if (at >= session->slabs[r] && at < session->slabs[r] + session->slab_bytes[r]) {
            return r;
        }
    }
    YOKE_ASSERT(false && "an operand outside all slabs");
    return -1;
}

static void keep_mask(const yoke_kernel_call *call, const float *out, int64_t n)
{
    char pattern[MOST_ELEMENTS];
    YOKE_ASSERT(n <= MOST_ELEMENTS);
    for (int64_t i = 0; i < n; i++) {
        pattern[i] = out[i] != 0 ? 'x' : '.';
    }
    pattern[n] = '\0';
    (void)pthread_mutex_lock(&seen.lock);
    YOKE_ASSERT(seen.n < MOST_MASKS);
    seen.list[seen.n++] = (mask){.rank = rank_of(call->out[0].data),
                                 .microbatch = call->microbatch,
                                 .step = call->step,
                                 .site = call->attributes->site,
                                 .hash = yoke_random_name(pattern)};
    (void)pthread_mutex_unlock(&seen.lock);
}

/* The same call on ones: forward and backward draw alike, so both are kept. */
static void watched_dropout(const yoke_kernel_call *call)
{
    static _Thread_local float ones[MOST_ELEMENTS], out[MOST_ELEMENTS];
    int64_t n = yoke_shard_elements(&call->in[0].shard);
    YOKE_ASSERT(n < MOST_ELEMENTS);
    for (int64_t i = 0; i < n; i++) {
        ones[i] = 1;
    }
    yoke_tensor in = {.data = ones, .shard = call->in[0].shard};
    yoke_tensor to = {.data = out, .shard = call->out[0].shard};
    yoke_kernel_call probe = *call;
    probe.in = &in;
    probe.out = &to;
    seen.dropout(&probe);
    keep_mask(call, out, n);
    seen.dropout(call);
}

/* The same call with equal scores and, as values, a row of the identity for each of the first tokens: what comes out are the
 * probabilities, 0 where they were dropped. */
static void watched_attention(const yoke_kernel_call *call)
{
    static _Thread_local _Alignas(64) float qkv[3][MOST_ELEMENTS], out[MOST_ELEMENTS],
        rest[MOST_ELEMENTS];
    yoke_tensor in[3], to[2] = {{.data = out, .shard = call->out[0].shard},
                                {.data = rest, .shard = call->out[1].shard}};
    const yoke_shard *v = &call->in[2].shard; /* [b,t,h,x] */
    int64_t n = yoke_shard_elements(v), row = v->extent[2] * v->extent[3];
    for (int i = 0; i < 3; i++) {
        YOKE_ASSERT(yoke_shard_elements(&call->in[i].shard) < MOST_ELEMENTS);
        memset(qkv[i], 0, sizeof qkv[i]);
        in[i] = (yoke_tensor){.data = qkv[i], .shard = call->in[i].shard};
    }
    for (int64_t i = 0; i < n; i++) {
        qkv[2][i] = i / row % v->extent[1] == i % v->extent[3] ? 1.0f : 0.0f;
    }
    yoke_kernel_call probe = *call;
    probe.in = in;
    probe.out = to;
    seen.attention(&probe);
    keep_mask(call, out, yoke_shard_elements(&call->out[0].shard));
    seen.attention(call);
}

static void watch(scene *s)
{
    seen.scene = s;
    seen.n = 0;
    seen.dropout = s->session->kernels[YOKE_OP_DROPOUT];
    seen.attention = s->session->kernels[YOKE_OP_ATTENTION];
    s->session->kernels[YOKE_OP_DROPOUT] = watched_dropout;
    s->session->kernels[YOKE_OP_ATTENTION] = watched_attention;
}

static const mask *find_mask(int rank, int microbatch, int64_t step, const char *site)
{
    for (int i = 0; i < seen.n; i++) {
        const mask *m = &seen.list[i];
        if (m->rank == rank && m->microbatch == microbatch && m->step == step &&
            m->site == yoke_random_name(site)) {
            return m;
        }
    }
    fail_msg("rank %d draws no mask at %s in micro-batch %d of step %lld", rank, site, microbatch,
             (long long)step);
    return NULL;
}

static const char *const sites[] = {"embed", "h.0.attn.resid", "h.1.mlp.resid",
                                    "h.0.attn.probabilities", "h.1.attn.probabilities"};

/* Kind of tensor against axis. Ranks of dp=2,tp=2: 0 and 1 are neighbours on tp, 0 and 2 on dp. */
static void test_a19_masks_by_axis(void **state)
{
    (void)state;
    const session_case c = {.keys = "embd_pdrop=0.3 attn_pdrop=0.3 resid_pdrop=0.3",
                            .mesh = "dp=2,tp=2",
                            .microbatches = 2,
                            .batch = 8,
                            .steps = 2};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 0, &o);
    watch(&s);
    run_steps(&s, 0, 2, &o);
    for (int i = 0; i < COUNT(sites); i++) {
        uint64_t hash = find_mask(0, 0, 0, sites[i])->hash;
        bool heads = strstr(sites[i], "probabilities") != NULL;
        assert_true((find_mask(1, 0, 0, sites[i])->hash != hash) == heads);
        assert_true(find_mask(2, 0, 0, sites[i])->hash != hash);
        assert_true(find_mask(0, 1, 0, sites[i])->hash != hash);
        assert_true(find_mask(0, 0, 1, sites[i])->hash != hash);
        for (int k = 0; k < i; k++) {
            assert_true(find_mask(0, 0, 0, sites[k])->hash != hash);
        }
    }
    scene_close(&s);
}

typedef struct mask_row {
    const char *mesh, *options;
    bool hidden, heads; /* the two ranks draw the same: of the stream, of probabilities */
} mask_row;

static const mask_row mask_table[] = {
    {"dp=2", "zero=0", false, false},
    {"dp=2", "zero=1", false, false},
    {"dp=2", "zero=2", false, false},
    {"dp=2", "zero=3", false, false},
    {"fsdp=2", "", false, false},
    {"ep=2", "", false, false},
    {"cp=2", "context_parallel=gather", false, false},
    {"cp=2", "context_parallel=heads", false, false},
    {"tp=2", "sequence_parallel=false", true, false},
    {"tp=2", "sequence_parallel=true", false, false},
};

/* The same table for every dimension and form of it, two ranks each. */
static void test_a19_masks_by_dimension(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(mask_table); i++) {
        const mask_row *row = &mask_table[i];
        const session_case c = {.keys = "embd_pdrop=0.3 attn_pdrop=0.3 resid_pdrop=0.3",
                                .mesh = row->mesh,
                                .options = row->options,
                                .steps = 1};
        scene s;
        outcome o = {0};
        scene_open(&s, &c);
        scene_plan(&s);
        run_steps(&s, 0, 0, &o);
        watch(&s);
        run_steps(&s, 0, 1, &o);
        for (int k = 0; k < COUNT(sites); k++) {
            bool heads = strstr(sites[k], "probabilities") != NULL;
            bool equal = find_mask(0, 0, 0, sites[k])->hash == find_mask(1, 0, 0, sites[k])->hash;
            if (equal != (heads ? row->heads : row->hidden)) {
                fail_msg("%s %s: masks at %s are %s", row->mesh, row->options, sites[k],
                         equal ? "equal" : "different");
            }
        }
        scene_close(&s);
    }
}

/* Whoever draws a mask again, forward or backward, now or in another run, draws the same. */
static void test_a20_masks_are_drawn_again(void **state)
{
    (void)state;
    const session_case c = {.keys = "embd_pdrop=0.3 attn_pdrop=0.3 resid_pdrop=0.3",
                            .mesh = "tp=2,pp=2",
                            .microbatches = 3,
                            .steps = 2};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 0, &o);
    watch(&s);
    run_steps(&s, 0, 2, &o);
    run_steps(&s, 0, 2, &o);
    int again = 0;
    for (int i = 0; i < seen.n; i++) {
        const mask *a = &seen.list[i];
        for (int k = i + 1; k < seen.n; k++) {
            const mask *b = &seen.list[k];
            if (a->rank == b->rank && a->microbatch == b->microbatch && a->step == b->step &&
                a->site == b->site) {
                assert_true(a->hash == b->hash);
                again++;
            }
        }
    }
    assert_true(again >= seen.n / 2);
    scene_close(&s);
}

/* --- A23: layers ---------------------------------------------------------------------------------------- */

/* Every node of a micro-batch runs on the ranks of one stage, on all of them, and on no other; every block has a stage. */
static void assert_nodes_run_once(const scene *s)
{
    const yoke_graph *graph = s->session->train.graph;
    int *runs = calloc((size_t)graph->n_nodes, sizeof *runs);
    assert_non_null(runs);
    for (int r = 0; r < s->session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(s->session->train.set, r);
        for (int64_t i = 0; i < program->n_instructions; i++) {
            const yoke_instruction *instruction = &program->instructions[i];
            if (instruction->opcode == YOKE_OPCODE_KERNEL) {
                runs[instruction->node]++;
            }
        }
    }
    int n_stages = s->session->mesh.size[YOKE_AXIS_PP];
    int wanted = s->session->n_ranks / n_stages * (int)s->config.microbatches;
    for (int64_t n = 0; n < graph->n_nodes; n++) {
        const yoke_node *node = &graph->nodes[n];
        if (node->region != YOKE_REGION_FORWARD && node->region != YOKE_REGION_BACKWARD) {
            continue;
        }
        if (node->op != YOKE_OP_CONVERT && runs[n] != wanted) {
            fail_msg("%s runs %d times, not %d", graph->values[node->out[0]].name, runs[n], wanted);
        }
    }
    free(runs);
}

static void assert_all_layers(const char *preset, int n_layers, const char *mesh, int64_t per_layer,
                              int64_t others)
{
    char keys[64];
    session_case c = {.preset = preset, .keys = keys, .mesh = mesh, .microbatches = 2};
    scene s;
    (void)snprintf(keys, sizeof keys, "%s=%d",
                   strcmp(preset, "gpt2-tiny") == 0 ? "n_layer" : "num_hidden_layers", n_layers);
    scene_open(&s, &c);
    scene_plan(&s);
    assert_int_equal(yoke_session_parameter_count(s.session), n_layers * per_layer + others);
    assert_nodes_run_once(&s);
    scene_close(&s);
}

/* Width 32. GPT-2: two norms, four projections with biases, two matrices of 128; tables of 257 and 64 rows, a norm. Llama: two
 * norms, q and o of 32, k and v of 16, three matrices of 88; two tables of 257 rows, a norm. */
static void test_a23_every_layer_once(void **state)
{
    (void)state;
    static const int64_t gpt2 = 4 * 32 + 4 * (32 * 32 + 32) + 2 * 32 * 128 + 128 + 32;
    static const int64_t llama = 2 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 88;
    static const int64_t gpt2_others = (257 + 64) * 32 + 2 * 32;
    static const int64_t llama_others = 2 * 257 * 32 + 32;
    assert_all_layers("gpt2-tiny", 5, "pp=3", gpt2, gpt2_others);
    assert_all_layers("gpt2-tiny", 10, "pp=3,tp=2", gpt2, gpt2_others);
    assert_all_layers("gpt2-tiny", 2, "pp=4", gpt2, gpt2_others);
    assert_all_layers("llama-tiny", 30, "pp=4", llama, llama_others);
    assert_all_layers("llama-tiny", 1, "dp=2,pp=3", llama, llama_others);
}

static void test_a23_empty_stages_are_refused(void **state)
{
    (void)state;
    const session_case c = {.mesh = "pp=5"};
    scene s;
    scene_open(&s, &c);
    yoke_session_parts parts = scene_parts(&s);
    assert_status_says(yoke_session_create(&parts, &s.session), YOKE_BAD_INPUT,
                       SAYS("pp=5", "4 blocks", "pp <= 4"));
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a21_initial_weights_know_no_mesh),
        cmocka_unit_test(test_a2_tied_tables_stay_equal),
        cmocka_unit_test(test_a1_tied_gradient_is_whole),
        cmocka_unit_test(test_a2_one_wrong_bit_is_seen),
        cmocka_unit_test(test_a19_masks_by_axis),
        cmocka_unit_test(test_a19_masks_by_dimension),
        cmocka_unit_test(test_a20_masks_are_drawn_again),
        cmocka_unit_test(test_a23_every_layer_once),
        cmocka_unit_test(test_a23_empty_stages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
