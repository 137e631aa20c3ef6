/*
 * A schedule from a CSV file: a row a stage, cells such as 2F0 (chunk, action, micro-batch), empty
 * cells idle; what PyTorch's pipelining writes and reads.
 *
 * People write such files by hand, so a message names row and column, both from 1. What only a run
 * over all stages shows, that they wait in a circle, is for schedule_verify.c.
 */
#include <stdint.h>
#include <string.h>

#include "base/file.h"
#include "pipe/schedule_build.h"

enum {
    MOST_BYTES = 1 << 26,
    MOST_PAIRS = 1 << 26, /* of chunk and micro-batch: a byte each */
    MOST_DIGITS = 8,
    MOST_STAGES = 64, /* that a mesh may have */
    SHOWN_BYTES = 24  /* of a cell that is none, in a message */
};

typedef struct row {
    yoke_action *action; /* [n] */
    int *column;         /* [n], from 1 */
    int n;
} row;

typedef struct table {
    const char *path;
    yoke_arena *arena;
    row *rows; /* [n_rows] */
    int n_rows, n_chunks, n_microbatches;
    int64_t n_cells;
    int *row_of_chunk; /* [n_chunks] */
} table;

typedef struct span {
    const char *begin, *end;
} span;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static span trim(span text)
{
    while (text.begin < text.end && is_blank(*text.begin)) {
        text.begin++;
    }
    while (text.begin < text.end && is_blank(text.end[-1])) {
        text.end--;
    }
    return text;
}

/* What comes before the next `separator`; `rest` begins after it, or is used up. */
static span take_until(span *rest, char separator)
{
    const char *at = memchr(rest->begin, separator, (size_t)(rest->end - rest->begin));
    span taken = {rest->begin, at ? at : rest->end};
    rest->begin = at ? at + 1 : rest->end;
    return taken;
}

static int count(span text, char c)
{
    int n = 0;
    for (const char *at = text.begin; at < text.end; at++) {
        n += *at == c ? 1 : 0;
    }
    return n;
}

static bool take_number(span *text, int *number)
{
    int n_digits = 0;
    *number = 0;
    while (text->begin < text->end && *text->begin >= '0' && *text->begin <= '9' &&
           n_digits < MOST_DIGITS) {
        *number = *number * 10 + (*text->begin++ - '0');
        n_digits++;
    }
    return n_digits > 0;
}

static bool take_kind(span *text, yoke_action_kind *kind)
{
    for (int k = 0; k < YOKE_N_ACTION_KINDS && text->begin < text->end; k++) {
        if (*text->begin == *yoke_action_letter((yoke_action_kind)k)) {
            *kind = (yoke_action_kind)k;
            text->begin++;
            return true;
        }
    }
    return false;
}

static yoke_status parse_cell(const table *t, span cell, int column, yoke_action *action)
{
    span rest = cell;
    if (take_number(&rest, &action->chunk) && take_kind(&rest, &action->kind) &&
        take_number(&rest, &action->microbatch) && rest.begin == rest.end) {
        return YOKE_OK;
    }
    char shown[SHOWN_BYTES + 1] = "";
    for (int i = 0; i < SHOWN_BYTES && cell.begin + i < cell.end; i++) {
        char c = cell.begin[i];
        shown[i] = '?';
        if (c >= ' ' && c <= '~') {
            shown[i] = c;
        }
    }
    return YOKE_FAIL(
        YOKE_BAD_INPUT,
        "schedule %s: row %d, column %d is '%s'; a cell is empty, or chunk, action (F, "
        "B, I or W) and micro-batch, such as 2F0",
        t->path, t->n_rows + 1, column, shown);
}

static yoke_status parse_row(table *t, span line)
{
    int n_columns = count(line, ',') + 1;
    row *r = &t->rows[t->n_rows];
    *r = (row){.action = YOKE_ARENA_NEW(t->arena, yoke_action, n_columns),
               .column = YOKE_ARENA_NEW(t->arena, int, n_columns)};
    for (int column = 1; column <= n_columns; column++) {
        span cell = trim(take_until(&line, ','));
        if (cell.begin == cell.end) {
            continue;
        }
        YOKE_TRY(parse_cell(t, cell, column, &r->action[r->n]));
        r->column[r->n++] = column;
    }
    if (r->n == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: row %d has no action; a row is a stage, and each has some",
                         t->path, t->n_rows + 1);
    }
    t->n_cells += r->n;
    t->n_rows++;
    return YOKE_OK;
}

static yoke_status fail_rows(const table *t, int n_lines, int n_stages)
{
    char other_mesh[32] = "";
    if (n_lines > 0 && n_lines <= MOST_STAGES) {
        (void)snprintf(other_mesh, sizeof other_mesh, "pp=%d, or ", n_lines);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule %s: %d row%s for %d stage%s; a row is a stage: use %sa file with %d "
                     "row%s",
                     t->path, n_lines, n_lines == 1 ? "" : "s", n_stages, n_stages == 1 ? "" : "s",
                     other_mesh, n_stages, n_stages == 1 ? "" : "s");
}

