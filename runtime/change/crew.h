/* runtime/change/crew.h - work on a long list by several threads at once, which end before crew_run() does. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A list of fewer files is not worth a thread. */
enum { CREW_MAX = 4, CREW_FROM = 512 };

/* One member and its part of the list. */
struct crew {
    size_t from, to;
    void *arg;
    const bool *over; /* another one failed: what is not begun need not be */
};

static inline bool crew_over(const struct crew *c)
{
    return __atomic_load_n(c->over, __ATOMIC_RELAXED);
}

/* f() does items from..to; the parts follow one another, together they are 0..n. `alone`: all of it by the
 * caller. The error is that of the first part that failed. */
int crew_run(size_t n, bool alone, int (*f)(const struct crew *c, struct err **e), void *arg,
             struct err **e);
