/*
 * Mixture of experts, whole runs: meshes against one rank, what moves between ranks, the losses beside the main one, and what
 * the metrics tell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"

/* --- Whole runs --------------------------------------------------------------------------------------- */

#define DROPS "router_jitter_noise=0.1 capacity_factor=0.6"

static void test_meshes(void **state)
{
    (void)state;
    static const parity_case table[] = {
        {.base = {.mesh = "dp=3", .microbatches = 2}},
        /* All experts are chosen: the balance loss has no slope, however heavy it is. */
        {.base = {.mesh = "dp=2",
                  .keys = "num_experts_per_tok=4 router_aux_loss_coef=250",
                  .microbatches = 2}},
        {.base = {.mesh = "tp=2", .keys = DROPS, .microbatches = 2}},
        {.base = {.mesh = "pp=2", .keys = DROPS, .microbatches = 2}, .bits = true},
        {.base = {.mesh = "ep=2", .microbatches = 2}},
        {.base = {.mesh = "ep=3", .keys = DROPS " num_local_experts=5", .microbatches = 2}},
        {.base = {.mesh = "ep=4", .keys = "num_local_experts=3 num_experts_per_tok=1"}},
        {.base = {.mesh = "cp=3", .keys = DROPS, .microbatches = 2}},
        {.base = {.mesh = "fsdp=2", .keys = DROPS, .microbatches = 2}},
        {.base = {.mesh = "pp=2,ep=2,tp=2",
                  .keys = DROPS,
                  .microbatches = 3,
                  .masked = true,
                  .valid = {11, 0, 37}}},
        {.base = {.mesh = "dp=2,ep=2,cp=2", .keys = DROPS, .microbatches = 1}},
        {.base = {.mesh = "fsdp=2,ep=2,tp=2", .keys = "capacity_factor=1"}},
        {.base = {.mesh = "tp=3",
                  .keys = DROPS " num_attention_heads=3 num_key_value_heads=3 hidden_size=36",
                  .options = "sequence_parallel=true",
                  .microbatches = 2}},
        {.base = {.mesh = "tp=2,ep=2,cp=2",
                  .keys = DROPS,
                  .options = "sequence_parallel=true context_parallel=ring"}},
        {.base = {.mesh = "dp=2,pp=2", .keys = DROPS, .options = "zero=2", .microbatches = 3}},
        {.base = {.mesh = "ep=2,pp=2", .keys = DROPS, .schedule = "zb-h1", .microbatches = 3}},
    };
    assert_parity_table("mixtral-tiny", table, COUNT(table));
}

/* --- Faults of faults.md ------------------------------------------------------------------------------ */

/* Gradients of all routers and experts in the last step, and the weights after it, against one rank. Fetching compares the bits of all replicas on the way. */
static void assert_experts_match(const session_case *on_mesh)
{
    session_case single = *on_mesh;
    outcome a, b;
    scene s;
    single.mesh = single.options = NULL;
    run_case(on_mesh, &a);
    run_case(&single, &b);
    scene_open(&s, &single);
    scene_plan(&s);
    int64_t at = 0, n_checked = 0;
    for (int i = 0; i < a.n; i++) {
        int64_t n = parameter_elements(s.session, i);
        const char *name = yoke_session_parameter_name(s.session, i);
        if (strstr(name, "block_sparse_moe")) {
            double apart = distance(a.gradient + at, b.gradient + at, n);
            double weights_apart = distance(a.weight + at, b.weight + at, n);
            if (!(apart <= YOKE_PARITY_GRAD && weights_apart <= YOKE_PARITY_WEIGHTS)) {
                fail_msg("%s of %s: gradients %.3g, weights %.3g apart", name, on_mesh->mesh, apart,
                         weights_apart);
            }
            n_checked++;
        }
        at += n;
    }
    assert_int_equal(n_checked, 2 * 4);
    scene_close(&s);
    outcome_free(&a);
    outcome_free(&b);
}

/* A15: the router's weight is held by all ranks that each see other tokens. A16: the loss beside the main one is divided as
 * that is, whatever divides the tokens. A3, its tenth: labels that do not count change neither. */
