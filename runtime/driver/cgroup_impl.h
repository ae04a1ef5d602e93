/* runtime/driver/cgroup_impl.h - what the cgroup_*.c files share; nobody else includes it. */
#pragma once
#include "runtime/driver/cgroup.h"
#include "runtime/driver/scope.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP_PREFIX "petri-"

enum cgroup_limit { LIMIT_MEMORY, LIMIT_CPU, LIMIT_PIDS, LIMIT_N };
/* the freezer first: what is frozen can be neither killed nor moved, so a record names it first */
enum cgroup_ctl { CTL_FREEZER, CTL_MEMORY, CTL_CPU, CTL_PIDS, CTL_CPUACCT, CTL_N };
extern const char *const cgroup_ctl_names[CTL_N];

/* The caller's place, from one read of /proc/self/cgroup. */
struct cgroup_self {
    char *text;
    const char *v1[CTL_N]; /* the caller's group per v1 controller; NULL: not there */
    unsigned v1_id[CTL_N]; /* the hierarchy: two controllers may share one */
    const char *v2;        /* the caller's group in the unified tree */
    const char *v2_mount;  /* where that tree is mounted; NULL: v1 decides */
};
int cgroup_self_read(struct cgroup_self *ret);
void cgroup_self_free_p(struct cgroup_self *s);
#define AUTOSELF CLEANUP(cgroup_self_free_p)

/* A process, told from a later one with the same number by its start time. */
struct cgroup_proc {
    pid_t pid, parent;
    uint64_t start;
    bool halted; /* no thread of it runs */
    uint64_t cpu_ticks, rss_pages;
};
struct cgroup_procs {
    struct cgroup_proc *v;
    size_t n;
};
void cgroup_procs_free_p(struct cgroup_procs *l);
#define AUTOPROCS CLEANUP(cgroup_procs_free_p)
/* The processes of the sandbox, parents first; -errno where nothing says which they are. */
int cgroup_procs_read(const struct cgroup *c, struct cgroup_procs *ret);
const struct cgroup_proc *cgroup_procs_find(const struct cgroup_procs *l, pid_t pid);
void cgroup_procs_add(struct cgroup_procs *l, const struct cgroup_proc *p);
/* A signal for that process, never for another one that has its number by now. */
void cgroup_proc_signal(const struct cgroup_proc *p, int sig);
void cgroup_proc_stats(const struct cgroup *c,
                       struct cgroup_stats *ret); /* where there is no leaf */
uint64_t cgroup_start_time(pid_t pid);            /* 0: gone, or a zombie */
void cgroup_pause_us(unsigned us);

enum cgroup_frozen { NOT_FROZEN, FROZEN_V1, FROZEN_V2, FROZEN_STOP };

struct cgroup {
    enum cgroup_enforce kind; /* CG_NONE: no leaf */
    struct cgroup_limits limits;
    enum cgroup_enforce enforced[LIMIT_N];
    char *name;          /* of the leaf */
    char *why_text;      /* owned, where why is not a constant */
    const char *why;     /* why there is no leaf, or no controller; with the remedy */
    struct scope *scope; /* a request that is under way */
    int fds[CTL_N];      /* the leaf; v1: one per controller, v2: only the first */
    char *
        parents[CTL_N]; /* the directory it lies in; NULL: no leaf, or the same as an earlier one */
    pid_t root;         /* the topmost process, 0: not said */
    uint64_t root_start;
    enum cgroup_frozen frozen;
    struct cgroup_procs stopped; /* by us, to be continued */
    pid_t guard;                 /* while frozen: kills the sandbox if we die */
    int guard_fd;
};

/* Each makes what it can, sets kind, enforced and why; never fails for want of permission. */
void cgroup_v1_create(struct cgroup *c, const struct cgroup_self *self);
void cgroup_v2_create(struct cgroup *c, const struct cgroup_self *self);
void cgroup_v2_finish(struct cgroup *c); /* after the scope was made */
void cgroup_v1_stats(const struct cgroup *c, struct cgroup_stats *ret);
void cgroup_v2_stats(const struct cgroup *c, struct cgroup_stats *ret);

/* The directories in which leaves may lie now: calls `f` with an open one of each. */
void cgroup_v1_places(const struct cgroup_self *self, int (*f)(int fd, int *count), int *count);
void cgroup_v2_places(const struct cgroup_self *self, int (*f)(int fd, int *count), int *count);

int cgroup_put(int dir, const char *file, const char *text); /* 0 or -errno */
int cgroup_putf(int dir, const char *file, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Up to n - 1 bytes, NUL-terminated; 0 or -errno. */
int cgroup_get(int dir, const char *file, char *buf, size_t n);
/* The number after `key` at the start of a line, or of the file where key is NULL; else 0. */
uint64_t cgroup_get_number(int dir, const char *file, const char *key);
int cgroup_open_dir(int at, const char *path);
bool cgroup_has_pid(int dir, int pid);
char *cgroup_leaf_name(const char *id);
int cgroup_kill_leaf(int dir); /* 0, or -errno where some are still there after 2 s */
/* Only thaws what v1 froze: there SIGKILL waits for it. */
void cgroup_thaw_leaf(int dir);
int cgroup_remove_leaf(int parent, const char *name); /* waits for the dying; 0 or -errno */
/* cpu time per period, in microseconds: the kernel takes no quota below 1 ms. */
void cgroup_cpu_quota(uint64_t milli, uint64_t *ret_quota, uint64_t *ret_period);
