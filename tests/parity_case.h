/*
 * Cases of parity: one session on a mesh against one on a single rank. Included after cmocka.h.
 */
#ifndef PARITY_CASE_H
#define PARITY_CASE_H

#include "session_case.h"

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

typedef struct parity_case {
    session_case base;
    bool bits; /* every bit must be equal */
} parity_case;

static inline void print_case(const session_case *c, char *text, size_t bytes)
{
    (void)snprintf(text, bytes, "%s %s on %s %s, %s, batch %lld in %lld, %lld tokens",
                   c->preset ? c->preset : "gpt2-tiny", c->keys ? c->keys : "",
                   c->mesh ? c->mesh : "one rank", c->options ? c->options : "",
                   c->schedule ? c->schedule : "1f1b", (long long)(c->batch ? c->batch : 6),
                   (long long)(c->microbatches ? c->microbatches : 1),
                   (long long)(c->seq_len ? c->seq_len : 16));
}

/* False, with the case and what differs printed, unless the mesh gives what one rank gives. */
static inline bool has_parity(const parity_case *p)
{
    scene s;
    char text[256];
    yoke_parity_result result = {.ok = false};
    print_case(&p->base, text, sizeof text);
    scene_open(&s, &p->base);
    yoke_session_parts parts = scene_parts(&s);
    yoke_status status = yoke_parity(&parts, s.config.steps, &result);
    bool good = !status && result.ok;
    if (status) {
        print_error("%s: %s\n", text, yoke_status_message(status));
        yoke_status_free(status);
    } else if (!good) {
        print_error("%s: gradients %.3g, norm %.3g, loss %.3g, weights %.3g apart; first %s\n",
                    text, result.grad_rel, result.norm_rel, result.loss_rel, result.weights_rel,
                    result.first_difference);
    } else if (p->bits && !result.bits_equal) {
        print_error("%s: other bits, first in %s; gradients %.3g, weights %.3g apart\n", text,
                    result.first_other_bits, result.grad_rel, result.weights_rel);
        good = false;
    }
    scene_close(&s);
    return good;
}

static inline void assert_parity(const parity_case *p)
{
    assert_true(has_parity(p));
}

static inline void assert_parity_table(const char *preset, const parity_case *table, int n)
{
    for (int i = 0; i < n; i++) {
        parity_case p = table[i];
        p.base.preset = preset;
        p.base.steps = 20;
        assert_parity(&p);
    }
}

#endif
