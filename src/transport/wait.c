/*
 * Futexes. FUTEX_PRIVATE is not used: the sleepers may be processes that share a mapping.
 */
/* syscall is not in POSIX. */
#define _DEFAULT_SOURCE
#include "transport/wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A few microseconds on a machine whose pause takes 40 to 140 cycles: about what going to sleep and
 * being woken costs, so that spinning loses at most as much as it can gain. */
enum { SPINS = 300 };

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool yoke_word_sleep(const _Atomic uint32_t *word, uint32_t value, double seconds)
{
    struct timespec limit = {.tv_sec = (time_t)seconds};
    limit.tv_nsec = (long)((seconds - (double)limit.tv_sec) * 1e9);
    return syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0) != 0 && errno == ETIMEDOUT;
}

void yoke_word_wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}

uint32_t yoke_gate_spin(const yoke_gate *gate, uint32_t seen)
{
    uint32_t now = seen;
    for (int i = 0; i < SPINS && now == seen; i++) {
        relax();
        now = atomic_load_explicit(&gate->word, memory_order_relaxed);
    }
    return now;
}

bool yoke_gate_sleep(yoke_gate *gate, uint32_t seen, double seconds, _Atomic uintptr_t *sleeps_on)
{
    bool timed_out = false;
    /* Partner: yoke_gate_wake. In the one order of all sequentially consistent operations either
     * the sleeper is counted before the waker looks, or the word changed before the sleeper looks
     * (and the kernel looks once more). */
    atomic_fetch_add(&gate->n_sleepers, 1);
    if (sleeps_on) {
        /* Partner: yoke_job_abort reads it. */
        atomic_store(sleeps_on, (uintptr_t)&gate->word);
    }
    if (atomic_load(&gate->word) == seen) {
        timed_out = yoke_word_sleep(&gate->word, seen, seconds);
    }
    if (sleeps_on) {
        atomic_store_explicit(sleeps_on, 0, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&gate->n_sleepers, 1, memory_order_relaxed);
    return timed_out;
}

void yoke_gate_wake(yoke_gate *gate, int n)
{
    /* Partner: yoke_gate_sleep. */
    if (atomic_load(&gate->n_sleepers) > 0) {
        yoke_word_wake(&gate->word, n);
    }
}