static void test_router_gradient_is_the_same_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *options;
    } cases[] = {
        {"tp=2", NULL},
        {"tp=2", "sequence_parallel=true"},
        {"cp=2", NULL},
        {"tp=2,cp=2", NULL},
        {"tp=2,cp=2", "sequence_parallel=true"},
        {"dp=2,tp=2,cp=2", "sequence_parallel=true zero=1"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        const session_case c = {.preset = "mixtral-tiny",
                                .keys = "router_aux_loss_coef=0.01",
                                .mesh = cases[i].mesh,
                                .options = cases[i].options,
                                .microbatches = 2,
                                .steps = 5,
                                .masked = true,
                                .valid = {40, 9}};
        assert_experts_match(&c);
    }
}

/* A18: experts divided by their width, and by their number. */
static void test_experts_divided_either_way(void **state)
{
    (void)state;
    static const char *const meshes[] = {"tp=4", "ep=4", "ep=2,tp=2", "dp=2,ep=2", "dp=2,tp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        const session_case c = {
            .preset = "mixtral-tiny", .mesh = meshes[i], .batch = 8, .steps = 5};
        assert_experts_match(&c);
    }
}

/* Routes, drops and jitter are the same when they are computed again. */
static void test_recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const char *const levels[] = {"recompute=selective", "recompute=full"};
    session_case c = {.preset = "mixtral-tiny", .keys = DROPS, .mesh = "pp=2", .microbatches = 2};
    outcome kept, again;
    run_case(&c, &kept);
    for (int i = 0; i < COUNT(levels); i++) {
        c.options = levels[i];
        run_case(&c, &again);
        assert_equal_outcomes(&kept, &again);
        assert_true(again.step[2].aux_loss == kept.step[2].aux_loss);
        outcome_free(&again);
    }
    outcome_free(&kept);
}

/* --- What moves --------------------------------------------------------------------------------------- */

/* Conversions of large tensors in the first layer: of the stream, or of slots; those of routes are small. */
static int count_conversions(const yoke_graph *graph, yoke_region region, yoke_conversion kind,
                             const char *dims)
{
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        bool here = node->region == region && node->block >= 0 &&
                    strcmp(graph->blocks[node->block], "layers.0") == 0;
        n += here && node->op == YOKE_OP_CONVERT && node->conversion == kind &&
             strcmp(graph->values[node->in[0]].dims, dims) == 0;
    }
    return n;
}

typedef struct movement {
    const char *mesh, *options;
    yoke_conversion kind;
    const char *dims;
    int forward, backward; /* a layer */
} movement;

/* Expert parallelism is two all_to_all a layer and direction (Lepikhin et al. 2021) and leaves the router alone; experts
 * divided by their width need no more sums than a dense layer (Shoeybi et al. 2019), and none of slots. */
static void test_collectives_are_the_published_ones(void **state)
{
    (void)state;
    static const movement table[] = {
        {"ep=2", NULL, YOKE_CONVERT_ALL_TO_ALL, "ebcd", 2, 2},
        {"ep=2", NULL, YOKE_CONVERT_ALL_TO_ALL, "btr", 0, 0},
        {"ep=2", NULL, YOKE_CONVERT_ALL_GATHER, "btd", 0, 0},
        {"tp=2", NULL, YOKE_CONVERT_ALL_REDUCE, "btd", 2, 2},
        {"tp=2", NULL, YOKE_CONVERT_ALL_REDUCE, "ebcd", 0, 0},
        {"ep=2,tp=2", NULL, YOKE_CONVERT_ALL_TO_ALL, "ebcd", 2, 2},
        {"ep=2,tp=2", NULL, YOKE_CONVERT_ALL_REDUCE, "btd", 2, 2},
        {"tp=2", "sequence_parallel=true", YOKE_CONVERT_REDUCE_SCATTER, "btd", 2, 2},
        {"tp=2", "sequence_parallel=true", YOKE_CONVERT_ALL_REDUCE, "ebcd", 0, 0},
        {"cp=2", NULL, YOKE_CONVERT_REDUCE_SCATTER, "btd", 1, 1},
        {"cp=2", NULL, YOKE_CONVERT_ALL_REDUCE, "ebcd", 0, 0},
    };
    for (int i = 0; i < COUNT(table); i++) {
        const session_case c = {
            .preset = "mixtral-tiny", .mesh = table[i].mesh, .options = table[i].options};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        const yoke_graph *graph = yoke_session_graph(s.session);
        assert_int_equal(
            count_conversions(graph, YOKE_REGION_FORWARD, table[i].kind, table[i].dims),
            table[i].forward);
        assert_int_equal(
            count_conversions(graph, YOKE_REGION_BACKWARD, table[i].kind, table[i].dims),
            table[i].backward);
        scene_close(&s);
    }
}

