/*
 * The verifier of programs over all ranks: good programs on many meshes pass; a message or collective
 * that is spoiled is refused in words that name rank, instruction, tensor and reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "program_cases.h"

static void test_good_programs(void **state)
{
    (void)state;
    static const char *const meshes[] = {"",          "dp=2",           "tp=2",      "pp=2",
                                         "dp=3",      "dp=2,tp=2,pp=2", "tp=4",      "pp=3",
                                         "dp=5,tp=3", "pp=7",           "tp=4,pp=5", "dp=7,tp=7"};
    static const char *const schedules[] = {"gpipe", "1f1b"};
    static const int microbatches[] = {1, 3, 6};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes * 12; i++) {
        bool llama = i % 2;
        graph_case c = llama ? llama_case(5) : gpt2_case(5);
        c.tied = i % 8 < 4;
        plan p = {.mesh = meshes[i / 12],
                  .schedule = schedules[i / 2 % 2],
                  .microbatches = microbatches[i / 4 % 3]};
        make(&c, &p);
        assert_good(yoke_program_verify(set), &p);
        unmake();
        p.forward_only = true;
        make(&c, &p);
        assert_good(yoke_program_verify(set), &p);
        unmake();
    }
}

/* --- Messages: pp=2, gpipe, 3 micro-batches; rank 0 sends activations, rank 1 gradients --- */

static blame dropped_last_send(void)
{
    drop_transfer(0, at(0, find(0, YOKE_OPCODE_SEND, -1))->transfer);
    return blame_transfer(1, find(1, YOKE_OPCODE_RECV, -1));
}

static blame dropped_first_send(void)
{
    drop_transfer(0, at(0, find(0, YOKE_OPCODE_SEND, 0))->transfer);
    return blame_transfer(1, find(1, YOKE_OPCODE_RECV, 0));
}

static blame dropped_recv(void)
{
    int64_t recv = find(1, YOKE_OPCODE_RECV, 1);
    int buffer = transfer_at(1, recv)->out;
    const char *tensor = name_of(transfer_at(1, recv)->value);
    drop_transfer(1, at(1, recv)->transfer);
    return (blame){1, find_reader(1, buffer, 0), tensor};
}

static blame unwanted_send(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, -1);
    int64_t wait = find_wait(0, at(0, send)->transfer);
    int again = repeat_transfer(0, send);
    insert_copy(0, wait);
    insert_copy(0, send);
    at(0, send + 1)->transfer = at(0, wait + 2)->transfer = again;
    return blame_transfer(0, send + 1);
}

static blame swapped_sends(void)
{
    int64_t first = find(0, YOKE_OPCODE_SEND, 0);
    move(0, first, find(0, YOKE_OPCODE_SEND, 1));
    return blame_transfer(1, find(1, YOKE_OPCODE_RECV, 0));
}

static blame wrong_size(void)
{
    int64_t recv = find(1, YOKE_OPCODE_RECV, 0);
    transfer_at(1, recv)->elements--;
    return blame_transfer(1, recv);
}

static blame wrong_tag(void)
{
    transfer_at(0, find(0, YOKE_OPCODE_SEND, 1))->tag++;
    return blame_transfer(1, find(1, YOKE_OPCODE_RECV, 1));
}

static blame wrong_peer(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, 0);
    transfer_at(0, send)->stage = 0;
    return blame_transfer(0, send);
}

static blame wrong_direction(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, 0);
    at(0, send)->opcode = YOKE_OPCODE_RECV;
    return blame_transfer(0, send);
}

static blame missing_wait(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, -1);
    drop(0, find_wait(0, at(0, send)->transfer));
    return blame_transfer(0, send);
}

static blame double_wait(void)
{
    int64_t wait = find_wait(1, at(1, find(1, YOKE_OPCODE_RECV, 0))->transfer);
    insert_copy(1, wait);
    return blame_transfer(1, wait + 1);
}

static blame wait_before_start(void)
{
    int64_t recv = find(1, YOKE_OPCODE_RECV, 0);
    move(1, recv, recv + 1);
    return blame_transfer(1, recv);
}

static blame double_start(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, 0);
    insert_copy(0, send);
    return blame_transfer(0, send + 1);
}

static blame never_started(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, -1);
    const char *tensor = name_of(transfer_at(0, send)->value);
    drop(0, find_wait(0, at(0, send)->transfer));
    drop(0, send);
    return (blame){0, -1, tensor};
}

static blame read_while_received(void)
{
    int64_t recv = find(1, YOKE_OPCODE_RECV, 0);
    move(1, recv + 1, recv + 2);
    return (blame){1, recv + 1, name_of(transfer_at(1, recv)->value)};
}

