/*
 * The gradient kernels of ref against central differences: the loss is a random weighting of the outputs of the forward
 * kernel, and each element of each input is moved both ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"

enum { MAX_WANTED = 3 };
static const double tolerance = 2e-3;
static const float nudge = 1.0f / 128;

static const case_sizes sizes = {"gradients",
                                 {{'b', 2, 0},
                                  {'t', 3, 1},
                                  {'s', 4, 0},
                                  {'d', 5, 0},
                                  {'h', 4, 0},
                                  {'k', 2, 0},
                                  {'x', 6, 0},
                                  {'v', 7, 0},
                                  {'c', 2, 1}},
                                 4,
                                 2};

/*
 * A forward row, and for each gradient kernel: where its inputs come from, and which input each output is the gradient of. Sources are
 * 0-9 input of the forward row, o and p its first two outputs after the forward run, w and z the weights of the two.
 */
typedef struct gradient_case {
    op_case forward;
    struct {
        yoke_op op;
        const char *sources;
        const char *of; /* input of the forward row, a digit an output */
    } gradient[2];
    int n_gradients;
    float rate;
    int sign; /* rope's gradient turns back */
} gradient_case;

static const gradient_case cases[] = {
    {{YOKE_OP_EMBEDDING, {"vd", "bt"}, {"btd"}, .fill = "ni"},
     {{YOKE_OP_EMBEDDING_GRAD, "1w", "0"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_ADD_BIAS, {"btd", "d"}, {"btd"}, .fill = "nn"},
     {{YOKE_OP_SUM_ROWS, "w", "1"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_LAYER_NORM, {"btd", "d", "d"}, {"btd", "bt", "bt"}, .fill = "nnn"},
     {{YOKE_OP_LAYER_NORM_GRAD, "w01op", "0"}, {YOKE_OP_LAYER_NORM_GRAD_GAIN, "w0op", "12"}},
     2,
     0.0f,
     1},
    {{YOKE_OP_RMS_NORM, {"btd", "d"}, {"btd", "bt"}, .fill = "nn"},
     {{YOKE_OP_RMS_NORM_GRAD, "w01o", "0"}, {YOKE_OP_RMS_NORM_GRAD_GAIN, "w0o", "1"}},
     2,
     0.0f,
     1},
    {{YOKE_OP_ROPE, {"bthx", "bt"}, {"bthx"}, .fill = "np"},
     {{YOKE_OP_ROPE, "w1", "0"}},
     1,
     0.0f,
     -1},
    {{YOKE_OP_ATTENTION, {"bthx", "bskx", "bskx"}, {"bthx", "bth"}, .fill = "nnn"},
     {{YOKE_OP_ATTENTION_GRAD, "012yow", "012"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_ATTENTION, {"bthx", "bskx", "bskx"}, {"bthx", "bth"}, .fill = "nnn"},
     {{YOKE_OP_ATTENTION_GRAD, "012yow", "012"}},
     1,
     0.3f,
     1},
    {{YOKE_OP_GELU, {"btd"}, {"btd"}, .fill = "n"}, {{YOKE_OP_GELU_GRAD, "0w", "0"}}, 1, 0.0f, 1},
    {{YOKE_OP_GELU_ERF, {"btd"}, {"btd"}, .fill = "n"},
     {{YOKE_OP_GELU_ERF_GRAD, "0w", "0"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_SWIGLU, {"btd", "btd"}, {"btd"}, .fill = "nn"},
     {{YOKE_OP_SWIGLU_GRAD, "01w", "01"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_DROPOUT, {"btd"}, {"btd"}, .fill = "n"}, {{YOKE_OP_DROPOUT, "w", "0"}}, 1, 0.3f, 1},
    {{YOKE_OP_JITTER, {"btd"}, {"btd"}, .fill = "n"}, {{YOKE_OP_JITTER, "w", "0"}}, 1, 0.3f, 1},
    {{YOKE_OP_ROUTER, {"btr"}, {"btr", "btr"}, .fill = "n"},
     {{YOKE_OP_ROUTER_GRAD, "yow", "0"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_DISPATCH, {"btd", "bte"}, {"ebcd"}, .fill = "ns"},
     {{YOKE_OP_COMBINE, "w1", "0"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_COMBINE, {"ebcd", "bte", "bte"}, {"btd"}, .fill = "nsg"},
     {{YOKE_OP_DISPATCH, "w12", "0"}, {YOKE_OP_COMBINE_GRAD, "01w", "2"}},
     2,
     0.0f,
     1},
    {{YOKE_OP_EXPERT_LOAD, {"bte", "bte"}, {"be", "be"}, .fill = "gu"},
     {{YOKE_OP_SPREAD, "w", "1"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_BALANCE_LOSS, {"be", "be"}, {""}, .fill = "uu"},
     {{YOKE_OP_BALANCE_LOSS_GRAD, "1w", "0"}},
     1,
     0.0f,
     1},
    {{YOKE_OP_Z_LOSS, {"bte"}, {""}, .fill = "n"}, {{YOKE_OP_Z_LOSS_GRAD, "0w", "0"}}, 1, 0.0f, 1},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void run_ref(yoke_op op, const yoke_kernel_call *call)
{
    yoke_kernel_set_find("ref")->run[op](call);
}

/* Sum of the first output times the weights. */
static double loss(kernel_case *c, yoke_op op, const float *weights)
{
    run_ref(op, &c->call);
    double sum = 0.0;
    for (int64_t i = 0; i < yoke_piece_elements(&c->out[0]); i++) {
        sum += (double)((const float *)c->out[0].data)[i] * (double)weights[i];
    }
    return sum;
}

static void assert_gradient(kernel_case *c, const gradient_case *test, int input,
                            const float *weights, const float *gradient)
{
    float *element = c->in[input].data;
    for (int64_t i = 0; i < yoke_piece_elements(&c->in[input]); i++, element++) {
        float kept = *element;
        *element = kept + nudge;
        double above = loss(c, test->forward.op, weights);
        *element = kept - nudge;
        double below = loss(c, test->forward.op, weights);
        *element = kept;
        double slope = (above - below) / (2.0 * (double)nudge);
        if (!(fabs(slope - (double)gradient[i]) <= tolerance * (fabs(slope) + 1.0))) {
            fail_msg("op %d input %d element %lld: gradient %g, difference %g",
                     (int)test->forward.op, input, (long long)i, (double)gradient[i], slope);
        }
    }
}

static yoke_tensor source_find(const kernel_case *c, const yoke_tensor *weights, char source)
{
    switch (source) {
    case 'w':
        return *weights;
    case 'y':
        return c->out[0];
    case 'o':
        return c->out[1];
    case 'p':
        return c->out[2];
    default:
        return c->in[source - '0'];
    }
}

/* Runs gradient kernel `g` into outputs shaped as the inputs that they are of, and compares each. */
static void gradient_check(kernel_case *c, const gradient_case *test, int g,
                           const yoke_tensor *weights)
{
    yoke_tensor in[CASE_MAX_IN];
    yoke_tensor out[MAX_WANTED];
    yoke_attributes attributes = c->attributes;
    yoke_kernel_call call = c->call;
    yoke_op op = test->gradient[g].op;
    attributes.sign = test->sign;
    call.in = in;
    call.out = out;
    call.attributes = &attributes;
    call.n_in = (int)strlen(test->gradient[g].sources);
    call.n_out = (int)strlen(test->gradient[g].of);
    for (int i = 0; i < call.n_in; i++) {
        in[i] = source_find(c, weights, test->gradient[g].sources[i]);
    }
    for (int i = 0; i < call.n_out; i++) {
        out[i] = piece_create(&sizes, test->forward.in[test->gradient[g].of[i] - '0']);
    }
    call.scratch = guarded_alloc(yoke_kernel_scratch_bytes(op, &call, 1));
    run_ref(test->forward.op, &c->call);
    run_ref(op, &call);
    for (int i = 0; i < call.n_out; i++) {
        assert_gradient(c, test, test->gradient[g].of[i] - '0', weights->data, out[i].data);
        guarded_free(out[i].data);
    }
    guarded_free(call.scratch);
}

static void test_gradients_are_differences(void **state)
{
    (void)state;
    for (int i = 0; i < (int)N_CASES; i++) {
        kernel_case *c = case_create(&cases[i].forward, &sizes, 21);
        yoke_tensor weights = piece_create(&sizes, cases[i].forward.out[0]);
        piece_fill(&weights, 'n', &sizes, 22);
        c->attributes.rate = cases[i].rate;
        for (int g = 0; g < cases[i].n_gradients; g++) {
            gradient_check(c, &cases[i], g, &weights);
        }
        guarded_free(weights.data);
        case_destroy(c);
    }
}

/* Cross entropy is a chain of kernels, of which only the logits have a gradient. */
static double cross_entropy(kernel_case *c, yoke_tensor *picked, yoke_tensor *loss_piece)
{
    const yoke_tensor pick_in[] = {c->in[0], c->in[3]};
    const yoke_tensor loss_in[] = {c->in[0], c->in[1], c->in[2], *picked, c->in[3]};
    yoke_kernel_call call = c->call;
    inputs_derive(c, YOKE_OP_CROSS_ENTROPY_GRAD, yoke_kernel_set_find("ref"));
    call.in = pick_in;
    call.out = picked;
    run_ref(YOKE_OP_ROW_PICK, &call);
    call.in = loss_in;
    call.out = loss_piece;
    run_ref(YOKE_OP_CROSS_ENTROPY, &call);
    return (double)((const float *)loss_piece->data)[0];
}

static void test_cross_entropy_gradient(void **state)
{
    (void)state;
    static const op_case row = {
        YOKE_OP_CROSS_ENTROPY_GRAD, {"btv", "bt", "bt", "bt", ""}, {"btv"}, .fill = "nnul1"};
    kernel_case *c = case_create(&row, &sizes, 23);
    yoke_tensor picked = piece_create(&sizes, "bt");
    yoke_tensor total = piece_create(&sizes, "");
    float *logit = c->in[0].data;
    ((int32_t *)c->in[3].data)[0] = 2; /* at least one valid, one not */
    ((int32_t *)c->in[3].data)[1] = -1;
    (void)cross_entropy(c, &picked, &total);
    run_ref(YOKE_OP_CROSS_ENTROPY_GRAD, &c->call);
    for (int64_t i = 0; i < yoke_piece_elements(&c->in[0]); i++) {
        float kept = logit[i];
        logit[i] = kept + nudge;
        double above = cross_entropy(c, &picked, &total);
        logit[i] = kept - nudge;
        double below = cross_entropy(c, &picked, &total);
        logit[i] = kept;
        double slope = (above - below) / (2.0 * (double)nudge);
        assert_true(fabs(slope - (double)((const float *)c->out[0].data)[i]) < tolerance);
    }
    guarded_free(picked.data);
    guarded_free(total.data);
    case_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_differences),
        cmocka_unit_test(test_cross_entropy_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
