/*
 * Config: the defaults, what values may be, and the optimizer that they describe.
 *
 * Relies on the lists of schedules, kernel sets and learning-rate shapes. What only model, corpus
 * and mesh together can tell (heads over tp, sequences over dp, a corpus too short) is refused by
 * the session, and a data_format by the corpus.
 */
#include "yoke/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "kernel/kernel.h"
#include "run/budget.h"
#include "run/config_keys.h"
#include "run/placement.h"
#include "yoke/schedule.h"

yoke_config yoke_config_default(void)
{
    return (yoke_config){
#define FIELD(type, key, fallback, unit, help) .key = (fallback),
        YOKE_CONFIG_LIST(FIELD)
#undef FIELD
    };
}

/* Whole numbers: the highest keep the tokens of a step and the samples of a run within 64 bits. */
typedef struct int_range {
    size_t offset;
    const char *key;
    int64_t low, high;
} int_range;

#define RANGE(key, low, high)                                                                      \
    {                                                                                              \
        offsetof(yoke_config, key), #key, (low), (high)                                            \
    }

static const int_range int_ranges[] = {
    RANGE(zero, 0, 3),
    RANGE(ignore_token, -1, 65535),
    RANGE(mask_token, -1, (1 << 24) - 1),
    RANGE(seed, 0, INT64_MAX),
    RANGE(steps, 1, 100000000000),
    RANGE(batch_size, 1, 1 << 24),
    RANGE(chunks_per_stage, 0, 64),
    RANGE(microbatches, 1, 1 << 16),
    RANGE(seq_len, 1, 1 << 24),
    RANGE(warmup_steps, 0, 1000000000000),
    RANGE(decay_steps, 0, 1000000000000),
    RANGE(max_skipped, 1, 1000000000000),
    RANGE(eval_interval, 0, 1000000000000),
    RANGE(eval_batches, 1, 1 << 30),
    RANGE(threads, 0, 4096),
    RANGE(log_interval, 1, 1000000000000),
};

/* Real numbers: from `low`, itself allowed or not, up to below `high` or including it. */
typedef struct real_range {
    size_t offset;
    const char *key;
    double low, high;
    bool with_low, with_high;
} real_range;

static const real_range real_ranges[] = {
    {offsetof(yoke_config, eval_fraction), "eval_fraction", 0.0, 1.0, true, false},
    {offsetof(yoke_config, mask_rate), "mask_rate", 0.0, 1.0, false, true},
    {offsetof(yoke_config, lr), "lr", 0.0, 1e6, false, true},
    {offsetof(yoke_config, min_lr), "min_lr", 0.0, 1e6, true, true},
    {offsetof(yoke_config, beta1), "beta1", 0.0, 1.0, true, false},
    {offsetof(yoke_config, beta2), "beta2", 0.0, 1.0, true, false},
    /* A smaller one is 0 in fp32, and where moments are 0 as well the update would be 0 / 0. */
    {offsetof(yoke_config, epsilon), "epsilon", 1e-30, 1.0, true, false},
    {offsetof(yoke_config, weight_decay), "weight_decay", 0.0, 1e6, true, true},
    {offsetof(yoke_config, grad_clip), "grad_clip", 0.0, 1e30, true, true},
    {offsetof(yoke_config, timeout_s), "timeout_s", 0.0, 1e9, false, true},
};

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static yoke_status check_ints(const yoke_config *config)
{
    for (int i = 0; i < COUNT(int_ranges); i++) {
        const int_range *range = &int_ranges[i];
        int64_t value = *(const int64_t *)(const void *)((const char *)config + range->offset);
        if (value < range->low) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%s is %" PRId64 "; use at least %" PRId64, range->key,
                             value, range->low);
        }
        if (value > range->high) {
            return YOKE_FAIL(YOKE_BAD_INPUT, "%s is %" PRId64 "; use at most %" PRId64, range->key,
                             value, range->high);
        }
    }
    return YOKE_OK;
}

static yoke_status check_reals(const yoke_config *config)
{
    for (int i = 0; i < COUNT(real_ranges); i++) {
        const real_range *range = &real_ranges[i];
        double value = *(const double *)(const void *)((const char *)config + range->offset);
        bool above = range->with_low ? value >= range->low : value > range->low;
        bool below = range->with_high ? value <= range->high : value < range->high;
        /* Written so that NaN fails too. */
        if (!(above && below)) {
            char low[32];
            char high[32];
            return YOKE_FAIL(YOKE_BAD_INPUT, "%s is %g; use a value in %c%s, %s%c", range->key,
                             value, range->with_low ? '[' : '(',
                             yoke_number_print_real(range->low, low, sizeof low),
                             yoke_number_print_real(range->high, high, sizeof high),
                             range->with_high ? ']' : ')');
        }
    }
    return YOKE_OK;
}

