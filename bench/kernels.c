/*
 * What each kernel of each set does in a GPT-2 124M step of 4 x 256 tokens, against the rates of this machine: copies of
 * memory, and square matrix products.
 *
 *     build/release/bench/kernels [--threads N] [LABEL...]       as many as the machine has, and all rows, unless given
 *
 * A LABEL stands for the rows that begin with it; --help lists them. Rows of "bf16" are of operands stored so; of
 * matrix products not the weights and their gradients, and "in bf16" are those that also multiply in it.
 *
 * Bytes are those of all operands, once (twice if written in place); flops those of the mathematics, causal attention
 * counted whole. Rates are the best of several runs. ref is left out where it would take many seconds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bf16.h"
#include "base/clock.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "kernel/piece.h"
#include "kernel/product.h"
#include "kernel/sets.h"
#include "op/op.h"
#include "run/config_keys.h"

enum { MAX_IN = 6, MAX_OUT = 4, N = 1024, MOST_THREADS = 4096 };

static const double seconds = 0.15; /* for each kernel of a set */
static const double ref_max_flops = 6e9;

/* Letters: b batch, t tokens, d width, e 3 width, f feed-forward, h heads, x head width, v vocabulary, c control,
 * r experts, s their slots, so many that tokens with 2 experts each fill them. */
typedef struct bench {
    const char *label;
    yoke_op op;
    const char *in[MAX_IN], *out[MAX_OUT];
    yoke_contraction contraction;
    double flops;
    unsigned updates;
    const char *whole; /* digits: inputs that hold integers */
} bench;

#define TOKENS 1024.0
static const double product = 2.0 * TOKENS * 768.0;
static const double attention = 4.0 * TOKENS * 256.0 * 768.0;

static int64_t extent_of(char letter)
{
    static const char letters[] = "btdefhxvcrs";
    static const int64_t extents[] = {4, 256, 768, 2304, 3072, 12, 64, 50257, YOKE_N_CONTROLS,
                                      8, 64};
    return extents[strchr(letters, letter) - letters];
}

