/*
 * Cut: which blocks of the model each stage has.
 *
 * The model is a chain of blocks: the embedding, the layers, the head. A stage has neighbouring
 * ones.
 */
#ifndef YOKE_PIPE_CUT_H
#define YOKE_PIPE_CUT_H

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Deals `n_blocks` blocks to `n_stages` stages, at least one each, so that the dearest stage is as
 * cheap as possible, and among those cuts the costs are most even (least sum of squares). Where
 * that is equal too, later stages have more blocks: earlier ones hold more micro-batches in flight.
 *
 * `block_cost` [n_blocks], any unit, not negative. Stage s gets blocks first_block[s] up to, not
 * with, first_block[s + 1]; `first_block` [n_stages + 1]. YOKE_BAD_INPUT with more stages than
 * blocks.
 */
yoke_status yoke_cut_balance(const double *block_cost, int n_blocks, int n_stages,
                             int *first_block) YOKE_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
