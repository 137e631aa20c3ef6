/*
 * Presets: models that have a name. Each is the text of a config.json, so that one parser reads
 * them all.
 */
#ifndef YOKE_MODEL_PRESET_H
#define YOKE_MODEL_PRESET_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_preset {
    const char *name;
    const char *help;
    const char *json;
} yoke_preset;

const yoke_preset *yoke_preset_find(const char *name); /* NULL if unknown */
const char *
yoke_preset_nearest(const char *name); /* name of the one that was probably meant, or NULL */

#ifdef __cplusplus
}
#endif
#endif
