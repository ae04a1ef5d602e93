/* base/clock.h - milliseconds of a clock: CLOCK_MONOTONIC, or CLOCK_BOOTTIME where sleep counts too. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
