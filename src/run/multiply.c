/*
 * In which type products are multiplied whose operands are stored in bf16: as the key `matmul` says, or as is faster here.
 *
 * Storing in bf16 and multiplying in bf16 are two decisions: by processor the latter is twice as fast as f32 or half as
 * fast. So the session's largest products, cut to a size that takes a millisecond or two, run in both types, on the
 * ranks that the cores can feed at once, before any rank starts; the launcher adds up and decides for all of them.
 */
#include <stdio.h>
#include <string.h>
#include "kernel/piece.h"
#include "kernel/product.h"
#include "run/session.h"

enum { MAX_KINDS = 64, N_SAMPLES = 3, MAX_SIDE = 512, N_WAYS = 2, IN_F32 = 0, IN_BF16 = 1 };

static const double seconds_each = 0.008;

/* Products of one shape and how much of a step they are. */
typedef struct kind {
    yoke_product_sample sample;
    double flops;
} kind;

typedef struct kinds {
    kind list[MAX_KINDS];
    int n;
} kinds;

/* --- What to measure -------------------------------------------------------------------------- */

static bool is_same(const yoke_product_sample *x, const yoke_product_sample *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a_transposed == y->a_transposed &&
           x->b_transposed == y->b_transposed && x->a == y->a && x->b == y->b && x->y == y->y;
}

static yoke_tensor shape_of(const yoke_graph *graph, const yoke_buffer *buffer)
{
    yoke_tensor tensor = {.dtype = graph->values[buffer->value].dtype};
    tensor.shard.n_dims = buffer->shape.n_dims;
    memcpy(tensor.shard.extent, buffer->shape.extent, sizeof buffer->shape.extent);
    return tensor;
}

static void kinds_add(kinds *found, const yoke_product_sample *sample, double flops)
{
    int i = 0;
    while (i < found->n && !is_same(&found->list[i].sample, sample)) {
        i++;
    }
    if (i == found->n && i < MAX_KINDS) {
        found->list[found->n++].sample = *sample;
    }
    if (i < MAX_KINDS) {
        found->list[i].flops += flops;
    }
}

/* The product of an instruction, if operands of it are bf16. */
static void add_instruction(kinds *found, const yoke_graph *graph, const yoke_program *program,
                            const yoke_instruction *instruction)
{
    yoke_tensor tensors[3];
    const int *operands = program->operands + instruction->operands;
    for (int i = 0; i < 3; i++) {
        if (operands[i] == YOKE_NO_BUFFER) {
            return;
        }
        tensors[i] = shape_of(graph, &program->buffers[operands[i]]);
    }
    const yoke_attributes *attributes = &graph->nodes[instruction->node].attributes;
    yoke_kernel_call call = {
        .in = tensors, .out = tensors + 2, .n_in = 2, .n_out = 1, .attributes = attributes};
    yoke_product size = yoke_piece_contract(&call);
    double flops = 2.0 * (double)size.n_batch * (double)size.m * (double)size.n * (double)size.k;
    if (yoke_product_is_narrow(&call) && flops > 0.0) {
        yoke_product_sample sample = {
            .m = size.m < MAX_SIDE ? size.m : MAX_SIDE,
            .n = size.n < MAX_SIDE ? size.n : MAX_SIDE,
            .k = size.k < MAX_SIDE ? size.k : MAX_SIDE,
            .a_transposed = attributes->contraction.a_transposed,
            .b_transposed = attributes->contraction.b_transposed,
            .a = tensors[0].dtype,
            .b = tensors[1].dtype,
            .y = tensors[2].dtype,
        };
        kinds_add(found, &sample, flops);
    }
}

/* The first rank's products in training, those that are most of a step in front. */
static kinds kinds_find(const yoke_session *session)
{
    const yoke_graph *graph = session->train.graph;
    const yoke_program *program = yoke_program_of(session->train.set, 0);
    kinds found = {.n = 0};
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *instruction = &program->instructions[i];
        if (instruction->opcode == YOKE_OPCODE_KERNEL &&
            graph->nodes[instruction->node].op == YOKE_OP_MATMUL) {
            add_instruction(&found, graph, program, instruction);
        }
    }
    for (int i = 0; i < N_SAMPLES && i < found.n; i++) {
        int most = i;
        for (int j = i + 1; j < found.n; j++) {
            most = found.list[j].flops > found.list[most].flops ? j : most;
        }
        kind first = found.list[i];
        found.list[i] = found.list[most];
        found.list[most] = first;
    }
    found.n = found.n < N_SAMPLES ? found.n : N_SAMPLES;
    return found;
}

/* --- Measuring -------------------------------------------------------------------------------- */

typedef struct measurement {
    const yoke_session *session;
    yoke_world *world;
    yoke_kernel kernels[N_WAYS];
    kinds kinds;
    int n_measuring;
} measurement;

static double flops_of(const yoke_product_sample *sample)
{
    return 2.0 * (double)sample->m * (double)sample->n * (double)sample->k;
}

