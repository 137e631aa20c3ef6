/*
 * Published formulas for what a pipeline stage keeps and idles.
 *
 * Activations a layer and micro-batch, of s tokens, b sequences, width h, a heads, after Korthikanti
 * et al., "Reducing activation recomputation", 2022, in 16-bit: sbh(34 + 5as/h) bytes. 10 of the 34
 * are of the stream and 24 of the inner part; without scores (selective recomputation there; Dao et
 * al., "FlashAttention", 2022, here) the second term is gone; recomputed in full a layer keeps
 * 2sbh. Twice that is 4 bytes an element, and 2 for each byte of a dropout mask.
 *
 * `kept` counts what the operators of this graph keep, element by element; they keep no masks.
 *
 * The bubbles are those of docs/schedules.md.
 */
#include <math.h>
#include <string.h>
#include "sim/published_rows.h"

/* --- What a layer keeps ----------------------------------------------------------------------- */

/* Extents and the pieces they lie in, on one rank. */
typedef struct sizes {
    double bs, t; /* tokens of a micro-batch, and of a sequence */
    double d, h, k, x, f;
    double stream, inner, key_parts; /* pieces of the stream, of heads and f, of key/value heads */
} sizes;

static sizes sizes_of(const yoke_published_request *request)
{
    const yoke_graph *g = request->set->graph;
    sizes s = {.t = (double)yoke_letter_extent(g, 't'),
               .d = (double)yoke_letter_extent(g, 'd'),
               .h = (double)yoke_letter_extent(g, 'h'),
               .k = (double)yoke_letter_extent(g, 'k'),
               .x = (double)yoke_letter_extent(g, 'x'),
               .f = (double)yoke_letter_extent(g, 'f'),
               .stream = yoke_published_stream_parts(request),
               .inner = 1,
               .key_parts = 1};
    s.k = s.k > 0 ? s.k : s.h;
    double batch_parts = 1;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        const yoke_policy *policy = &request->policies->axis[axis];
        int n = request->set->mesh.size[axis];
        bool divides =
            yoke_published_divides_layers(policy) || yoke_published_divides_tokens(policy);
        bool whole_keys = yoke_published_divides_layers(policy) && (int64_t)s.k % n != 0;
        s.inner *= divides ? n : 1;
        s.key_parts *= divides && !whole_keys ? n : 1;
        batch_parts *= divides && strchr(policy->stream, 'b') ? n : 1;
    }
    /* The rank with the most has a sequence at least. */
    s.bs = fmax((double)yoke_letter_extent(g, 'b'), batch_parts) * s.t;
    return s;
}

/* Elements a token that the backward of one forward node needs; -1 if that is not known. A norm
 * keeps its input and statistics, and its output is what a product reads. At the light level what
 * norms and activations make is made again. */
static double kept_by_node(const yoke_node *node, const sizes *s, bool light)
{
    double made = light ? 0 : 1;
    bool mixes = node->n_in > 0 && strchr(node->in_rule[0], 'e') != NULL;
    switch ((int)node->op) {
    case YOKE_OP_LAYER_NORM:
        return (s->d + made * (s->d + 2)) / s->stream;
    case YOKE_OP_RMS_NORM:
        return (s->d + made * (s->d + 1)) / s->stream;
    case YOKE_OP_ATTENTION:
        return (2 * s->h * s->x + s->h) / s->inner + 2 * s->k * s->x / s->key_parts;
    case YOKE_OP_GELU:
    case YOKE_OP_GELU_ERF:
        return (1 + made) * s->f / s->inner;
    case YOKE_OP_SWIGLU:
        return (2 + made) * s->f / s->inner;
    case YOKE_OP_MATMUL:
        return mixes ? -1 : 0;
    case YOKE_OP_ADD:
    case YOKE_OP_ADD_BIAS:
    case YOKE_OP_CONVERT:
    case YOKE_OP_DROPOUT:
    case YOKE_OP_ROPE:
        return 0;
    default:
        return -1;
    }
}

/* The same where all but products is computed again: the layer's input, and what products make. One
 * that makes the stream, which `pending` counts, is needed again only by a norm of its own layer. */
