/*
 * Model: a family of networks, described by the keys of a HuggingFace config.json, that writes
 * itself into a graph.
 *
 * A model is mathematics only: it names no rank, axis, collective or kernel. Adding one: a file in
 * src/model/ and a line in YOKE_MODEL_LIST; or, outside the library, a `yoke_model` of your own
 * (examples/own_model.c). All of it is local.
 */
#ifndef YOKE_MODEL_H
#define YOKE_MODEL_H

#include <stdbool.h>
#include "yoke/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* YOKE_KEY_WORD: one of the words that the constant of the same name accepts; the value is its
 * index, from 0. */
typedef enum yoke_key_kind {
    YOKE_KEY_INT,
    YOKE_KEY_REAL,
    YOKE_KEY_BOOL,
    YOKE_KEY_WORD
} yoke_key_kind;

/* Fallback of an optional key: the family derives its value from others, and config.json says
 * null. */
#define YOKE_KEY_DERIVED (-1.0)

/* A key that has a value. */
typedef struct yoke_model_key {
    const char *name; /* HuggingFace's */
    yoke_key_kind kind;
    double fallback; /* value where config.json is silent or says null */
    const char *help;
} yoke_model_key;

/* A key of config.json that changes the mathematics and of which the family knows some values only:
 * those in `accepted`, separated by spaces, such as "false" or "null". The first is what is written. */
typedef struct yoke_model_constant {
    const char *name;
    const char *accepted;
} yoke_model_constant;

enum { YOKE_MAX_MODEL_KEYS = 32 };

typedef struct yoke_model yoke_model;

/* A family and the values of its keys, in the order of its keys. Plain data: copy it freely. */
typedef struct yoke_model_config {
    const yoke_model *model;
    double value[YOKE_MAX_MODEL_KEYS];
} yoke_model_config;

/* What the labels of a run are. */
typedef enum yoke_objective {
    YOKE_NEXT_TOKEN,   /* the token after each: a token sees those before it */
    YOKE_MASKED_TOKENS /* the tokens that were taken out of the text: a token sees all */
} yoke_objective;

/* What one graph is built for. The letters b and t are set by the caller. */
typedef struct yoke_build {
    bool training;                /* false: no dropout */
    yoke_value tokens, positions; /* int32 [b, t] */
} yoke_build;

struct yoke_model {
    const char *name; /* model_type */
    const char *help;
    const char *architecture; /* "architectures" of config.json, for export; NULL: none */
    const yoke_model_key *keys;
    int n_keys;

    /* Refuses what the family cannot be, with numbers and a way out, before anything is
     * allocated. NULL: everything is fine. */
    yoke_status (*check)(const yoke_model_config *config);

    yoke_objective objective;

    int64_t (*vocab_size)(const yoke_model_config *config);
    int64_t (*max_tokens)(const yoke_model_config *config); /* longest sequence; NULL: any */

    /* Sets letters, declares parameters, and returns the logits [b, t, v]. The config has been
     * checked. Inputs of its own may be the names that yoke_input knows. */
    yoke_value (*logits)(yoke_graph *graph, const yoke_model_config *config,
                         const yoke_build *build);

    /* Where parameter `name` stands in model.safetensors: writes the tensor's name to `hf` and
     * which of how many equal parts along its last dim the parameter is (0 of 1: all of it). In
     * the file, the dims h or k and x of a parameter are one dim. A '#' in the name stands for the
     * index along the first dim: each index is a tensor of its own. NULL: its own name, all of it. */
    void (*hf_name)(const char *name, char *hf, int hf_bytes, int *part, int *n_parts);

    /* Parameters that the config must give, counted by formula: checked against the graph at
     * every start. NULL: not checked. */
    int64_t (*n_parameters)(const yoke_model_config *config);

    const yoke_model_constant *constants; /* may be NULL */
    int n_constants;
};

/* Value of a key of the model; asserts that the family has it. */
double yoke_model_value(const yoke_model_config *config, const char *key);
int64_t yoke_model_int(const yoke_model_config *config, const char *key);

/* X(name): `const yoke_model yoke_model_<name>` in src/model/<name>.c */
#define YOKE_MODEL_LIST(X) X(gpt2) X(llama) X(bert) X(mixtral)

#define YOKE_MODEL_DECLARE(name) extern const yoke_model yoke_model_##name;
YOKE_MODEL_LIST(YOKE_MODEL_DECLARE)
#undef YOKE_MODEL_DECLARE

const yoke_model *yoke_model_find(const char *name); /* NULL if unknown */
yoke_model_config yoke_model_config_default(const yoke_model *model);

/* Sets one key; YOKE_BAD_INPUT with the nearest known key, or for a value that is no number (or
 * true/false) or not whole, or that the family does not know. */
yoke_status yoke_model_config_set(yoke_model_config *config, const char *key,
                                  const char *value) YOKE_MUST_USE;

/* A preset by name ("gpt2-mini", "gpt2", "llama-mini", ...) or the path of a config.json; then
 * checked. Keys of config.json that are not the family's are ignored if HuggingFace writes them
 * without effect on the mathematics, else refused. */
yoke_status yoke_model_config_load(const char *preset_or_path,
                                   yoke_model_config *config) YOKE_MUST_USE;

/* Writes a config.json that yoke_model_config_load and HuggingFace read back; YOKE_IO. */
yoke_status yoke_model_config_save(const yoke_model_config *config, const char *path) YOKE_MUST_USE;
yoke_status yoke_model_config_check(const yoke_model_config *config) YOKE_MUST_USE;

/* The presets, for help texts: index from 0. */
int yoke_model_n_presets(void);
const char *yoke_model_preset_name(int index);
const char *yoke_model_preset_help(int index);

#ifdef __cplusplus
}
#endif
#endif
