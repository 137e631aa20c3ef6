/*
 * One rank's life, and how a job ends early: the first cause is written once, and everybody who
 * waits is told.
 */
#ifndef YOKE_TRANSPORT_RANK_H
#define YOKE_TRANSPORT_RANK_H

#include "transport/world.h"

/* Sleepers look up this often, to see an abort whose wake they missed and to tell whom they wait
 * for. */
#define YOKE_NAP_S 0.1

/* Ends the job; of several causes the first counts. */
void yoke_job_abort(yoke_world *world, const yoke_cause *cause);
bool yoke_job_is_aborted(const yoke_world *world);

/* A sign of life. */
void yoke_endpoint_beat(yoke_endpoint *endpoint);

/* The error of a rank that ends because the job is aborted while it waits for rank `waits_for` (-1:
 * for none). */
yoke_status yoke_endpoint_lost(yoke_endpoint *endpoint, int waits_for) YOKE_MUST_USE;

/* Writes where a rank is: "in #41 matmul h.1.ffn", or "before its first instruction". */
const char *yoke_place_print(const yoke_launch *launch, int rank, int64_t instruction, char *buffer,
                             size_t buffer_bytes);

/* Runs the rank to its end and writes its report. On the rank's own process or thread. */
void yoke_rank_run(yoke_endpoint *endpoint);

#endif
