#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The caller's own group in a hierarchy. In a container that sees only its part of the tree, mounted as
 * the top, the path is that of the host: then the top is taken if it really holds the caller. */
static int own_group(const struct cgroup_self *self, int ctl, char path[static 4096])
{
    int fd;

    if (!self->v1[ctl])
        return -ENOENT;
    snprintf(path, 4096, CGROUP_ROOT "/%s%s", cgroup_ctl_names[ctl],
             strcmp(self->v1[ctl], "/") ? self->v1[ctl] : "");
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? -errno : fd;
    snprintf(path, 4096, CGROUP_ROOT "/%s", cgroup_ctl_names[ctl]);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && !cgroup_has_pid(fd, getpid()))
        close_p(&fd);
    return fd < 0 ? -ENOENT : fd;
}

/* cpu and cpuacct are often mounted together: the earlier controller of the same hierarchy, or -1. */
static int same_hierarchy(const struct cgroup_self *self, int ctl)
{
    for (int i = 0; i < ctl; i++) {
        if (self->v1[i] && self->v1[ctl] && self->v1_id[i] == self->v1_id[ctl])
            return i;
    }
    return -1;
}

/* 0 where the limit holds from now on. */
static int write_limit(struct cgroup *c, int ctl)
{
    const struct cgroup_limits *l = &c->limits;
    int fd = c->fds[ctl], rc;
    uint64_t quota, period;

    if (ctl == CTL_MEMORY && l->memory) {
        rc = cgroup_putf(fd, "memory.limit_in_bytes", "%llu", (unsigned long long)l->memory);
        if (rc < 0)
            return rc;
        rc = cgroup_putf(fd, "memory.memsw.limit_in_bytes", "%llu", (unsigned long long)l->memory);
        /* without swap accounting the next best: don't swap */
        return rc == -ENOENT ? cgroup_put(fd, "memory.swappiness", "0") : rc;
    }
    if (ctl == CTL_CPU && l->cpu_milli) {
        cgroup_cpu_quota(l->cpu_milli, &quota, &period);
        if (period != 100000)
            (void)cgroup_putf(fd, "cpu.cfs_period_us", "%llu", (unsigned long long)period);
        rc = cgroup_putf(fd, "cpu.cfs_quota_us", "%llu", (unsigned long long)quota);
        return rc == -EINVAL ? 0 : rc; /* more than a group above allows: that one is tighter */
    }
    if (ctl == CTL_PIDS && l->pids)
        return cgroup_putf(fd, "pids.max", "%llu", (unsigned long long)l->pids);
    return -ENODATA;
}

void cgroup_v1_create(struct cgroup *c, const struct cgroup_self *self)
{
    static const enum cgroup_limit limit_of[CTL_N] = {
        [CTL_MEMORY] = LIMIT_MEMORY, [CTL_CPU] = LIMIT_CPU, [CTL_PIDS] = LIMIT_PIDS
    };
    char path[4096];

    for (int i = 0; i < CTL_N; i++) {
        int same = same_hierarchy(self, i);
        if (same >= 0) {
            c->fds[i] = fcntl(c->fds[same], F_DUPFD_CLOEXEC, 3);
        } else {
            AUTOCLOSE int parent = own_group(self, i, path);
            if (parent < 0 || mkdirat(parent, c->name, 0755) < 0)
                continue;
            c->fds[i] = cgroup_open_dir(parent, c->name);
            c->parents[i] = str_dup(path);
        }
        if (c->fds[i] < 0)
            continue;
        c->kind = CG_CGROUP_V1;
        if (i != CTL_FREEZER && i != CTL_CPUACCT && write_limit(c, i) == 0)
            c->enforced[limit_of[i]] = CG_CGROUP_V1;
    }
    c->why = geteuid() ? "with cgroup v1 only root can set limits; run petri as root, boot with "
                         "systemd.unified_cgroup_hierarchy=1, or leave the limit out"
                       : "the cgroup v1 controller is not mounted below " CGROUP_ROOT
                         " or is read-only; mount it, or leave the limit out";
}

void cgroup_v1_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
    ret->cpu_usec = cgroup_get_number(c->fds[CTL_CPUACCT], "cpuacct.usage", NULL) / 1000;
    ret->memory_peak = cgroup_get_number(c->fds[CTL_MEMORY], "memory.max_usage_in_bytes", NULL);
    ret->memory_now = cgroup_get_number(c->fds[CTL_MEMORY], "memory.usage_in_bytes", NULL);
    ret->oom_kills = cgroup_get_number(c->fds[CTL_MEMORY], "memory.oom_control", "oom_kill");
    ret->pids_now = cgroup_get_number(c->fds[CTL_PIDS], "pids.current", NULL);
    ret->pids_max_hits = cgroup_get_number(c->fds[CTL_PIDS], "pids.events", "max");
}

void cgroup_v1_places(const struct cgroup_self *self, int (*f)(int fd, int *count), int *count)
{
    char path[4096];

    for (int i = 0; i < CTL_N; i++) {
        AUTOCLOSE int fd = same_hierarchy(self, i) >= 0 ? -1 : own_group(self, i, path);
        if (fd >= 0)
            (void)f(fd, count);
    }
}
