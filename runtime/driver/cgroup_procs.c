#include "runtime/driver/cgroup_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/fs.h"

enum { MOST_PROCS = 1 << 16 };

void cgroup_pause_us(unsigned us)
{
    nanosleep(&(struct timespec){ .tv_nsec = (long)us * 1000 }, NULL);
}

void cgroup_procs_free_p(struct cgroup_procs *l)
{
    free(l->v);
    *l = (struct cgroup_procs){ 0 };
}

void cgroup_procs_add(struct cgroup_procs *l, const struct cgroup_proc *p)
{
    if ((l->n & (l->n - 1)) == 0) { /* a power of two: full */
        struct cgroup_proc *v = realloc(l->v, (l->n ? 2 * l->n : 1) * sizeof *v);
        if (!v)
            abort();
        l->v = v;
    }
    l->v[l->n++] = *p;
}

const struct cgroup_proc *cgroup_procs_find(const struct cgroup_procs *l, pid_t pid)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].pid == pid)
            return &l->v[i];
    }
    return NULL;
}

void cgroup_proc_signal(const struct cgroup_proc *p, int sig)
{
    AUTOCLOSE int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    /* the descriptor holds on to one process; its start time says which */
    if (fd >= 0 && cgroup_start_time(p->pid) == p->start)
        (void)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}

/* The fields of a stat file from number `first` (3: the state); the name before may hold anything. */
static const char *stat_field(const char *stat, int field)
{
    const char *p = strrchr(stat, ')');
    for (int i = 2; p && i < field; i++)
        p = strchr(p + 1, ' ');
    return p ? p + 1 : "";
}

static uint64_t stat_number(const char *stat, int field)
{
    return strtoull(stat_field(stat, field), NULL, 10);
}