static double kept_by_products(const yoke_graph *graph, const yoke_node *node, const sizes *s,
                               double *pending)
{
    double kept = 0;
    if (node->op == YOKE_OP_LAYER_NORM || node->op == YOKE_OP_RMS_NORM) {
        kept = *pending;
        *pending = 0;
    } else if (node->op == YOKE_OP_MATMUL) {
        const char *dims = graph->values[node->out[0]].dims;
        bool stream = strcmp(dims, "btd") == 0;
        *pending += stream ? s->d / s->stream : 0;
        kept += strchr(dims, 'h') ? s->h * s->x / s->inner : 0;
        kept += strchr(dims, 'k') ? s->k * s->x / s->key_parts : 0;
        kept += strchr(dims, 'f') ? s->f / s->inner : 0;
    }
    return kept_by_node(node, s, false) < 0 ? -1 : kept;
}

static double in_parts(const yoke_graph *graph, int block, const sizes *s, yoke_recompute level)
{
    bool products = level == YOKE_RECOMPUTE_SELECTIVE, light = level == YOKE_RECOMPUTE_LIGHT;
    double elements = products ? s->d / s->stream : 0, pending = 0;
    for (int64_t i = 0; i < graph->n_nodes; i++) {
        const yoke_node *node = &graph->nodes[i];
        if (node->region == YOKE_REGION_FORWARD && node->block == block) {
            double more = products ? kept_by_products(graph, node, s, &pending)
                                   : kept_by_node(node, s, light);
            elements += more < 0 ? (double)NAN : more;
        }
    }
    return elements;
}

/* Bytes that each layer keeps of a micro-batch, [blocks]; NaN where that is not known. */
static const double *kept_by_layers(const yoke_published_request *request, const bool *is_layer)
{
    const yoke_graph *graph = request->set->graph;
    double *bytes = YOKE_ARENA_NEW(request->arena, double, graph->n_blocks);
    sizes s = sizes_of(request);
    int level = 0;
    while (level < YOKE_N_RECOMPUTES &&
           strcmp(request->recompute, yoke_recompute_name((yoke_recompute)level)) != 0) {
        level++;
    }
    for (int block = 0; block < graph->n_blocks; block++) {
        double elements = level == YOKE_RECOMPUTE_FULL ? s.d / s.stream : (double)NAN;
        if (is_layer[block] && level < YOKE_RECOMPUTE_FULL) {
            elements = in_parts(graph, block, &s, (yoke_recompute)level);
        }
        bytes[block] = is_layer[block] ? 4 * s.bs * elements : 0;
    }
    return bytes;
}

/* --- What a stage keeps ----------------------------------------------------------------------- */

/* Most that a stage keeps at once, if each layer keeps `of_block` of each micro-batch in flight. */
static double most_kept(const yoke_program_set *set, int stage, const double *of_block)
{
    const yoke_stage_actions *actions = &set->schedule.stage[stage];
    double now = 0, most = 0;
    for (int i = 0; i < actions->n; i++) {
        int chunk = actions->action[i].chunk;
        double of_chunk = 0;
        for (int block = set->first_block[chunk]; block < set->first_block[chunk + 1]; block++) {
            of_chunk += of_block[block];
        }
        switch (actions->action[i].kind) {
        case YOKE_ACTION_F:
            now += of_chunk;
            break;
        case YOKE_ACTION_B:
        case YOKE_ACTION_W:
            now -= of_chunk;
            break;
        case YOKE_ACTION_I:
        case YOKE_N_ACTION_KINDS:
            break;
        }
        most = now > most ? now : most;
        if (isnan(now)) {
            return (double)NAN;
        }
    }
    return most;
}

typedef struct form {
    double bytes; /* of a layer and micro-batch */
    const char *text, *source;
} form;

/* The layer of which the formulas speak: as many key/value heads as heads, f = 4h. */
static bool is_the_published_layer(const sizes *s)
{
    return s->h == s->k && s->h * s->x == s->d && s->f == 4 * s->d;
}

static form with_scores(const sizes *s)
{
    bool split = s->inner != s->stream;
    double scores = 5 * s->h * s->t / s->d;
    return (form){.bytes = 2 * s->bs * s->d * (10 / s->stream + (24 + scores) / s->inner),
                  .text = split ? "2sbh(10 + (24 + 5as/h)/n)" : "2sbh(34 + 5as/h)",
                  .source = "Korthikanti et al. 2022"};
}

static form without_scores(const sizes *s)
{
    bool split = s->inner != s->stream;
    return (form){.bytes = 2 * s->bs * s->d * (10 / s->stream + 24 / s->inner),
                  .text = split ? "2sbh(10 + 24/n)" : "2sbh 34",
                  .source = "Korthikanti et al. 2022, Dao et al. 2022"};
}