/* --- What is told ------------------------------------------------------------------------------------- */

/* The first step's numbers, on one rank or a mesh. */
static yoke_step_metrics first_step(const session_case *c, double *final_loss)
{
    outcome o = {0};
    run_case(c, &o);
    yoke_step_metrics first = o.step[0];
    *final_loss = o.step[o.n_steps - 1].loss;
    outcome_free(&o);
    return first;
}

static void test_it_learns_one_token(void **state)
{
    (void)state;
    const session_case c = {.preset = "mixtral-tiny", .steps = 30, .token = 7, .lr = 0.01};
    double last;
    yoke_step_metrics first = first_step(&c, &last);
    assert_true(first.loss > 5.0 && last < 0.5);
}

static void test_load_is_told(void **state)
{
    (void)state;
    static const char *const meshes[] = {"pp=2", "ep=2,tp=2", "dp=3", "cp=2"};
    session_case c = {.preset = "mixtral-tiny", .steps = 1, .microbatches = 2};
    double ignored;
    yoke_step_metrics single = first_step(&c, &ignored);
    assert_int_equal(single.n_load_layers, 2);
    assert_int_equal(single.n_experts, 4);
    for (int layer = 0; layer < 2; layer++) {
        double sum = 0.0;
        for (int e = 0; e < 4; e++) {
            double share = (double)single.expert_load[layer * 4 + e];
            double tokens = share * 6 * 16 * 2;
            assert_true(fabs(tokens - round(tokens)) < 1e-4 && share <= 0.5);
            sum += share;
        }
        assert_near("shares", sum, 1.0, 1e-6);
    }
    for (int i = 0; i < COUNT(meshes); i++) {
        c.mesh = meshes[i];
        yoke_step_metrics m = first_step(&c, &ignored);
        assert_near("aux_loss", m.aux_loss, single.aux_loss, 1e-6);
        assert_memory_equal(m.expert_load, single.expert_load, sizeof m.expert_load);
    }
}

/* At the start routers are all but indifferent: the balance loss is 2 a token, the z-loss log(4)^2 a layer. It is not
 * part of the loss, and does not grow with the sequence (A7), the micro-batches or the ranks (A16). */
static void test_auxiliary_loss_is_per_token(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "tp=2", "cp=2", "tp=2,cp=2"};
    session_case c = {.preset = "mixtral-tiny", .steps = 1};
    double expected = 2 * 0.01 + 2 * 0.001 * log(4.0) * log(4.0), ignored;
    for (int i = 0; i < COUNT(meshes); i++) {
        for (int k = 0; k < 4; k++) {
            c.mesh = meshes[i];
            c.seq_len = k % 2 ? 32 : 16;
            c.microbatches = k / 2 ? 3 : 1;
            assert_near(meshes[i], first_step(&c, &ignored).aux_loss, expected, 0.05);
        }
    }
    c.keys = "router_aux_loss_coef=0 router_z_loss_coef=0";
    yoke_step_metrics without = first_step(&c, &ignored);
    assert_true(isnan(without.aux_loss));
    assert_int_equal(without.n_load_layers, 2);
    c.keys = NULL;
    assert_true(first_step(&c, &ignored).loss == without.loss);
}

/* --- The balance loss beside HuggingFace's -------------------------------------------------------------- */

enum { HF_T = 16, HF_E = 4, HF_D = 32 };

/* The stream is the embedding in all layers, whose halves add nothing, and their routers are equal. All
 * tokens have something in common, so that experts are not equally busy. */
