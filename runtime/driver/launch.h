/* runtime/driver/launch.h - the launcher: a child that makes namespaces and root, runs libcrun in
 * them, and stays until the sandbox ended.
 *
 * Crash: it dies with its parent (PR_SET_PDEATHSIG) and takes its mount namespace along; the
 * sandbox's PID 1 ends when the parent's end of the control socket closes.
 */
#pragma once
#include "runtime/driver/cgroup.h"
#include "runtime/driver/dirlayer.h"
#include "runtime/driver/ids.h"
#include "runtime/driver/scratch.h"
#include "runtime/workspace/workspace.h"

struct launch {
    const struct plan *plan;
    const struct ids *ids;
    const struct scratch *scratch;
    const struct dirlayer *dirs; /* may be NULL */
    const char *skeleton;        /* may be NULL */
    const char *init;            /* petri-init on the host */
    uint64_t nproc;              /* RLIMIT_NPROC, 0: a cgroup counts */
    bool count_changes;
    int control; /* petri-init's end of the control socket */
    const struct net_policy *net;
    int feed;                    /* the agent's end of the way to the gateway; -1: loopback only */
    const struct cgroup *cgroup; /* the launcher starts in it, or moves itself there first */
};

/* What the launcher says, over `report`: one of these, then for REPORT_ERROR the text. */
enum report_type { REPORT_MAPS = 1, REPORT_ERROR, REPORT_END };
struct report {
    uint32_t type;
    uint32_t code; /* enum err_code */
    uint32_t disk_full;
    struct changes changes;
};

struct launcher {
    pid_t pid;
    int report; /* read end */
    int go;     /* write end: launcher_go() */
};

int launcher_start(const struct launch *l, struct launcher *ret, struct err **e);
/* Lets it go on after REPORT_MAPS was served. */
int launcher_go(struct launcher *l, struct err **e);
