/*
 * Finds who meets whom. Messages between two ranks match in the order of their starts, and so do
 * the collectives of a group (verify_groups.c); tags, sizes and pieces are then compared, as a
 * transport would have to find them different at run time.
 *
 * Every pair of ranks that pp joins is looked at, but what is compared are the programs of their
 * classes; so pairs of the same two classes are compared once. Where the pieces of two ends begin
 * is not compared: pieces of one tensor on ranks that differ along pp alone are the same.
 */
#include "program/verify.h"

/* --- Channels --------------------------------------------------------------------------------- */

static const yoke_verify_channel *channel(const yoke_verify_matching *m, int rank, int index)
{
    return &m->channels[(int64_t)m->verify->set->class_of[rank] * m->n_channels + index];
}

const yoke_verify_channel *yoke_verify_sends(const yoke_verify_matching *m, int rank, int to_stage)
{
    return channel(m, rank, to_stage);
}

const yoke_verify_channel *yoke_verify_recvs(const yoke_verify_matching *m, int rank,
                                             int from_stage)
{
    return channel(m, rank, m->verify->set->schedule.n_stages + from_stage);
}

const yoke_verify_channel *yoke_verify_collectives(const yoke_verify_matching *m, int rank,
                                                   int grouping)
{
    return channel(m, rank, 2 * m->verify->set->schedule.n_stages + grouping);
}

static int channel_index(const yoke_program_set *set, const yoke_program_transfer *t)
{
    if (t->kind == YOKE_EXCHANGE_SEND) {
        return t->stage;
    }
    return t->kind == YOKE_EXCHANGE_RECV ? set->schedule.n_stages + t->stage
                                         : 2 * set->schedule.n_stages + t->grouping;
}

static yoke_status fail_at(const yoke_verify *verify, yoke_verify_end end, const char *reason)
{
    return yoke_verify_fail(verify, end.rank, yoke_verify_start(verify, end), "%s", reason);
}

yoke_status yoke_verify_fail_pair(const yoke_verify *verify, yoke_verify_end a, yoke_verify_end b,
                                  const char *what)
{
    yoke_verify_text other;
    int64_t start = yoke_verify_start(verify, b);
    return yoke_verify_fail(verify, a.rank, yoke_verify_start(verify, a),
                            "meets rank %d %s, which differs in %s", b.rank,
                            yoke_verify_instruction(verify, b.rank, start, &other), what);
}

/* The groups are those along the axis; along pp, of the stages that have the value. */
static yoke_status check_grouping(const yoke_verify *verify, yoke_verify_end end)
{
    const yoke_program_set *set = verify->set;
    const yoke_program_transfer *t = yoke_verify_transfer(verify, end);
    if (t->grouping < 0 || t->grouping >= set->n_groupings) {
        return fail_at(verify, end, "names a group that is not there");
    }
    const yoke_grouping *its = &set->groupings[t->grouping];
    const yoke_grouping wanted = {
        .axis = t->axis, .stages = t->axis == YOKE_AXIS_PP ? set->stages[t->value] : UINT64_MAX};
    int stage = yoke_mesh_coordinate(&set->mesh, end.rank, YOKE_AXIS_PP);
    if (its->axis == YOKE_AXIS_PP && !(its->stages >> stage & 1u)) {
        return fail_at(verify, end, "is over a group to which its rank does not belong");
    }
    bool equal = its->axis == wanted.axis && its->stages == wanted.stages;
    return equal ? YOKE_OK
                 : yoke_verify_fail(verify, end.rank, yoke_verify_start(verify, end),
                                    "is over a group of %d ranks along %s that is not its group "
                                    "along %s, of %d",
                                    yoke_grouping_size(set, its), yoke_axis_name(its->axis),
                                    yoke_axis_name(t->axis), yoke_grouping_size(set, &wanted));
}

static yoke_status check_partners(const yoke_verify *verify, yoke_verify_end end)
{
    const yoke_program_set *set = verify->set;
    const yoke_program_transfer *t = yoke_verify_transfer(verify, end);
    if (t->kind != YOKE_EXCHANGE_SEND && t->kind != YOKE_EXCHANGE_RECV) {
        return check_grouping(verify, end);
    }
    bool good = t->stage >= 0 && t->stage < set->schedule.n_stages &&
                t->stage != yoke_mesh_coordinate(&set->mesh, end.rank, YOKE_AXIS_PP);
    return good ? YOKE_OK : fail_at(verify, end, "has no other rank as its peer");
}

