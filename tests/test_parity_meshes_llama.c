/* labels: slow */
/*
 * Llama on every mesh: each dimension alone, all pairs, and many together equal one rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "parity_meshes.h"

static family llama = {
    .preset = "llama-tiny",
    .keys = {[FIVE_LAYERS] = "num_hidden_layers=5",
             [SIX_HEADS] = "num_attention_heads=6 num_key_value_heads=3 hidden_size=24",
             [OTHER_TIE] = "tie_word_embeddings=true"},
};

int main(void)
{
    return run_family(&llama);
}
