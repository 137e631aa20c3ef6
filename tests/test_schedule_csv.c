/*
 * Schedules from CSV files: what is printed comes back as it was, files as other programs write
 * them are read, and broken ones are refused by row and column.
 */
#include "schedule_case.h"

#include <math.h>
#include <unistd.h>

static char folder[] = "schedule-XXXXXX";
static char path[sizeof folder + sizeof "/own.csv"];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/own.csv", folder);
    return set_up(state);
}

static int remove_folder(void **state)
{
    return unlink(path) || rmdir(folder) ? -1 : tear_down(state);
}

static void write_bytes(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static yoke_status read_back(const char *text, int p, int m, yoke_schedule *schedule)
{
    write_bytes(text, strlen(text));
    yoke_schedule_request request = {.n_stages = p, .n_microbatches = m, .file = path};
    return yoke_schedule_build(find(path), &request, arena, schedule);
}

static yoke_schedule good(const char *text, int p, int m)
{
    yoke_schedule schedule;
    yoke_status status = read_back(text, p, m, &schedule);
    if (status) {
        fail_msg("%s\n%s", yoke_status_message(status), text);
    }
    return schedule;
}

/* `says` follows "schedule <path>" in the message. */
static void refuse(const char *text, int p, int m, const char *says)
{
    char whole[800];
    yoke_schedule schedule;
    snprintf(whole, sizeof whole, "schedule %s%s", path, says);
    assert_fails(read_back(text, p, m, &schedule), YOKE_BAD_INPUT, whole);
}

static void assert_same(const yoke_schedule *a, const yoke_schedule *b)
{
    assert_int_equal(a->n_stages, b->n_stages);
    assert_int_equal(a->n_chunks, b->n_chunks);
    assert_int_equal(a->n_microbatches, b->n_microbatches);
    for (int c = 0; c < a->n_chunks; c++) {
        assert_int_equal(a->stage_of_chunk[c], b->stage_of_chunk[c]);
    }
    for (int s = 0; s < a->n_stages; s++) {
        assert_int_equal(a->stage[s].n, b->stage[s].n);
        for (int i = 0; i < a->stage[s].n; i++) {
            yoke_action x = a->stage[s].action[i];
            yoke_action y = b->stage[s].action[i];
            assert_true(x.kind == y.kind && x.chunk == y.chunk && x.microbatch == y.microbatch);
        }
    }
}

static void test_every_schedule_comes_back(void **state)
{
    (void)state;
    static const int p[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < yoke_schedule_count(); i++) {
        for (size_t k = 0; k < sizeof p / sizeof p[0]; k++) {
            yoke_schedule made = make(yoke_schedule_get(i), p[k], 2 * p[k], false);
            char *text = strdup(written(yoke_schedule_print, &made));
            assert_non_null(text);
            yoke_schedule came = good(text, p[k], 2 * p[k]);
            assert_same(&made, &came);
            assert_string_equal(written(yoke_schedule_print, &came), text);
            assert_string_equal(came.name, path);
            free(text);
        }
    }
}

/* As Python's csv module writes it: "\r\n" at the ends of lines, and empty cells where it idles. */
static void test_idle_cells_and_line_ends(void **state)
{
    (void)state;
    yoke_schedule schedule = good("0F0,0F1,,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1,,\r\n", 2, 2);
    assert_string_equal(written(yoke_schedule_print, &schedule), "0F0,0F1,0B0,0B1\n"
                                                                 "1F0,1B0,1F1,1B1\n");
    schedule = good(" 0F0 ,\t0I0, 00W00\n\n \n", 1, 1);
    assert_string_equal(written(yoke_schedule_print, &schedule), "0F0,0I0,0W0\n");
    schedule = good("0F0,1F0,1B0,0B0", 1, 1);
    assert_int_equal(schedule.n_chunks, 2);
    assert_true(yoke_schedule_bubble(&schedule, 1, 2) == 0);
}

/* Stages may have different numbers of chunks, and both forms of backward may be mixed. */
static void test_uneven_and_mixed(void **state)
{
    (void)state;
    yoke_schedule schedule = good("0F0,2F0,2B0,0I0,0W0\n1F0,1B0\n", 2, 1);
    static const int stage[] = {0, 1, 0};
    assert_int_equal(schedule.n_chunks, 3);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(schedule.stage_of_chunk[c], stage[c]);
    }
}

