/*
 * yoke, the program: see dispatch.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/restart.h"

/* Where a standard stream was closed, the next file that is opened would take its place, and what is printed would end
 * in it. Opened to read, so that printing still fails. */
static void fill_standard_streams(void)
{
    int filled;
    do {
        filled = open("/dev/null", O_RDONLY);
    } while (filled >= 0 && filled <= STDERR_FILENO);
    if (filled >= 0) {
        (void)close(filled);
    }
}

int main(int argc, char **argv)
{
    yoke_restart_with_short_waits(argv);
    fill_standard_streams();
    /* A limit of the size of files (ulimit -f) is then an error of the write, which says so. */
    (void)signal(SIGXFSZ, SIG_IGN);
    return yoke_dispatch(argc, argv);
}
