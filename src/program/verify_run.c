/*
 * Runs all ranks against each other, with transfers that take no time and no room: nothing is
 * buffered, so a wait ends only when every rank of its transfer has started it. Programs do not
 * branch and a start never blocks; so whichever ranks go first, the same waits end, and one run that
 * comes to its end proves that every run does.
 */
#include "program/verify.h"

#include <stdio.h>

enum { NOT_WAITING = -1 };

typedef struct race {
    yoke_verify *verify;
    int64_t *at;   /* [n_ranks] instruction at hand */
    int *waits_at; /* [n_ranks] meeting that the rank waits for, or NOT_WAITING */
    int *ready;    /* ranks that can go on */
    int n_ready;
} race;

static void arrive(race *r, int meeting)
{
    yoke_verify_meeting *m = &r->verify->meetings[meeting];
    if (++m->n_arrived < m->n) {
        return;
    }
    for (int i = 0; i < m->n; i++) {
        if (r->waits_at[m->ends[i].rank] == meeting) {
            r->waits_at[m->ends[i].rank] = NOT_WAITING;
            r->ready[r->n_ready++] = m->ends[i].rank;
        }
    }
}

/* Until the rank has to wait, or is done. */
static void advance(race *r, int rank)
{
    const yoke_program *program = &r->verify->set->programs[rank];
    for (; r->at[rank] < program->n_instructions; r->at[rank]++) {
        const yoke_instruction *at = &program->instructions[r->at[rank]];
        const yoke_opcode_def *def = yoke_opcode_get(at->opcode);
        if (!def->starts && !def->ends) {
            continue;
        }
        int meeting = r->verify->ranks[rank].meeting[at->transfer];
        const yoke_verify_meeting *m = &r->verify->meetings[meeting];
        if (def->starts) {
            arrive(r, meeting);
        } else if (m->n_arrived < m->n) {
            r->waits_at[rank] = meeting;
            return;
        }
    }
}

/* A rank that keeps `rank` waiting, by not having started the transfer. */
static int find_blocker(const race *r, int rank)
{
    const yoke_verify_meeting *m = &r->verify->meetings[r->waits_at[rank]];
    for (int i = 0; i < m->n; i++) {
        yoke_verify_end end = m->ends[i];
        if (r->verify->ranks[end.rank].start[end.transfer] >= r->at[end.rank]) {
            return end.rank;
        }
    }
    YOKE_ASSERT(false);
    return rank;
}

/* Every rank that is stuck waits for another that is; following them leads round a circle. */
static yoke_status fail_circle(const race *r, int rank)
{
    for (int i = 0; i < r->verify->set->n_ranks; i++) {
        rank = find_blocker(r, rank);
    }
    char circle[1024] = "";
    int used = 0;
    int now = rank;
    do {
        int next = find_blocker(r, now);
        yoke_verify_text text;
        size_t room = sizeof circle - (size_t)used;
        used += snprintf(circle + used, room, "%srank %d in %s waits for rank %d", used ? ", " : "",
                         now, yoke_verify_instruction(r->verify, now, r->at[now], &text), next);
        now = next;
    } while (now != rank && used < (int)sizeof circle);
    return yoke_verify_fail(r->verify, rank, r->at[rank], "can never end: %s", circle);
}

yoke_status yoke_verify_run(yoke_verify *verify)
{
    int n = verify->set->n_ranks;
    race r = {
        .verify = verify,
        .at = YOKE_ARENA_NEW(verify->arena, int64_t, n),
        .waits_at = YOKE_ARENA_NEW(verify->arena, int, n),
        .ready = YOKE_ARENA_NEW(verify->arena, int, n),
    };
    for (int rank = n - 1; rank >= 0; rank--) {
        r.waits_at[rank] = NOT_WAITING;
        r.ready[r.n_ready++] = rank;
    }
    while (r.n_ready > 0) {
        advance(&r, r.ready[--r.n_ready]);
    }
    for (int rank = 0; rank < n; rank++) {
        if (r.waits_at[rank] != NOT_WAITING) {
            return fail_circle(&r, rank);
        }
    }
    return YOKE_OK;
}
