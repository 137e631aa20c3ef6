/*
 * Train log. A line is made of fields; a terminal that is too narrow loses fields from the end, never half of one.
 */
#include "cli/train_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/text.h"
#include "cli/format.h"
#include "program/program.h"
#include "run/session.h"

enum { LINE_BYTES = 256, SMOOTHING_STEPS = 20, USUAL_COLUMNS = 80 };

static const double redraw_s = 0.2;

static int64_t tokens_per_step(const yoke_setup *setup)
{
    return setup->run.config.batch_size * setup->run.config.seq_len;
}

static void print_corpus(const yoke_setup *setup)
{
    char tokens[32];
    const yoke_config *config = &setup->run.config;
    yoke_format_count(yoke_corpus_n_tokens(setup->corpus), tokens, sizeof tokens);
    (void)printf("corpus   %s: %s tokens", config->data, tokens);
    if (config->eval_fraction > 0.0) {
        (void)printf(", the last %g %% held out", 100.0 * config->eval_fraction);
    }
    (void)putchar('\n');
    (void)printf("batch    %" PRId64 " sequences of %" PRId64 " tokens in %" PRId64
                 " micro-batch%s, %" PRId64 " steps\n",
                 config->batch_size, config->seq_len, config->microbatches,
                 config->microbatches == 1 ? "" : "es", config->steps);
}

static void print_memory(const yoke_session *session)
{
    char most_text[16];
    char total_text[16];
    int64_t most = 0;
    int64_t total = 0;
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        int64_t planned = yoke_session_bytes(session, rank).planned;
        most = planned > most ? planned : most;
        total += planned;
    }
    (void)printf("memory   at most %s a rank, %s in all (planned)\n",
                 yoke_text_bytes((double)most, most_text, sizeof most_text),
                 yoke_text_bytes((double)total, total_text, sizeof total_text));
}

static void print_ranks(const yoke_setup *setup)
{
    const yoke_config *config = &setup->run.config;
    int n_ranks = yoke_session_n_ranks(setup->session);
    long threads = (long)config->threads;
    if (threads == 0) {
        threads = sysconf(_SC_NPROCESSORS_ONLN) / n_ranks;
        threads = threads > 0 ? threads : 1;
    }
    const char *home = n_ranks == 1 ? "process" : "processes, each";
    if (strcmp(config->ranks, "threads") == 0) {
        home = "in one process, each";
    }
    (void)printf("ranks    %d %s with %ld thread%s, kernels %s\n", n_ranks, home, threads,
                 threads == 1 ? "" : "s", config->kernels);
    (void)printf("cores    %s\n", yoke_placement_text(setup->session->placement));
    if (yoke_session_is_narrow(setup->session)) {
        char text[128];
        (void)printf("products %s\n",
                     yoke_session_multiply_text(setup->session, text, (int)sizeof text));
    }
}

static void print_header(const yoke_setup *setup, double flops_per_s)
{
    char text[160];
    double bubble = yoke_program_set_bubble(yoke_session_programs(setup->session));
    (void)printf("model    %s\n", yoke_setup_print(setup, text, sizeof text));
    print_ranks(setup);
    print_corpus(setup);
    print_memory(setup->session);
    (void)printf("schedule %s, bubble %.1f %%\n", setup->run.config.schedule, 100.0 * bubble);
    if (strcmp(setup->run.config.recompute, yoke_config_default().recompute) != 0) {
        char levels[2048];
        (void)printf(
            "recompute %s\n",
            yoke_graph_recompute_print(yoke_session_graph(setup->session), levels, sizeof levels));
    }
    if (yoke_session_graph(setup->session)->n_strips > 1) {
        (void)printf("logits   in %lld strips\n",
                     (long long)yoke_session_graph(setup->session)->n_strips);
    }
    (void)printf("machine  %.1f GFLOP/s in matrix products\n", flops_per_s / 1e9);
    yoke_setup_print_notes(setup);
    (void)putchar('\n');
    (void)fflush(stdout);
}

/* A terminal that can erase to the end of a row. */
static bool can_redraw(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(terminal && strcmp(terminal, "dumb") == 0);
}

void yoke_train_log_start(yoke_train_log *log, const yoke_setup *setup, double flops_per_s)
{
    *log = (yoke_train_log){.setup = setup, .flops_per_s = flops_per_s, .live = can_redraw()};
    print_header(setup, flops_per_s);
}

static int columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return USUAL_COLUMNS;
    }
    return size.ws_col;
}

/* One line under construction; `full` once a field did not fit, so that no later one slips in. */
typedef struct text_line {
    char text[LINE_BYTES];
    int limit;
    bool full;
} text_line;

static void add_field(text_line *line, const char *format, ...) YOKE_FORMAT(2, 3);