static void test_forward_only_takes_the_forwards(void **state)
{
    (void)state;
    yoke_schedule schedule;
    write_bytes("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 32);
    yoke_schedule_request request = {
        .n_stages = 2, .n_microbatches = 2, .file = path, .forward_only = true};
    assert_null(yoke_schedule_build(find(path), &request, arena, &schedule));
    assert_true(schedule.forward_only);
    assert_string_equal(written(yoke_schedule_print, &schedule), "0F0,0F1\n1F0,1F1\n");
}

static void test_malformed_cells(void **state)
{
    (void)state;
    static const char *const cells[] = {"F0",      "0F",      "0X0",  "0f0",         "0F0x",
                                        "-1F0",    "0F-1",    "0 F0", "0F123456789", "2SEND_F0",
                                        "\"0F0\"", "0F0;0B0", "None"};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        char text[80];
        char says[300];
        snprintf(text, sizeof text, "0F0,0B0\n1F0,,%s\n", cells[i]);
        snprintf(says, sizeof says,
                 ": row 2, column 3 is '%s'; a cell is empty, or chunk, action (F, B, I or W) and "
                 "micro-batch, such as 2F0",
                 cells[i]);
        refuse(text, 2, 1, says);
    }
    refuse("0F0,a long cell that goes on and on and on\n", 1, 1,
           ": row 1, column 2 is 'a long cell that goes on'; a cell is empty, or chunk, action (F, "
           "B, I or W) and micro-batch, such as 2F0");
    refuse("0F0,\xc3\xa4\x01\n", 1, 1,
           ": row 1, column 2 is '??"
           "?'; a cell is empty, or chunk, action (F, B, I or W) and "
           "micro-batch, such as 2F0");
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    refuse("0F0,0B0\n1F0,1B0\n", 3, 1,
           ": 2 rows for 3 stages; a row is a stage: use pp=2, or a file with 3 rows");
    refuse("0F0,0B0\n1F0,1B0\n", 1, 1,
           ": 2 rows for 1 stage; a row is a stage: use pp=2, or a file with 1 row");
    refuse("\n\n", 1, 1, ": 0 rows for 1 stage; a row is a stage: use a file with 1 row");
    refuse("", 2, 1, ": 0 rows for 2 stages; a row is a stage: use a file with 2 rows");
    /* Of what is no schedule the first cell is shown, however many rows it seems to have. */
    refuse("\177\001ELF\n\n\n,\n", 2, 1,
           ": row 1, column 1 is '??ELF'; a cell is empty, or chunk, action (F, B, I or W) and "
           "micro-batch, such as 2F0");
    refuse("0F0,0B0\n,,\n1F0,1B0\n", 3, 1,
           ": row 2 has no action; a row is a stage, and each has some");
    refuse("0F0,0F1,0B0,0B1\n", 1, 4,
           ": the last micro-batch is 1, at row 1, column 2, but the step has 4, from 0 to 3; use "
           "microbatches=2, or a file for 4");
    refuse("0F0,0B0\n1F0,1F1,1B0,1B1\n", 2, 1,
           ": the last micro-batch is 1, at row 2, column 2, but the step has 1, from 0 to 0; use "
           "microbatches=2, or a file for 1");
}

static void test_chunks_out_of_place(void **state)
{
    (void)state;
    refuse("0F0,0B0\n1F0,1B0,,0F0\n", 2, 1,
           ": row 2, column 4 is of chunk 0, which row 1 has too; a chunk has one stage");
    refuse("0F0,0B0\n2F0,2B0\n", 2, 1,
           ": it has a chunk 2, but no row has chunk 1; number chunks from 0 on");
    refuse("0F0,0B0\n99999999F0,1B0\n", 2, 1,
           ": row 2, column 1 is of chunk 99999999, but with 4 cells in all not every chunk before "
           "it can have one; number chunks from 0 on");
}

