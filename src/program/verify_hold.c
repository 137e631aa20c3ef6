/*
 * What the buffers of one rank hold.
 *
 * Every byte of the slab belongs to the buffer that was last written there, so a write takes bytes
 * from whatever lay in them before. A read is good if the buffer was written and still has all its
 * bytes. A started transfer holds on to its buffers until its wait: what it reads must not be
 * written, what it writes must not be touched. Buffers that have bytes stand in one list by offset
 * and never overlap, so an access looks at its neighbours there and nowhere else.
 */
#include "program/verify.h"

#include <string.h>

#define FLOW_FAIL(flow, ...) yoke_verify_fail((flow)->verify, (flow)->rank, (flow)->at, __VA_ARGS__)

static const char *tensor(const yoke_flow *flow, int buffer, yoke_verify_text *text)
{
    return yoke_verify_tensor(flow->verify, flow->rank, buffer, text);
}

static const char *instruction(const yoke_flow *flow, int64_t index, yoke_verify_text *text)
{
    return yoke_verify_instruction(flow->verify, flow->rank, index, text);
}

bool yoke_buffers_overlap(const yoke_buffer *a, const yoke_buffer *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Place of the first holder that ends behind `offset`. */
static int64_t find_place(const yoke_flow *flow, int64_t offset)
{
    int64_t low = 0;
    int64_t high = flow->n_holders;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const yoke_buffer *b = &flow->program->buffers[flow->holders[middle]];
        if (b->offset + b->bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int yoke_flow_holder(const yoke_flow *flow, int buffer)
{
    const yoke_buffer *b = &flow->program->buffers[buffer];
    int64_t place = find_place(flow, b->offset);
    if (place < flow->n_holders &&
        flow->program->buffers[flow->holders[place]].offset <= b->offset) {
        return flow->holders[place];
    }
    return YOKE_NO_BUFFER;
}

/* `victim` is about to lose bytes to `buffer`, which may be itself. */
static yoke_status take_from(yoke_flow *flow, int victim, int buffer)
{
    yoke_hold *hold = &flow->hold[victim];
    yoke_verify_text a;
    yoke_verify_text b;
    yoke_verify_text c;
    if (hold->state == YOKE_HOLD_COMING) {
        return FLOW_FAIL(flow, "writes %s over %s, which is still being received (%s)",
                         tensor(flow, buffer, &a), tensor(flow, victim, &b),
                         instruction(flow, hold->since, &c));
    }
    if (hold->n_senders > 0) {
        return FLOW_FAIL(flow, "writes %s over %s, which is still being sent (%s)",
                         tensor(flow, buffer, &a), tensor(flow, victim, &b),
                         instruction(flow, hold->sender, &c));
    }
    if (victim == buffer) {
        return YOKE_OK;
    }
    if (hold->since == flow->at) {
        return FLOW_FAIL(flow, "writes both %s and %s to the same bytes", tensor(flow, victim, &a),
                         tensor(flow, buffer, &b));
    }
    hold->state = YOKE_HOLD_LOST;
    hold->since = flow->at;
    hold->by = buffer;
    return YOKE_OK;
}

/* From here on the bytes are this buffer's. */
static yoke_status claim(yoke_flow *flow, int buffer, yoke_hold_state state)
{
    const yoke_buffer *b = &flow->program->buffers[buffer];
    if (b->bytes > 0) {
        int64_t first = find_place(flow, b->offset);
        int64_t end = first;
        while (end < flow->n_holders &&
               yoke_buffers_overlap(&flow->program->buffers[flow->holders[end]], b)) {
            YOKE_TRY(take_from(flow, flow->holders[end++], buffer));
        }
        memmove(flow->holders + first + 1, flow->holders + end,
                sizeof *flow->holders * (size_t)(flow->n_holders - end));
        flow->holders[first] = buffer;
        flow->n_holders += 1 - (end - first);
    }
    flow->hold[buffer].state = state;
    flow->hold[buffer].since = flow->at;
    return YOKE_OK;
}

static bool lives_between_steps(const yoke_flow *flow, int buffer)
{
    yoke_buffer_kind kind = flow->program->buffers[buffer].kind;
    return kind == YOKE_BUFFER_PARAMS || kind == YOKE_BUFFER_OPTIMIZER;
}

yoke_status yoke_flow_init(yoke_flow *flow, const yoke_verify *verify, int rank)
{
    const yoke_program *program = yoke_program_of(verify->set, rank);
    *flow = (yoke_flow){
        .verify = verify,
        .program = program,
        .rank = rank,
        .at = YOKE_NOT_YET,
        .hold = YOKE_ARENA_NEW(verify->arena, yoke_hold, program->n_buffers),
        .holders = YOKE_ARENA_NEW(verify->arena, int, program->n_buffers + 1),
    };
    for (int i = 0; i < program->n_buffers; i++) {
        flow->hold[i].updated = flow->hold[i].first_read = YOKE_NOT_YET;
        if (lives_between_steps(flow, i)) {
            YOKE_TRY(claim(flow, i, YOKE_HOLD_VALUE));
        }
    }
    return YOKE_OK;
}

yoke_status yoke_flow_read(yoke_flow *flow, int buffer)
{
    yoke_hold *hold = &flow->hold[buffer];
    yoke_verify_text a;
    yoke_verify_text b;
    yoke_verify_text c;
    hold->first_read = hold->first_read == YOKE_NOT_YET ? flow->at : hold->first_read;
    if (hold->state == YOKE_HOLD_VALUE || flow->program->buffers[buffer].bytes == 0) {
        return YOKE_OK;
    }
    if (hold->state == YOKE_HOLD_NOTHING) {
        return FLOW_FAIL(flow, "reads %s, which was never written", tensor(flow, buffer, &a));
    }
    if (hold->state == YOKE_HOLD_COMING) {
        return FLOW_FAIL(flow, "reads %s, which is still being received (%s)",
                         tensor(flow, buffer, &a), instruction(flow, hold->since, &b));
    }
    return FLOW_FAIL(flow, "reads %s, which was overwritten with %s (%s)", tensor(flow, buffer, &a),
                     tensor(flow, hold->by, &b), instruction(flow, hold->since, &c));
}

/* Parameters and what the optimizer keeps are written by updates and by nothing else. */
yoke_status yoke_flow_write(yoke_flow *flow, int buffer, yoke_hold_state state)
{
    if (lives_between_steps(flow, buffer)) {
        yoke_verify_text a;
        return FLOW_FAIL(flow, "writes %s, which only an update in place may change",
                         tensor(flow, buffer, &a));
    }
    return claim(flow, buffer, state);
}

yoke_status yoke_flow_update(yoke_flow *flow, int buffer)
{
    yoke_hold *hold = &flow->hold[buffer];
    yoke_verify_text a;
    yoke_verify_text b;
    if (hold->updated != YOKE_NOT_YET) {
        return FLOW_FAIL(flow, "updates %s, which this step has updated before (%s)",
                         tensor(flow, buffer, &a), instruction(flow, hold->updated, &b));
    }
    hold->updated = flow->at;
    return claim(flow, buffer, YOKE_HOLD_VALUE);
}