static void add_field(text_line *line, const char *format, ...)
{
    char field[64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(field, sizeof field, format, args);
    va_end(args);
    size_t used = strlen(line->text);
    const char *gap = used ? "  " : "";
    line->full = line->full || (int)(used + strlen(gap) + strlen(field)) > line->limit;
    if (!line->full) {
        (void)snprintf(line->text + used, sizeof line->text - used, "%s%s", gap, field);
    }
}

/* Time per step over the last SMOOTHING_STEPS or so. */
static void smooth(yoke_train_log *log, double seconds)
{
    log->n_seen++;
    double n = log->n_seen < SMOOTHING_STEPS ? (double)log->n_seen : SMOOTHING_STEPS;
    log->step_seconds += (seconds - log->step_seconds) / n;
}

static int64_t peak_bytes(const yoke_session *session)
{
    int64_t peak = 0;
    for (int rank = 0; rank < yoke_session_n_ranks(session); rank++) {
        int64_t bytes = yoke_session_bytes(session, rank).peak;
        peak = bytes > peak ? bytes : peak;
    }
    return peak;
}

static void add_speed(const yoke_train_log *log, text_line *line)
{
    char tokens[32];
    double seconds = log->step_seconds;
    if (seconds <= 0.0) {
        return;
    }
    int64_t rate = llround((double)tokens_per_step(log->setup) / seconds);
    add_field(line, "%s tokens/s", yoke_format_count(rate, tokens, sizeof tokens));
    if (log->flops_per_s > 0.0) {
        double flops = yoke_session_step_flops(log->setup->session);
        add_field(line, "%.0f %% of matmul", 100.0 * flops / seconds / log->flops_per_s);
    }
}

/* The busiest expert of all layers, as a multiple of an equal share. */
static double highest_load(const yoke_step_metrics *metrics)
{
    float highest = 0;
    for (int i = 0; i < metrics->n_load_layers * metrics->n_experts; i++) {
        highest = metrics->expert_load[i] > highest ? metrics->expert_load[i] : highest;
    }
    return (double)highest * metrics->n_experts;
}

static void fill_line(const yoke_train_log *log, const yoke_step_metrics *metrics, text_line *line)
{
    char text[32];
    int64_t done = metrics->step + 1;
    int64_t steps = log->setup->run.config.steps;
    int64_t peak = peak_bytes(log->setup->session);
    add_field(line, "step %" PRId64 "/%" PRId64, done, steps);
    add_field(line, "loss %.4f", metrics->loss);
    add_field(line, "lr %.2e", metrics->lr);
    add_field(line, "norm %.3g", metrics->grad_norm);
    if (metrics->n_load_layers > 0) {
        add_field(line, "load %.2f", highest_load(metrics));
    }
    add_speed(log, line);
    if (peak > 0) {
        add_field(line, "%s", yoke_text_bytes((double)peak, text, sizeof text));
    }
    if (done < steps) {
        yoke_format_duration(log->step_seconds * (double)(steps - done), text, sizeof text);
        add_field(line, "%s left", text);
    }
}

static void draw_live(yoke_train_log *log, const yoke_step_metrics *metrics)
{
    double now = yoke_clock_s();
    bool last = metrics->step + 1 >= log->setup->run.config.steps;
    if (!last && log->drawn && now - log->last_drawn_s < redraw_s) {
        return;
    }
    /* A line that fills the last column would wrap on some terminals. */
    int width = columns() - 1;
    text_line line = {.limit = width < LINE_BYTES - 1 ? width : LINE_BYTES - 1};
    fill_line(log, metrics, &line);
    /* Erase to the end of the row, so that a shorter line leaves nothing of the longer one. */
    (void)printf("\r%s\033[K", line.text);
    (void)fflush(stdout);
    log->drawn = true;
    log->last_drawn_s = now;
}

/* A whole line above the live one. */
static void print_note(yoke_train_log *log, const char *text)
{
    (void)printf("%s%s\n", log->drawn ? "\r\033[K" : "", text);
    (void)fflush(stdout);
    log->drawn = false;
}

const char *yoke_train_skip_reason(const yoke_session *session, const yoke_step_metrics *metrics,
                                   char *buffer, int buffer_bytes)
{
    size_t bytes = (size_t)buffer_bytes;
    if (metrics->first_bad >= 0) {
        (void)snprintf(buffer, bytes, "the gradient of %s is not finite",
                       yoke_session_parameter_name(session, metrics->first_bad));
    } else if (!(metrics->n_valid > 0.0)) {
        (void)snprintf(buffer, bytes, "no valid label in the whole batch");
    } else {
        (void)snprintf(buffer, bytes, "the gradient norm is %g", metrics->grad_norm);
    }
    return buffer;
}

static void print_skipped(yoke_train_log *log, const yoke_step_metrics *metrics)
{
    char reason[LINE_BYTES - 64];
    char text[LINE_BYTES];
    yoke_train_skip_reason(log->setup->session, metrics, reason, sizeof reason);
    (void)snprintf(text, sizeof text, "step %" PRId64 " skipped: %s", metrics->step + 1, reason);
    print_note(log, text);
}

static void print_step(yoke_train_log *log, const yoke_step_metrics *metrics)
{
    const yoke_config *config = &log->setup->run.config;
    int64_t done = metrics->step + 1;
    if (done % config->log_interval == 0 || done == config->steps) {
        text_line line = {.limit = LINE_BYTES - 1};
        fill_line(log, metrics, &line);
        print_note(log, line.text);
    }
}

void yoke_train_log_step(yoke_train_log *log, const yoke_step_metrics *metrics)
{
    smooth(log, metrics->seconds);
    if (metrics->skipped) {
        print_skipped(log, metrics);
    } else if (log->live) {
        draw_live(log, metrics);
    } else {
        print_step(log, metrics);
    }
    if (metrics->evaluated) {
        char text[LINE_BYTES];
        int used =
            snprintf(text, sizeof text, "step %" PRId64 " evaluation loss ", metrics->step + 1);
        if (isfinite(metrics->eval_loss)) {
            (void)snprintf(text + used, sizeof text - (size_t)used, "%.4f", metrics->eval_loss);
        } else {
            (void)snprintf(text + used, sizeof text - (size_t)used,
                           "not finite, or of no label that counts");
        }
        print_note(log, text);
    }
}

void yoke_train_log_stopping(yoke_train_log *log)
{
    if (!log->announced_stop) {
        log->announced_stop = true;
        print_note(log, "stopping; once more to stop at once");
    }
}

void yoke_train_log_end(yoke_train_log *log)
{
    if (log->drawn) {
        (void)putchar('\n');
        log->drawn = false;
    }
}
