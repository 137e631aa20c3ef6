/*
 * Restart: the program starts once more, with OpenMP's threads told to wait as a program should that is not alone.
 *
 * OpenMP reads its settings before main, hence the second start. For programs alone, yoke and those of bench/: a
 * library must not touch the environment. Only gcc's OpenMP knows this setting; with another nothing changes.
 */
#ifndef YOKE_CLI_RESTART_H
#define YOKE_CLI_RESTART_H

#include <stdlib.h>
#include <unistd.h>

/* How often a thread looks for work before it sleeps: some 20 us. By itself it looks 300,000 times, and where another
 * program wants the cores, each wait is then for a thread that has none. A step of gpt2-mini on 2 threads beside a
 * compiler took 3.0 s so and 0.1 s with 1000; alone on the cores 48 ms either way, and 64 to 87 ms without looking at
 * all (Zen 4, 2 cores, gcc 12). */
#define YOKE_RESTART_SPINS "1000"

/* Whoever has set this, or the policy of waiting, is obeyed. The first thing in main. */
static inline void yoke_restart_with_short_waits(char **argv)
{
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY") &&
        setenv("GOMP_SPINCOUNT", YOKE_RESTART_SPINS, 1) == 0) {
        /* If this fails, what remains is the program as it is. */
        (void)execv("/proc/self/exe", argv);
    }
}

#endif