static yoke_status parse(table *t, span text, int n_stages)
{
    while (text.begin < text.end && (is_blank(text.end[-1]) || text.end[-1] == '\n')) {
        text.end--;
    }
    int n_lines = text.begin < text.end ? count(text, '\n') + 1 : 0;
    /* Of a file that is no schedule the first row says more than the number of rows. */
    int n_parsed = n_lines == n_stages ? n_lines : n_lines > 0 ? 1 : 0;
    t->rows = YOKE_ARENA_NEW(t->arena, row, n_parsed);
    for (int i = 0; i < n_parsed; i++) {
        YOKE_TRY(parse_row(t, take_until(&text, '\n')));
    }
    return n_lines == n_stages ? YOKE_OK : fail_rows(t, n_lines, n_stages);
}

/* Numbers that decide how much memory the checks take. */
static yoke_status check_microbatches(const table *t, int wanted)
{
    int last = -1;
    int at_row = 0;
    int at_column = 0;
    for (int r = 0; r < t->n_rows; r++) {
        for (int i = 0; i < t->rows[r].n; i++) {
            if (t->rows[r].action[i].microbatch > last) {
                last = t->rows[r].action[i].microbatch;
                at_row = r + 1;
                at_column = t->rows[r].column[i];
            }
        }
    }
    if (last + 1 == wanted) {
        return YOKE_OK;
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule %s: the last micro-batch is %d, at row %d, column %d, but the step "
                     "has %d, from 0 to %d; use microbatches=%d, or a file for %d",
                     t->path, last, at_row, at_column, wanted, wanted - 1, last + 1, wanted);
}

static yoke_status check_chunk_numbers(table *t)
{
    for (int r = 0; r < t->n_rows; r++) {
        for (int i = 0; i < t->rows[r].n; i++) {
            int chunk = t->rows[r].action[i].chunk;
            if (chunk >= t->n_cells) {
                return YOKE_FAIL(YOKE_BAD_INPUT,
                                 "schedule %s: row %d, column %d is of chunk %d, but with %lld "
                                 "cells in all not every chunk before it can have one; number "
                                 "chunks from 0 on",
                                 t->path, r + 1, t->rows[r].column[i], chunk,
                                 (long long)t->n_cells);
            }
            t->n_chunks = chunk >= t->n_chunks ? chunk + 1 : t->n_chunks;
        }
    }
    if ((int64_t)t->n_chunks * t->n_microbatches > MOST_PAIRS) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: %d chunks and %d micro-batches; at most %d pairs of them",
                         t->path, t->n_chunks, t->n_microbatches, MOST_PAIRS);
    }
    return YOKE_OK;
}

static yoke_status place_chunk(const table *t, int r, int i)
{
    int chunk = t->rows[r].action[i].chunk;
    int *place = &t->row_of_chunk[chunk];
    if (*place >= 0 && *place != r) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: row %d, column %d is of chunk %d, which row %d has too; a "
                         "chunk has one stage",
                         t->path, r + 1, t->rows[r].column[i], chunk, *place + 1);
    }
    *place = r;
    return YOKE_OK;
}

static yoke_status place_chunks(table *t)
{
    t->row_of_chunk = YOKE_ARENA_NEW(t->arena, int, t->n_chunks);
    for (int c = 0; c < t->n_chunks; c++) {
        t->row_of_chunk[c] = -1;
    }
    for (int r = 0; r < t->n_rows; r++) {
        for (int i = 0; i < t->rows[r].n; i++) {
            YOKE_TRY(place_chunk(t, r, i));
        }
    }
    for (int c = 0; c < t->n_chunks; c++) {
        if (t->row_of_chunk[c] < 0) {
            return YOKE_FAIL(YOKE_BAD_INPUT,
                             "schedule %s: it has a chunk %d, but no row has chunk %d; number "
                             "chunks from 0 on",
                             t->path, t->n_chunks - 1, c);
        }
    }
    return YOKE_OK;
}

static yoke_status fail_twice(const table *t, int r, int i)
{
    yoke_action a = t->rows[r].action[i];
    int first = 0;
    for (;; first++) {
        yoke_action b = t->rows[r].action[first];
        if (b.kind == a.kind && b.chunk == a.chunk && b.microbatch == a.microbatch) {
            break;
        }
    }
    return YOKE_FAIL(YOKE_BAD_INPUT,
                     "schedule %s: row %d has %d%s%d in columns %d and %d; drop one of them",
                     t->path, r + 1, a.chunk, yoke_action_letter(a.kind), a.microbatch,
                     t->rows[r].column[first], t->rows[r].column[i]);
}