/* Does no thread of it run? The group's first thread can be over while others go on. */
static bool halted(pid_t pid)
{
    char path[64], buf[1024];
    bool all = true;
    DIR *d;
    struct dirent *de;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    d = opendir(path);
    while (d && all && (de = readdir(d))) {
        if (de->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%.20s/stat", de->d_name);
        if (cgroup_get(dirfd(d), path, buf, sizeof buf) == 0)
            all = strchr("TtZX", *stat_field(buf, 3)) != NULL;
    }
    if (d)
        closedir(d);
    return all;
}

/* Adds what is still there; `halted` is true only if that was so before its children are read. */
static bool add_proc(struct cgroup_procs *l, pid_t pid)
{
    char path[32], buf[1024];
    struct cgroup_proc p = { .pid = pid };

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (l->n >= MOST_PROCS || cgroup_get(AT_FDCWD, path, buf, sizeof buf) < 0)
        return false;
    p.parent = (pid_t)stat_number(buf, 4);
    p.start = stat_number(buf, 22);
    for (int i = 14; i <= 17; i++) /* its own, and that of children it waited for */
        p.cpu_ticks += stat_number(buf, i);
    p.rss_pages = stat_number(buf, 24);
    p.halted = halted(pid);
    cgroup_procs_add(l, &p);
    return true;
}

static void add_list(struct cgroup_procs *l, const char *list)
{
    for (char *end; *list; list = end + strspn(end, " \n")) {
        long pid = strtol(list, &end, 10);
        if (end == list)
            break;
        if (!cgroup_procs_find(l, (pid_t)pid))
            (void)add_proc(l, (pid_t)pid);
    }
}

/* For kernels that have no `children`: everybody's parent. */
static void add_children_slowly(struct cgroup_procs *l, pid_t parent)
{
    DIR *d = opendir("/proc");
    struct dirent *de;
    char path[64], buf[1024];

    while (d && (de = readdir(d))) {
        snprintf(path, sizeof path, "%.20s/stat", de->d_name);
        if (de->d_name[0] > '0' && de->d_name[0] <= '9' &&
            cgroup_get(dirfd(d), path, buf, sizeof buf) == 0 &&
            stat_number(buf, 4) == (uint64_t)parent)
            add_list(l, de->d_name);
    }
    if (d)
        closedir(d);
}

static void add_children(struct cgroup_procs *l, pid_t parent)
{
    char path[64];
    DIR *d;
    struct dirent *de;

    if (access("/proc/thread-self/children", F_OK) < 0) {
        add_children_slowly(l, parent);
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    d = opendir(path);
    while (d && (de = readdir(d))) {
        AUTOFREE char *list = NULL;
        snprintf(path, sizeof path, "%.20s/children", de->d_name);
        if (de->d_name[0] != '.' && fs_read(dirfd(d), path, 1 << 20, &list, NULL, NULL) == 0)
            add_list(l, list);
    }
    if (d)
        closedir(d);
}

int cgroup_procs_read(const struct cgroup *c, struct cgroup_procs *ret)
{
    *ret = (struct cgroup_procs){ 0 };
    if (c->root) {
        /* where it is gone another process may have its number */
        if (c->root_start && cgroup_start_time(c->root) == c->root_start)
            (void)add_proc(ret, c->root);
        for (size_t i = 0; i < ret->n; i++)
            add_children(ret, ret->v[i].pid);
        return 0;
    }
    for (int i = 0; i < CTL_N; i++) {
        AUTOFREE char *list = NULL;
        if (c->fds[i] >= 0 && fs_read(c->fds[i], "cgroup.procs", 1 << 20, &list, NULL, NULL) == 0) {
            add_list(ret, list);
            return 0;
        }
    }
    return -ESRCH;
}

void cgroup_proc_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
    AUTOPROCS struct cgroup_procs l = { 0 };
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (cgroup_procs_read(c, &l) < 0)
        return;
    for (size_t i = 0; i < l.n; i++) {
        ret->cpu_usec += l.v[i].cpu_ticks * 1000000 / ticks;
        ret->memory_now += l.v[i].rss_pages * page;
    }
    ret->pids_now = l.n;
}

/* Its number in the innermost pid namespace; 0 where that is ours. */
static int inner_pid(pid_t pid)
{
    char path[32], buf[4096], *p, *end, *tab;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (cgroup_get(AT_FDCWD, path, buf, sizeof buf) < 0 || !(p = strstr(buf, "\nNSpid:\t")) ||
        !(end = strchr(p + 1, '\n')))
        return 0;
    *end = '\0';
    tab = strrchr(p, '\t');
    return tab == p + strlen("\nNSpid:") ? 0 : atoi(tab + 1);
}

pid_t cgroup_find_init(const struct cgroup *c)
{
    AUTOPROCS struct cgroup_procs l = { 0 };

    (void)cgroup_procs_read(c, &l);
    for (size_t i = 0; i < l.n; i++) {
        if (inner_pid(l.v[i].pid) == 1 && cgroup_start_time(l.v[i].pid)) /* not a zombie */
            return l.v[i].pid;
    }
    return 0;
}

/* ---- kill ------------------------------------------------------------------------------------ */

static bool is_above(const struct cgroup_procs *l, pid_t pid, pid_t above)
{
    for (const struct cgroup_proc *p = cgroup_procs_find(l, pid); p;) {
        if (p->pid == above)
            return true;
        p = p->parent == p->pid ? NULL : cgroup_procs_find(l, p->parent);
    }
    return false;
}

/* SIGKILL for all but `keep` (-1: nobody) and what is above it; how many there were. */
static int kill_tree(const struct cgroup *c, pid_t keep)
{
    AUTOPROCS struct cgroup_procs l = { 0 };
    int seen = 0, rc = cgroup_procs_read(c, &l);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < l.n; i++) {
        /* the launcher's other child is petri's own as well: what the sandbox starts is never below it */
        if (keep > 0 && (is_above(&l, keep, l.v[i].pid) || (c->root && l.v[i].parent == c->root)))
            continue;
        if (!cgroup_start_time(l.v[i].pid)) /* dead, and nobody has asked yet */
            continue;
        cgroup_proc_signal(&l.v[i], SIGKILL);
        seen++;
    }
    return seen;
}

int cgroup_kill_others(struct cgroup *c, pid_t keep)
{
    if (keep == 0 && (keep = cgroup_find_init(c)) == 0)
        return -ESRCH;
    for (int i = 0; i < 1000; i++) {
        int n = kill_tree(c, keep);
        if (i == 0)
            cgroup_thaw(c);
        if (n <= 0)
            return n;
        cgroup_pause_us(2000);
    }
    return -EBUSY;
}

int cgroup_kill(struct cgroup *c)
{
    int rc = 0;

    if (c->kind == CG_NONE && c->root) {
        /* the topmost last: what it leaves behind would no longer be below it */
        for (int i = 0; i < 1000 && (rc = kill_tree(c, c->root)) > 0; i++)
            cgroup_pause_us(2000);
        for (int i = 0; i < 1000 && rc == 0 && kill_tree(c, -1) > 0; i++)
            cgroup_pause_us(2000);
        rc = rc > 0 ? -EBUSY : rc;
    }
    for (int i = 0; i < CTL_N; i++) {
        int r = c->fds[i] < 0 ? 0 : cgroup_kill_leaf(c->fds[i]);
        rc = rc < 0 ? rc : r;
    }
    cgroup_thaw(c);
    return rc;
}
