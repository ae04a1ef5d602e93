/* runtime/sandbox/fsck.h - is the store of sandboxes whole, and is nothing in it that nobody needs?
 *
 * Uses:  the records, DATA/changes.lock. Waits for nobody longer than some seconds.
 * Crash: it only ever removes garbage, one piece after the other.
 */
#pragma once
#include "base/err.h"
#include "base/paths.h"
#include "base/str.h"

struct fsck_problem {
    const char *code; /* "record", "layer", "link", "lock", "caches", "garbage", "unknown" */
    char *path, *text;
    bool garbage; /* removing it mends it */
    bool removed;
};

struct fsck_report {
    struct fsck_problem *v;
    size_t n;
    size_t sandboxes, layers; /* how many were looked at */
    bool partial;             /* somebody makes layers all the time: garbage was not looked for */
};

/* Looks at everything; with `repair` removes what is garbage. An error is only what keeps it from looking. */
int fsck_store(const struct paths *paths, bool repair, struct fsck_report *ret, struct err **e);
void fsck_report_free_p(struct fsck_report *r);