/* Refuses a text that is none of `names`, with the list and the nearest of them. */
static yoke_status check_name(const char *key, const char *value, const char *const *names, int n)
{
    char list[128] = "";
    for (int i = 0; i < n; i++) {
        if (strcmp(value, names[i]) == 0) {
            return YOKE_OK;
        }
        size_t used = strlen(list);
        const char *comma = i == 0 ? "" : i == n - 1 ? " or " : ", ";
        (void)snprintf(list + used, sizeof list - used, "%s%s", comma, names[i]);
    }
    const char *nearest = yoke_text_nearest(value, names, n);
    if (nearest) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "unknown %s '%s'; did you mean '%s'? Use %s", key, value,
                         nearest, list);
    }
    return YOKE_FAIL(YOKE_BAD_INPUT, "unknown %s '%s'; use %s", key, value, list);
}

static yoke_status check_names(const yoke_config *config)
{
    static const char *const homes[] = {"processes", "threads"};
    static const char *const dtypes[] = {"f32", "bf16"};
    static const char *const matmuls[] = {"auto", "f32", "bf16"};
    static const char *const contexts[] = {"gather", "heads", "ring"};
    static const char *const placements[] = {
#define NAME(name) #name,
        YOKE_PLACEMENT_LIST(NAME)
#undef NAME
    };
    static const char *const rates[] = {
#define NAME(upper, lower, help) #lower,
        YOKE_RATE_LIST(NAME)
#undef NAME
    };
    const yoke_schedule_def *schedule;
    yoke_kernel kernels[YOKE_N_OPS];
    YOKE_TRY(check_name("ranks", config->ranks, homes, COUNT(homes)));
    YOKE_TRY(check_name("dtype", config->dtype, dtypes, COUNT(dtypes)));
    YOKE_TRY(check_name("reduce_dtype", config->reduce_dtype, dtypes, COUNT(dtypes)));
    YOKE_TRY(check_name("matmul", config->matmul, matmuls, COUNT(matmuls)));
    YOKE_TRY(check_name("context_parallel", config->context_parallel, contexts, COUNT(contexts)));
    YOKE_TRY(check_name("placement", config->placement, placements, COUNT(placements)));
    YOKE_TRY(check_name("lr_schedule", config->lr_schedule, rates, COUNT(rates)));
    yoke_recompute_wish wish;
    int64_t bytes;
    YOKE_TRY(yoke_recompute_parse(config->recompute, &wish));
    YOKE_TRY(yoke_number_parse_bytes("logits_budget", config->logits_budget, &bytes));
    YOKE_TRY(yoke_number_parse_bytes_or_none("bucket_size", config->bucket_size, &bytes));
    YOKE_TRY(yoke_schedule_find(config->schedule, &schedule));
    return yoke_kernel_choose(config->kernels, kernels);
}

/* Writes the divisors of n next below and above `near`, for a way out: "3 or 4". */
static void near_divisors(int64_t n, int64_t near, char *text, size_t text_bytes)
{
    int64_t below = near < n ? near : n;
    int64_t above = near;
    while (n % below != 0) {
        below--;
    }
    while (above < n && n % above != 0) {
        above++;
    }
    if (above > n || above == below || n % above != 0) {
        (void)snprintf(text, text_bytes, "%" PRId64, below);
    } else {
        (void)snprintf(text, text_bytes, "%" PRId64 " or %" PRId64, below, above);
    }
}

static yoke_status check_batch(const yoke_config *config)
{
    if (config->batch_size % config->microbatches != 0) {
        char divisors[64];
        near_divisors(config->batch_size, config->microbatches, divisors, sizeof divisors);
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "batch_size %" PRId64 " does not divide into %" PRId64
            " microbatches; use microbatches=%s, or a batch_size that is a multiple of "
            "%" PRId64,
            config->batch_size, config->microbatches, divisors, config->microbatches);
    }
    return YOKE_OK;
}

static yoke_status check_rates(const yoke_config *config)
{
    bool wsd = strcmp(config->lr_schedule, yoke_rate_name(YOKE_RATE_WSD)) == 0;
    bool constant = strcmp(config->lr_schedule, yoke_rate_name(YOKE_RATE_CONSTANT)) == 0;
    if (!constant && config->min_lr > config->lr) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "min_lr %g is above lr %g; use min_lr=%g or less",
                         config->min_lr, config->lr, config->lr);
    }
    if (wsd && config->decay_steps < 1) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "lr_schedule wsd needs decay_steps, which is 0; a fifth of the steps is usual: "
            "decay_steps=%" PRId64,
            config->steps / 5 > 0 ? config->steps / 5 : 1);
    }
    if (wsd && config->decay_steps > config->steps) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "decay_steps %" PRId64 " is more than the %" PRId64
                         " steps of the run; use at most %" PRId64,
                         config->decay_steps, config->steps, config->steps);
    }
    if (!wsd && config->decay_steps > 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "decay_steps is %" PRId64 ", but lr_schedule %s has no use for it; use "
                         "decay_steps=0 or lr_schedule=wsd",
                         config->decay_steps, config->lr_schedule);
    }
    return YOKE_OK;
}

