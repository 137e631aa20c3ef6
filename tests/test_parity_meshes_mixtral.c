/* labels: slow */
/*
 * Mixtral on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static family mixtral = {
    .preset = "mixtral-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5 capacity_factor=0.6 router_jitter_noise=0.1",
             [SIX_HEADS] = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24 "
                           "num_local_experts=5 capacity_factor=1",
             [OTHER_TIE] = "tie_word_embeddings=true num_experts_per_tok=1"},
};

int main(void)
{
    return run_family(&mixtral);
}