static blame write_while_sent(void)
{
    int64_t send = find(0, YOKE_OPCODE_SEND, -1);
    int64_t next = find(0, YOKE_OPCODE_RECV, 0);
    assert_true(send < next && next < find_wait(0, at(0, send)->transfer));
    const yoke_buffer *sent = &program(0)->buffers[transfer_at(0, send)->in];
    int64_t kernel = find_reader(0, transfer_at(0, next)->out, next);
    yoke_buffer *written = output(0, kernel);
    assert_true(written->kind == sent->kind && written->bytes <= sent->bytes);
    place(0, (int)(written - program(0)->buffers), sent->offset);
    return (blame){0, kernel, name_of(sent->value)};
}

/* Rank 0 sends the last activation only once it has a gradient, for which rank 1 needs that activation. */
static blame circle(void)
{
    move(0, find(0, YOKE_OPCODE_SEND, -1), find(0, YOKE_OPCODE_RECV, 0) + 1);
    return blame_transfer(0, find(0, YOKE_OPCODE_RECV, 0) + 1);
}

static blame too_deep(void)
{
    set->depth = 1;
    return blame_transfer(0, find(0, YOKE_OPCODE_SEND, 1));
}

/* --- Collectives: dp=2,tp=3; ranks 0 to 2 and 3 to 5 are groups along tp, those 3 apart along dp --- */

static int64_t find_over(int rank, yoke_axis axis, int nth)
{
    int64_t index = -1;
    for (int i = -1; nth < 0; i--) {
        index = find(rank, YOKE_OPCODE_COLLECTIVE, i);
        nth += transfer_at(rank, index)->axis == axis;
    }
    return index;
}

static blame swapped_collectives(void)
{
    int64_t before = find(4, YOKE_OPCODE_COLLECTIVE, 0);
    for (int nth = 1; program(4)->instructions[before + 1].opcode != YOKE_OPCODE_COLLECTIVE;
         nth++) {
        before = find(4, YOKE_OPCODE_COLLECTIVE, nth);
    }
    move(4, before + 1, before);
    return blame_transfer(4, before);
}

static blame other_group(void)
{
    int64_t first = find_over(5, YOKE_AXIS_TP, -1);
    transfer_at(5, first)->grouping = transfer_at(5, find_over(5, YOKE_AXIS_DP, -1))->grouping;
    return blame_transfer(5, first);
}

static blame unknown_group(void)
{
    int64_t first = find(5, YOKE_OPCODE_COLLECTIVE, 0);
    transfer_at(5, first)->grouping = (int)set->n_groupings;
    return blame_transfer(5, first);
}

/* All agree on groups that are those of the other axis. */
static blame wrong_axis(void)
{
    for (int rank = 0; rank < set->n_ranks; rank++) {
        for (int64_t i = 0; i < program(rank)->n_transfers; i++) {
            yoke_axis *axis = &program(rank)->transfers[i].axis;
            *axis = *axis == YOKE_AXIS_DP ? YOKE_AXIS_TP : YOKE_AXIS_DP;
        }
    }
    return blame_transfer(0, find(0, YOKE_OPCODE_COLLECTIVE, 0));
}

static blame wrong_reduction(void)
{
    int64_t first = find(5, YOKE_OPCODE_COLLECTIVE, 0);
    yoke_exchange *kind = &transfer_at(5, first)->kind;
    *kind = *kind == YOKE_EXCHANGE_ALL_REDUCE_SUM ? YOKE_EXCHANGE_ALL_REDUCE_MAX
                                                  : YOKE_EXCHANGE_ALL_REDUCE_SUM;
    return blame_transfer(5, first);
}

static blame lonely_collective(void)
{
    int64_t last = find(1, YOKE_OPCODE_COLLECTIVE, -1);
    assert_int_equal(at(1, last + 1)->opcode, YOKE_OPCODE_WAIT);
    int again = repeat_transfer(1, last);
    insert_copy(1, last + 1);
    insert_copy(1, last);
    move(1, last + 1, last + 2);
    at(1, last + 2)->transfer = at(1, last + 3)->transfer = again;
    return blame_transfer(1, last + 2);
}

static blame reduced_elsewhere(void)
{
    int64_t first = find(3, YOKE_OPCODE_COLLECTIVE, 0);
    transfer_at(3, first)->in--;
    return blame_transfer(3, first);
}

/* --- Groups of stages: pp=3 and a tied table, which the first and the last stage have --- */

/* A collective over the two; -1 on the stage between. */
static int64_t find_tied(int rank)
{
    for (int64_t i = 0; i < program(rank)->n_instructions; i++) {
        if (at(rank, i)->opcode == YOKE_OPCODE_COLLECTIVE &&
            set->groupings[transfer_at(rank, i)->grouping].stages == 5) {
            return i;
        }
    }
    return -1;
}