/* One rank: seconds that all its kinds together would take, in f32 and in bf16. */
static yoke_status measure(yoke_endpoint *endpoint, void *user)
{
    const measurement *m = user;
    int rank = yoke_endpoint_rank(endpoint);
    double *seconds = (double *)yoke_world_user(m->world) + (ptrdiff_t)N_WAYS * rank;
    if (rank >= m->n_measuring) {
        return YOKE_OK;
    }
    if (m->session->placement) {
        yoke_placement_bind(m->session->placement, rank);
    }
    yoke_kernel_threads_set(m->session->n_threads);
    for (int i = 0; i < m->kinds.n * N_WAYS; i++) {
        const kind *at = &m->kinds.list[i / N_WAYS];
        double taken_s = yoke_product_sample_s(&at->sample, m->kernels[i % N_WAYS], seconds_each);
        if (taken_s < 0.0) {
            return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to measure products in bf16; use "
                                             "matmul=f32 or matmul=bf16");
        }
        seconds[i % N_WAYS] += taken_s * at->flops / flops_of(&at->sample);
    }
    return YOKE_OK;
}

static yoke_status measure_all(yoke_session *session, measurement *m)
{
    int room = yoke_session_cores() / session->n_threads;
    m->n_measuring = room < 1 ? 1 : room < session->n_ranks ? room : session->n_ranks;
    yoke_rank_report *reports = yoke_block_alloc(sizeof *reports * (size_t)session->n_ranks);
    if (!reports) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the reports of %d ranks", session->n_ranks);
    }
    yoke_launch how = {.threads = session->threads, .run = measure, .user = m};
    yoke_status status = yoke_world_launch(m->world, &how, reports);
    const double *seconds = yoke_world_user(m->world);
    double sum[N_WAYS] = {0.0, 0.0}, flops = 0.0;
    for (int i = 0; i < m->n_measuring * N_WAYS; i++) {
        sum[i % N_WAYS] += seconds[i];
    }
    for (int i = 0; i < m->kinds.n; i++) {
        flops += m->kinds.list[i].flops * m->n_measuring;
    }
    if (!status && sum[IN_F32] > 0.0 && sum[IN_BF16] > 0.0) {
        session->multiply.f32_flops_per_s = flops / sum[IN_F32] * m->n_measuring;
        session->multiply.bf16_flops_per_s = flops / sum[IN_BF16] * m->n_measuring;
    }
    yoke_block_free(reports);
    return status;
}

yoke_status yoke_session_multiply_measure(yoke_session *session, yoke_kernel in_bf16)
{
    measurement m = {
        .session = session,
        .kernels = {session->narrow_kernels[YOKE_OP_MATMUL], in_bf16},
        .kinds = kinds_find(session),
    };
    size_t bytes = sizeof(double) * N_WAYS * (size_t)session->n_ranks;
    YOKE_TRY(yoke_session_world_create(session, bytes, &m.world));
    yoke_status status = measure_all(session, &m);
    yoke_world_destroy(m.world);
    session->multiply.in_bf16 =
        session->multiply.bf16_flops_per_s > session->multiply.f32_flops_per_s;
    return status;
}

/* --- The choice ------------------------------------------------------------------------------- */

bool yoke_session_is_narrow(const yoke_session *session)
{
    return strcmp(session->config.dtype, "bf16") == 0;
}

yoke_status yoke_session_multiply_choose(yoke_session *session)
{
    const char *wanted = session->config.matmul;
    const char *missing = yoke_multiplier_bf16_missing();
    bool is_ref = strcmp(session->config.kernels, "ref") == 0;
    bool is_open = strcmp(wanted, "auto") == 0 && !missing && !is_ref;
    if (session->multiply.chosen || !yoke_session_is_narrow(session)) {
        return YOKE_OK;
    }
    session->multiply.in_bf16 = strcmp(wanted, "bf16") == 0;
    if (session->multiply.in_bf16 && missing) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "matmul is bf16, but %s; use matmul=auto or matmul=f32, which multiply "
                         "what is stored in bf16 as f32",
                         missing);
    }
    if (is_open) {
        YOKE_TRY(yoke_session_multiply_measure(session, yoke_product_in_bf16));
    }
    if (session->multiply.in_bf16) {
        session->narrow_kernels[YOKE_OP_MATMUL] = yoke_product_in_bf16;
    }
    session->multiply.chosen = true;
    return YOKE_OK;
}

const char *yoke_session_multiply_text(const yoke_session *session, char *text, int text_bytes)
{
    const yoke_multiply *m = &session->multiply;
    const char *type = m->in_bf16 ? "bf16" : "f32";
    if (m->f32_flops_per_s > 0.0) {
        (void)snprintf(text, (size_t)text_bytes, "%s: measured %.0f GFLOP/s in bf16, %.0f in f32",
                       type, m->bf16_flops_per_s / 1e9, m->f32_flops_per_s / 1e9);
    } else if (strcmp(session->config.matmul, "auto") != 0) {
        (void)snprintf(text, (size_t)text_bytes, "%s, as asked for", type);
    } else if (strcmp(session->config.kernels, "ref") == 0) {
        (void)snprintf(text, (size_t)text_bytes, "%s, summed in double", type);
    } else {
        const char *missing = yoke_multiplier_bf16_missing();
        (void)snprintf(text, (size_t)text_bytes, "%s: %s", type, missing ? missing : "no products");
    }
    return text;
}
