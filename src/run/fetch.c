/* Whole tensors, put together from the pieces in the ranks' slabs, and taken apart into them. */
#include <math.h>
#include <string.h>
#include "run/session.h"

/* Called for every run of elements that lie side by side both in a piece and in the whole. */
typedef void (*run_visitor)(void *user, int64_t whole, int64_t piece, int64_t n);

static void visit_runs(const yoke_shape *shape, const yoke_shard *shard, run_visitor visit,
                       void *user)
{
    int64_t elements = yoke_shard_elements(shard);
    int last = shape->n_dims - 1;
    int64_t width = last >= 0 ? shard->extent[last] : 1;
    for (int64_t piece = 0; piece < elements; piece += width) {
        int64_t row = last >= 0 ? piece / width : 0;
        int64_t whole = last >= 0 ? shard->offset[last] : 0,
                stride = last >= 0 ? shape->extent[last] : 1;
        for (int d = last - 1; d >= 0; d--) {
            whole += stride * (shard->offset[d] + row % shard->extent[d]);
            row /= shard->extent[d];
            stride *= shape->extent[d];
        }
        visit(user, whole, piece, width);
    }
}

typedef struct joining {
    float *whole;
    float *piece;
    bool compare, differs;
} joining;

static void join_run(void *user, int64_t whole, int64_t piece, int64_t n)
{
    joining *j = user;
    size_t bytes = sizeof(float) * (size_t)n;
    if (!j->compare) {
        memcpy(j->whole + whole, j->piece + piece, bytes);
    } else if (memcmp(j->whole + whole, j->piece + piece, bytes) != 0) {
        j->differs = true;
    }
}

static void cut_run(void *user, int64_t whole, int64_t piece, int64_t n)
{
    const joining *j = user;
    memcpy(j->piece + piece, j->whole + whole, sizeof(float) * (size_t)n);
}

static float *piece_of(const yoke_session *session, int rank, const yoke_buffer *buffer)
{
    return (float *)(void *)(session->slabs[rank] + buffer->offset);
}

/* The stage that gives a tensor to the whole; replicas on others are compared with it. */
static int first_stage(const yoke_session *session, yoke_value value)
{
    uint64_t stages = session->train.set->stages[value];
    int stage = 0;
    while (!(stages >> stage & 1)) {
        stage++;
    }
    return stage;
}

static bool is_first_holder(const yoke_session *session, yoke_value value, int rank)
{
    if (yoke_mesh_coordinate(&session->mesh, rank, YOKE_AXIS_PP) != first_stage(session, value)) {
        return false;
    }
    yoke_layout layout = session->train.graph->values[value].layout;
    int alike = yoke_mesh_neighbour(&session->mesh, rank, YOKE_AXIS_PP, 0);
    return yoke_layout_is_first_holder(&session->mesh, layout, alike);
}

static yoke_status join(const yoke_session *session, yoke_value value, bool compare, float *out)
{
    const yoke_value_info *info = &session->train.graph->values[value];
    for (int r = 0; r < session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(session->train.set, r);
        int id = yoke_program_find(program, value, YOKE_ONCE_A_STEP);
        if (id == YOKE_NO_BUFFER || is_first_holder(session, value, r) == compare) {
            continue;
        }
        joining j = {
            .whole = out, .piece = piece_of(session, r, &program->buffers[id]), .compare = compare};
        yoke_shard shard = yoke_program_shard(session->train.set, r, value);
        visit_runs(&info->shape, &shard, join_run, &j);
        if (j.differs) {
            return YOKE_FAIL(YOKE_CHECK, "%s: rank %d holds other bits than its first replica",
                             info->name, r);
        }
    }
    return YOKE_OK;
}

yoke_status yoke_session_fetch(yoke_session *session, yoke_fetch what, int index, float *out)
{
    YOKE_ASSERT(session->slabs && index >= 0 && index < yoke_session_n_parameters(session));
    const yoke_graph *graph = session->train.graph;
    yoke_value value =
        what == YOKE_FETCH_WEIGHT ? graph->parameters[index] : graph->gradients[index];
    if (value == YOKE_NO_VALUE) { /* the gradient of a frozen parameter */
        yoke_shape shape = yoke_session_parameter_shape(session, index);
        memset(out, 0, sizeof(float) * (size_t)yoke_shape_elements(&shape));
        return YOKE_OK;
    }
    YOKE_TRY(join(session, value, false, out));
    return join(session, value, true, out);
}

static yoke_status ensure_initialised(yoke_session *session)
{
    YOKE_TRY(yoke_session_allocate(session));
    for (int r = 0; !session->initialised && r < session->n_ranks; r++) {
        yoke_session_initialise(session, r);
    }
    session->initialised = true;
    return YOKE_OK;
}

