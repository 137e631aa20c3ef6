/*
 * Sleeping until a word of shared memory changes (Linux futex), without a system call where nobody
 * sleeps. Who changes the word of a gate must do so by a sequentially consistent operation before
 * yoke_gate_wake, or the wake may be missed.
 */
#ifndef YOKE_TRANSPORT_WAIT_H
#define YOKE_TRANSPORT_WAIT_H

#include "transport/world.h"

/* Sleeps while `*word` is `value`, at most `seconds`; may return early. True when time ran out. */
bool yoke_word_sleep(const _Atomic uint32_t *word, uint32_t value, double seconds);
void yoke_word_wake(_Atomic uint32_t *word, int n);

/* The value after a short time of looking, which is `seen` if it did not change. Who `spins` keeps
 * its core meanwhile, who does not gives it to whoever wants it. */
uint32_t yoke_gate_look(const yoke_gate *gate, uint32_t seen, bool spins);

/* Sleeps while the word is `seen`, at most `seconds`; may return early. `sleeps_on` (or NULL) tells
 * others meanwhile which word to wake. True when time ran out. */
bool yoke_gate_sleep(yoke_gate *gate, uint32_t seen, double seconds, _Atomic uintptr_t *sleeps_on);

/* Wakes up to n of those who sleep. */
void yoke_gate_wake(yoke_gate *gate, int n);

#endif
