/*
 * Runs all ranks against each other, with transfers that take no time and no room: nothing is
 * buffered, so a wait ends only when every rank of its transfer has started it. Programs do not
 * branch and a start never blocks; so whichever ranks go first, the same waits end, and one run
 * that comes to its end proves that every run does.
 *
 * What runs here is one rank of each class, and a meeting is everything to which one of its ends is
 * an end for any rank of that class: a wait ends only when all classes in it have started theirs.
 * That is a proof for all ranks. Take a run of the classes that comes to its end, and note the
 * moment of each instruction. Let every rank of the mesh execute its instructions at the moments of
 * its class. They are in the order of its program; and where it waits, every other end of that
 * transfer is of a class in the meeting, which had started it by that moment, so the rank at that
 * end has started it too. So this is a run of all ranks, and it comes to its end.
 */
#include "program/verify.h"

#include <stdio.h>

enum { NOT_WAITING = -1 };

typedef struct race {
    yoke_verify *verify;
    int64_t *at;   /* [classes] instruction at hand */
    int *waits_at; /* [classes] meeting that the class waits for, or NOT_WAITING */
    int *ready;    /* classes that can go on */
    int n_ready;
} race;

static int class_of(const race *r, yoke_verify_end end)
{
    return r->verify->set->class_of[end.rank];
}

static void arrive(race *r, int meeting)
{
    yoke_verify_meeting *m = &r->verify->meetings[meeting];
    if (++m->n_arrived < m->n) {
        return;
    }
    for (int i = 0; i < m->n; i++) {
        int class_id = class_of(r, m->ends[i]);
        if (r->waits_at[class_id] == meeting) {
            r->waits_at[class_id] = NOT_WAITING;
            r->ready[r->n_ready++] = class_id;
        }
    }
}

/* Until the class has to wait, or is done. */
static void advance(race *r, int class_id)
{
    const yoke_program *program = &r->verify->set->classes[class_id];
    for (; r->at[class_id] < program->n_instructions; r->at[class_id]++) {
        const yoke_instruction *at = &program->instructions[r->at[class_id]];
        const yoke_opcode_def *def = yoke_opcode_get(at->opcode);
        if (!def->starts && !def->ends) {
            continue;
        }
        int meeting = r->verify->classes[class_id].meeting[at->transfer];
        const yoke_verify_meeting *m = &r->verify->meetings[meeting];
        if (def->starts) {
            arrive(r, meeting);
        } else if (m->n_arrived < m->n) {
            r->waits_at[class_id] = meeting;
            return;
        }
    }
}

/* A class that keeps another waiting, by not having started the transfer. */
static int find_blocker(const race *r, int waiting)
{
    const yoke_verify_meeting *m = &r->verify->meetings[r->waits_at[waiting]];
    for (int i = 0; i < m->n; i++) {
        int class_id = class_of(r, m->ends[i]);
        if (yoke_verify_start(r->verify, m->ends[i]) >= r->at[class_id]) {
            return class_id;
        }
    }
    YOKE_ASSERT(false);
    return waiting;
}

/* Every class that is stuck waits for another that is; following them leads round a circle. */
static yoke_status fail_circle(const race *r, int class_id)
{
    const yoke_program *programs = r->verify->set->classes;
    for (int i = 0; i < r->verify->set->n_classes; i++) {
        class_id = find_blocker(r, class_id);
    }
    char circle[1024] = "";
    int used = 0;
    int now = class_id;
    do {
        int next = find_blocker(r, now), rank = programs[now].rank;
        yoke_verify_text text;
        size_t room = sizeof circle - (size_t)used;
        used += snprintf(circle + used, room, "%srank %d in %s waits for rank %d", used ? ", " : "",
                         rank, yoke_verify_instruction(r->verify, rank, r->at[now], &text),
                         programs[next].rank);
        now = next;
    } while (now != class_id && used < (int)sizeof circle);
    return yoke_verify_fail(r->verify, programs[class_id].rank, r->at[class_id],
                            "can never end: %s", circle);
}

yoke_status yoke_verify_run(yoke_verify *verify)
{
    int n = verify->set->n_classes;
    race r = {
        .verify = verify,
        .at = YOKE_ARENA_NEW(verify->arena, int64_t, n),
        .waits_at = YOKE_ARENA_NEW(verify->arena, int, n),
        .ready = YOKE_ARENA_NEW(verify->arena, int, n),
    };
    for (int class_id = n - 1; class_id >= 0; class_id--) {
        r.waits_at[class_id] = NOT_WAITING;
        r.ready[r.n_ready++] = class_id;
    }
    while (r.n_ready > 0) {
        advance(&r, r.ready[--r.n_ready]);
    }
    for (int class_id = 0; class_id < n; class_id++) {
        if (r.waits_at[class_id] != NOT_WAITING) {
            return fail_circle(&r, class_id);
        }
    }
    return YOKE_OK;
}
