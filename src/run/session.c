/* Session: making one, its memory, and what can be asked of it. Running is in run.c, whole tensors
 * are in fetch.c. */
#include "run/session.h"
#include <math.h>
#include <string.h>
#include <unistd.h>
#include "yoke/random.h"

/* --- Making ----------------------------------------------------------------------------------- */

int yoke_session_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (int)n;
}

static yoke_masking masking_of(const yoke_session *session)
{
    int64_t vocab = session->model.model->vocab_size(&session->model);
    int64_t token = session->config.mask_token;
    if (session->model.model->objective != YOKE_MASKED_TOKENS) {
        return (yoke_masking){0};
    }
    return (yoke_masking){
        .rate = session->config.mask_rate,
        .vocab_size = vocab,
        .token = (int32_t)(token < 0 ? vocab - 1 : token),
    };
}

static yoke_status check_masking(const yoke_session *session)
{
    const yoke_model *model = session->model.model;
    int64_t vocab = model->vocab_size(&session->model);
    int64_t token = session->config.mask_token;
    if (token >= 0 && model->objective != YOKE_MASKED_TOKENS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mask_token is %lld, but a %s model predicts the next token and masks "
                         "none; use mask_token=-1, or an encoder such as bert-mini",
                         (long long)token, model->name);
    }
    if (token >= vocab) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mask_token %lld is none of the %lld tokens of the model (0 to %lld): use "
                         "mask_token=-1 for the last, or set vocab_size to at least %lld",
                         (long long)token, (long long)vocab, (long long)vocab - 1,
                         (long long)token + 1);
    }
    return YOKE_OK;
}

static yoke_sampler sampler_for(const yoke_session *session, bool evaluation)
{
    const yoke_config *config = &session->config;
    int64_t n = yoke_corpus_n_tokens(session->corpus);
    int64_t held_out = (int64_t)((double)n * config->eval_fraction);
    return (yoke_sampler){
        .corpus = session->corpus,
        .first = evaluation ? n - held_out : 0,
        .n_tokens = evaluation ? held_out : n - held_out,
        .seq_len = config->seq_len,
        .batch_size = config->batch_size,
        .microbatches = config->microbatches,
        .ignore_token = config->ignore_token,
        .masking = masking_of(session),
        .seed = (uint64_t)config->seed,
        .shuffled = !evaluation,
    };
}

static yoke_status check_corpus(yoke_session *session)
{
    int64_t highest = yoke_corpus_highest(session->corpus);
    int64_t vocab = session->model.model->vocab_size(&session->model);
    if (highest >= vocab) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "the corpus has token %lld, the model's vocabulary has %lld (0 to %lld): "
                         "set vocab_size "
                         "to at least %lld",
                         (long long)highest, (long long)vocab, (long long)vocab - 1,
                         (long long)highest + 1);
    }
    session->train_sampler = sampler_for(session, false);
    session->eval_sampler = sampler_for(session, true);
    YOKE_TRY(yoke_status_prefix(yoke_sampler_check(&session->train_sampler),
                                "training part of the corpus"));
    if (session->config.eval_fraction > 0 && session->config.eval_batches > 0) {
        YOKE_TRY(yoke_status_prefix(yoke_sampler_check(&session->eval_sampler),
                                    "held-out part of the corpus (eval_fraction %g)",
                                    session->config.eval_fraction));
    }
    return YOKE_OK;
}

static yoke_status check_length(const yoke_session *session)
{
    const yoke_model *model = session->model.model;
    int64_t longest = model->max_tokens ? model->max_tokens(&session->model) : INT64_MAX;
    if (session->config.seq_len > longest) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "seq_len %lld is longer than the %lld positions of the model: use at most %lld",
            (long long)session->config.seq_len, (long long)longest, (long long)longest);
    }
    return YOKE_OK;
}

static void settle_bytes(yoke_session *session)
{
    for (int r = 0; r < session->n_ranks; r++) {
        const yoke_program *train = yoke_program_of(session->train.set, r);
        int64_t slab = train->slab_bytes;
        const yoke_program_set *evaluation = session->evaluation.set;
        if (evaluation && yoke_program_of(evaluation, r)->slab_bytes > slab) {
            slab = yoke_program_of(evaluation, r)->slab_bytes;
        }
        session->slab_bytes[r] = (size_t)slab;
        session->bytes[r] = (yoke_rank_bytes){
            .params = train->kind_bytes[YOKE_BUFFER_PARAMS],
            .grads = train->kind_bytes[YOKE_BUFFER_GRADS],
            .optimizer = train->kind_bytes[YOKE_BUFFER_OPTIMIZER],
            .stash = train->kind_bytes[YOKE_BUFFER_STASH],
            .gathered = train->kind_bytes[YOKE_BUFFER_GATHERED],
            .scratch = train->kind_bytes[YOKE_BUFFER_SCRATCH] + slab - train->slab_bytes,
            .planned = slab,
        };
    }
}

