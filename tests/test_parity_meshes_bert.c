/* labels: slow */
/*
 * BERT on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static family bert = {
    .preset = "bert-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5",
             [SIX_HEADS] = "num_attention_heads=6 hidden_size=24 hidden_dropout_prob=0.1 "
                           "attention_probs_dropout_prob=0.1",
             [OTHER_TIE] = "tie_word_embeddings=false"},
};

int main(void)
{
    return run_family(&bert);
}