/* The first kind that a pair of chunk and micro-batch lacks, or -1. */
static int missing_kind(unsigned seen)
{
    if (!(seen & 1u << YOKE_ACTION_F)) {
        return YOKE_ACTION_F;
    }
    bool has_i = seen & 1u << YOKE_ACTION_I;
    bool has_w = seen & 1u << YOKE_ACTION_W;
    if (seen & 1u << YOKE_ACTION_B || (has_i && has_w)) {
        return -1;
    }
    if (has_i) {
        return YOKE_ACTION_W;
    }
    return has_w ? YOKE_ACTION_I : YOKE_ACTION_B;
}

static yoke_status check_pair(const table *t, int chunk, int microbatch, unsigned seen)
{
    int at = t->row_of_chunk[chunk] + 1;
    int kind = missing_kind(seen);
    if (kind >= 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "schedule %s: row %d has no %d%s%d; add it", t->path, at,
                         chunk, yoke_action_letter((yoke_action_kind)kind), microbatch);
    }
    unsigned split = 1u << YOKE_ACTION_I | 1u << YOKE_ACTION_W;
    if (seen & 1u << YOKE_ACTION_B && seen & split) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "schedule %s: row %d has %dB%d and I or W of the same; use B, or I and W",
                         t->path, at, chunk, microbatch);
    }
    return YOKE_OK;
}

static yoke_status check_pairs(const table *t)
{
    size_t n_pairs = (size_t)t->n_chunks * (size_t)t->n_microbatches;
    unsigned char *seen = YOKE_ARENA_NEW(t->arena, unsigned char, n_pairs);
    for (int r = 0; r < t->n_rows; r++) {
        for (int i = 0; i < t->rows[r].n; i++) {
            yoke_action a = t->rows[r].action[i];
            unsigned char *pair = &seen[(int64_t)a.chunk * t->n_microbatches + a.microbatch];
            if (*pair & 1u << a.kind) {
                return fail_twice(t, r, i);
            }
            *pair = (unsigned char)(*pair | 1u << a.kind);
        }
    }
    for (size_t i = 0; i < n_pairs; i++) {
        int chunk = (int)(i / (size_t)t->n_microbatches);
        YOKE_TRY(check_pair(t, chunk, (int)(i % (size_t)t->n_microbatches), seen[i]));
    }
    return YOKE_OK;
}

static yoke_status read_table(table *t, const yoke_schedule_request *request)
{
    const void *start;
    size_t bytes;
    YOKE_TRY(yoke_file_map(t->path, &start, &bytes));
    yoke_status status;
    if (bytes > MOST_BYTES) {
        status = YOKE_FAIL(YOKE_BAD_INPUT,
                           "schedule %s: %zu bytes; a schedule has at most %d: is this the file?",
                           t->path, bytes, MOST_BYTES);
    } else {
        span text = {start, (const char *)start + bytes};
        status = parse(t, text, request->n_stages);
    }
    yoke_file_unmap(start, bytes);
    YOKE_TRY(status);
    YOKE_TRY(check_microbatches(t, request->n_microbatches));
    YOKE_TRY(check_chunk_numbers(t));
    YOKE_TRY(place_chunks(t));
    return check_pairs(t);
}

/* What is left to find is a circle, and the file is at fault, not a check of a plan of ours. */
static yoke_status verify(const yoke_schedule *schedule)
{
    yoke_status found = yoke_schedule_verify(schedule);
    if (!found || yoke_status_code(found) != YOKE_CHECK) {
        return found;
    }
    yoke_status status = YOKE_FAIL(YOKE_BAD_INPUT, "%s (stage s is row s + 1 of the file)",
                                   yoke_status_message(found));
    yoke_status_free(found);
    return status;
}

static yoke_status build(const yoke_schedule_request *request, yoke_arena *arena,
                         yoke_schedule *out)
{
    if (!request->file || !*request->file) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "a schedule from a CSV file, but no file was given");
    }
    if (request->chunks_per_stage != 0) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "schedule %s: chunks_per_stage is %d, but the file says itself which chunks "
            "a stage has; leave it at 0",
            request->file, request->chunks_per_stage);
    }
    table t = {.path = yoke_arena_copy_text(arena, request->file),
               .arena = arena,
               .n_microbatches = request->n_microbatches};
    YOKE_TRY(read_table(&t, request));
    out->name = t.path;
    yoke_stage_actions *stages =
        yoke_schedule_place_chunks(request, t.row_of_chunk, t.n_chunks, arena, out);
    for (int r = 0; r < t.n_rows; r++) {
        stages[r] = (yoke_stage_actions){.action = t.rows[r].action, .n = t.rows[r].n};
    }
    return verify(out);
}

const yoke_schedule_def yoke_schedule_csv = {
    .name = "csv",
    .help = "from a file: a row a stage, cells such as 2F0",
    .takes_chunks = true,
    .build = build,
};