static yoke_status prepare(yoke_session *session)
{
    const yoke_config *config = &session->config;
    YOKE_TRY(yoke_mesh_parse(config->mesh, &session->mesh));
    session->n_ranks = yoke_mesh_n_ranks(&session->mesh);
    int share = yoke_session_cores() / session->n_ranks;
    session->n_threads = config->threads > 0 ? (int)config->threads : share > 1 ? share : 1;
    session->threads = strcmp(config->ranks, "threads") == 0;
    YOKE_TRY(yoke_kernel_choose(config->kernels, session->kernels));
    YOKE_TRY(yoke_kernel_choose_narrow(config->kernels, session->narrow_kernels));
    YOKE_TRY(check_length(session));
    YOKE_TRY(check_masking(session));
    if (session->corpus) {
        YOKE_TRY(check_corpus(session));
    }
    YOKE_TRY(yoke_session_plan_create(session, YOKE_USE_TRAIN, &session->train));
    session->train_sampler.n_chunks = session->train.graph->order.n_chunks;
    if (session->corpus && config->eval_fraction > 0 && config->eval_batches > 0) {
        YOKE_TRY(yoke_session_plan_create(session, YOKE_USE_EVALUATE, &session->evaluation));
        session->eval_sampler.n_chunks = session->evaluation.graph->order.n_chunks;
    }
    session->slab_bytes = yoke_block_alloc(sizeof(size_t) * (size_t)session->n_ranks);
    session->bytes = yoke_block_alloc(sizeof(yoke_rank_bytes) * (size_t)session->n_ranks);
    if (!session->slab_bytes || !session->bytes) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the books of %d ranks", session->n_ranks);
    }
    settle_bytes(session);
    return YOKE_OK;
}

yoke_status yoke_session_create(const yoke_session_parts *parts, yoke_session **session)
{
    yoke_session *made = yoke_block_alloc(sizeof *made);
    if (!made) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for a session");
    }
    made->config = *parts->config;
    made->model = *parts->model;
    made->corpus = parts->corpus;
    yoke_status status = prepare(made);
    if (status) {
        yoke_session_destroy(made);
        return status;
    }
    *session = made;
    return YOKE_OK;
}

static void unmap_slabs(yoke_session *session)
{
    for (int r = 0; session->slabs && r < session->n_ranks; r++) {
        yoke_mapping_destroy(session->slabs[r], session->slab_bytes[r]);
        session->bytes[r].allocated = 0;
    }
    yoke_block_free(session->slabs);
    session->slabs = NULL;
}

void yoke_session_destroy(yoke_session *session)
{
    if (!session) {
        return;
    }
    unmap_slabs(session);
    yoke_placement_destroy(session->placement);
    yoke_session_plan_destroy(&session->train);
    yoke_session_plan_destroy(&session->evaluation);
    yoke_session_plan_destroy(&session->logits);
    yoke_block_free(session->slab_bytes);
    yoke_block_free(session->bytes);
    yoke_block_free(session);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* What is planned may be larger than what one machine runs. */
static yoke_status check_ranks(const yoke_session *session)
{
    if (session->n_ranks > YOKE_MAX_WORLD_RANKS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "mesh %s has %d ranks, and at most %d can run on one machine: use a "
                         "smaller mesh; `yoke verify` plans larger ones",
                         session->config.mesh, session->n_ranks, YOKE_MAX_WORLD_RANKS);
    }
    return YOKE_OK;
}

static yoke_status check_memory(const yoke_session *session)
{
    int64_t planned = 0;
    for (int r = 0; r < session->n_ranks; r++) {
        planned += (int64_t)session->slab_bytes[r];
    }
    int64_t available = yoke_memory_available_bytes();
    if (available > 0 && planned > available) {
        return YOKE_FAIL(
            YOKE_NO_MEMORY,
            "the plan needs %.2f GiB (%d ranks), the machine has %.2f GiB free: use a smaller "
            "batch_size or seq_len, more microbatches, or a smaller model; `yoke verify` shows the "
            "plan",
            (double)planned / 0x1p30, session->n_ranks, (double)available / 0x1p30);
    }
    return YOKE_OK;
}

static yoke_status map_slabs(yoke_session *session)
{
    session->slabs = yoke_block_alloc(sizeof(char *) * (size_t)session->n_ranks);
    if (!session->slabs) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the books of %d slabs", session->n_ranks);
    }
    for (int r = 0; r < session->n_ranks; r++) {
        void *start = NULL;
        YOKE_TRY(yoke_status_prefix(yoke_mapping_create(&start, session->slab_bytes[r], true),
                                    "slab of rank %d of %d", r, session->n_ranks));
        session->slabs[r] = start;
        session->bytes[r].allocated = (int64_t)session->slab_bytes[r];
    }
    return YOKE_OK;
}

