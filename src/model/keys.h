/*
 * The keys of a family, as the parser of values, the reader and the writer of config.json need
 * them.
 */
#ifndef YOKE_MODEL_KEYS_H
#define YOKE_MODEL_KEYS_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL if the family has no such key. */
const yoke_model_key *yoke_model_key_find(const yoke_model *model, const char *name);
const yoke_model_constant *yoke_model_constant_find(const yoke_model *model, const char *name);

/* The word that a value of a YOKE_KEY_WORD stands for, in `text`; 64 bytes are enough. */
const char *yoke_model_word(const yoke_model *model, const yoke_model_key *key, double value,
                            char *text, int text_bytes);

/* Bounds of one key, both inclusive. */
typedef struct yoke_key_range {
    const char *key;
    double low, high;
} yoke_key_range;

/* Refuses the first value out of its range. A derived value is in every range. */
yoke_status yoke_model_check_ranges(const yoke_model_config *config, const yoke_key_range *ranges,
                                    int n_ranges) YOKE_MUST_USE;

/* Refuses a dropout rate outside [0, 1). */
yoke_status yoke_model_check_rate(const yoke_model_config *config, const char *key) YOKE_MUST_USE;

/* Refuses a value of `whole` that the value of `parts` does not divide, naming what would. */
yoke_status yoke_model_check_divides(const yoke_model_config *config, const char *whole,
                                     const char *parts) YOKE_MUST_USE;

/*
 * Sizes that every family shares, as bounds: beyond them a size is a slip of the keyboard, and a
 * count of parameters would no longer be sure to fit into 63 bits.
 */
enum {
    YOKE_MOST_TOKEN_IDS = 1 << 24,
    YOKE_MOST_POSITIONS = 1 << 30,
    YOKE_MOST_WIDTH = 1 << 20,
    YOKE_MOST_FEED_FORWARD = 1 << 22,
    YOKE_MOST_LAYERS = 1 << 14,
    YOKE_MOST_HEADS = 1 << 14,
    YOKE_MOST_HEAD_WIDTH = 1 << 12,
    YOKE_MOST_EXPERTS = 1 << 12,
};

#ifdef __cplusplus
}
#endif
#endif