/* In the order of starts. */
static yoke_status collect(yoke_verify_matching *m, int class_id)
{
    const yoke_program_set *set = m->verify->set;
    const yoke_program *program = &set->classes[class_id];
    for (int64_t i = 0; i < program->n_instructions; i++) {
        const yoke_instruction *at = &program->instructions[i];
        if (!yoke_opcode_get(at->opcode)->starts) {
            continue;
        }
        YOKE_TRY(check_partners(m->verify, (yoke_verify_end){program->rank, at->transfer}));
        int index = channel_index(set, &program->transfers[at->transfer]);
        yoke_verify_channel *c = &m->channels[(int64_t)class_id * m->n_channels + index];
        c->transfer =
            yoke_arena_grow(m->verify->arena, c->transfer, c->n, &c->capacity, sizeof *c->transfer);
        c->transfer[c->n++] = at->transfer;
    }
    return YOKE_OK;
}

/* A transport may count on this: a transfer is started only once the one `depth` before it in its
 * channel has been waited for. */
static yoke_status check_depth(const yoke_verify_matching *m, int class_id)
{
    const yoke_verify *verify = m->verify;
    int rank = verify->set->classes[class_id].rank;
    int depth = verify->set->depth;
    for (int k = 0; k < m->n_channels; k++) {
        const yoke_verify_channel *c = &m->channels[(int64_t)class_id * m->n_channels + k];
        for (int64_t i = depth; i < c->n; i++) {
            int64_t start = verify->classes[class_id].start[c->transfer[i]];
            int before = c->transfer[i - depth];
            if (verify->classes[class_id].wait[before] > start) {
                yoke_verify_text text;
                return yoke_verify_fail(
                    verify, rank, start,
                    "is started before %s has been waited for; the set's depth is %d",
                    yoke_verify_instruction(verify, rank, verify->classes[class_id].start[before],
                                            &text),
                    depth);
            }
        }
    }
    return YOKE_OK;
}

/* --- Meetings --------------------------------------------------------------------------------- */

static int64_t number_of(const yoke_verify_matching *m, yoke_verify_end end)
{
    return m->first_end[m->verify->set->class_of[end.rank]] + end.transfer;
}

static int root_of(yoke_verify_matching *m, int64_t end)
{
    while (m->joined[end] != end) {
        m->joined[end] = m->joined[m->joined[end]];
        end = m->joined[end];
    }
    return (int)end;
}

void yoke_verify_join(yoke_verify_matching *m, yoke_verify_end a, yoke_verify_end b)
{
    int x = root_of(m, number_of(m, a));
    m->joined[root_of(m, number_of(m, b))] = x;
}

/* The ends of each meeting side by side. */
static void fill_meetings(yoke_verify_matching *m)
{
    yoke_verify *verify = m->verify;
    const yoke_program_set *set = verify->set;
    int64_t n_ends = m->first_end[set->n_classes];
    int *meeting_of = YOKE_ARENA_NEW(verify->arena, int, n_ends);
    verify->meetings = YOKE_ARENA_NEW(verify->arena, yoke_verify_meeting, n_ends);
    yoke_verify_end *ends = YOKE_ARENA_NEW(verify->arena, yoke_verify_end, n_ends);
    for (int64_t e = 0; e < n_ends; e++) {
        if (m->joined[e] == e) {
            meeting_of[e] = verify->n_meetings++;
        }
    }
    for (int64_t e = 0; e < n_ends; e++) {
        verify->meetings[meeting_of[root_of(m, e)]].n++;
    }
    for (int i = 0; i < verify->n_meetings; i++) {
        verify->meetings[i].ends = ends;
        ends += verify->meetings[i].n;
        verify->meetings[i].n = 0;
    }
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        for (int t = 0; t < set->classes[class_id].n_transfers; t++) {
            int id = meeting_of[root_of(m, m->first_end[class_id] + t)];
            yoke_verify_meeting *meeting = &verify->meetings[id];
            meeting->ends[meeting->n++] = (yoke_verify_end){set->classes[class_id].rank, t};
            verify->classes[class_id].meeting[t] = id;
        }
    }
}

/* --- Messages --------------------------------------------------------------------------------- */

