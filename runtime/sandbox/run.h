/* runtime/sandbox/run.h - one command in a sandbox of its own, from start to the last byte.
 *
 * Owns:  the sandbox while it runs (the caller is its keeper), its cgroup and its launcher.
 * Crash: killed at any moment, processes, mounts and namespaces end by themselves; an empty cgroup
 *        stays for the next sandbox_sweep().
 */
#pragma once
#include "base/paths.h"
#include "oci/plan.h"
#include "runtime/client/streams.h"
#include "runtime/driver/cgroup.h"
#include "runtime/network/gate.h"
#include "runtime/sandbox/denied.h"
#include "runtime/workspace/workspace.h"

enum run_event {
    EVENT_OOM = 1,
    EVENT_PIDS = 2,
    EVENT_DISK = 4,
    EVENT_TIMEOUT = 8,
    EVENT_TRUNCATED = 16,
    EVENT_NET_DENIED = 32
};

struct run_req {
    const struct plan *plan;
    const struct paths *paths;
    const struct strv *options; /* flags as they were given, for the record of one that stays */
    int in;                     /* host descriptor, -1: nothing */
    struct stream_output out, err;
    bool count_changes;
    void (*on_prepare)(void); /* before something that takes seconds, once; may be NULL */
    const char
        *ids_note; /* set before on_start where ids could not be kept apart as usual, else NULL */
    void (*on_start)(
        const struct run_req *r); /* once, before the command can say anything; may be NULL */
};

struct limit_report {
    const char *name;
    uint64_t value;
    const char *how; /* "cgroup-v1", "cgroup-v2", "rlimit", "tmpfs", "none" */
};

struct run_result {
    int status;    /* what petri exits with */
    int exit_code; /* the command's own, or -1 */
    int signal;    /* that killed it, or 0 */
    bool timed_out;
    unsigned events;
    uint64_t wall_ms, cpu_ms, peak_memory;
    bool has_changes;
    struct changes changes;
    struct denied_list denied;
    struct gate_counts net;
    struct limit_report limits[5];
    size_t n_limits;
};

/* Starts are refused before anything is made; an error after the start has ended what was started.
 * A command that can't be executed is a result with status 126 or 127 and the error in *e. */
int sandbox_run(struct run_req *r, struct run_result *ret, struct err **e);
/* What earlier runs that were killed left: empty cgroups, directories of runs that are over. */
void sandbox_sweep(const struct paths *paths);
/* What each run, start and rm does: the same, but each of many sandboxes is looked at only now and then. */
void sandbox_sweep_some(const struct paths *paths);
/* Defaults that can't be enforced on this machine, as one sentence; NULL: none. */
char *sandbox_unenforced(const struct run_result *r);
