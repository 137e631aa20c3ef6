/*
 * Published formulas beside a plan. State and traffic are here, activations and the bubble in
 * published_stage.c.
 *
 *   state        16 bytes a parameter in fp32, and its forms with pieces: Rajbhandari et al. 2020,
 *                section 5
 *   layers       Narayanan et al., "Efficient large-scale language model training on GPU clusters
 *                using Megatron-LM", 2021, section 3.2; in pieces of tokens: Korthikanti et al.,
 *                "Reducing activation recomputation", 2022, section 4.2
 *   sequences    Jacobs et al., "DeepSpeed Ulysses", 2023; Liu et al., "Ring attention", 2023;
 *                Dubey et al., "The Llama 3 herd of models", 2024, section 3.3.2
 *   parameters   Rajbhandari et al. 2020, section 7
 *   boundaries   Narayanan et al. 2021, section 3.2
 *
 * Traffic is what all ranks receive in a step, so that uneven pieces do not matter.
 */
#include "sim/published.h"

#include <math.h>
#include <string.h>
#include "sim/published_rows.h"

void yoke_published_add(yoke_published_list *list, yoke_arena *arena, yoke_published row)
{
    list->row = yoke_arena_grow(arena, list->row, list->n, &list->capacity, sizeof *list->row);
    list->row[list->n++] = row;
}

/* --- Sizes ------------------------------------------------------------------------------------ */

static bool shares(const char *letters, const char *others)
{
    return letters && strpbrk(letters, others) != NULL;
}

bool yoke_published_divides_tokens(const yoke_policy *policy)
{
    return policy->compute && shares(policy->stream, "bt");
}

bool yoke_published_divides_layers(const yoke_policy *policy)
{
    return policy->compute && shares(policy->parameter, "hf");
}

double yoke_published_stream_parts(const yoke_published_request *request)
{
    double parts = 1;
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        bool divides = yoke_published_divides_tokens(&request->policies->axis[axis]);
        parts *= divides ? request->set->mesh.size[axis] : 1;
    }
    return parts;
}

/* Elements [b,t,d] of a micro-batch, over all ranks that hold different pieces. */
static double stream_elements(const yoke_graph *graph)
{
    return (double)yoke_letter_extent(graph, 'b') * (double)yoke_letter_extent(graph, 't') *
           (double)yoke_letter_extent(graph, 'd');
}

static int n_stages_with(const yoke_program_set *set, yoke_value value)
{
    int n = 0;
    for (uint64_t bits = set->stages[value]; bits; bits &= bits - 1) {
        n++;
    }
    return n;
}

/* --- State ------------------------------------------------------------------------------------ */

/* In how many pieces each kind of state lies, beyond the pieces that ranks compute with. */
typedef struct pieces {
    double parameters, gradients, optimizer;
} pieces;

static pieces pieces_of(const yoke_published_request *request)
{
    pieces p = {1, 1, 1};
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        const yoke_policy *policy = &request->policies->axis[axis];
        double n = policy->compute ? request->set->mesh.size[axis] : 1;
        p.parameters *= policy->storing == YOKE_STORE_GATHER_FOR_USE ? n : 1;
        p.gradients *= policy->scatters_early ? n : 1;
        p.optimizer *= policy->storing != YOKE_STORE_WHOLE ? n : 1;
    }
    return p;
}

/* What a rank computes with, of a parameter: the pieces of axes that divide it for good. */
static double computed_elements(const yoke_published_request *request, const yoke_value_info *info)
{
    double elements = (double)yoke_shape_elements(&info->shape);
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        bool stays = request->policies->axis[axis].storing == YOKE_STORE_WHOLE;
        bool divided = stays && info->layout.place[axis] >= 0;
        elements /= divided ? request->set->mesh.size[axis] : 1;
    }
    return elements;
}

static const char *state_formula(yoke_arena *arena, pieces p)
{
    if (p.parameters == p.optimizer) {
        return p.parameters > 1 ? yoke_arena_print(arena, "16P/%g", p.parameters) : "16P";
    }
    return p.gradients > 1 ? yoke_arena_print(arena, "4P + 12P/%g", p.optimizer)
                           : yoke_arena_print(arena, "8P + 8P/%g", p.optimizer);
}

