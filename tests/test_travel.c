/*
 * What travels in bf16, read off the plans: gathers of weights with dtype=bf16, sums of gradients with
 * reduce_dtype=bf16. Bytes halve where they should and nowhere else, nothing that lasts grows, and what left early leaves
 * as early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session_case.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static scene at;

static const yoke_program_set *plan(const char *preset, const char *mesh, const char *options)
{
    const session_case c = {
        .preset = preset, .mesh = mesh, .options = options, .batch = 12, .microbatches = 2};
    scene_open(&at, &c);
    scene_plan(&at);
    return yoke_session_programs(at.session);
}

static const yoke_value_info *info_of(const yoke_program_set *set, yoke_value value)
{
    return &set->graph->values[value];
}

/* Bytes that the first rank receives in a step. */
typedef struct traffic {
    double weights, others; /* gathered: what decays are weights; gains and biases do not */
    double gradients;       /* reduced */
    double rest;            /* activations */
    int n_gathers, n_reductions;
} traffic;

static void add_transfer(const yoke_program_set *set, const yoke_program_transfer *t, traffic *sum)
{
    const yoke_value_info *info = info_of(set, t->value);
    double bytes = yoke_program_received_bytes(set, t);
    if (info->gathered_of != YOKE_NO_VALUE) {
        *(info->decays ? &sum->weights : &sum->others) += bytes;
        sum->n_gathers++;
    } else if (yoke_value_is_gradient(set->graph, t->value)) {
        sum->gradients += bytes;
        sum->n_reductions++;
    } else {
        sum->rest += bytes;
    }
}

static traffic traffic_of(const char *preset, const char *mesh, const char *options)
{
    const yoke_program_set *set = plan(preset, mesh, options);
    const yoke_program *program = yoke_program_of(set, 0);
    traffic sum = {0};
    for (int64_t i = 0; i < program->n_transfers; i++) {
        add_transfer(set, &program->transfers[i], &sum);
    }
    scene_close(&at);
    return sum;
}

/* "zero=1 dtype=bf16" */
static const char *with(const char *options, const char *more, char text[96])
{
    (void)snprintf(text, 96, "%s%s%s", options, *options && *more ? " " : "", more);
    return text;
}

static const struct {
    const char *preset, *mesh, *options;
} gathering[] = {
    {"gpt2-tiny", "fsdp=2", ""},         {"gpt2-tiny", "fsdp=3", ""},
    {"gpt2-tiny", "dp=2", "zero=3"},     {"gpt2-tiny", "dp=3", "zero=1"},
    {"gpt2-tiny", "dp=5", "zero=2"},     {"llama-tiny", "fsdp=2,tp=2", ""},
    {"llama-tiny", "dp=3", "zero=2"},    {"llama-tiny", "dp=2,fsdp=2", "zero=3"},
    {"bert-tiny", "fsdp=2,pp=2", ""},    {"mixtral-tiny", "fsdp=2", ""},
    {"mixtral-tiny", "fsdp=2,ep=2", ""},
};

static void test_weights_are_gathered_in_half(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(gathering); i++) {
        char text[96];
        traffic wide = traffic_of(gathering[i].preset, gathering[i].mesh, gathering[i].options);
        traffic narrow = traffic_of(gathering[i].preset, gathering[i].mesh,
                                    with(gathering[i].options, "dtype=bf16", text));
        assert_true(wide.weights > 0 && wide.others > 0 && wide.gradients > 0);
        assert_true(narrow.weights == wide.weights / 2);
        assert_true(narrow.others == wide.others);
        assert_true(narrow.gradients == wide.gradients);
        assert_int_equal(narrow.n_gathers, wide.n_gathers);
    }
}

static int count_casts(const yoke_graph *graph)
{
    int n = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        n += graph->nodes[i].op == YOKE_OP_CAST;
    }
    return n;
}

