/*
 * Ctrl-C, SIGTERM and the end of the terminal. The flag is the only mutable global of the program: a handler has nowhere else to write.
 */
#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t pending;

static void on_signal(int signal)
{
    (void)signal;
    if (pending) {
        _exit(130);
    }
    pending = 1;
}

void yoke_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    /* Who starts a run with nohup wants it to outlive the terminal. */
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        (void)sigaction(SIGHUP, &action, NULL);
    }
}

bool yoke_interrupt_pending(void)
{
    return pending != 0;
}
