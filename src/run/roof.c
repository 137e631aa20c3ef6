/* The machine's rate of plain matrix products, on the ranks and threads of a session: the roof over
 * its step. */
#include "kernel/product.h"
#include "run/session.h"

/* Rates of a rank: products of f32, and of operands in bf16 where the session has such. */
enum { ROOF_SIDE = 768, N_RATES = 2 };

static const double seconds = 0.5;

typedef struct roof {
    const yoke_session *session;
    yoke_world *world;
    int n_measuring; /* ranks that measure: as many as the cores can feed at once */
} roof;

/* Of square matrices: as the session stores operands in bf16 and multiplies them. */
static double narrow_rate(const yoke_session *session)
{
    yoke_product_sample square = {
        .m = ROOF_SIDE, .n = ROOF_SIDE, .k = ROOF_SIDE, .a = YOKE_BF16, .y = YOKE_BF16};
    double taken_s =
        yoke_product_sample_s(&square, session->narrow_kernels[YOKE_OP_MATMUL], seconds);
    return taken_s > 0.0 ? 2.0 * ROOF_SIDE * ROOF_SIDE * ROOF_SIDE / taken_s : 0.0;
}

static yoke_status measure(yoke_endpoint *endpoint, void *user)
{
    const roof *r = user;
    double *rates =
        (double *)yoke_world_user(r->world) + (ptrdiff_t)N_RATES * yoke_endpoint_rank(endpoint);
    if (yoke_endpoint_rank(endpoint) >= r->n_measuring) {
        return YOKE_OK;
    }
    if (r->session->placement) {
        yoke_placement_bind(r->session->placement, yoke_endpoint_rank(endpoint));
    }
    yoke_kernel_threads_set(r->session->n_threads);
    rates[0] = yoke_kernel_matmul_rate(ROOF_SIDE, seconds);
    if (rates[0] == 0.0) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to measure the rate of matrix products");
    }
    if (yoke_session_is_narrow(r->session)) {
        rates[1] = narrow_rate(r->session);
    }
    return YOKE_OK;
}

yoke_status yoke_session_matmul_rate(yoke_session *session, double *flops_per_s)
{
    int room = yoke_session_cores() / session->n_threads;
    roof r = {.session = session, .n_measuring = room > 1 ? room : 1};
    size_t bytes = sizeof(double) * N_RATES * (size_t)session->n_ranks;
    YOKE_TRY(yoke_session_multiply_choose(session));
    YOKE_TRY(yoke_session_world_create(session, bytes, &r.world));
    yoke_rank_report *reports = yoke_block_alloc(sizeof *reports * (size_t)session->n_ranks);
    yoke_launch how = {.threads = session->threads, .run = measure, .user = &r};
    yoke_status status = reports
                             ? yoke_world_launch(r.world, &how, reports)
                             : YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the reports of the ranks");
    const double *rates = yoke_world_user(r.world);
    double sum[N_RATES] = {0.0, 0.0};
    for (int i = 0; !status && i < session->n_ranks * N_RATES; i++) {
        sum[i % N_RATES] += rates[i];
    }
    *flops_per_s = sum[0] > sum[1] ? sum[0] : sum[1];
    yoke_block_free(reports);
    yoke_world_destroy(r.world);
    return status;
}