/* Every product reads what is gathered in bf16, forward and backward. */
static void test_products_read_what_is_gathered(void **state)
{
    (void)state;
    static const char *const options[] = {"dtype=bf16 zero=1", "dtype=bf16 zero=3"};
    for (int i = 0; i < COUNT(options); i++) {
        const yoke_graph *graph = plan("gpt2-tiny", "dp=3", options[i])->graph;
        int n = 0;
        for (int64_t k = 0; k < graph->n_nodes; k++) {
            const yoke_node *node = &graph->nodes[k];
            for (int in = 0; node->op == YOKE_OP_MATMUL && in < node->n_in; in++) {
                const yoke_value_info *info = &graph->values[node->in[in]];
                assert_true(info->kind != YOKE_VALUE_PARAMETER);
                assert_true(info->gathered_of == YOKE_NO_VALUE || info->dtype == YOKE_BF16);
                n += info->gathered_of != YOKE_NO_VALUE;
            }
        }
        /* Six in each of two layers and the head, forward and backward. */
        assert_int_equal(n, 2 * (6 * 2 + 1));
        scene_close(&at);
    }
}

/* Without pieces there is nothing to round: products read weights as they are stored. */
static void test_nothing_is_copied_in_vain(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=3", "tp=2", "cp=2", "pp=2", "dp=2,tp=2"};
    for (int i = 0; i < COUNT(meshes); i++) {
        assert_int_equal(count_casts(plan("gpt2-tiny", meshes[i], "dtype=bf16")->graph), 0);
        scene_close(&at);
    }
}

/* Rounded once a step, where they are stored: as many bytes as half a parameter of the rank. */
static void test_a_copy_takes_half_of_a_piece(void **state)
{
    (void)state;
    const yoke_program_set *set = plan("gpt2-tiny", "fsdp=2", "dtype=bf16");
    const yoke_program *program = yoke_program_of(set, 0);
    int n = 0;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *cast = &program->instructions[i];
        if (cast->opcode != YOKE_OPCODE_KERNEL ||
            set->graph->nodes[cast->node].op != YOKE_OP_CAST) {
            continue;
        }
        const int *operands = program->operands + cast->operands;
        const yoke_buffer *piece = &program->buffers[operands[0]];
        const yoke_buffer *copy = &program->buffers[operands[1]];
        assert_int_equal(cast->region, YOKE_REGION_HEAD);
        assert_int_equal(piece->kind, YOKE_BUFFER_PARAMS);
        assert_int_equal(copy->kind, YOKE_BUFFER_GATHERED);
        assert_int_equal(2 * copy->bytes, piece->bytes);
        n++;
    }
    /* Six in each of two layers, and the two tables. */
    assert_int_equal(n, 6 * 2 + 2);
    scene_close(&at);
}

static const struct {
    const char *preset, *mesh, *options;
} reducing[] = {
    {"gpt2-tiny", "dp=2", ""},
    {"gpt2-tiny", "dp=3", ""},
    {"llama-tiny", "dp=5", ""},
    {"gpt2-tiny", "dp=2", "zero=1"},
    {"gpt2-tiny", "dp=3", "zero=2"},
    {"llama-tiny", "dp=2", "zero=3"},
    {"gpt2-tiny", "fsdp=3", ""},
    {"gpt2-tiny", "dp=2,fsdp=2", ""},
    {"gpt2-tiny", "tp=2", "sequence_parallel=true"},
    {"llama-tiny", "dp=2,cp=3", ""},
    {"gpt2-tiny", "dp=2,cp=2,tp=2", "zero=1 sequence_parallel=true"},
    {"gpt2-tiny", "dp=2,pp=2", ""},
    {"mixtral-tiny", "dp=2,ep=2", ""},
    {"gpt2-tiny", "dp=2", "dtype=bf16"},
    {"llama-tiny", "fsdp=2", "dtype=bf16"},
};

/* Along pp a table's gradient is summed in f32. */
static bool has_f32_sum(int i)
{
    return strstr(reducing[i].mesh, "pp=") != NULL;
}