static blame narrowed_group(void)
{
    int64_t first = find_tied(0);
    assert_true(first >= 0 && find_tied(1) < 0);
    for (int64_t g = 0; g < set->n_groupings; g++) {
        set->groupings[g].stages &= set->groupings[g].stages == 5 ? 1u : UINT64_MAX;
    }
    return blame_transfer(0, first);
}

static blame left_group(void)
{
    int64_t tied = find_tied(0);
    assert_true(tied >= 0);
    for (int64_t g = 0; g < set->n_groupings; g++) {
        set->groupings[g].stages &= set->groupings[g].stages == 5 ? 4u : UINT64_MAX;
    }
    return blame_transfer(0, tied);
}

/* --- Pieces: tp=3 and a model whose tensors change the dim on which they are cut --- */

static void make_crossed(const plan *p)
{
    yoke_mesh mesh;
    graph_case c = gpt2_case(0);
    c.feed_forward = 5;
    assert_good(yoke_mesh_parse(p->mesh, &mesh), p);
    assert_good(yoke_graph_create(&graph), p);
    case_letters(graph, &c);
    yoke_value tokens = yoke_input(graph, "tokens", "bt");
    yoke_value labels = yoke_input(graph, "labels", "bt");
    yoke_block(graph, "only");
    yoke_value wte = yoke_weight(graph, "wte", "vd", 1);
    yoke_value x = yoke_embedding(graph, wte, tokens);
    yoke_value y = yoke_matmul(graph, "btd,df->btf", x, yoke_weight(graph, "w1", "df", 1));
    y = yoke_gelu(graph, y);
    yoke_value z = yoke_matmul(graph, "btf,fh->bth", y, yoke_weight(graph, "w2", "fh", 1));
    x = yoke_add(graph, x, yoke_matmul(graph, "bth,hd->btd", z, yoke_weight(graph, "w3", "hd", 1)));
    yoke_cross_entropy(graph, yoke_matmul(graph, "btd,vd->btv", x, wte), labels);
    static const yoke_optimizer optimizer = {.lr = 1, .total_steps = 1};
    assert_good(yoke_graph_differentiate(graph), p);
    assert_good(yoke_graph_optimize(graph, &optimizer), p);
    yoke_policies policies = case_policies();
    assert_good(yoke_layout_infer(graph, &mesh, &policies), p);
    make_program(p);
}

static int64_t find_redistribution(int rank, yoke_exchange kind)
{
    int64_t index = -1;
    for (int i = 0; index < 0 || transfer_at(rank, index)->kind != kind; i++) {
        index = find(rank, YOKE_OPCODE_COLLECTIVE, i);
    }
    return index;
}

/* Another tensor of the micro-batch that is there: what the gather before made. */
static blame wrong_source(void)
{
    int64_t gather = find_redistribution(1, YOKE_EXCHANGE_COPY);
    int64_t scatter = find_redistribution(1, YOKE_EXCHANGE_SUM);
    transfer_at(1, gather)->in = transfer_at(1, scatter)->in;
    return blame_transfer(1, gather);
}

static blame wrong_microbatch(void)
{
    int64_t gather = find_redistribution(1, YOKE_EXCHANGE_COPY);
    yoke_value source = program(1)->buffers[transfer_at(1, gather)->in].value;
    transfer_at(1, gather)->in = yoke_program_find(program(1), source, 1);
    assert_int_not_equal(transfer_at(1, gather)->in, YOKE_NO_BUFFER);
    return blame_transfer(1, gather);
}

static blame wrong_conversion(void)
{
    int64_t gather = find_redistribution(1, YOKE_EXCHANGE_COPY);
    yoke_conversion *conversion = &transfer_at(1, gather)->conversion;
    *conversion =
        *conversion == YOKE_CONVERT_ALL_GATHER ? YOKE_CONVERT_ALL_TO_ALL : YOKE_CONVERT_ALL_GATHER;
    return blame_transfer(1, gather);
}

static blame wrong_wish(void)
{
    int64_t scatter = find_redistribution(1, YOKE_EXCHANGE_SUM);
    output(1, scatter)->shape.extent[2]--;
    return blame_transfer(1, scatter);
}

/* One redistribution done as if it were the other kind, by all members alike. */
static blame change_kind(yoke_exchange from, yoke_exchange to)
{
    int64_t index = 0;
    for (int rank = 2; rank >= 0; rank--) {
        index = find_redistribution(rank, from);
        transfer_at(rank, index)->kind = to;
    }
    return blame_transfer(0, index);
}

static blame copied_partial_sums(void)
{
    return change_kind(YOKE_EXCHANGE_SUM, YOKE_EXCHANGE_COPY);
}

static blame summed_pieces(void)
{
    return change_kind(YOKE_EXCHANGE_COPY, YOKE_EXCHANGE_SUM);
}

