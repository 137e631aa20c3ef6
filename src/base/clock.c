/*
 * CLOCK_MONOTONIC in seconds. It says nothing about the time of day.
 */
#include "base/clock.h"

#include <time.h>

double yoke_clock_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
