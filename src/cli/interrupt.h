/*
 * Ctrl-C, SIGTERM, and SIGHUP when the terminal goes away: the first asks the run to stop, the second ends the program at once.
 */
#ifndef YOKE_CLI_INTERRUPT_H
#define YOKE_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on; ranks forked later inherit it. */
void yoke_interrupt_catch(void);
bool yoke_interrupt_pending(void);

#endif
