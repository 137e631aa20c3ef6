/*
 * In which type a session multiplies what it stores in bf16: what is refused, what is chosen, and that all ranks choose
 * alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/product.h"
#include "session_case.h"

static void assert_refused(const char *dtype, const char *matmul, const char *kernels,
                           const char *const *parts)
{
    yoke_config config = yoke_config_default();
    config.dtype = dtype;
    config.matmul = matmul;
    config.kernels = kernels;
    assert_status_says(yoke_config_check(&config), YOKE_BAD_INPUT, parts);
}

static void test_wishes_that_make_no_sense(void **state)
{
    (void)state;
    assert_refused("bf16", "bf61", "auto",
                   SAYS("unknown matmul 'bf61'", "did you mean 'bf16'", "auto, f32 or bf16"));
    assert_refused("f32", "bf16", "auto",
                   SAYS("matmul is bf16, but dtype f32", "dtype=bf16", "matmul=auto"));
    assert_refused("bf16", "bf16", "ref", SAYS("kernels ref", "kernels=auto", "matmul=auto"));
}

static void open_session(scene *s, const session_case *c)
{
    scene_open(s, c);
    scene_plan(s);
}

/* What is wanted is done or refused before any memory is mapped, by what the processor has. */
static void test_bf16_where_the_processor_has_it(void **state)
{
    (void)state;
    scene s;
    open_session(&s, &(session_case){.options = "dtype=bf16 matmul=bf16"});
    yoke_status status = yoke_session_allocate(s.session);
    if (yoke_multiplier_bf16_missing()) {
        assert_status_says(status, YOKE_BAD_INPUT,
                           SAYS("matmul is bf16, but", yoke_multiplier_bf16_missing(),
                                "matmul=auto or matmul=f32"));
        assert_null(s.session->slabs);
        assert_false(s.session->multiply.chosen);
    } else {
        assert_ok(status, "allocate");
        assert_true(s.session->narrow_kernels[YOKE_OP_MATMUL] == yoke_product_in_bf16);
    }
    scene_close(&s);
}

static void assert_text(const scene *s, const char *wanted)
{
    char text[128];
    yoke_session_multiply_text(s->session, text, (int)sizeof text);
    if (!strstr(text, wanted)) {
        fail_msg("'%s' is not in: %s", wanted, text);
    }
}

static void test_f32_as_asked_for(void **state)
{
    (void)state;
    scene s;
    open_session(&s, &(session_case){.options = "dtype=bf16 matmul=f32"});
    yoke_kernel before = s.session->narrow_kernels[YOKE_OP_MATMUL];
    assert_ok(yoke_session_multiply_choose(s.session), "choice");
    assert_true(s.session->multiply.chosen && !s.session->multiply.in_bf16);
    assert_true(s.session->multiply.f32_flops_per_s == 0.0);
    assert_true(s.session->narrow_kernels[YOKE_OP_MATMUL] == before);
    assert_text(&s, "f32, as asked for");
    scene_close(&s);
}

/* Measured only where there is a choice; f32 where there is none, and why. */
static void test_auto(void **state)
{
    (void)state;
    scene s;
    open_session(&s, &(session_case){.options = "dtype=bf16"});
    assert_ok(yoke_session_multiply_choose(s.session), "choice");
    const yoke_multiply *m = &s.session->multiply;
    if (yoke_multiplier_bf16_missing()) {
        assert_false(m->in_bf16);
        assert_text(&s, yoke_multiplier_bf16_missing());
    } else {
        assert_true(m->f32_flops_per_s > 0.0 && m->bf16_flops_per_s > 0.0);
        assert_true(m->in_bf16 == (m->bf16_flops_per_s > m->f32_flops_per_s));
        assert_text(&s, "measured");
    }
    scene_close(&s);
    open_session(&s, &(session_case){.options = "kernels=ref dtype=bf16"});
    assert_ok(yoke_session_multiply_choose(s.session), "choice");
    assert_false(s.session->multiply.in_bf16);
    assert_text(&s, "summed in double");
    scene_close(&s);
}

static void multiply_not_at_all(const yoke_kernel_call *call)
{
    (void)call;
}

static void multiply_often(const yoke_kernel_call *call)
{
    for (int i = 0; i < 20; i++) {
        yoke_kernel_set_find("onednn")->run_narrow[YOKE_OP_MATMUL](call);
    }
}

/* Whatever is clearly faster wins, with ranks in threads and in processes, of which some only wait. */
static void test_the_faster_one_wins(void **state)
{
    (void)state;
    static const char *const homes[] = {"threads", "processes"};
    for (int i = 0; i < 2; i++) {
        scene s;
        open_session(
            &s, &(session_case){.options = "dtype=bf16", .mesh = "dp=3,tp=2", .ranks = homes[i]});
        assert_ok(yoke_session_multiply_measure(s.session, multiply_not_at_all), "quick");
        assert_true(s.session->multiply.in_bf16);
        assert_text(&s, "bf16: measured");
        assert_ok(yoke_session_multiply_measure(s.session, multiply_often), "slow");
        assert_false(s.session->multiply.in_bf16);
        assert_text(&s, "f32: measured");
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wishes_that_make_no_sense),
        cmocka_unit_test(test_bf16_where_the_processor_has_it),
        cmocka_unit_test(test_f32_as_asked_for),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_the_faster_one_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
