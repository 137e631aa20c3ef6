/*
 * What a rank receives from other stages, and when.
 *
 * Messages between two ranks match in the order of their starts, and that order is the sender's: it
 * sends a value as soon as it is made. So the receiver starts them in the sender's order, each at
 * the latest when it is read, and waits for each only then: a schedule may read them in another
 * order.
 */
#include "program/lower.h"

static bool is_received(const yoke_lowering *low, yoke_value value)
{
    const yoke_value_info *info = &low->graph->values[value];
    return info->kind == YOKE_VALUE_ACTIVATION &&
           !yoke_lowering_runs_here(low, &low->graph->nodes[info->producer]);
}

/* --- What will come --------------------------------------------------------------------------- */

static void expect(yoke_lowering *low, yoke_inbox *inbox, const yoke_action *action)
{
    yoke_node_list list =
        yoke_lowering_nodes(low, &low->outgoing, yoke_action_region(action), action->chunk);
    for (int i = 0; i < list.n; i++) {
        const yoke_node *node = &low->graph->nodes[list.node[i]];
        for (int k = 0; yoke_lowering_in_action(low, action, node) && k < node->n_out; k++) {
            if (low->readers[node->out[k]] >> low->stage & 1) {
                inbox->letters = yoke_arena_grow(low->set->arena, inbox->letters, inbox->n,
                                                 &inbox->capacity, sizeof *inbox->letters);
                inbox->letters[inbox->n++] = (yoke_expected){node->out[k], action->microbatch};
            }
        }
    }
}

void yoke_inbox_fill(yoke_lowering *low)
{
    int n_stages = low->set->schedule.n_stages;
    low->inboxes = YOKE_ARENA_NEW(low->set->arena, yoke_inbox, n_stages);
    low->n_arriving = 0;
    for (int stage = 0; stage < n_stages; stage++) {
        const yoke_stage_actions *actions = &low->set->schedule.stage[stage];
        for (int i = 0; stage != low->stage && i < actions->n; i++) {
            expect(low, &low->inboxes[stage], &actions->action[i]);
        }
    }
}

/* --- Receiving -------------------------------------------------------------------------------- */

/* Starts what a stage sends up to this value. */
static void start_up_to(yoke_lowering *low, yoke_value value, int microbatch)
{
    int block = low->graph->nodes[low->graph->values[value].producer].block;
    yoke_inbox *inbox =
        &low->inboxes[low->set->schedule.stage_of_chunk[low->chunk_of_block[block]]];
    while (*yoke_lowering_slot(low, value, microbatch) == YOKE_NO_BUFFER) {
        YOKE_ASSERT(inbox->next < inbox->n);
        const yoke_expected *letter = &inbox->letters[inbox->next++];
        int transfer = yoke_lowering_receive(low, letter->value, letter->microbatch);
        low->arriving = yoke_arena_grow(low->set->arena, low->arriving, low->n_arriving,
                                        &low->arriving_capacity, sizeof *low->arriving);
        low->arriving[low->n_arriving++] = transfer;
    }
}

/* Waits for what the action reads, in the order of starts; the rest goes on arriving. */
static void wait_for_wanted(yoke_lowering *low, int microbatch)
{
    int64_t n = 0;
    for (int64_t i = 0; i < low->n_arriving; i++) {
        const yoke_program_transfer *t = &low->program->transfers[low->arriving[i]];
        if (low->wanted[t->value] && t->microbatch == microbatch) {
            yoke_lowering_wait(low, low->arriving[i]);
        } else {
            low->arriving[n++] = low->arriving[i];
        }
    }
    low->n_arriving = n;
}

void yoke_inbox_receive(yoke_lowering *low, const yoke_action *action)
{
    yoke_node_list list =
        yoke_lowering_nodes(low, &low->all, yoke_action_region(action), action->chunk);
    for (int i = 0; i < list.n; i++) {
        const yoke_node *node = &low->graph->nodes[list.node[i]];
        for (int k = 0; yoke_lowering_in_action(low, action, node) && k < node->n_in; k++) {
            if (yoke_node_reads(node, k) && is_received(low, node->in[k])) {
                low->wanted[node->in[k]] = true;
                start_up_to(low, node->in[k], action->microbatch);
            }
        }
    }
    wait_for_wanted(low, action->microbatch);
    for (int i = 0; i < list.n; i++) {
        const yoke_node *node = &low->graph->nodes[list.node[i]];
        for (int k = 0; k < node->n_in; k++) {
            low->wanted[node->in[k]] = false;
        }
    }
}
