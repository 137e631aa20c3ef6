/*
 * Logits made strip by strip: the same numbers as whole logits, on any mesh, and no more of them at a
 * time than the budget allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_case.h"
#include "program/program.h"

static const char *const families[] = {"gpt2-tiny", "llama-tiny", "bert-tiny", "mixtral-tiny"};

/* --- Facts of the plan -------------------------------------------------------------------------- */

/* Most bytes of a buffer of rank 0 whose value has as many columns as the logits and a row a token. */
static int64_t largest_logits(const scene *s)
{
    const yoke_program_set *set = yoke_session_programs(s->session);
    const yoke_program *program = yoke_program_of(set, 0);
    int64_t most = 0;
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_value_info *info = &set->graph->values[program->buffers[b].value];
        bool wide = info->shape.n_dims == 3 && info->dims[2] == 'v';
        most = wide && program->buffers[b].bytes > most ? program->buffers[b].bytes : most;
    }
    return most;
}

static void test_no_more_logits_than_the_budget(void **state)
{
    (void)state;
    /* 4 x 33 tokens of 257 logits: 135,696 bytes, and 33 tokens in strips of 7, 7, 7, 6 and 6. */
    const session_case c = {
        .batch = 4, .seq_len = 33, .options = "logits_budget=29KiB", .steps = 1};
    session_case whole = c;
    scene s;
    whole.options = NULL;
    scene_open(&s, &whole);
    scene_plan(&s);
    assert_int_equal(largest_logits(&s), 4 * 33 * VOCABULARY * 4);
    assert_int_equal(yoke_session_graph(s.session)->n_strips, 1);
    scene_close(&s);
    scene_open(&s, &c);
    scene_plan(&s);
    assert_int_equal(largest_logits(&s), 4 * 7 * VOCABULARY * 4);
    assert_int_equal(yoke_session_graph(s.session)->n_strips, 5);
    scene_close(&s);
}

/* A pipeline that runs all forward passes first would keep the logits of all micro-batches. */
static void test_logits_are_not_stashed(void **state)
{
    (void)state;
    const session_case c = {.mesh = "pp=2",
                            .schedule = "gpipe",
                            .batch = 8,
                            .microbatches = 4,
                            .options = "logits_budget=8KiB",
                            .steps = 1};
    scene s;
    scene_open(&s, &c);
    scene_plan(&s);
    const yoke_program_set *set = yoke_session_programs(s.session);
    const yoke_program *program = yoke_program_of(set, 1);
    int n_seen = 0;
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_value_info *info = &set->graph->values[program->buffers[b].value];
        if (info->shape.n_dims == 3 && info->dims[2] == 'v') {
            assert_int_equal(program->buffers[b].kind, YOKE_BUFFER_SCRATCH);
            n_seen++;
        }
    }
    assert_true(n_seen > 0);
    scene_close(&s);
}

/* --- Numbers ------------------------------------------------------------------------------------ */

static void test_numbers_are_those_of_whole_logits(void **state)
{
    (void)state;
    static const char *const options[] = {"logits_budget=1KiB", "logits_budget=7KiB",
                                          "logits_budget=9KiB dtype=bf16"};
    for (int f = 0; f < COUNT(families); f++) {
        for (int o = 0; o < COUNT(options); o++) {
            session_case c = {.preset = families[f], .seq_len = 13, .microbatches = 2};
            bool narrow = strstr(options[o], "bf16");
            outcome whole, cut;
            scene s;
            c.options = narrow ? "dtype=bf16" : NULL;
            run_case(&c, &whole);
            c.options = options[o];
            run_case(&c, &cut);
            scene_open(&s, &c);
            scene_plan(&s);
            assert_true(yoke_session_graph(s.session)->n_strips > 1);
            int64_t at = 0;
            for (int i = 0; i < whole.n && !narrow; i++) {
                int64_t n = parameter_elements(s.session, i);
                double apart = distance(cut.gradient + at, whole.gradient + at, n);
                if (!(apart <= 1e-5)) {
                    fail_msg("%s, %s: gradient of %s is %.3g apart", families[f], options[o],
                             yoke_session_parameter_name(s.session, i), apart);
                }
                at += n;
            }
            for (int64_t i = 0; i < whole.n_steps; i++) {
                assert_near(families[f], cut.step[i].loss, whole.step[i].loss,
                            narrow ? 1e-3 : 1e-6);
            }
            scene_close(&s);
            outcome_free(&whole);
            outcome_free(&cut);
        }
    }
}