static const bench benches[] = {
    {"qkv",
     YOKE_OP_MATMUL,
     {"btd", "de"},
     {"bte"},
     {2, 1, false, false, 0},
     product * 2304.0,
     0,
     ""},
    {"up",
     YOKE_OP_MATMUL,
     {"btd", "df"},
     {"btf"},
     {2, 1, false, false, 0},
     product * 3072.0,
     0,
     ""},
    {"down",
     YOKE_OP_MATMUL,
     {"btf", "fd"},
     {"btd"},
     {2, 1, false, false, 0},
     product * 3072.0,
     0,
     ""},
    {"da of up",
     YOKE_OP_MATMUL,
     {"btf", "df"},
     {"btd"},
     {2, 1, false, true, 0},
     product * 3072.0,
     0,
     ""},
    {"dw of out",
     YOKE_OP_MATMUL,
     {"btd", "btd"},
     {"dd"},
     {2, 2, true, false, 0},
     product * 768.0,
     0,
     ""},
    {"dw of up",
     YOKE_OP_MATMUL,
     {"btd", "btf"},
     {"df"},
     {2, 2, true, false, 0},
     product * 3072.0,
     0,
     ""},
    {"dw of down",
     YOKE_OP_MATMUL,
     {"btf", "btd"},
     {"fd"},
     {2, 2, true, false, 0},
     product * 3072.0,
     0,
     ""},
    {"head",
     YOKE_OP_MATMUL,
     {"btd", "vd"},
     {"btv"},
     {2, 1, false, true, 0},
     product * 50257.0,
     0,
     ""},
    {"dw of head",
     YOKE_OP_MATMUL,
     {"btv", "btd"},
     {"vd"},
     {2, 2, true, false, 0},
     product * 50257.0,
     0,
     ""},
    {"da of head",
     YOKE_OP_MATMUL,
     {"btv", "vd"},
     {"btd"},
     {2, 1, false, false, 0},
     product * 50257.0,
     0,
     ""},
    {"experts",
     YOKE_OP_MATMUL,
     {"rbsd", "rfd"},
     {"rbsf"},
     {2, 1, false, true, 1},
     2.0 * product * 3072.0,
     0,
     ""},
    {"dw of experts",
     YOKE_OP_MATMUL,
     {"rbsf", "rbsd"},
     {"rfd"},
     {2, 2, true, false, 1},
     2.0 * product * 3072.0,
     0,
     ""},
    {"dispatch", YOKE_OP_DISPATCH, {"btd", "btr"}, {"rbsd"}, .whole = ""},
    {"combine", YOKE_OP_COMBINE, {"rbsd", "btr", "btr"}, {"btd"}, .whole = ""},
    {"dgates of combine", YOKE_OP_COMBINE_GRAD, {"rbsd", "btr", "btd"}, {"btr"}, .whole = ""},
    {"jitter", YOKE_OP_JITTER, {"btd"}, {"btd"}, .whole = ""},
    {"attention",
     YOKE_OP_ATTENTION,
     {"bthx", "bthx", "bthx"},
     {"bthx", "bth"},
     .flops = attention,
     .whole = ""},
    {"attention_grad",
     YOKE_OP_ATTENTION_GRAD,
     {"bthx", "bthx", "bthx", "bthx", "bth", "bthx"},
     {"bthx", "bthx", "bthx"},
     .flops = 2.5 * attention,
     .whole = ""},
    {"attention_combine",
     YOKE_OP_ATTENTION_COMBINE,
     {"bthx", "bth", "bthx", "bth"},
     {"bthx", "bth"},
     .whole = ""},
    {"embedding", YOKE_OP_EMBEDDING, {"td", "bt"}, {"btd"}, .whole = "1"},
    {"embedding_grad", YOKE_OP_EMBEDDING_GRAD, {"bt", "btd"}, {"vd"}, .whole = "0"},
    {"add_bias", YOKE_OP_ADD_BIAS, {"btf", "f"}, {"btf"}, .whole = ""},
    {"bias and add", YOKE_OP_ADD_BIAS, {"btd", "d", "btd"}, {"btd"}, .whole = ""},
    {"sum_rows", YOKE_OP_SUM_ROWS, {"btf"}, {"f"}, .whole = ""},
    {"add", YOKE_OP_ADD, {"btd", "btd"}, {"btd"}, .whole = ""},
    {"layer_norm", YOKE_OP_LAYER_NORM, {"btd", "d", "d"}, {"btd", "bt", "bt"}, .whole = ""},
    {"bias, add, layer_norm",
     YOKE_OP_LAYER_NORM,
     {"btd", "d", "d", "btd", "d"},
     {"btd", "bt", "bt", "btd"},
     .whole = ""},
    {"layer_norm_grad",
     YOKE_OP_LAYER_NORM_GRAD,
     {"btd", "btd", "d", "bt", "bt"},
     {"btd"},
     .whole = ""},
    {"layer_norm_grad, add",
     YOKE_OP_LAYER_NORM_GRAD,
     {"btd", "btd", "d", "bt", "bt", "btd"},
     {"btd"},
     .whole = ""},
    {"layer_norm_grad_gain",
     YOKE_OP_LAYER_NORM_GRAD_GAIN,
     {"btd", "btd", "bt", "bt"},
     {"d", "d"},
     .whole = ""},
    {"rms_norm", YOKE_OP_RMS_NORM, {"btd", "d"}, {"btd", "bt"}, .whole = ""},
    {"add, rms_norm", YOKE_OP_RMS_NORM, {"btd", "d", "btd"}, {"btd", "bt", "btd"}, .whole = ""},
    {"rope", YOKE_OP_ROPE, {"bthx", "bt"}, {"bthx"}, .whole = "1"},
    {"gelu", YOKE_OP_GELU, {"btf"}, {"btf"}, .whole = ""},
    {"gelu_grad", YOKE_OP_GELU_GRAD, {"btf", "btf"}, {"btf"}, .whole = ""},
    {"bias, gelu", YOKE_OP_GELU, {"btf", "f"}, {"btf"}, .whole = ""},
    {"bias, gelu_grad", YOKE_OP_GELU_GRAD, {"btf", "btf", "f"}, {"btf"}, .whole = ""},
    {"gelu_erf", YOKE_OP_GELU_ERF, {"btf"}, {"btf"}, .whole = ""},
    {"gelu_erf_grad", YOKE_OP_GELU_ERF_GRAD, {"btf", "btf"}, {"btf"}, .whole = ""},
    {"swiglu", YOKE_OP_SWIGLU, {"btf", "btf"}, {"btf"}, .whole = ""},
    {"swiglu_grad", YOKE_OP_SWIGLU_GRAD, {"btf", "btf", "btf"}, {"btf", "btf"}, .whole = ""},
    {"dropout", YOKE_OP_DROPOUT, {"btd"}, {"btd"}, .whole = ""},
    {"row_max", YOKE_OP_ROW_MAX, {"btv"}, {"bt"}, .whole = ""},
    {"row_sum_exp", YOKE_OP_ROW_SUM_EXP, {"btv", "bt"}, {"bt"}, .whole = ""},
    {"cross_entropy_grad",
     YOKE_OP_CROSS_ENTROPY_GRAD,
     {"btv", "bt", "bt", "bt", ""},
     {"btv"},
     .whole = "3"},
    {"sum_squares", YOKE_OP_SUM_SQUARES, {"vd"}, {""}, .whole = ""},
    {"adamw", YOKE_OP_ADAMW, {"vd", "vd", "vd", "vd", "c"}, {NULL}, .updates = 7, .whole = ""},
};

