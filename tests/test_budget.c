/*
 * Recomputation within a budget, against all assignments of levels to blocks: for every budget that makes a difference,
 * the choice fits into the real plan and no assignment that fits does less work twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "graph_cases.h"
#include "program/stash.h"
#include "run/budget.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

enum { LAYERS = 4, BLOCKS = LAYERS + 2, ASSIGNMENTS = 256, MOST_STAGES = 3 };

typedef struct budget_case {
    const char *mesh, *schedule;
    int microbatches;
    bool mixed; /* layers of both families take turns */
} budget_case;

typedef struct plan {
    yoke_graph *graph;
    yoke_program_set *set;
} plan;

static void assert_good(yoke_status status)
{
    if (status) {
        fail_msg("%s", yoke_status_message(status));
    }
}

/* Layers that differ in what they keep and do, so that it matters which are chosen. */
static void build_mixed(yoke_graph *g)
{
    graph_case c = gpt2_case(LAYERS);
    c.n_kv = 2;
    c.head_width = 4;
    case_letters(g, &c);
    yoke_value tokens = yoke_input(g, "tokens", "bt");
    yoke_value labels = yoke_input(g, "labels", "bt");
    yoke_value positions = yoke_input(g, "positions", "bt");
    yoke_block(g, "embed");
    yoke_value x = yoke_embedding(g, yoke_weight(g, "wte", "vd", 0.02f), tokens);
    for (int64_t i = 0; i < LAYERS; i++) {
        yoke_block(g, "h.%lld", (long long)i);
        x = i % 2 ? llama_layer(g, &c, i, x, positions) : gpt2_layer(g, &c, i, x);
    }
    yoke_block(g, "head");
    yoke_cross_entropy(g, yoke_matmul(g, "btd,vd->btv", x, yoke_weight(g, "head", "vd", 0.02f)),
                       labels);
}

static void build_graph(const budget_case *c, const yoke_recompute *choice, yoke_graph **graph)
{
    static const yoke_optimizer optimizer = {
        .lr = 1e-3, .total_steps = 10, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 1};
    yoke_mesh mesh;
    graph_case gpt2 = gpt2_case(LAYERS);
    assert_good(yoke_mesh_parse(c->mesh, &mesh));
    assert_good(yoke_graph_create(graph));
    if (c->mixed) {
        build_mixed(*graph);
    } else {
        case_model(*graph, &gpt2);
    }
    assert_good(yoke_graph_finish(*graph));
    assert_good(yoke_graph_differentiate(*graph));
    assert_good(yoke_graph_optimize(*graph, &optimizer));
    yoke_graph_recompute(*graph, choice);
    assert_good(yoke_graph_verify(*graph));
    yoke_policies policies = case_policies();
    assert_good(yoke_layout_infer(*graph, &mesh, &policies));
    assert_good(yoke_graph_verify(*graph));
}

static void plan_make(const budget_case *c, const yoke_recompute *choice, plan *p)
{
    const yoke_schedule_def *schedule = NULL;
    assert_good(yoke_schedule_find(c->schedule, &schedule));
    build_graph(c, choice, &p->graph);
    assert_int_equal(p->graph->n_blocks, BLOCKS);
    yoke_program_request request = {
        .graph = p->graph, .schedule = schedule, .microbatches = c->microbatches};
    assert_good(yoke_program_set_create(&request, &p->set));
    assert_good(yoke_program_verify(p->set));
}

static void plan_free(plan *p)
{
    yoke_program_set_destroy(p->set);
    yoke_graph_destroy(p->graph);
}

/* What one assignment comes to on each stage. */
typedef struct result {
    int64_t stash[MOST_STAGES];
    double work[MOST_STAGES];
} result;

static result measure(const budget_case *c, const yoke_recompute *choice)
{
    plan p;
    result r = {0};
    plan_make(c, choice, &p);
    const yoke_schedule *schedule = &p.set->schedule;
    for (int stage = 0; stage < schedule->n_stages; stage++) {
        r.stash[stage] = yoke_stash_planned(p.set, stage);
    }
    for (int chunk = 0; chunk < schedule->n_chunks; chunk++) {
        for (int b = p.set->first_block[chunk]; b < p.set->first_block[chunk + 1]; b++) {
            r.work[schedule->stage_of_chunk[chunk]] += yoke_graph_recompute_flops(p.graph, b);
        }
    }
    plan_free(&p);
    return r;
}

