/*
 * The order of a run: sample to window, and the filling of one rank's piece of a micro-batch.
 *
 * It relies on the corpus for tokens and on yoke_random_permute for the order of an epoch. It keeps
 * no state: what a step reads follows from its number.
 */
#include "yoke/data.h"

#include <string.h>
#include "data/mask.h"
#include "mesh/order.h"
#include "yoke/random.h"

yoke_status yoke_sampler_check(const yoke_sampler *sampler)
{
    const yoke_sampler *s = sampler;
    YOKE_ASSERT(s->seq_len >= 1 && s->batch_size >= 1 && s->microbatches >= 1);
    YOKE_ASSERT(s->first >= 0 && s->n_tokens >= 0 &&
                s->first + s->n_tokens <= yoke_corpus_n_tokens(s->corpus));
    if (s->batch_size % s->microbatches != 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "batch_size=%lld does not divide into microbatches=%lld; use batch_size="
                         "%lld, or a number of micro-batches that divides it",
                         (long long)s->batch_size, (long long)s->microbatches,
                         (long long)((s->batch_size / s->microbatches + 1) * s->microbatches));
    }
    if (s->n_tokens < 2) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%lld of the corpus's %lld tokens are too few: a sequence needs 2, one to "
                         "see and one to predict; use a longer corpus",
                         (long long)s->n_tokens, (long long)yoke_corpus_n_tokens(s->corpus));
    }
    if (yoke_sampler_n_windows(s) == 0) {
        return YOKE_FAIL(YOKE_BAD_INPUT,
                         "%lld of the corpus's %lld tokens hold no window of seq_len + 1 = %lld; "
                         "use seq_len=%lld or less, or a longer corpus",
                         (long long)s->n_tokens, (long long)yoke_corpus_n_tokens(s->corpus),
                         (long long)s->seq_len + 1, (long long)s->n_tokens - 1);
    }
    return YOKE_OK;
}

int64_t yoke_sampler_n_windows(const yoke_sampler *sampler)
{
    return sampler->n_tokens < 1 ? 0 : (sampler->n_tokens - 1) / sampler->seq_len;
}

int64_t yoke_sampler_window(const yoke_sampler *sampler, int64_t sample)
{
    int64_t n_windows = yoke_sampler_n_windows(sampler);
    YOKE_ASSERT(n_windows > 0);
    int64_t epoch = sample / n_windows;
    int64_t index = sample % n_windows;
    if (!sampler->shuffled) {
        return index;
    }
    yoke_random_key key = yoke_random_stream(sampler->seed, "data.order", epoch, 0);
    return (int64_t)yoke_random_permute(key, (uint64_t)n_windows, (uint64_t)index);
}

/* One sequence of a run. */
typedef struct sequence {
    const yoke_sampler *sampler;
    int64_t start;        /* of its window, in the corpus */
    bool counts;          /* its labels do */
    yoke_random_key mask; /* if tokens are masked */
} sequence;

/* What one input holds at position `t` of a sequence. */
typedef int32_t (*element)(const sequence *here, int64_t t);

static yoke_masked masked_at(const sequence *here, int64_t t)
{
    int32_t token = yoke_corpus_token(here->sampler->corpus, here->start + t);
    return yoke_mask_apply(here->sampler, here->mask, t, token);
}

static int32_t token_at(const sequence *here, int64_t t)
{
    if (here->sampler->masking.rate > 0.0) {
        return masked_at(here, t).seen;
    }
    return yoke_corpus_token(here->sampler->corpus, here->start + t);
}

static int32_t label_at(const sequence *here, int64_t t)
{
    if (!here->counts) {
        return -1;
    }
    if (here->sampler->masking.rate > 0.0) {
        return masked_at(here, t).label;
    }
    int32_t label = yoke_corpus_token(here->sampler->corpus, here->start + t + 1);
    return label == here->sampler->ignore_token ? -1 : label;
}

static int32_t position_at(const sequence *here, int64_t t)
{
    (void)here;
    return (int32_t)t;
}

static int32_t token_type_at(const sequence *here, int64_t t)
{
    (void)here;
    (void)t;
    return 0;
}

static element find_element(const char *name)
{
    static const struct {
        const char *name;
        element at;
    } inputs[] = {{"tokens", token_at},
                  {"labels", label_at},
                  {"positions", position_at},
                  {"token_types", token_type_at}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        if (strcmp(name, inputs[i].name) == 0) {
            return inputs[i].at;
        }
    }
    return NULL;
}

/* In order each window counts once: what comes after the last is there to fill the batch. */
static bool is_repeated(const yoke_sampler *sampler, int64_t sample)
{
    return !sampler->shuffled && sample >= yoke_sampler_n_windows(sampler);
}

static sequence sequence_of(const yoke_sampler *sampler, int64_t sample)
{
    int64_t window = yoke_sampler_window(sampler, sample);
    return (sequence){
        .sampler = sampler,
        .start = sampler->first + window * sampler->seq_len,
        .counts = !is_repeated(sampler, sample),
        .mask = yoke_mask_key(sampler, sample),
    };
}

bool yoke_sampler_fill(const yoke_sampler *sampler, const char *name, int64_t step,
                       int64_t microbatch, const yoke_shard *shard, int32_t *out)
{
    element at = find_element(name);
    if (!at) {
        return false;
    }
    int64_t n_rows = sampler->batch_size / sampler->microbatches;
    YOKE_ASSERT(shard->n_dims == 2);
    YOKE_ASSERT(shard->offset[0] >= 0 && shard->offset[0] + shard->extent[0] <= n_rows);
    YOKE_ASSERT(shard->offset[1] >= 0 && shard->offset[1] + shard->extent[1] <= sampler->seq_len);
    const yoke_order order = {.n_tokens = sampler->seq_len, .n_chunks = sampler->n_chunks};
    int64_t first_sample = step * sampler->batch_size + microbatch * n_rows + shard->offset[0];
    for (int64_t row = 0; row < shard->extent[0]; row++) {
        const sequence here = sequence_of(sampler, first_sample + row);
        for (int64_t t = 0; t < shard->extent[1]; t++) {
            *out++ = at(&here, yoke_order_position(order, shard->offset[1] + t));
        }
    }
    return true;
}