static yoke_tensor tensor_create(const char *letters, yoke_dtype dtype)
{
    yoke_tensor tensor = {.shard = {.n_dims = (int)strlen(letters)}, .dtype = dtype};
    for (int i = 0; letters[i]; i++) {
        tensor.shard.extent[i] = extent_of(letters[i]);
    }
    int64_t n = yoke_piece_elements(&tensor);
    tensor.data = yoke_block_alloc((size_t)(n * yoke_dtype_bytes(dtype)));
    if (!tensor.data) {
        fprintf(stderr, "no memory for %lld elements\n", (long long)n);
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) {
        float element = (float)(1 + i * 7 % 13) * 0.1f;
        if (dtype == YOKE_I32) {
            ((int32_t *)tensor.data)[i] = (int32_t)(i * 7 % 256);
        } else if (dtype == YOKE_BF16) {
            ((yoke_bf16 *)tensor.data)[i] = yoke_bf16_round(element);
        } else {
            ((float *)tensor.data)[i] = element;
        }
    }
    return tensor;
}

/* Token t of a sequence is with experts t and t + 1. */
static void slots_fill(const yoke_tensor *slots)
{
    const int64_t *extent = slots->shard.extent;
    for (int64_t i = 0; i < yoke_piece_elements(slots); i++) {
        int64_t t = i / extent[2] % extent[1], behind = (t - i % extent[2]) & (extent[2] - 1);
        ((float *)slots->data)[i] = behind < 2 ? (float)(t / extent[2] * 2 + behind) : -1.0f;
    }
}

static double best_s(yoke_kernel kernel, const yoke_kernel_call *call)
{
    double best = (double)INFINITY;
    double end = yoke_clock_s() + seconds;
    do {
        double start = yoke_clock_s();
        kernel(call);
        best = fmin(best, yoke_clock_s() - start);
    } while (yoke_clock_s() < end);
    return best;
}

static void print_row(const bench *b, const char *set, double bytes, double taken_s,
                      const double rates[2])
{
    double rate = b->flops > 0 ? b->flops / taken_s : bytes / taken_s;
    printf("%-22s%-13s%10.3f ms%9.1f %s%8.0f %%\n", b->label, set, taken_s * 1e3, rate * 1e-9,
           b->flops > 0 ? "GFLOP/s" : "GB/s   ", 100.0 * rate / rates[b->flops > 0]);
}

static yoke_dtype dtype_of(const bench *b, int input, bool narrow)
{
    if (strchr(b->whole, '0' + input)) {
        return YOKE_I32;
    }
    bool is_weight = b->op == YOKE_OP_MATMUL && input == 1 && !b->contraction.a_transposed;
    bool is_narrow = narrow && (yoke_op_get(b->op)->narrow_in >> input & 1) && !is_weight;
    return is_narrow ? YOKE_BF16 : YOKE_F32;
}