static void test_gradients_are_reduced_in_half(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(reducing); i++) {
        char text[96];
        traffic wide = traffic_of(reducing[i].preset, reducing[i].mesh, reducing[i].options);
        traffic narrow = traffic_of(reducing[i].preset, reducing[i].mesh,
                                    with(reducing[i].options, "reduce_dtype=bf16", text));
        assert_true(wide.gradients > 0);
        assert_true(has_f32_sum(i) ? narrow.gradients < wide.gradients
                                   : narrow.gradients == wide.gradients / 2);
        assert_true(narrow.weights == wide.weights && narrow.others == wide.others);
        assert_true(narrow.rest == wide.rest);
        assert_int_equal(narrow.n_reductions, wide.n_reductions);
    }
}

static void test_nothing_that_lasts_grows(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(reducing); i++) {
        int64_t bytes[2][3];
        for (int k = 0; k < 2; k++) {
            char text[96];
            const yoke_program_set *set =
                plan(reducing[i].preset, reducing[i].mesh,
                     with(reducing[i].options, k ? "reduce_dtype=bf16" : "", text));
            memcpy(bytes[k], yoke_program_of(set, 0)->kind_bytes, sizeof bytes[k]);
            scene_close(&at);
        }
        for (int kind = YOKE_BUFFER_PARAMS; kind <= YOKE_BUFFER_OPTIMIZER; kind++) {
            if (bytes[0][kind] != bytes[1][kind]) {
                fail_msg("%s %s: %lld bytes of kind %d, with sums in bf16 %lld", reducing[i].mesh,
                         reducing[i].options, (long long)bytes[0][kind], kind,
                         (long long)bytes[1][kind]);
            }
        }
    }
}

/* Reductions that start before the last kernel of the backward pass. */
static int count_early(const char *mesh, const char *options)
{
    const yoke_program_set *set = plan("gpt2-tiny", mesh, options);
    const yoke_program *program = yoke_program_of(set, 0);
    int n = 0, n_so_far = 0;
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *here = &program->instructions[i];
        const yoke_program_transfer *t =
            here->opcode == YOKE_OPCODE_COLLECTIVE ? &program->transfers[here->transfer] : NULL;
        n_so_far += t && yoke_value_is_gradient(set->graph, t->value);
        n = here->opcode == YOKE_OPCODE_KERNEL && here->region == YOKE_REGION_BACKWARD ? n_so_far
                                                                                       : n;
    }
    scene_close(&at);
    return n;
}

static void test_gradients_leave_as_early(void **state)
{
    (void)state;
    static const char *const options[] = {"bucket_size=0", "zero=1", "zero=2", "zero=3"};
    for (int i = 0; i < COUNT(options); i++) {
        char text[96];
        int wide = count_early("dp=2", options[i]);
        assert_true(wide > 20);
        assert_int_equal(count_early("dp=2", with(options[i], "reduce_dtype=bf16", text)), wide);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    yoke_config config = yoke_config_default();
    config.reduce_dtype = "bf15";
    assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT,
                       SAYS("reduce_dtype", "bf15", "did you mean 'bf16'"));
}

/* One rank, or stages alone, sum nothing that the option is about. */
static void test_what_has_no_effect_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        int n;
    } cases[] = {{"", 1}, {"pp=2", 1}, {"dp=2", 0}, {"tp=2,pp=2", 0}};
    for (int i = 0; i < COUNT(cases); i++) {
        yoke_config config = yoke_config_default();
        yoke_config_place place = {.has_experts = true, .masks_tokens = true};
        const char *idle[YOKE_MOST_IDLE_OPTIONS];
        config.reduce_dtype = "bf16";
        assert_ok(yoke_mesh_parse(cases[i].mesh, &place.mesh), cases[i].mesh);
        assert_int_equal(yoke_config_find_idle(&config, &place, idle), cases[i].n);
        assert_true(cases[i].n == 0 || strstr(idle[0], "reduce_dtype"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_gathered_in_half),
        cmocka_unit_test(test_products_read_what_is_gathered),
        cmocka_unit_test(test_nothing_is_copied_in_vain),
        cmocka_unit_test(test_a_copy_takes_half_of_a_piece),
        cmocka_unit_test(test_gradients_are_reduced_in_half),
        cmocka_unit_test(test_nothing_that_lasts_grows),
        cmocka_unit_test(test_gradients_leave_as_early),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_has_no_effect_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
