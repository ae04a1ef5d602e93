/* runtime/driver/cgroup.h - one control group per sandbox: limits, statistics, kill; v1, hybrid and v2.
 *
 * Owns:  directories named petri-ID.PID.START.NS (who made it: process, its start time, its pid
 *        namespace) and, on v2, the directory `petri` around them; the transient unit petri-ID.scope.
 * Uses:  base/, /proc/self/cgroup, /sys/fs/cgroup, the user's systemd manager where nothing else helps.
 * Crash: an empty leaf stays until cgroup_sweep() or cgroup_reap(); a scope's systemd removes by itself.
 *
 * Where the leaf goes:
 *   v1       below the caller's own group in each hierarchy: limits that the caller is under still hold.
 *   v2 root  PARENT/petri/LEAF, with PARENT the nearest delegated group above the caller, else the top
 *            of the tree. systemd leaves groups alone that it did not make, and it can't take a
 *            controller away from below while `petri` has it switched on for its leaves (EBUSY).
 *   v2 user  the same with the nearest group above that the user may write to. A login session is not
 *            below one: there the user manager is asked for a delegated scope, which it moves the
 *            caller into; the leaf is then SCOPE/box and the caller sits in SCOPE/keeper.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

struct cgroup_limits {
    uint64_t memory;                          /* bytes, swap included; 0: no limit */
    uint64_t cpu_milli;                       /* thousandths of a cpu; 0: no limit */
    uint64_t pids;                            /* 0: no limit */
    bool memory_asked, cpu_asked, pids_asked; /* by the user: must be enforced, or nothing starts */
};

enum cgroup_enforce { CG_NONE, CG_CGROUP_V1, CG_CGROUP_V2, CG_RLIMIT };

struct cgroup_stats {
    uint64_t cpu_usec, memory_peak, oom_kills, pids_max_hits;
    uint64_t memory_now, pids_now; /* at this moment */
};

struct cgroup;

/* Makes the leaf and writes the limits; moves nothing by itself. With a scope it only sends the request
 * (the answer is cgroup_wait's), and the calling process is the one that gets moved: call it in the
 * process that starts the sandbox's first process and outlives it. Nothing usable and nothing asked
 * for is a success with nothing enforced; asked for and impossible is ERR_UNSUPPORTED with the remedy. */
int cgroup_create(const char *id, const struct cgroup_limits *l, struct cgroup **ret,
                  struct err **e);
/* Must be called once before everything below. Waits for a scope (at most 5 s); otherwise free. */
int cgroup_wait(struct cgroup *c, struct err **e);
/* v2: the leaf for clone3(CLONE_INTO_CGROUP), which costs next to nothing; otherwise -1. Borrowed. */
int cgroup_dirfd(const struct cgroup *c);
/* Moves the calling process, which must have one thread only. v1: some 0.1 ms, because a thread that
 * moves itself needs no global lock; v2: up to 15 ms after idle, so prefer cgroup_dirfd there. */
int cgroup_enter(const struct cgroup *c, struct err **e);
/* `what` is "memory", "cpus" or "pids". CG_RLIMIT: the caller sets RLIMIT_NPROC inside the sandbox's
 * user namespace, where the kernel counts it per namespace. */
enum cgroup_enforce cgroup_enforced(const struct cgroup *c, const char *what);
/* The topmost process of the sandbox: the launcher, or petri-init. Where there is no leaf, freezing,
 * killing and the values of this moment go by the process tree below it; without it they can't. */
void cgroup_set_root(struct cgroup *c, pid_t pid);
/* PID 1 of the sandbox as it is seen from here, or 0: not started yet, or gone. */
pid_t cgroup_find_init(const struct cgroup *c);
/* To be read before cgroup_free; what the kernel does not count stays 0. */
void cgroup_stats(const struct cgroup *c, struct cgroup_stats *ret);
/* SIGKILL for every process in the leaf; 0, or -errno when some are still there after 2 s (v1). */
int cgroup_kill(struct cgroup *c);
/* The same for all but `keep` (0: the sandbox's PID 1) and the processes above it. Thaws. */
int cgroup_kill_others(struct cgroup *c, pid_t keep);
/* Halts every process of the sandbox: when it returns 0, none writes to a file until the thaw. By the
 * kernel's freezer, else by SIGSTOP (a process that was stopped before stays so after the thaw). Not
 * done after 20 s: thawed again, ERR_BUSY. If the caller dies meanwhile the sandbox is killed. */
int cgroup_freeze(struct cgroup *c, struct err **e);
void cgroup_thaw(struct cgroup *c); /* nothing happens where nothing is frozen */
/* Removes the leaf; waits up to 2 s for processes that are still dying. Takes NULL, returns NULL. */
struct cgroup *cgroup_free(struct cgroup *c);
static inline void cgroup_free_p(struct cgroup **c)
{
    *c = cgroup_free(*c);
}

/* The leaf's directories, one per line, for a state record: v1 leaves lie below the session that made
 * them, where a later command's cgroup_sweep() does not look. */
void cgroup_record(const struct cgroup *c, struct str *ret);
/* Kills and removes what a record names, where its maker is gone. Returns how many were removed. */
int cgroup_reap(const char *record);
/* The same for every leaf of this user in the places where cgroup_create would put one now. */
int cgroup_sweep(struct err **e);