static form in_full(const sizes *s)
{
    return (form){.bytes = 4 * s->bs * s->d / s->stream,
                  .text = "2sbh 2",
                  .source = "Korthikanti et al. 2022"};
}

static void add_form(const yoke_published_request *request, yoke_published_list *list, int stage,
                     const double *of_block, form f)
{
    double bytes = most_kept(request->set, stage, of_block);
    if (!isnan(bytes)) {
        yoke_published_add(list, request->arena,
                           (yoke_published){.quantity = "activations",
                                            .part = "layers",
                                            .stage = stage,
                                            .axis = -1,
                                            .plan = list->measures.stage[stage].layer_stash,
                                            .published = bytes,
                                            .formula = f.text,
                                            .source = f.source});
    }
}

/* [blocks] the same for every layer. */
static const double *of_layers(const yoke_published_request *request, const bool *is_layer,
                               double bytes)
{
    int64_t n_blocks = request->set->graph->n_blocks;
    double *of_block = YOKE_ARENA_NEW(request->arena, double, n_blocks);
    for (int64_t block = 0; block < n_blocks; block++) {
        of_block[block] = is_layer[block] ? bytes : 0;
    }
    return of_block;
}

void yoke_published_add_activations(const yoke_published_request *request,
                                    yoke_published_list *list, int stage)
{
    const bool *is_layer = yoke_plan_layers(request->set->graph, request->arena);
    sizes s = sizes_of(request);
    if (is_the_published_layer(&s)) {
        bool full = strcmp(request->recompute, "full") == 0;
        const form forms[] = {with_scores(&s), full ? in_full(&s) : without_scores(&s)};
        for (int i = 0; i < 2; i++) {
            add_form(request, list, stage, of_layers(request, is_layer, forms[i].bytes), forms[i]);
        }
    }
    add_form(request, list, stage, kept_by_layers(request, is_layer),
             (form){.text = "kept by these operators", .source = ""});
}

/* --- The bubble ------------------------------------------------------------------------------- */

/* p stages, m micro-batches, v chunks a stage. */
static double bubble_1f1b(double p, double m, double v)
{
    (void)v;
    return (p - 1) / (m + p - 1);
}

static double bubble_interleaved(double p, double m, double v)
{
    return (p - 1) / (v * m + p - 1);
}

static double bubble_zb_h1(double p, double m, double v)
{
    (void)v;
    return m >= p ? (p - 1) / (3 * m + p - 1) : (double)NAN;
}

static double bubble_zb_v(double p, double m, double v)
{
    (void)v;
    return 2 * m >= 3 * p - 1 ? (p - 1) / (6 * m + p - 1) : (double)NAN;
}

static const struct {
    const char *schedule;
    double (*bubble)(double p, double m, double v);
    const char *text, *source;
} bubbles[] = {
    {"gpipe", bubble_1f1b, "(p-1)/(m+p-1)", "Huang et al. 2019"},
    {"1f1b", bubble_1f1b, "(p-1)/(m+p-1)", "Narayanan et al. 2021"},
    {"interleaved", bubble_interleaved, "(p-1)/(vm+p-1)", "Narayanan et al. 2021"},
    {"zb-h1", bubble_zb_h1, "(p-1)/(3m+p-1)", "Qi et al. 2023"},
    {"zb-v", bubble_zb_v, "(p-1)/(6m+p-1)", "Qi et al. 2023"},
};

void yoke_published_add_bubble(const yoke_published_request *request, yoke_published_list *list)
{
    const yoke_schedule *schedule = &request->set->schedule;
    yoke_published row = {.quantity = "bubble",
                          .part = "",
                          .stage = -1,
                          .axis = -1,
                          .plan = yoke_program_set_bubble(request->set),
                          .published = (double)NAN,
                          .formula = "",
                          .source = ""};
    for (size_t i = 0; i < sizeof bubbles / sizeof *bubbles; i++) {
        double share = bubbles[i].bubble(schedule->n_stages, schedule->n_microbatches,
                                         (double)schedule->n_chunks / schedule->n_stages);
        if (strcmp(schedule->name, bubbles[i].schedule) == 0 && !isnan(share)) {
            row.published = share;
            row.formula = bubbles[i].text;
            row.source = bubbles[i].source;
        }
    }
    if (schedule->n_stages > 1) {
        yoke_published_add(list, request->arena, row);
    }
}