static void assign(int number, yoke_recompute *choice)
{
    for (int b = 0; b < BLOCKS; b++) {
        choice[b] = YOKE_RECOMPUTE_NONE;
    }
    for (int i = 0; i < LAYERS; i++, number /= YOKE_N_RECOMPUTES) {
        choice[i + 1] = (yoke_recompute)(number % YOKE_N_RECOMPUTES);
    }
}

static double least_work(const result *all, int stage, int64_t budget)
{
    double least = (double)INFINITY;
    for (int i = 0; i < ASSIGNMENTS; i++) {
        if (all[i].stash[stage] <= budget && all[i].work[stage] < least) {
            least = all[i].work[stage];
        }
    }
    return least;
}

/* Chooses, and again with less while the real plan has gaps that lead beyond the budget, as a session does. Returns the
 * largest gap. */
static int64_t choose_and_measure(const budget_case *c, yoke_budget_request request,
                                  result *measured, int64_t *kept)
{
    int64_t gap = 0, budget = request.limit;
    for (;;) {
        yoke_recompute choice[BLOCKS] = {YOKE_RECOMPUTE_NONE};
        assert_good(yoke_budget_choose(&request, choice, kept));
        *measured = measure(c, choice);
        int64_t planned = measured->stash[request.stage];
        if (*kept < 0 || planned <= budget) {
            return gap;
        }
        assert_true(planned >= *kept);
        gap = planned - *kept > gap ? planned - *kept : gap;
        request.limit = *kept - 1;
    }
}

/* Exact where the plan leaves no gaps; else as good as the best for a budget that is less by the gap. */
static bool assert_best(const budget_case *c, yoke_budget_request request, const result *all)
{
    int64_t kept;
    result r;
    int64_t gap = choose_and_measure(c, request, &r, &kept);
    double least = least_work(all, request.stage, request.limit);
    double bound = least_work(all, request.stage, request.limit - gap);
    if (kept < 0) {
        assert_true(isinf(bound));
        return true;
    }
    if (r.stash[request.stage] > request.limit || r.work[request.stage] > bound ||
        r.work[request.stage] < least) {
        fail_msg("%s %s, stage %d, budget %lld: keeps %lld, work %.0f, least %.0f to %.0f", c->mesh,
                 c->schedule, request.stage, (long long)request.limit,
                 (long long)r.stash[request.stage], r.work[request.stage], least, bound);
    }
    return gap == 0;
}

static int assert_best_on_stages(const budget_case *c, const yoke_program_set *const *sets,
                                 const result *all)
{
    int n_exact = 0;
    for (int stage = 0; stage < sets[0]->schedule.n_stages; stage++) {
        /* The stash of many an assignment, and one byte less. */
        for (int k = 0; k < ASSIGNMENTS; k += 17) {
            yoke_budget_request request = {
                .sets = sets, .stage = stage, .limit = all[k].stash[stage]};
            n_exact += assert_best(c, request, all);
            request.limit--;
            n_exact += assert_best(c, request, all);
        }
    }
    return n_exact;
}

static void test_best_for_every_budget(void **state)
{
    (void)state;
    static const budget_case cases[] = {
        {"", "1f1b", 2, false},           {"", "gpipe", 3, true},
        {"pp=2", "1f1b", 4, true},        {"pp=2", "gpipe", 3, true},
        {"pp=2,tp=2", "zb-h1", 4, true},  {"pp=3", "1f1b", 5, false},
        {"pp=2", "interleaved", 4, true}, {"pp=2", "zb-v", 4, true},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        const budget_case *c = &cases[i];
        result all[ASSIGNMENTS];
        for (int k = 0; k < ASSIGNMENTS; k++) {
            yoke_recompute choice[BLOCKS];
            assign(k, choice);
            all[k] = measure(c, choice);
        }
        plan uniform[YOKE_N_RECOMPUTES];
        const yoke_program_set *sets[YOKE_N_RECOMPUTES];
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            yoke_recompute choice[BLOCKS];
            for (int b = 0; b < BLOCKS; b++) {
                choice[b] = (yoke_recompute)level;
            }
            plan_make(c, choice, &uniform[level]);
            sets[level] = uniform[level].set;
        }
        int n_exact = assert_best_on_stages(c, sets, all);
        print_message("%s %s: %d exact\n", c->mesh, c->schedule, n_exact);
        assert_true(n_exact > 0);
        for (int level = 0; level < YOKE_N_RECOMPUTES; level++) {
            plan_free(&uniform[level]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_for_every_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