/* --- The tables --------------------------------------------------------------------------------------- */

static void test_spoiled_messages(void **state)
{
    (void)state;
    static const plan p = {.mesh = "pp=2", .schedule = "gpipe", .microbatches = 3};
    static const mutation table[] = {
        {"dropped last send", &p, dropped_last_send, "is never sent"},
        {"dropped first send", &p, dropped_first_send, "which differs in tensor"},
        {"dropped recv", &p, dropped_recv, "which was never written"},
        {"unwanted send", &p, unwanted_send, "is never received"},
        {"swapped sends", &p, swapped_sends, "which differs in tensor"},
        {"wrong size", &p, wrong_size, "elements of"},
        {"wrong tag", &p, wrong_tag, "which differs in tag"},
        {"wrong peer", &p, wrong_peer, "has no other rank as its peer"},
        {"wrong direction", &p, wrong_direction, "starts a transfer of another kind"},
        {"missing wait", &p, missing_wait, "is never waited for"},
        {"double wait", &p, double_wait, "is waited for a second time"},
        {"wait before start", &p, wait_before_start, "waits for what has not been started"},
        {"double start", &p, double_start, "is started a second time"},
        {"never started", &p, never_started, "is never started"},
        {"read while received", &p, read_while_received, "which is still being received (#"},
        {"write while sent", &p, write_while_sent, "which is still being sent (#"},
        {"circle", &p, circle, "waits for rank 1, rank 1 in #"},
        {"too deep", &p, too_deep, "the set's depth is 1"},
    };
    graph_case c = gpt2_case(2);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make(&c, &p);
        assert_refused(&table[i]);
    }
}

static void test_message_to_the_wrong_stage(void **state)
{
    (void)state;
    static const plan p = {.mesh = "pp=3", .schedule = "1f1b", .microbatches = 3};
    graph_case c = llama_case(5);
    make(&c, &p);
    int64_t send = find(0, YOKE_OPCODE_SEND, 0);
    transfer_at(0, send)->stage = 2;
    yoke_status status = yoke_program_verify(set);
    assert_non_null(status);
    assert_non_null(strstr(yoke_status_message(status), "rank 1 #"));
    assert_non_null(strstr(yoke_status_message(status), "which differs in tensor"));
    yoke_status_free(status);
    unmake();
}

static void test_spoiled_collectives(void **state)
{
    (void)state;
    static const plan p = {.mesh = "dp=2,tp=3", .schedule = "1f1b", .microbatches = 2};
    static const mutation table[] = {
        {"swapped collectives", &p, swapped_collectives, "which differs in tensor"},
        {"other group", &p, other_group, "that is not its group along tp, of 3"},
        {"unknown group", &p, unknown_group, "names a group that is not there"},
        {"wrong axis", &p, wrong_axis, "that is not its group along tp, of 3"},
        {"wrong reduction", &p, wrong_reduction, "which differs in kind"},
        {"lonely collective", &p, lonely_collective, "of its group takes no part"},
        {"reduced elsewhere", &p, reduced_elsewhere, "works in place, but reads"},
    };
    graph_case c = gpt2_case(1);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make(&c, &p);
        assert_refused(&table[i]);
    }
}

static void test_spoiled_groups_of_stages(void **state)
{
    (void)state;
    static const plan p = {.mesh = "pp=3", .schedule = "1f1b", .microbatches = 2};
    static const mutation table[] = {
        {"narrowed group", &p, narrowed_group,
         "of 1 ranks along pp that is not its group along pp"},
        {"left group", &p, left_group, "to which its rank does not belong"},
    };
    graph_case c = gpt2_case(3);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make(&c, &p);
        assert_refused(&table[i]);
    }
}

static void test_spoiled_pieces(void **state)
{
    (void)state;
    static const plan p = {.mesh = "tp=3", .schedule = "gpipe", .microbatches = 2};
    static const mutation table[] = {
        {"wrong source", &p, wrong_source, "which it is not made of"},
        {"wrong micro-batch", &p, wrong_microbatch, "which it is not made of"},
        {"wrong conversion", &p, wrong_conversion, "which it is not made of"},
        {"wrong wish", &p, wrong_wish, "is not the piece that its layout says"},
        {"copied partial sums", &p, copied_partial_sums, "overlap or leave a gap"},
        {"summed pieces", &p, summed_pieces, "wants elements that no member has"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        make_crossed(&p);
        assert_refused(&table[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_programs),
        cmocka_unit_test(test_spoiled_messages),
        cmocka_unit_test(test_message_to_the_wrong_stage),
        cmocka_unit_test(test_spoiled_collectives),
        cmocka_unit_test(test_spoiled_groups_of_stages),
        cmocka_unit_test(test_spoiled_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