static void load_alike(scene *s, float *table, float *gate)
{
    static float values[VOCABULARY * HF_D];
    for (int i = 0; i < yoke_session_n_parameters(s->session); i++) {
        const char *name = yoke_session_parameter_name(s->session, i);
        int64_t n = parameter_elements(s->session, i);
        bool is_table = strstr(name, "embed_tokens"), is_gate = strstr(name, "moe.gate");
        bool adds = strstr(name, "o_proj") || strstr(name, "experts.w2");
        if (!is_table && !is_gate && !adds) {
            continue;
        }
        assert_in_range(n, 1, COUNT(values));
        for (int64_t k = 0; k < n; k++) {
            float number = sinf((float)(k * k % 1009));
            values[k] = adds ? 0.0f : is_gate ? 0.4f * number : number + 0.7f;
        }
        memcpy(is_table ? table : gate, values,
               is_table || is_gate ? (size_t)n * sizeof(float) : 0);
        assert_ok(yoke_session_load(s->session, i, values), name);
    }
}

/* The router's probabilities for a token, by the book. */
static void probabilities(const float *x, const float *gate, double p[HF_E])
{
    double square = 1e-5 * HF_D, sum = 0.0;
    for (int d = 0; d < HF_D; d++) {
        square += (double)x[d] * (double)x[d];
    }
    for (int e = 0; e < HF_E; e++) {
        double logit = 0.0;
        for (int d = 0; d < HF_D; d++) {
            logit += (double)gate[e * HF_D + d] * (double)x[d] / sqrt(square / HF_D);
        }
        p[e] = exp(logit);
        sum += p[e];
    }
    for (int e = 0; e < HF_E; e++) {
        p[e] /= sum;
    }
}

/* load_balancing_loss_func of HuggingFace's Mixtral: the tokens of all layers together, E times the sum over experts of
 * the share of tokens that chose it, as first, second and so on, and the mean of its probability. */
static double hf_balance_loss(const double p[HF_T][HF_E], int n_layers, int n_chosen)
{
    double chosen[HF_E] = {0}, mass[HF_E] = {0}, loss = 0.0;
    for (int i = 0; i < n_layers * HF_T; i++) {
        const double *row = p[i % HF_T];
        for (int e = 0; e < HF_E; e++) {
            int n_larger = 0;
            for (int other = 0; other < HF_E; other++) {
                n_larger += row[other] > row[e];
            }
            chosen[e] += n_larger < n_chosen;
            mass[e] += row[e];
        }
    }
    double n_tokens = n_layers * HF_T;
    for (int e = 0; e < HF_E; e++) {
        loss += HF_E * (chosen[e] / n_tokens) * (mass[e] / n_tokens);
    }
    return loss;
}

static void assert_as_huggingface(int n_layers, int n_chosen)
{
    static float table[VOCABULARY * HF_D], gate[HF_E * HF_D];
    char keys[160];
    (void)snprintf(keys, sizeof keys,
                   "num_hidden_layers=%d num_experts_per_tok=%d router_aux_loss_coef=0.02 "
                   "router_z_loss_coef=0 router_jitter_noise=0 rms_norm_eps=1e-5",
                   n_layers, n_chosen);
    const session_case c = {.preset = "mixtral-tiny", .keys = keys, .batch = 1, .steps = 1};
    scene s;
    outcome o = {0};
    int32_t tokens[HF_T];
    double p[HF_T][HF_E];
    scene_open(&s, &c);
    scene_plan(&s);
    load_alike(&s, table, gate);
    yoke_sampler sampler = {.corpus = s.corpus,
                            .n_tokens = yoke_corpus_n_tokens(s.corpus),
                            .seq_len = HF_T,
                            .batch_size = 1,
                            .microbatches = 1,
                            .seed = (uint64_t)s.config.seed,
                            .shuffled = true};
    const yoke_shard all = {.n_dims = 2, .extent = {1, HF_T}};
    assert_true(yoke_sampler_fill(&sampler, "tokens", 0, 0, &all, tokens));
    for (int t = 0; t < HF_T; t++) {
        probabilities(table + tokens[t] * HF_D, gate, p[t]);
    }
    run_steps(&s, 0, 1, &o);
    scene_close(&s);
    double loss = hf_balance_loss((const double(*)[HF_E])p, n_layers, n_chosen);
    assert_true(loss > 1.05 * n_chosen);
    assert_near(keys, o.step[0].aux_loss, 0.02 * loss, 1e-5);
}