/* Parameters, gradients and two moments, 4 bytes each; what is frozen has a parameter only. */
static double state_bytes(const yoke_published_request *request, pieces p, int stage)
{
    const yoke_graph *graph = request->set->graph;
    double bytes = 0;
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        const yoke_value_info *info = &graph->values[graph->parameters[i]];
        bool here = request->set->stages[graph->parameters[i]] >> stage & 1;
        double elements = here ? computed_elements(request, info) : 0;
        double trained = info->frozen ? 0 : elements;
        bytes += 4 * (elements / p.parameters + trained / p.gradients) + 8 * trained / p.optimizer;
    }
    return bytes;
}

static void add_state(const yoke_published_request *request, yoke_published_list *list, int stage)
{
    pieces p = pieces_of(request);
    yoke_published_add(list, request->arena,
                       (yoke_published){.quantity = "state",
                                        .part = "",
                                        .stage = stage,
                                        .axis = -1,
                                        .plan = list->measures.stage[stage].state,
                                        .published = state_bytes(request, p, stage),
                                        .formula = state_formula(request->arena, p),
                                        .source = "Rajbhandari et al. 2020"});
}

/* --- Traffic ---------------------------------------------------------------------------------- */

typedef struct formula {
    double bytes; /* received in a step, by all ranks; NaN: none applies */
    const char *text, *source;
} formula;

static const formula no_formula = {.bytes = (double)NAN, .text = "", .source = ""};

/* Bytes of an element, by a key of the config; without one float32. */
static double element_bytes(const char *dtype)
{
    return dtype && strcmp(dtype, "bf16") == 0 ? 2 : 4;
}

static int n_layers(const yoke_published_request *request)
{
    const yoke_graph *graph = request->set->graph;
    const bool *is_layer = yoke_plan_layers(graph, request->arena);
    int n = 0;
    for (int64_t block = 0; block < graph->n_blocks; block++) {
        n += is_layer[block];
    }
    return n;
}

/* Elements of keys in a micro-batch, over all ranks; those that do not divide are there again. */
static double key_elements(const yoke_published_request *request)
{
    const yoke_graph *graph = request->set->graph;
    int64_t k = yoke_letter_extent(graph, 'k');
    k = k > 0 ? k : yoke_letter_extent(graph, 'h');
    double elements = (double)yoke_letter_extent(graph, 'b') *
                      (double)yoke_letter_extent(graph, 't') * (double)k *
                      (double)yoke_letter_extent(graph, 'x');
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        int n = request->set->mesh.size[axis];
        bool whole = yoke_published_divides_layers(&request->policies->axis[axis]) && k % n != 0;
        elements *= whole ? n : 1;
    }
    return elements;
}

/* A sum in each direction for each half of the layer that is divided; with tokens divided each is a
 * scatter and a gather, and the backward pass gathers its input once more, having kept the piece. */
static formula inner_parts(const yoke_published_request *request, int axis)
{
    static const char *const texts[2][2] = {{"4bsh(n-1)/n a layer", "5bsh(n-1)/n a layer"},
                                            {"8bsh(n-1)/n a layer", "10bsh(n-1)/n a layer"}};
    const yoke_policy *policy = &request->policies->axis[axis];
    bool in_pieces = yoke_published_divides_tokens(policy);
    bool both = shares(policy->parameter, "h") && shares(policy->parameter, "f");
    double n_halves = both ? 2 : 1;
    int n = request->set->mesh.size[axis];
    return (formula){
        .bytes = element_bytes(request->dtype) * (in_pieces ? 5 : 4) * n_halves *
                 stream_elements(request->set->graph) * (n - 1),
        .text = texts[both][in_pieces],
        .source = in_pieces ? "Korthikanti et al. 2022" : "Narayanan et al. 2021",
    };
}

