/*
 * Futexes. FUTEX_PRIVATE is not used: the sleepers may be processes that share a mapping.
 */
/* syscall is not in POSIX. */
#define _DEFAULT_SOURCE
#include "transport/wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A few microseconds on a machine whose pause takes 40 to 140 cycles: about what going to sleep and
 * being woken costs, so that spinning loses at most as much as it can gain. */
enum { SPINS = 300 };

/* Where ranks share cores: giving the core away this often before sleeping lets the others come to
 * the same point without a system call to wake anyone, and keeps a virtual core from being halted,
 * which costs tens of microseconds. all_reduce of 4 KB on 2 cores by 4 and 8 ranks: 35 and 54 us
 * without, 5 and 27 with 2, 5 to 7 and 12 to 15 with 4 to 300. A rank that waits long loses no more
 * than these switches: a training step of 16 ranks on 2 cores took 163 ms without, 158 with 16. */
enum { YIELDS = 16 };

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

uint32_t yoke_gate_look(const yoke_gate *gate, uint32_t seen, bool spins)
{
    uint32_t now = seen;
    int n_looks = spins ? SPINS : YIELDS;
    for (int i = 0; i < n_looks && now == seen; i++) {
        if (spins) {
            relax();
        } else {
            (void)sched_yield();
        }
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
