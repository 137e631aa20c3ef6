/*
 * The clock by which durations are taken.
 */
#ifndef YOKE_BASE_CLOCK_H
#define YOKE_BASE_CLOCK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds since an arbitrary moment, equal for all processes of the machine; never runs backwards. */
double yoke_clock_s(void);

#ifdef __cplusplus
}
#endif
#endif