/* What would change nothing is refused, not passed over. */
static yoke_status check_context(const yoke_config *config)
{
    if (config->balance_context && strcmp(config->context_parallel, "heads") == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "balance_context has no use with context_parallel heads, where every rank "
                         "attends to all tokens; use balance_context=false, or gather or ring");
    }
    return YOKE_OK;
}

static yoke_status check_evaluation(const yoke_config *config)
{
    if (config->eval_interval > 0 && config->eval_fraction <= 0.0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "eval_interval is %" PRId64 ", but eval_fraction 0 holds nothing out to "
                         "evaluate; use eval_fraction=0.05 or eval_interval=0",
                         config->eval_interval);
    }
    return YOKE_OK;
}

static yoke_status check_matmul(const yoke_config *config)
{
    bool wants_bf16 = strcmp(config->matmul, "bf16") == 0;
    if (wants_bf16 && strcmp(config->dtype, "bf16") != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "matmul is bf16, but dtype %s stores nothing in bf16; use dtype=bf16 or "
                         "matmul=auto",
                         config->dtype);
    }
    if (wants_bf16 && strcmp(config->kernels, "ref") == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT, "matmul is bf16, but kernels ref sum in double; use "
                                         "kernels=auto or matmul=auto");
    }
    return YOKE_OK;
}

yoke_status yoke_config_check(const yoke_config *config)
{
    yoke_mesh mesh;
    YOKE_TRY(yoke_mesh_parse(config->mesh, &mesh));
    YOKE_TRY(check_ints(config));
    YOKE_TRY(check_reals(config));
    YOKE_TRY(check_names(config));
    YOKE_TRY(check_matmul(config));
    YOKE_TRY(check_batch(config));
    YOKE_TRY(check_rates(config));
    YOKE_TRY(check_context(config));
    YOKE_TRY(check_evaluation(config));
    if (!*config->model) {
        return YOKE_FAIL(
            YOKE_BAD_INPUT,
            "model is empty; name a preset such as gpt2-mini, or the path of a config.json");
    }
    return YOKE_OK;
}

int yoke_config_find_idle(const yoke_config *config, const yoke_config_place *place,
                          const char *idle[YOKE_MOST_IDLE_OPTIONS])
{
    const yoke_config usual = yoke_config_default();
    const int *size = place->mesh.size;
    bool other_context = strcmp(config->context_parallel, usual.context_parallel) != 0;
    bool other_reduction = strcmp(config->reduce_dtype, usual.reduce_dtype) != 0;
    bool other_buckets = strcmp(config->bucket_size, usual.bucket_size) != 0;
    bool in_stages = place->mesh.size[YOKE_AXIS_PP] == yoke_mesh_n_ranks(&place->mesh);
    const struct {
        bool holds;
        const char *text;
    } cases[] = {
        {config->zero != usual.zero && size[YOKE_AXIS_DP] == 1,
         "zero has no effect: it is along dp, and the mesh has none"},
        {config->sequence_parallel && size[YOKE_AXIS_TP] == 1,
         "sequence_parallel has no effect: it is along tp, and the mesh has none"},
        {other_context && size[YOKE_AXIS_CP] == 1,
         "context_parallel has no effect: it is along cp, and the mesh has none"},
        {config->balance_context && size[YOKE_AXIS_CP] == 1,
         "balance_context has no effect: it is along cp, and the mesh has none"},
        {other_buckets && in_stages,
         "bucket_size has no effect: no gradient of a block is summed over ranks"},
        {other_reduction && in_stages, "reduce_dtype has no effect: no gradient is summed over "
                                       "ranks, but of a table in two stages, "
                                       "always in f32"},
        {size[YOKE_AXIS_EP] > 1 && !place->has_experts,
         "ep does as dp does: it divides experts, and the model has none"},
        {config->mask_rate != usual.mask_rate && !place->masks_tokens,
         "mask_rate has no effect: the model predicts the next token and masks none"},
    };
    int n = 0;
    for (int i = 0; i < COUNT(cases); i++) {
        if (cases[i].holds) {
            YOKE_ASSERT(n < YOKE_MOST_IDLE_OPTIONS);
            idle[n++] = cases[i].text;
        }
    }
    return n;
}

yoke_optimizer yoke_config_optimizer(const yoke_config *config)
{
    yoke_optimizer optimizer = {
        .rate = YOKE_N_RATES,
        .lr = config->lr,
        .min_lr = config->min_lr,
        .warmup_steps = config->warmup_steps,
        .decay_steps = config->decay_steps,
        .total_steps = config->steps,
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .epsilon = config->epsilon,
        .decay = config->weight_decay,
        .clip = config->grad_clip,
    };
    for (int rate = 0; rate < (int)YOKE_N_RATES; rate++) {
        if (strcmp(config->lr_schedule, yoke_rate_name((yoke_rate)rate)) == 0) {
            optimizer.rate = (yoke_rate)rate;
        }
    }
    YOKE_ASSERT(optimizer.rate != YOKE_N_RATES);
    return optimizer;
}