static yoke_dtype dtype_of_output(const bench *b, int output, bool narrow)
{
    bool is_gradient = b->op == YOKE_OP_MATMUL && b->contraction.a_transposed;
    bool is_narrow = narrow && (yoke_op_get(b->op)->narrow_out >> output & 1) && !is_gradient;
    return is_narrow ? YOKE_BF16 : YOKE_F32;
}

/* Creates the operands of a call; returns their bytes. */
static double operands_create(const bench *b, bool narrow, yoke_kernel_call *call, yoke_tensor *in,
                              yoke_tensor *out)
{
    double bytes = 0.0;
    for (; call->n_in < MAX_IN && b->in[call->n_in]; call->n_in++) {
        yoke_tensor *tensor = &in[call->n_in];
        *tensor = tensor_create(b->in[call->n_in], dtype_of(b, call->n_in, narrow));
        int times = b->updates >> call->n_in & 1 ? 2 : 1;
        bytes += (double)(times * yoke_piece_elements(tensor) * yoke_dtype_bytes(tensor->dtype));
    }
    for (; call->n_out < MAX_OUT && b->out[call->n_out]; call->n_out++) {
        yoke_tensor *tensor = &out[call->n_out];
        *tensor = tensor_create(b->out[call->n_out], dtype_of_output(b, call->n_out, narrow));
        bytes += (double)(yoke_piece_elements(tensor) * yoke_dtype_bytes(tensor->dtype));
    }
    return bytes;
}

static void bench_run(const bench *b, bool narrow, const double rates[2])
{
    yoke_tensor in[MAX_IN];
    yoke_tensor out[MAX_OUT];
    yoke_optimizer optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    yoke_attributes attributes = {.epsilon = 1e-5f,
                                  .rate = b->op == YOKE_OP_DROPOUT ? 0.1f : 0.0f,
                                  .scale = 0.125f,
                                  .base = 1e4f,
                                  .sign = 1,
                                  .n_heads = 12,
                                  .n_kv_heads = 12,
                                  .n_tokens = 256,
                                  .causal = true,
                                  .contraction = b->contraction,
                                  .optimizer = &optimizer,
                                  .global[0] = {3, {4, 256, 768}}};
    yoke_kernel_call call = {.in = in, .out = out, .attributes = &attributes};
    double bytes = operands_create(b, narrow, &call, in, out);
    if (b->op == YOKE_OP_DISPATCH || b->op == YOKE_OP_COMBINE || b->op == YOKE_OP_COMBINE_GRAD) {
        slots_fill(&in[1]);
    }
    call.scratch =
        yoke_block_alloc(yoke_kernel_scratch_bytes(b->op, &call, yoke_kernel_threads_get()) + 64);
#define BENCH_SET(name)                                                                            \
    do {                                                                                           \
        const yoke_kernel_set *set = &yoke_kernel_set_##name;                                      \
        yoke_kernel kernel = narrow ? set->run_narrow[b->op] : set->run[b->op];                    \
        bool is_slow = strcmp(#name, "ref") == 0 && b->flops > ref_max_flops;                      \
        if (kernel && !is_slow && (!set->supported || set->supported())) {                         \
            const char *label = narrow ? #name " bf16" : #name;                                    \
            print_row(b, label, bytes, best_s(kernel, &call), rates);                              \
        }                                                                                          \
    } while (0);
    YOKE_KERNEL_SET_LIST(BENCH_SET)
#undef BENCH_SET
    if (narrow && b->op == YOKE_OP_MATMUL && !yoke_multiplier_bf16_missing()) {
        print_row(b, "in bf16", bytes, best_s(yoke_product_in_bf16, &call), rates);
    }
    for (int i = 0; i < call.n_in; i++) {
        yoke_block_free(in[i].data);
    }
    for (int i = 0; i < call.n_out; i++) {
        yoke_block_free(out[i].data);
    }
    yoke_block_free(call.scratch);
}

/* Bytes read and written a second by an element-wise kernel over arrays larger than caches. */
static double copy_rate(void)
{
    yoke_tensor in[2] = {tensor_create("vd", YOKE_F32), {0}};
    yoke_tensor out = tensor_create("vd", YOKE_F32);
    yoke_attributes attributes = {.sign = 1};
    yoke_kernel chosen[YOKE_N_OPS];
    yoke_status status = yoke_kernel_choose(NULL, chosen);
    yoke_status_free(status);
    in[1] = in[0];
    yoke_kernel_call call = {
        .in = in, .out = &out, .n_in = 1, .n_out = 1, .attributes = &attributes};
    double rate = 8.0 * (double)yoke_piece_elements(&out) / best_s(chosen[YOKE_OP_ADD], &call);
    yoke_block_free(in[0].data);
    yoke_block_free(out.data);
    return rate;
}

/* --- Options ---------------------------------------------------------------------------------- */

enum { N_BENCHES = sizeof benches / sizeof benches[0] };

typedef struct choice {
    int n_threads;
    bool rows[N_BENCHES];
    bool help;
} choice;

static void print_usage(void)
{
    printf(
        "usage: kernels [--threads N] [LABEL...]\n\n"
        "Times each kernel of each set, on N threads; all rows, or those that begin with a LABEL "
        "of\n\n");
    for (int i = 0; i < N_BENCHES; i++) {
        printf("    %s\n", benches[i].label);
    }
}

static yoke_status take_label(choice *chosen, const char *label)
{
    bool found = false;
    for (int i = 0; i < N_BENCHES; i++) {
        bool begins = strncmp(benches[i].label, label, strlen(label)) == 0;
        chosen->rows[i] = chosen->rows[i] || begins;
        found = found || begins;
    }
    return found
               ? YOKE_OK
               : YOKE_FAIL(YOKE_BAD_INPUT, "no row begins with '%.80s'; --help lists them", label);
}

static yoke_status take_threads(choice *chosen, const char *text)
{
    int64_t n;
    if (!text) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--threads needs a value; write --threads N");
    }
    YOKE_TRY(yoke_number_parse_int("--threads", text, &n));
    if (n < 1 || n > MOST_THREADS) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "--threads is %lld; use 1 to %d", (long long)n,
                         MOST_THREADS);
    }
    chosen->n_threads = (int)n;
    return YOKE_OK;
}