static void test_missing_and_double_actions(void **state)
{
    (void)state;
    refuse("0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n", 2, 2, ": row 1 has no 0B1; add it");
    refuse("0F0,0B0,0F1,0B1\n1F0,1B0,1B1\n", 2, 2, ": row 2 has no 1F1; add it");
    refuse("0F0,0I0\n", 1, 1, ": row 1 has no 0W0; add it");
    refuse("0F0,0W0\n", 1, 1, ": row 1 has no 0I0; add it");
    refuse("0F0,,0F0,0B0\n", 1, 1, ": row 1 has 0F0 in columns 1 and 3; drop one of them");
    refuse("0F0,0B0,0I0,0W0\n", 1, 1, ": row 1 has 0B0 and I or W of the same; use B, or I and W");
    refuse("0F0,0B0,0W0\n", 1, 1, ": row 1 has 0B0 and I or W of the same; use B, or I and W");
}

static void test_circles(void **state)
{
    (void)state;
    refuse("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 2, 2,
           " stalls: stage 0, at action 1, needs 1B0 for 0B0; stage 1, at action 1, needs 0F1 for "
           "1F1. They wait in a circle; do one of the needed actions earlier (stage s is row s + 1 "
           "of the file)");
    refuse("0F0,0W0,0I0\n", 1, 1,
           " stalls: stage 0, at action 1, needs 0I0 for 0W0. It waits for itself; do one of the "
           "needed actions earlier (stage s is row s + 1 of the file)");
}

static void test_requests_that_do_not_fit(void **state)
{
    (void)state;
    yoke_schedule schedule;
    char says[200];
    yoke_schedule_request request = {.n_stages = 1, .n_microbatches = 1};
    assert_fails(yoke_schedule_build(find("x.csv"), &request, arena, &schedule), YOKE_BAD_INPUT,
                 "a schedule from a CSV file, but no file was given");
    request.file = "no-such-file.csv";
    assert_fails(yoke_schedule_build(find("x.csv"), &request, arena, &schedule), YOKE_BAD_INPUT,
                 "cannot read 'no-such-file.csv': No such file or directory; check the path, which "
                 "counts from the folder that yoke was started in");
    request.file = path;
    request.chunks_per_stage = 2;
    snprintf(says, sizeof says,
             "schedule %s: chunks_per_stage is 2, but the file says itself which chunks a stage "
             "has; leave it at 0",
             path);
    assert_fails(yoke_schedule_build(find("x.csv"), &request, arena, &schedule), YOKE_BAD_INPUT,
                 says);
    const yoke_schedule_def *def;
    yoke_status status = yoke_schedule_find(".csv", &def);
    assert_non_null(strstr(yoke_status_message(status), "unknown schedule '.csv'"));
    yoke_status_free(status);
}

static uint32_t random_state = 20240917;

static int random_below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (uint32_t)n);
}

/* Whatever a file holds, it is a schedule or it is refused. */
static void test_damaged_files(void **state)
{
    (void)state;
    static const char bytes[] = "0123FBIW,\n ,x\r";
    yoke_schedule made = make(find("zb-v"), 2, 3, false);
    char *text = strdup(written(yoke_schedule_print, &made));
    assert_non_null(text);
    int n_refused = 0;
    print_message("seed %u\n", random_state);
    for (int i = 0; i < 400; i++) {
        int at = random_below((int)strlen(text));
        char kept = text[at];
        text[at] = bytes[random_below((int)sizeof bytes - 1)];
        yoke_schedule schedule;
        yoke_status status = read_back(text, 2, 3, &schedule);
        assert_true(!status || yoke_status_code(status) == YOKE_BAD_INPUT);
        n_refused += status != NULL;
        yoke_status_free(status);
        text[at] = kept;
    }
    assert_true(n_refused > 200);
    assert_true(n_refused < 400);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_schedule_comes_back),
        cmocka_unit_test(test_idle_cells_and_line_ends),
        cmocka_unit_test(test_uneven_and_mixed),
        cmocka_unit_test(test_forward_only_takes_the_forwards),
        cmocka_unit_test(test_malformed_cells),
        cmocka_unit_test(test_wrong_sizes),
        cmocka_unit_test(test_chunks_out_of_place),
        cmocka_unit_test(test_missing_and_double_actions),
        cmocka_unit_test(test_circles),
        cmocka_unit_test(test_requests_that_do_not_fit),
        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
