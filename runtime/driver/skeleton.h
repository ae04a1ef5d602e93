/* runtime/driver/skeleton.h - what a root is mounted on, on the machine's own system.
 *
 * Directories, links and empty files, a place for everything that will be mounted. They follow from the plan's places
 * and ids alone: made once and never written to, they are the read-only root of runs, and lie below the overlays of
 * sandboxes that stay, of all that need the same.
 *
 * Owns:  LAYERS/skeletons/: HASH/root and HASH/key (what it is made of), .new-* (being made), .gone-* (being
 *        removed), `wanted` (by runs).
 * Locks: each HASH itself, shared by whoever makes or uses it. One that is locked is never removed. Nothing inside a
 *        sandbox reaches it: what is seen there is `root`.
 * Crash: HASH appears by rename. The boot is part of the key: nothing of it needs to reach the disk.
 */
#pragma once
#include "oci/plan.h"
#include "runtime/driver/ids.h"

struct skeleton {
    char *path; /* NULL: none */
    int hold;   /* as long as it is open, in any process, nobody removes it */
};
#define SKELETON_INIT                                                                              \
    {                                                                                              \
        .hold = -1                                                                                 \
    }

/* Found, or made for a sandbox that stays or a second run; else none, nor where that can't be: the launcher then makes
 * one of its own. */
void skeleton_hold(const char *layers, const struct plan *p, const struct ids *ids,
                   struct skeleton *ret);
void skeleton_free_p(struct skeleton *s);
/* Removes those that nobody uses and that are at least `age` seconds old, or a minute where there are very many. */
void skeletons_sweep(const char *layers, unsigned age);
