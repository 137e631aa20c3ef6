/*
 * Data: a corpus of tokens on disk, and the order in which a run reads it.
 *
 * A corpus is mapped, never loaded. The order is a function of (seed, step) over the global batch,
 * so any rank can read its own slice: nothing is sent, and the mesh changes nothing. All of it is
 * local; a corpus and a sampler may be read by any number of threads and by forked ranks.
 */
#ifndef YOKE_DATA_H
#define YOKE_DATA_H

#include <stdint.h>
#include "yoke/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_corpus yoke_corpus;

/* Follows the last byte of a text, and stands nowhere else. */
enum { YOKE_END_OF_TEXT = 256 };

/* `format` is one of
 *   "text"  each byte of the file is a token, then YOKE_END_OF_TEXT: a vocabulary
 *           of 257; the file is valid UTF-8
 *   "u16"   each little-endian uint16 of the file is a token
 *   "auto"  u16 if the name ends in .bin or .u16, else text
 * YOKE_BAD_INPUT, with numbers and a way out, for another format, and for a file that is
 * missing, unreadable, a directory, empty, of odd size or not UTF-8; the file is read once to
 * see that and to find the highest token. */
yoke_status yoke_corpus_open(const char *path, const char *format,
                             yoke_corpus **corpus) YOKE_MUST_USE;
void yoke_corpus_close(yoke_corpus *corpus); /* NULL is fine */
int64_t yoke_corpus_n_tokens(const yoke_corpus *corpus);
int64_t yoke_corpus_highest(const yoke_corpus *corpus); /* highest token in it; 256 for a text */
int32_t yoke_corpus_token(const yoke_corpus *corpus, int64_t index); /* 0 <= index < n_tokens */

/*
 * Masked tokens (Devlin et al., "BERT", 2019): a share of the tokens is to be found. Of those, 8 in
 * 10 are seen as the mask, 1 as a random token and 1 as it is. Which ones is a function of (seed,
 * sample, index in the sequence): nothing is kept, and any piece can be filled by itself. The mask
 * itself and the ignored token are never to be found.
 */
typedef struct yoke_masking {
    double rate;        /* share of the tokens; 0: none is masked, labels are the next tokens */
    int64_t vocab_size; /* random tokens are below it */
    int32_t token;      /* the mask */
} yoke_masking;

/*
 * One order through tokens [first, first + n_tokens) of a corpus: windows of seq_len + 1 tokens
 * that overlap by one, so that each token but the first is predicted once; with masked tokens the
 * last of a window is not read. Tokens at the end that
 * fill no window are left out. An epoch is every window once; each epoch is permuted anew. Sample i
 * of the whole run is window permute(epoch, i mod n_windows) of epoch i / n_windows: an epoch may
 * end in the middle of a batch, and steps an epoch follow from global counts alone.
 *
 * Plain data, borrowed by the functions below.
 */
typedef struct yoke_sampler {
    const yoke_corpus *corpus;
    int64_t first, n_tokens;
    int64_t seq_len;      /* tokens in a sequence */
    int64_t batch_size;   /* sequences in a step: samples [step * batch_size, ...) */
    int64_t microbatches; /* divides batch_size; micro-batch m holds the m-th part of the step */
    int64_t ignore_token; /* labels equal to it become -1; -1: none */
    int64_t n_chunks;     /* of tokens, in the order of a plan that balances them; 0: plain order */
    yoke_masking masking;
    uint64_t seed;
    bool
        shuffled; /* false: windows in order, and labels count in the first epoch only (evaluation) */
} yoke_sampler;

/* YOKE_BAD_INPUT if there is not one whole window, or if the micro-batches do not divide the
 * batch, with the numbers. */
yoke_status yoke_sampler_check(const yoke_sampler *sampler) YOKE_MUST_USE;
int64_t yoke_sampler_n_windows(const yoke_sampler *sampler); /* in an epoch */

/* The window, from 0, that sample `sample` of the run reads. */
int64_t yoke_sampler_window(const yoke_sampler *sampler, int64_t sample);

/* Fills the piece `shard` of an input of one micro-batch, int32 [batch_size / microbatches,
 * seq_len], compactly and in the sampler's order of tokens:
 *   "tokens"     what the model sees
 *   "labels"     the token after each, or the one that was masked; -1 where it does not count
 *   "positions"  index in the sequence
 *   "token_types" 0: a sequence is one segment
 * False for another name. The sampler has been checked. */
bool yoke_sampler_fill(const yoke_sampler *sampler, const char *name, int64_t step,
                       int64_t microbatch, const yoke_shard *shard, int32_t *out);

#ifdef __cplusplus
}
#endif
#endif