yoke_status yoke_session_load(yoke_session *session, int index, const float *in)
{
    YOKE_ASSERT(index >= 0 && index < yoke_session_n_parameters(session));
    YOKE_TRY(ensure_initialised(session));
    yoke_value value = session->train.graph->parameters[index];
    const yoke_value_info *info = &session->train.graph->values[value];
    int64_t n = yoke_shape_elements(&info->shape);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(in[i])) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%s: element %lld is not finite", info->name,
                             (long long)i);
        }
    }
    for (int r = 0; r < session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(session->train.set, r);
        int id = yoke_program_find(program, value, YOKE_ONCE_A_STEP);
        if (id != YOKE_NO_BUFFER) {
            /* The pieces are only read from `whole`; the struct serves both directions. */
            joining j = {.piece = piece_of(session, r, &program->buffers[id])};
            memcpy(&j.whole, &in, sizeof in);
            yoke_shard shard = yoke_program_shard(session->train.set, r, value);
            visit_runs(&info->shape, &shard, cut_run, &j);
        }
    }
    return YOKE_OK;
}

/* --- Logits ----------------------------------------------------------------------------------- */

typedef struct asking {
    yoke_session *session;
    const int32_t *tokens;
} asking;

static bool load_tokens(void *user, const char *name, int64_t step, int microbatch,
                        const yoke_shard *shard, int32_t *out)
{
    const asking *a = user;
    (void)step;
    bool tokens = strcmp(name, "tokens") == 0, types = strcmp(name, "token_types") == 0;
    int64_t first = microbatch * (a->session->config.batch_size / a->session->config.microbatches);
    for (int64_t b = 0; b < shard->extent[0]; b++) {
        for (int64_t t = 0; t < shard->extent[1]; t++) {
            int64_t row = first + shard->offset[0] + b, column = shard->offset[1] + t;
            int32_t place = types ? 0 : (int32_t)column;
            out[b * shard->extent[1] + t] =
                tokens ? a->tokens[row * a->session->config.seq_len + column] : place;
        }
    }
    return tokens || types || strcmp(name, "positions") == 0;
}

static yoke_status ask_rank(yoke_endpoint *endpoint, void *user)
{
    asking *a = user;
    yoke_arena *arena;
    YOKE_TRY(yoke_arena_create(&arena, 0));
    yoke_kernel_threads_set(a->session->n_threads);
    yoke_executor_request request =
        yoke_session_executor_request(a->session, &a->session->logits, endpoint);
    request.load = load_tokens;
    request.load_user = a;
    yoke_status status = yoke_executor_step(yoke_executor_create(arena, &request), 0);
    yoke_arena_destroy(arena);
    return status;
}

static void join_logits(const yoke_session *session, float *out)
{
    const yoke_graph *graph = session->logits.graph;
    const yoke_value_info *info = &graph->values[graph->logits];
    int64_t elements = yoke_shape_elements(&info->shape);
    for (int r = 0; r < session->n_ranks; r++) {
        const yoke_program *program = yoke_program_of(session->logits.set, r);
        for (int m = 0; m < session->config.microbatches; m++) {
            int id = yoke_program_find(program, graph->logits, m);
            if (id != YOKE_NO_BUFFER) {
                joining j = {.whole = out + m * elements,
                             .piece = piece_of(session, r, &program->buffers[id])};
                yoke_shard shard = yoke_program_shard(session->logits.set, r, graph->logits);
                visit_runs(&info->shape, &shard, join_run, &j);
            }
        }
    }
}

static yoke_status prepare_logits(yoke_session *session)
{
    if (!session->logits.set) {
        YOKE_TRY(yoke_session_plan_create(session, YOKE_USE_LOGITS, &session->logits));
    }
    for (int r = 0; r < session->n_ranks; r++) {
        size_t bytes = (size_t)yoke_program_of(session->logits.set, r)->slab_bytes;
        YOKE_TRY(yoke_session_enlarge(session, r, bytes));
    }
    return ensure_initialised(session);
}

yoke_status yoke_session_logits(yoke_session *session, const int32_t *tokens, float *logits)
{
    YOKE_TRY(prepare_logits(session));
    yoke_world *world;
    YOKE_TRY(yoke_session_world_create(session, 0, &world));
    asking a = {.session = session, .tokens = tokens};
    yoke_rank_report *reports = yoke_block_alloc(sizeof *reports * (size_t)session->n_ranks);
    yoke_status status = YOKE_OK;
    if (!reports) {
        status =
            YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the reports of %d ranks", session->n_ranks);
    } else {
        /* Threads: what a kernel library prepares at its first call then serves the next token
         * too. */
        yoke_launch how = {.threads = true, .run = ask_rank, .user = &a};
        status = yoke_world_launch(world, &how, reports);
    }
    if (!status) {
        join_logits(session, logits);
    }
    yoke_block_free(reports);
    yoke_world_destroy(world);
    return status;
}
