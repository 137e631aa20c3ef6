/*
 * The picture of a schedule: a cell for every action, where the timeline has it and nowhere else;
 * and the pictures of docs/, which must be what the program draws.
 */
#include "schedule_case.h"

enum { UNIT = 18 }; /* pixels, with micro-batches of one digit */

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

static void assert_has(const char *text, const char *what)
{
    if (!strstr(text, what)) {
        fail_msg("no '%s' in:\n%s", what, text);
    }
}

static void test_a_cell_for_every_action(void **state)
{
    (void)state;
    for (int i = 0; i < yoke_schedule_count(); i++) {
        yoke_schedule schedule = make(yoke_schedule_get(i), 3, 6, false);
        int n_actions = 0;
        for (int s = 0; s < 3; s++) {
            n_actions += schedule.stage[s].n;
        }
        const char *svg = written(yoke_schedule_svg, &schedule);
        assert_int_equal(count(svg, "<text class=\"number\""), n_actions);
        assert_int_equal(count(svg, "<rect class=\"idle\""), 3);
        assert_int_equal(count(svg, "<svg "), 1);
        assert_int_equal(count(svg, "</svg>"), 1);
        assert_has(svg, "prefers-color-scheme: dark");
    }
}

/* 0F0,0F1,0B0,0B1 and 1F0,1B0,1F1,1B1: time goes to the right from 70, stages down from 12. */
static void test_cells_stand_where_their_time_is(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("1f1b"), 2, 2, false);
    const char *svg = written(yoke_schedule_svg, &schedule);
    char cell[160];
    static const struct {
        const char *kind;
        int start, units, stage, microbatch;
    } cells[] = {
        {"F0", 0, 1, 0, 0}, {"F0", 1, 1, 0, 1}, {"B0", 4, 2, 0, 0}, {"B0", 7, 2, 0, 1},
        {"F0", 1, 1, 1, 0}, {"B0", 2, 2, 1, 0}, {"F0", 4, 1, 1, 1}, {"B0", 5, 2, 1, 1},
    };
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        int x = 70 + UNIT * cells[i].start;
        int y = 12 + 30 * cells[i].stage;
        int width = UNIT * cells[i].units;
        snprintf(cell, sizeof cell,
                 "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"26\"/><text "
                 "class=\"number\" x=\"%d\" y=\"%d\">%d</text>",
                 cells[i].kind, x, y, width, x + width / 2, y + 18, cells[i].microbatch);
        assert_has(svg, cell);
    }
    assert_has(svg, ">1f1b: 2 stages, 2 micro-batches</text>");
    assert_has(svg, ">bubble 33.3 %: 6 of 18 units idle; F is 1 unit long, B 2</text>");
}

static void test_kinds_and_chunks_have_colours(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("zb-v"), 2, 4, false);
    const char *svg = written(yoke_schedule_svg, &schedule);
    static const char *const classes[] = {"F0", "F1", "I0", "I1", "W0", "W1"};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char text[40];
        snprintf(text, sizeof text, "    .%s { fill: #", classes[i]);
        assert_int_equal(count(svg, text), 1);
        snprintf(text, sizeof text, "<rect class=\"%s\"", classes[i]);
        /* 2 stages of 4 micro-batches, and the legend. */
        assert_int_equal(count(svg, text), 9);
    }
    assert_int_equal(count(svg, "\"B0\""), 0);
    assert_has(svg, "lighter: later chunks");
    assert_has(svg, "zb-v: 2 stages, 4 chunks, 4 micro-batches");
    assert_has(svg, "units idle; F, I and W are 1 unit long</text>");
}

/* More chunks than shades: the last shade serves the rest. */
static void test_many_chunks(void **state)
{
    (void)state;
    yoke_schedule_request request = {.n_stages = 2, .n_microbatches = 2, .chunks_per_stage = 6};
    yoke_schedule schedule = make_of(find("interleaved"), &request);
    const char *svg = written(yoke_schedule_svg, &schedule);
    assert_int_equal(count(svg, "<rect class=\"F2\""), 5);
    assert_int_equal(count(svg, "<rect class=\"F3\""), 13);
    assert_int_equal(count(svg, "\"F4\""), 0);
}

static void test_a_name_cannot_end_the_picture(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("gpipe"), 1, 1, false);
    schedule.name = "a<b>&\nc.csv";
    const char *svg = written(yoke_schedule_svg, &schedule);
    assert_int_equal(count(svg, "a&lt;b&gt;&amp;?c.csv: 1 stage, 1 micro-batch<"), 2);
}

static void test_long_schedules_are_clipped(void **state)
{
    (void)state;
    yoke_schedule schedule = make(find("gpipe"), 1, 1000, false);
    const char *svg = written(yoke_schedule_svg, &schedule);
    assert_has(svg, "B 2; units 0 to 1999 of 3000 are shown</text>");
    assert_int_equal(count(svg, "<text class=\"number\""), 1000 + 500);
}

static void test_the_pictures_of_the_docs_are_ours(void **state)
{
    (void)state;
    static const char *const names[] = {"1f1b", "interleaved", "zb-h1", "zb-v"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        static char kept[1 << 16];
        char path[500];
        snprintf(path, sizeof path, YOKE_SOURCE_DIR "/docs/schedules/%s.svg", names[i]);
        FILE *file = fopen(path, "r");
        if (!file) {
            fail_msg("%s is not there", path);
        }
        size_t bytes = fread(kept, 1, sizeof kept - 1, file);
        kept[bytes] = '\0';
        fclose(file);
        yoke_schedule schedule = make(find(names[i]), 4, 8, false);
        if (strcmp(written(yoke_schedule_svg, &schedule), kept) != 0) {
            fail_msg("%s is not what the program draws; docs/schedules.md says how to make it",
                     path);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cell_for_every_action),
        cmocka_unit_test(test_cells_stand_where_their_time_is),
        cmocka_unit_test(test_kinds_and_chunks_have_colours),
        cmocka_unit_test(test_many_chunks),
        cmocka_unit_test(test_a_name_cannot_end_the_picture),
        cmocka_unit_test(test_long_schedules_are_clipped),
        cmocka_unit_test(test_the_pictures_of_the_docs_are_ours),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