/* Each rank has a piece of every sequence. Keys and values, 2bsk elements, come from all others,
 * forward and again backward, and their gradients go back: to their owners, or round a whole ring;
 * or four tensors change from tokens to heads and back, in each direction. */
static formula sequences(const yoke_published_request *request, int axis)
{
    const char *compute = request->policies->axis[axis].compute;
    int n = request->set->mesh.size[axis];
    double unit = element_bytes(request->dtype), keys = key_elements(request);
    if (strchr(compute, 'h')) {
        return (formula){.bytes =
                             unit * 4 * (keys + stream_elements(request->set->graph)) * (n - 1) / n,
                         .text = "4bs(h+k)(n-1)/nn a layer",
                         .source = "Jacobs et al. 2023"};
    }
    if (strchr(compute, 's')) {
        return (formula){.bytes = unit * keys * (6 * n - 4),
                         .text = "bsk(6n-4)/n a layer",
                         .source = "Liu et al. 2023"};
    }
    return (formula){.bytes = unit * 6 * keys * (n - 1),
                     .text = "6bsk(n-1)/n a layer",
                     .source = "Dubey et al. 2024"};
}

static formula layers(const yoke_published_request *request, int axis)
{
    const yoke_policy *policy = &request->policies->axis[axis];
    formula f = no_formula;
    if (yoke_published_divides_layers(policy)) {
        f = inner_parts(request, axis);
    } else if (strchr(policy->stream, 't')) {
        f = sequences(request, axis);
    }
    f.bytes *= (double)n_layers(request) * request->set->schedule.n_microbatches;
    return f;
}

/* Over all ranks along the other axes, how often one element of a parameter is there. Pieces that
 * are gathered for the step are whole to what is gathered for use. */
static double copies(const yoke_published_request *request, int axis, yoke_value parameter)
{
    const yoke_policy *own = &request->policies->axis[axis];
    const yoke_value_info *info = &request->set->graph->values[parameter];
    double n = n_stages_with(request->set, parameter);
    for (int other = 0; other < YOKE_N_AXES; other++) {
        const yoke_policy *policy = &request->policies->axis[other];
        bool is_whole =
            info->layout.place[other] < 0 || (policy->storing == YOKE_STORE_GATHER_FOR_STEP &&
                                              own->storing == YOKE_STORE_GATHER_FOR_USE);
        n *= other != axis && policy->compute && is_whole ? request->set->mesh.size[other] : 1;
    }
    return n;
}

/* Bytes of one element that go over an axis in a step: a gather or a scatter is a pass, a sum is two. */
static double passed_bytes(const yoke_published_request *request, const yoke_policy *policy,
                           bool trained)
{
    double n_microbatches = request->set->schedule.n_microbatches;
    double gathered = element_bytes(request->dtype);
    double reduced = trained ? element_bytes(request->reduce_dtype) : 0;
    double often = policy->scatters_early ? n_microbatches : 1;
    switch (policy->storing) {
    case YOKE_STORE_WHOLE:
        return 2 * reduced;
    case YOKE_STORE_GATHER_FOR_STEP:
        return gathered + often * reduced;
    case YOKE_STORE_GATHER_FOR_USE:
        return 2 * n_microbatches * gathered + often * reduced;
    }
    return 0;
}

static const char *parameters_formula(const yoke_policy *policy)
{
    if (policy->storing == YOKE_STORE_GATHER_FOR_USE) {
        return policy->scatters_early ? "3P(n-1)/n a micro-batch" : "(1+2m)P(n-1)/n";
    }
    return policy->scatters_early ? "(1+m)P(n-1)/n" : "2P(n-1)/n";
}

/* Two axes that gather for use share the work; published is what one of them does. */
static bool shares_gathers(const yoke_published_request *request, int axis)
{
    int n = 0;
    for (int other = 0; other < YOKE_N_AXES; other++) {
        n += request->policies->axis[other].storing == YOKE_STORE_GATHER_FOR_USE &&
             request->set->mesh.size[other] > 1;
    }
    return n > 1 && request->policies->axis[axis].storing == YOKE_STORE_GATHER_FOR_USE;
}