static yoke_status check_message(const yoke_verify *verify, yoke_verify_end send,
                                 yoke_verify_end recv)
{
    const yoke_program_transfer *s = yoke_verify_transfer(verify, send);
    const yoke_program_transfer *r = yoke_verify_transfer(verify, recv);
    if (s->value != r->value || s->microbatch != r->microbatch) {
        return yoke_verify_fail_pair(verify, recv, send, "tensor");
    }
    if (s->tag != r->tag) {
        return yoke_verify_fail_pair(verify, recv, send, "tag");
    }
    return s->elements == r->elements ? YOKE_OK : yoke_verify_fail_pair(verify, recv, send, "size");
}

/* All that one rank sends to another. */
static yoke_status match_pair(yoke_verify_matching *m, int from, int to)
{
    const yoke_mesh *mesh = &m->verify->set->mesh;
    const yoke_verify_channel *sends =
        yoke_verify_sends(m, from, yoke_mesh_coordinate(mesh, to, YOKE_AXIS_PP));
    const yoke_verify_channel *recvs =
        yoke_verify_recvs(m, to, yoke_mesh_coordinate(mesh, from, YOKE_AXIS_PP));
    for (int64_t i = 0; i < sends->n || i < recvs->n; i++) {
        if (i >= recvs->n) {
            return fail_at(m->verify, (yoke_verify_end){from, sends->transfer[i]},
                           "is never received");
        }
        yoke_verify_end recv = {to, recvs->transfer[i]};
        if (i >= sends->n) {
            return fail_at(m->verify, recv, "is never sent");
        }
        yoke_verify_end send = {from, sends->transfer[i]};
        YOKE_TRY(check_message(m->verify, send, recv));
        yoke_verify_join(m, send, recv);
    }
    return YOKE_OK;
}

/* All that the ranks of a class send to a stage; `matched` [classes] holds a mark for each class of
 * receivers that has been compared. */
static yoke_status match_messages(yoke_verify_matching *m, const yoke_program *program, int stage,
                                  int *matched, int mark)
{
    const yoke_verify *verify = m->verify;
    for (int rank = program->rank; rank >= 0; rank = verify->next_rank[rank]) {
        int peer = yoke_mesh_neighbour(&verify->set->mesh, rank, YOKE_AXIS_PP, stage);
        int *last = &matched[verify->set->class_of[peer]];
        if (peer != rank && *last != mark) {
            *last = mark;
            YOKE_TRY(match_pair(m, rank, peer));
        }
    }
    return YOKE_OK;
}

static yoke_status match_all_messages(yoke_verify_matching *m)
{
    const yoke_program_set *set = m->verify->set;
    int *matched = YOKE_ARENA_NEW(m->verify->arena, int, set->n_classes);
    int mark = 0;
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        for (int stage = 0; stage < set->schedule.n_stages; stage++) {
            YOKE_TRY(match_messages(m, &set->classes[class_id], stage, matched, ++mark));
        }
    }
    return YOKE_OK;
}

/* --- The pass --------------------------------------------------------------------------------- */

static yoke_verify_matching begin(yoke_verify *verify)
{
    const yoke_program_set *set = verify->set;
    yoke_verify_matching m = {.verify = verify,
                              .n_channels = 2 * set->schedule.n_stages + (int)set->n_groupings};
    m.channels =
        YOKE_ARENA_NEW(verify->arena, yoke_verify_channel, (int64_t)set->n_classes * m.n_channels);
    m.first_end = YOKE_ARENA_NEW(verify->arena, int64_t, set->n_classes + 1);
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        m.first_end[class_id + 1] = m.first_end[class_id] + set->classes[class_id].n_transfers;
    }
    m.joined = YOKE_ARENA_NEW(verify->arena, int, m.first_end[set->n_classes]);
    for (int64_t e = 0; e < m.first_end[set->n_classes]; e++) {
        m.joined[e] = (int)e;
    }
    return m;
}

yoke_status yoke_verify_match(yoke_verify *verify)
{
    const yoke_program_set *set = verify->set;
    if (set->depth < 1) {
        return YOKE_FAIL(YOKE_CHECK, "the set's depth is %d; wants at least 1", set->depth);
    }
    yoke_verify_matching m = begin(verify);
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        YOKE_TRY(collect(&m, class_id));
    }
    YOKE_TRY(match_all_messages(&m));
    YOKE_TRY(yoke_verify_groups(&m));
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        YOKE_TRY(check_depth(&m, class_id));
    }
    fill_meetings(&m);
    return YOKE_OK;
}
