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
    (void)snprintf(
        text, bytes, "%s %s on %s, %s, batch %lld in %lld", c->preset ? c->preset : "gpt2-tiny",
        c->keys ? c->keys : "", c->mesh ? c->mesh : "one rank", c->schedule ? c->schedule : "1f1b",
        (long long)(c->batch ? c->batch : 6), (long long)(c->microbatches ? c->microbatches : 1));
}

static inline void assert_parity(const parity_case *p)
{
    scene s;
    char text[256];
    yoke_parity_result result;
    print_case(&p->base, text, sizeof text);
    scene_open(&s, &p->base);
    yoke_session_parts parts = scene_parts(&s);
    assert_ok(yoke_parity(&parts, s.config.steps, &result), text);
    if (!result.ok || !(result.loss_rel <= YOKE_PARITY_LOSS)) {
        fail_msg("%s: gradients %.3g, norm %.3g, loss %.3g, weights %.3g apart; first %s", text,
                 result.grad_rel, result.norm_rel, result.loss_rel, result.weights_rel,
                 result.first_difference);
    }
    if (p->bits && !result.bits_equal) {
        fail_msg("%s: other bits, first in %s; gradients %.3g, weights %.3g apart", text,
                 result.first_other_bits, result.grad_rel, result.weights_rel);
    }
    scene_close(&s);
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