static formula parameters(const yoke_published_request *request, int axis)
{
    const yoke_policy *policy = &request->policies->axis[axis];
    const yoke_graph *graph = request->set->graph;
    double bytes = 0;
    if (shares_gathers(request, axis)) {
        return no_formula;
    }
    for (int64_t i = 0; i < graph->n_parameters; i++) {
        yoke_value parameter = graph->parameters[i];
        const yoke_value_info *info = &graph->values[parameter];
        bool stays = policy->storing == YOKE_STORE_WHOLE;
        if (stays && (info->layout.place[axis] >= 0 || !yoke_published_divides_tokens(policy))) {
            continue;
        }
        bytes += (double)yoke_shape_elements(&info->shape) * copies(request, axis, parameter) *
                 passed_bytes(request, policy, !info->frozen);
    }
    if (bytes == 0) {
        return no_formula;
    }
    return (formula){.bytes = bytes * (request->set->mesh.size[axis] - 1),
                     .text = parameters_formula(policy),
                     .source = "Rajbhandari et al. 2020"};
}

/* The stream, forward and back, wherever it goes on to another stage. */
static formula boundaries(const yoke_published_request *request)
{
    const yoke_schedule *schedule = &request->set->schedule;
    int n = 0;
    for (int chunk = 1; chunk < schedule->n_chunks; chunk++) {
        n += schedule->stage_of_chunk[chunk - 1] != schedule->stage_of_chunk[chunk];
    }
    double n_whole = (double)request->set->n_ranks / request->set->mesh.size[YOKE_AXIS_PP] /
                     yoke_published_stream_parts(request);
    return (formula){.bytes = element_bytes(request->dtype) * 2.0 * n *
                              stream_elements(request->set->graph) * n_whole *
                              schedule->n_microbatches,
                     .text = "bsh a boundary, direction",
                     .source = "Narayanan et al. 2021"};
}

static formula formula_of(const yoke_published_request *request, int axis, yoke_traffic part)
{
    bool divides = request->policies->axis[axis].compute != NULL;
    switch (part) {
    case YOKE_TRAFFIC_LAYERS:
        return divides ? layers(request, axis) : no_formula;
    case YOKE_TRAFFIC_PARAMS:
        return divides ? parameters(request, axis) : no_formula;
    case YOKE_TRAFFIC_BOUNDARIES:
        return divides ? no_formula : boundaries(request);
    case YOKE_TRAFFIC_REST:
    case YOKE_N_TRAFFICS:
        break;
    }
    return no_formula;
}

static void add_traffic(const yoke_published_request *request, yoke_published_list *list)
{
    static const char *const names[] = {
#define TRAFFIC_NAME(upper, lower, help) #lower,
        YOKE_TRAFFIC_LIST(TRAFFIC_NAME)
#undef TRAFFIC_NAME
    };
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        for (int part = 0; part < YOKE_N_TRAFFICS; part++) {
            formula f = no_formula;
            double plan = list->measures.moved[axis][part];
            if (request->set->mesh.size[axis] > 1) {
                f = formula_of(request, axis, (yoke_traffic)part);
            }
            if (plan == 0 && isnan(f.bytes)) {
                continue;
            }
            yoke_published_add(list, request->arena,
                               (yoke_published){.quantity = "traffic",
                                                .part = names[part],
                                                .stage = -1,
                                                .axis = axis,
                                                .plan = plan,
                                                .published = f.bytes,
                                                .formula = f.text,
                                                .source = f.source});
        }
    }
}

yoke_published_list yoke_published_build(const yoke_published_request *request)
{
    yoke_published_list list = {.measures = yoke_plan_measure(request->set, request->arena)};
    for (int stage = 0; stage < request->set->schedule.n_stages; stage++) {
        add_state(request, &list, stage);
        yoke_published_add_activations(request, &list, stage);
    }
    add_traffic(request, &list);
    yoke_published_add_bubble(request, &list);
    return list;
}
