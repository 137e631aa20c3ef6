/*
 * Export and import: the weights of a session as a HuggingFace model folder, and back.
 *
 * Both hold one tensor of the file in memory at a time, whatever the mesh. Local; the session is
 * not running.
 */
#ifndef YOKE_CHECKPOINT_EXPORT_H
#define YOKE_CHECKPOINT_EXPORT_H

#include "yoke/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes model.safetensors and config.json, which transformers' from_pretrained and yoke read, into
 * `folder`, which exists. Each file appears whole or not at all. After a run. */
yoke_status yoke_export_model(yoke_session *session, const yoke_model_config *config,
                              const char *folder) YOKE_MUST_USE;

/* Loads every parameter from a model.safetensors; before or between runs. Names may lack the
 * leading "transformer." or "model.", as files of base models do. YOKE_BAD_INPUT, naming the
 * tensor, and nothing loaded, where one is missing, has no place in the model, or has another
 * shape or dtype. */
yoke_status yoke_import_weights(yoke_session *session, const yoke_model_config *config,
                                const char *safetensors_path) YOKE_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
