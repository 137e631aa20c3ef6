/* The machine's rate of plain matrix products, on the ranks and threads of a session: the roof over
 * its step. */
#include "run/session.h"

enum { ROOF_SIDE = 768 };

typedef struct roof {
    const yoke_session *session;
    yoke_world *world;
    int n_measuring; /* ranks that measure: as many as the cores can feed at once */
} roof;

static yoke_status measure(yoke_endpoint *endpoint, void *user)
{
    const roof *r = user;
    double *rates = yoke_world_user(r->world);
    if (yoke_endpoint_rank(endpoint) >= r->n_measuring) {
        return YOKE_OK;
    }
    float *matrices = yoke_block_alloc(sizeof(float) * 3 * ROOF_SIDE * ROOF_SIDE);
    if (!matrices) {
        return YOKE_FAIL(YOKE_NO_MEMORY, "no memory to measure the rate of matrix products");
    }
    if (r->session->placement) {
        yoke_placement_bind(r->session->placement, yoke_endpoint_rank(endpoint));
    }
    yoke_kernel_threads_set(r->session->n_threads);
    rates[yoke_endpoint_rank(endpoint)] = yoke_kernel_matmul_rate(ROOF_SIDE, 0.5, matrices);
    yoke_block_free(matrices);
    return YOKE_OK;
}

yoke_status yoke_session_matmul_rate(yoke_session *session, double *flops_per_s)
{
    int room = yoke_session_cores() / session->n_threads;
    roof r = {.session = session, .n_measuring = room > 1 ? room : 1};
    YOKE_TRY(
        yoke_session_world_create(session, sizeof(double) * (size_t)session->n_ranks, &r.world));
    yoke_rank_report *reports = yoke_block_alloc(sizeof *reports * (size_t)session->n_ranks);
    yoke_launch how = {.threads = session->threads, .run = measure, .user = &r};
    yoke_status status = reports
                             ? yoke_world_launch(r.world, &how, reports)
                             : YOKE_FAIL(YOKE_NO_MEMORY, "no memory for the reports of the ranks");
    const double *rates = yoke_world_user(r.world);
    *flops_per_s = 0;
    for (int rank = 0; !status && rank < session->n_ranks; rank++) {
        *flops_per_s += rates[rank];
    }
    yoke_block_free(reports);
    yoke_world_destroy(r.world);
    return status;
}