static const parity_case meshes[] = {
    {.base = {.mesh = "dp=3", .options = "logits_budget=2KiB", .microbatches = 2}},
    {.base = {.mesh = "dp=2", .options = "logits_budget=2KiB zero=2", .microbatches = 3}},
    {.base = {.mesh = "dp=2", .options = "logits_budget=2KiB zero=3", .microbatches = 3}},
    {.base = {.mesh = "fsdp=3", .options = "logits_budget=2KiB"}},
    {.base = {.mesh = "dp=2",
              .options = "logits_budget=2KiB zero=2 reduce_dtype=bf16",
              .microbatches = 2}},
    {.base = {.mesh = "tp=3", .options = "logits_budget=2KiB"}},
    {.base = {.mesh = "tp=2", .options = "logits_budget=2KiB sequence_parallel=true"}},
    {.base = {.mesh = "cp=2", .options = "logits_budget=2KiB context_parallel=ring"}},
    {.base = {.mesh = "cp=4", .options = "logits_budget=2KiB balance_context=true"}},
    {.base = {.mesh = "cp=3", .options = "logits_budget=2KiB"}},
    {.base = {.mesh = "pp=2", .options = "logits_budget=2KiB", .microbatches = 3}, .bits = true},
    {.base = {.mesh = "pp=2",
              .options = "logits_budget=2KiB recompute=full",
              .schedule = "zb-h1",
              .microbatches = 6},
     .bits = true},
    {.base = {.mesh = "fsdp=2,tp=2,pp=2", .options = "logits_budget=2KiB", .microbatches = 3}},
    {.base = {.mesh = "dp=2,cp=2,tp=2",
              .options = "logits_budget=2KiB sequence_parallel=true zero=2"}},
};

static void assert_cut(const session_case *c)
{
    char text[256];
    scene s;
    print_case(c, text, sizeof text);
    scene_open(&s, c);
    scene_plan(&s);
    if (yoke_session_graph(s.session)->n_strips < 2) {
        fail_msg("%s: logits are not cut", text);
    }
    scene_close(&s);
}

static void test_meshes(void **state)
{
    (void)state;
    for (int f = 0; f < COUNT(families); f++) {
        for (int i = 0; i < COUNT(meshes); i++) {
            parity_case p = meshes[i];
            p.base.preset = families[f];
            assert_cut(&p.base);
            assert_parity(&p);
        }
    }
}

/* The strips of a divided vocabulary meet in more collectives, each for fewer tokens. */
static void test_as_many_elements_are_reduced(void **state)
{
    (void)state;
    double elements[2] = {0};
    int64_t n[2] = {0};
    for (int i = 0; i < 2; i++) {
        const session_case c = {
            .mesh = "tp=2", .options = i ? "logits_budget=5KiB" : "logits_budget=1GiB", .steps = 1};
        scene s;
        scene_open(&s, &c);
        scene_plan(&s);
        const yoke_program *program = yoke_program_of(yoke_session_programs(s.session), 0);
        for (int64_t t = 0; t < program->n_transfers; t++) {
            elements[i] += (double)program->transfers[t].elements;
            n[i]++;
        }
        scene_close(&s);
    }
    assert_true(elements[0] == elements[1]);
    assert_true(n[1] > n[0]);
}

/* --- What is not cut -------------------------------------------------------------------------- */

static int64_t vocabulary_of(const yoke_model_config *config)
{
    (void)config;
    return VOCABULARY;
}

static yoke_value dropped_logits(yoke_graph *g, const yoke_model_config *c, const yoke_build *build)
{
    (void)c;
    yoke_letter(g, 'v', VOCABULARY);
    yoke_letter(g, 'd', 16);
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "table", "vd", 0.5f), build->tokens);
    yoke_block(g, "head");
    yoke_value y = yoke_matmul(g, "btd,vd->btv", x, yoke_weight(g, "head", "vd", 0.5f));
    return build->training ? yoke_dropout(g, "logits", y, 0.5f) : y;
}

/* A mask is a function of where a token stands in the whole, and a strip does not know that. */
static void test_masks_are_those_of_whole_logits(void **state)
{
    (void)state;
    static const yoke_model model = {
        .name = "dropping", .vocab_size = vocabulary_of, .logits = dropped_logits};
    session_case c = {.model = &model, .steps = 2};
    outcome whole, wanted;
    scene s;
    run_case(&c, &whole);
    c.options = "logits_budget=2KiB";
    run_case(&c, &wanted);
    assert_true(distance(wanted.gradient, whole.gradient, whole.elements) < 1e-5);
    scene_open(&s, &c);
    scene_plan(&s);
    assert_int_equal(yoke_session_graph(s.session)->n_strips, 1);
    assert_true(yoke_session_graph(s.session)->n_strips_wanted > 1);
    scene_close(&s);
    outcome_free(&whole);
    outcome_free(&wanted);
}

/* 16 tokens over 3 ranks and one sequence: nothing to cut evenly. */
static void test_a_note_says_what_is_not_cut(void **state)
{
    (void)state;
    const session_case c = {
        .mesh = "cp=3", .batch = 1, .options = "logits_budget=2KiB", .steps = 1};
    scene s;
    yoke_note notes[YOKE_MOST_NOTES];
    bool told = false;
    scene_open(&s, &c);
    scene_plan(&s);
    assert_int_equal(yoke_session_graph(s.session)->n_strips, 1);
    int n = yoke_session_notes(s.session, notes);
    for (int i = 0; i < n; i++) {
        told = told || strstr(notes[i].text, "strips of tokens and there are 1:");
    }
    assert_true(told);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_more_logits_than_the_budget),
        cmocka_unit_test(test_logits_are_not_stashed),
        cmocka_unit_test(test_numbers_are_those_of_whole_logits),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_as_many_elements_are_reduced),
        cmocka_unit_test(test_masks_are_those_of_whole_logits),
        cmocka_unit_test(test_a_note_says_what_is_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
