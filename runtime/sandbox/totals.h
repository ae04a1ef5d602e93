/* runtime/sandbox/totals.h - what all running sandboxes of a user have together, and limits on it.
 *
 * Owns:  DATA/running: `.lock`, and for each running sandbox a file with its id that says how much memory
 *        and disk it may take; whoever runs the sandbox holds the file's lock.
 * Uses:  base/, the plan.
 * Crash: a file whose lock is free is nobody's: removed by whoever counts next.
 */
#pragma once
#include "base/paths.h"
#include "oci/plan.h"

/* Counts the sandbox in, or says which total would be exceeded. `disk`: the limit of what it writes to the
 * store. *ret_fd: the lock; totals_leave() or the process's end gives it up. */
int totals_enter(const struct paths *paths, const struct plan *p, uint64_t disk, int *ret_fd,
                 struct err **e);
void totals_leave(const struct paths *paths, const struct plan *p, int *fd);
/* Whether `n` more of a kind would fit now. */
int totals_check(const struct paths *paths, const struct plan *p, uint64_t disk, size_t n,
                 struct err **e);
/* Removes what killed ones left. */
void totals_sweep(const struct paths *paths);
