/* labels: slow */
/*
 * GPT-2 on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static family gpt2 = {
    .preset = "gpt2-tiny",
    .keys = {[FIVE_LAYERS] = "n_layer=5",
             [SIX_HEADS] = "n_head=6 n_embd=24 embd_pdrop=0.1 attn_pdrop=0.1 resid_pdrop=0.1",
             [OTHER_TIE] = "tie_word_embeddings=false"},
};

int main(void)
{
    return run_family(&gpt2);
}