/* Where all layers route alike it is HuggingFace's number, at any depth; a token's experts count each. */
static void test_balance_loss_is_that_of_huggingface(void **state)
{
    (void)state;
    static const int depths[] = {2, 6};
    for (int i = 0; i < COUNT(depths); i++) {
        for (int n_chosen = 1; n_chosen < HF_E; n_chosen++) {
            assert_as_huggingface(depths[i], n_chosen);
        }
    }
}

/* --- Slopes --------------------------------------------------------------------------------------------- */

/* Loss and auxiliary loss together, with parameter `index` moved by `by` along `direction`. */
static double moved_loss(scene *s, int index, const float *weight, const float *direction,
                         double by)
{
    outcome o = {0};
    float moved[4 * 44 * 32];
    int64_t n = parameter_elements(s->session, index);
    assert_in_range(n, 1, COUNT(moved));
    for (int64_t i = 0; i < n; i++) {
        moved[i] = (float)((double)weight[i] + by * (double)direction[i]);
    }
    assert_ok(yoke_session_load(s->session, index, moved), "moved");
    run_steps(s, 0, 1, &o);
    assert_ok(yoke_session_load(s->session, index, weight), "back");
    return o.step[0].loss + o.step[0].aux_loss;
}

/* The gradient of every kind of parameter of a layer, as the slope of the sum of both losses along it. The step is
 * so small that no token changes its experts; the coefficients are large, so that the losses beside the main one count. */
static void test_gradients_are_slopes(void **state)
{
    (void)state;
    static const char *const names[] = {"post_attention_layernorm.weight",
                                        "moe.gate.weight",
                                        "experts.w1.weight",
                                        "experts.w2.weight",
                                        "experts.w3.weight",
                                        "q_proj.weight"};
    const session_case c = {.preset = "mixtral-tiny",
                            .keys = "router_aux_loss_coef=0.7 "
                                    "router_z_loss_coef=0.5 initializer_range=0.2",
                            .microbatches = 2,
                            .steps = 1,
                            .lr = 1e-12};
    scene s;
    outcome o = {0};
    scene_open(&s, &c);
    scene_plan(&s);
    run_steps(&s, 0, 1, &o);
    fetch_all(&s, &o);
    int64_t at = 0, n_checked = 0;
    for (int i = 0; i < o.n; i++) {
        int64_t n = parameter_elements(s.session, i);
        const char *name = yoke_session_parameter_name(s.session, i);
        double norm = 0; /* its square, which is the slope along the gradient */
        for (int64_t k = 0; k < n; k++) {
            norm += (double)o.gradient[at + k] * (double)o.gradient[at + k];
        }
        for (int k = 0; k < COUNT(names); k++) {
            if (strstr(name, names[k]) && norm > 0) {
                double by = 0.001 / sqrt(norm);
                double above = moved_loss(&s, i, o.weight + at, o.gradient + at, by);
                double below = moved_loss(&s, i, o.weight + at, o.gradient + at, -by);
                assert_near(name, (above - below) / (2.0 * by), norm, 0.01);
                n_checked++;
            }
        }
        at += n;
    }
    assert_int_equal(n_checked, 2 * COUNT(names));
    outcome_free(&o);
    scene_close(&s);
}

static void test_other_families_have_no_experts(void **state)
{
    (void)state;
    const session_case c = {.preset = "llama-tiny", .steps = 1};
    double ignored;
    yoke_step_metrics first = first_step(&c, &ignored);
    assert_true(isnan(first.aux_loss));
    assert_int_equal(first.n_load_layers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_router_gradient_is_the_same_everywhere),
        cmocka_unit_test(test_experts_divided_either_way),
        cmocka_unit_test(test_recomputation_changes_no_bit),
        cmocka_unit_test(test_collectives_are_the_published_ones),
        cmocka_unit_test(test_it_learns_one_token),
        cmocka_unit_test(test_load_is_told),
        cmocka_unit_test(test_auxiliary_loss_is_per_token),
        cmocka_unit_test(test_balance_loss_is_that_of_huggingface),
        cmocka_unit_test(test_gradients_are_slopes),
        cmocka_unit_test(test_other_families_have_no_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