static yoke_status parse(int argc, char **argv, choice *chosen)
{
    bool all = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            chosen->help = true;
        } else if (strcmp(argv[i], "--threads") == 0) {
            YOKE_TRY(take_threads(chosen, argv[++i]));
        } else if (argv[i][0] == '-') {
            return YOKE_FAIL(YOKE_BAD_INPUT, "unknown option %.80s; there are --threads and --help",
                             argv[i]);
        } else {
            YOKE_TRY(take_label(chosen, argv[i]));
            all = false;
        }
    }
    for (int i = 0; all && i < N_BENCHES; i++) {
        chosen->rows[i] = true;
    }
    return YOKE_OK;
}

static void measure(const choice *chosen)
{
    yoke_kernel_threads_set(chosen->n_threads);
    const double rates[2] = {copy_rate(), yoke_kernel_matmul_rate(N, 1.0)};
    printf("%d threads: copy %.1f GB/s, matrix product %.1f GFLOP/s\n\n", chosen->n_threads,
           rates[0] * 1e-9, rates[1] * 1e-9);
    for (int i = 0; i < N_BENCHES; i++) {
        const yoke_op_def *def = yoke_op_get(benches[i].op);
        if (chosen->rows[i]) {
            bench_run(&benches[i], false, rates);
        }
        if (chosen->rows[i] && (def->narrow_in || def->narrow_out)) {
            bench_run(&benches[i], true, rates);
        }
    }
}

int main(int argc, char **argv)
{
    choice chosen = {.n_threads = yoke_kernel_threads_get()};
    yoke_status status = parse(argc, argv, &chosen);
    if (status) {
        fprintf(stderr, "kernels: %s\n", yoke_status_message(status));
        yoke_status_free(status);
        return 2;
    }
    if (chosen.help) {
        print_usage();
    } else {
        measure(&chosen);
    }
    return 0;
}