static yoke_status place(yoke_session *session)
{
    if (session->placement) {
        return YOKE_OK;
    }
    yoke_placement_request request = {.wanted = session->config.placement,
                                      .n_ranks = session->n_ranks,
                                      .n_threads = session->n_threads};
    return yoke_placement_create(&request, &session->placement);
}

yoke_status yoke_session_allocate(yoke_session *session)
{
    if (session->slabs) {
        return YOKE_OK;
    }
    YOKE_TRY(check_ranks(session));
    YOKE_TRY(place(session));
    YOKE_TRY(check_memory(session));
    YOKE_TRY(yoke_session_multiply_choose(session));
    yoke_status status = map_slabs(session);
    if (status) { /* all or none: the next call tries again */
        unmap_slabs(session);
    }
    return status;
}

yoke_status yoke_session_enlarge(yoke_session *session, int rank, size_t bytes)
{
    size_t before = session->slab_bytes[rank];
    if (bytes <= before) {
        return YOKE_OK;
    }
    if (session->slabs) {
        void *larger = NULL;
        YOKE_TRY(yoke_status_prefix(yoke_mapping_create(&larger, bytes, true),
                                    "larger slab of rank %d of %d", rank, session->n_ranks));
        memcpy(larger, session->slabs[rank], before);
        yoke_mapping_destroy(session->slabs[rank], before);
        session->slabs[rank] = larger;
        session->bytes[rank].allocated = (int64_t)bytes;
    }
    session->slab_bytes[rank] = bytes;
    session->bytes[rank].scratch += (int64_t)(bytes - before);
    session->bytes[rank].planned = (int64_t)bytes;
    return YOKE_OK;
}

/* Row-major index in the global tensor of element `local` of a piece. */
static uint64_t global_index(const yoke_shape *shape, const yoke_shard *shard, int64_t local)
{
    uint64_t index = 0, stride = 1;
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        index += stride * (uint64_t)(shard->offset[d] + local % shard->extent[d]);
        local /= shard->extent[d];
        stride *= (uint64_t)shape->extent[d];
    }
    return index;
}

static void initialise_parameter(const yoke_session *session, const yoke_value_info *info,
                                 const yoke_shard *shard, float *out)
{
    yoke_random_key key = yoke_random_stream((uint64_t)session->config.seed, info->name, 0, 0);
    int64_t n = yoke_shard_elements(shard);
    for (int64_t i = 0; i < n; i++) {
        out[i] = info->fill;
        if (info->deviation > 0) {
            out[i] +=
                info->deviation * yoke_random_normal(key, global_index(&info->shape, shard, i));
        }
    }
}

void yoke_session_initialise(const yoke_session *session, int rank)
{
    const yoke_program *program = yoke_program_of(session->train.set, rank);
    for (int64_t b = 0; b < program->n_buffers; b++) {
        const yoke_buffer *buffer = &program->buffers[b];
        const yoke_value_info *info = &session->train.graph->values[buffer->value];
        float *out = (float *)(void *)(session->slabs[rank] + buffer->offset);
        if (info->kind == YOKE_VALUE_PARAMETER) {
            yoke_shard shard = yoke_program_shard(session->train.set, rank, buffer->value);
            initialise_parameter(session, info, &shard, out);
        } else if (info->kind == YOKE_VALUE_STATE) {
            memset(out, 0, (size_t)buffer->bytes);
        }
    }
}

/* --- Questions -------------------------------------------------------------------------------- */

int yoke_session_n_parameters(const yoke_session *session)
{
    return (int)session->train.graph->n_parameters;
}

static const yoke_value_info *parameter_info(const yoke_session *session, int index)
{
    YOKE_ASSERT(index >= 0 && index < session->train.graph->n_parameters);
    return &session->train.graph->values[session->train.graph->parameters[index]];
}

const char *yoke_session_parameter_name(const yoke_session *session, int index)
{
    return parameter_info(session, index)->name;
}

yoke_shape yoke_session_parameter_shape(const yoke_session *session, int index)
{
    return parameter_info(session, index)->shape;
}

int64_t yoke_session_parameter_count(const yoke_session *session)
{
    int64_t n = 0;
    for (int i = 0; i < yoke_session_n_parameters(session); i++) {
        n += yoke_shape_elements(&parameter_info(session, i)->shape);
    }
    return n;
}

int yoke_session_n_ranks(const yoke_session *session)
{
    return session->n_ranks;
}

yoke_rank_bytes yoke_session_bytes(const yoke_session *session, int rank)
{
    YOKE_ASSERT(rank >= 0 && rank < session->n_ranks);
    return session->bytes[rank];
}

double yoke_session_step_flops(const yoke_session *session)
{
    return yoke_graph_flops(session->train.graph, -1) * (double)session->config.microbatches;
}

const yoke_program_set *yoke_session_programs(const yoke_session *session)
{
    return session->train.set;
}

const yoke_graph *yoke_session_graph(const yoke_session *session)
{
    return session->train.graph;
}
