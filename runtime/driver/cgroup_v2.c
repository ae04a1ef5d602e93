#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define ALL_CONTROLLERS "+memory +cpu +pids"

/* ---- below which group? ------------------------------------------------------------------------ */

static bool is_delegated(const char *path)
{
    char v[8];
    if (geteuid())
        return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
    return getxattr(path, "trusted.delegate", v, sizeof v) == 1 ||
           getxattr(path, "user.delegate", v, sizeof v) == 1;
}

/* The next group above `path` that may hold leaves; cuts path down to it. The group itself is never
 * right: it holds the caller, and a group with processes can't give controllers to its children. */
static bool next_parent(char *path, size_t top)
{
    char procs[4200];

    while (strlen(path) > top) {
        *strrchr(path, '/') = '\0';
        snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
        if (strlen(path) == top && !geteuid())
            return true;
        /* to move a process, the group that source and target have in common must be writable */
        if (is_delegated(path) && faccessat(AT_FDCWD, procs, W_OK, AT_EACCESS) == 0)
            return true;
    }
    return false;
}

static size_t own_path(const struct cgroup_self *self, char path[static 4096])
{
    snprintf(path, 4096, "%s%s", self->v2_mount, strcmp(self->v2, "/") ? self->v2 : "/.");
    return strlen(self->v2_mount); /* "/.": the loop above then arrives at the top itself */
}

/* ---- the leaf ---------------------------------------------------------------------------------- */

static const char *const controllers[LIMIT_N] = { "+memory", "+cpu", "+pids" };

static int write_limit(struct cgroup *c, int limit)
{
    const struct cgroup_limits *l = &c->limits;
    int fd = c->fds[0], rc;
    uint64_t quota, period;

    switch (limit) {
    case LIMIT_MEMORY:
        if (!l->memory)
            return -ENODATA;
        rc = cgroup_putf(fd, "memory.max", "%llu", (unsigned long long)l->memory);
        /* memory.oom.group stays 0, as on v1: the command dies, petri-init lives and says so */
        if (rc == 0)
            rc = cgroup_put(fd, "memory.swap.max", "0");
        return rc == -ENOENT && faccessat(fd, "memory.max", F_OK, 0) == 0 ? 0 : rc;
    case LIMIT_CPU:
        cgroup_cpu_quota(l->cpu_milli, &quota, &period);
        return !l->cpu_milli ? -ENODATA
                             : cgroup_putf(fd, "cpu.max", "%llu %llu", (unsigned long long)quota,
                                           (unsigned long long)period);
    default:
        return !l->pids ? -ENODATA
                        : cgroup_putf(fd, "pids.max", "%llu", (unsigned long long)l->pids);
    }
}

/* Limits the leaf; a controller that is missing is switched on from the top down, each by itself,
 * because one that is not there makes the kernel refuse a whole line. */
static void limit_leaf(struct cgroup *c, int parent, const char *above)
{
    for (int i = 0; i < LIMIT_N; i++) {
        int rc = write_limit(c, i);
        if (rc == -ENOENT) {
            if (above)
                (void)cgroup_put(AT_FDCWD, above, controllers[i]);
            (void)cgroup_put(parent, "cgroup.subtree_control", controllers[i]);
            rc = write_limit(c, i);
        }
        if (rc == 0)
            c->enforced[i] = CG_CGROUP_V2;
    }
}

/* TOP/petri/NAME. `petri` may vanish in between: another petri's last sandbox takes it away. */
static int make_leaf(struct cgroup *c, const char *top)
{
    AUTOFREE char *petri = str_printf("%s/petri", top);
    AUTOFREE char *above = str_printf("%s/cgroup.subtree_control", top);
    AUTOCLOSE int parent = -1;
    int rc = -EAGAIN;

    for (int i = 0; i < 10 && c->fds[0] < 0; i++) {
        bool fresh = mkdir(petri, 0755) == 0;
        if (!fresh && errno != EEXIST)
            return -errno;
        close_p(&parent);
        parent = cgroup_open_dir(AT_FDCWD, petri);
        if (parent >= 0 && fresh)
            (void)cgroup_put(parent, "cgroup.subtree_control", ALL_CONTROLLERS);
        if (parent >= 0 && mkdirat(parent, c->name, 0755) == 0)
            c->fds[0] = cgroup_open_dir(parent, c->name);
        rc = -errno;
        if (c->fds[0] < 0 && errno != ENOENT && errno != ENODEV)
            break;
    }
    if (c->fds[0] < 0) {
        (void)rmdir(petri);
        return rc;
    }
    c->kind = CG_CGROUP_V2;
    c->parents[0] = TAKE_PTR(petri);
    limit_leaf(c, parent, above);
    return 0;
}

void cgroup_v2_create(struct cgroup *c, const struct cgroup_self *self)
{
    char path[4096];
    size_t top;

    c->why =
        "no cgroup that this process may use has the controller; in a container, mount " CGROUP_ROOT
        " writable and keep processes out of its top group";
    if (!self->v2)
        return;
    top = own_path(self, path);
    while (next_parent(path, top)) {
        if (make_leaf(c, path) == 0)
            break;
    }
    if (c->kind == CG_CGROUP_V2) {
        if (geteuid())
            c->why =
                "the controller is not delegated to users; as root: systemctl edit user@.service, "
                "with [Service] Delegate=cpu memory pids";
        return;
    }
    if (!geteuid())
        return;
    c->why = "there is no systemd user manager to ask for a cgroup; log in with a full session, or "
             "`loginctl enable-linger`, or run petri as root";
    AUTOFREE char *unit = str_printf("%.*s.scope", (int)strcspn(c->name, "."), c->name);
    (void)scope_request(unit, &c->scope, NULL);
}

/* The caller was moved into the new scope: make room in it, so that it can give controllers away. */
void cgroup_v2_finish(struct cgroup *c)
{
    AUTOSELF struct cgroup_self self = { 0 };
    AUTOCLOSE int scope = -1, keeper = -1;
    char path[4096];

    c->why = "the systemd user manager's scope can't be used";
    if (cgroup_self_read(&self) < 0 || !self.v2_mount || !self.v2)
        return;
    (void)own_path(&self, path);
    if ((scope = cgroup_open_dir(AT_FDCWD, path)) < 0 || mkdirat(scope, "keeper", 0755) < 0 ||
        (keeper = cgroup_open_dir(scope, "keeper")) < 0 ||
        cgroup_put(keeper, "cgroup.procs", "0") < 0)
        return;
    free(c->name);
    c->name = str_dup("box");
    (void)cgroup_put(scope, "cgroup.subtree_control", ALL_CONTROLLERS);
    if (mkdirat(scope, "box", 0755) < 0 || (c->fds[0] = cgroup_open_dir(scope, "box")) < 0)
        return;
    c->kind = CG_CGROUP_V2;
    c->parents[0] = str_dup(path);
    c->why =
        "the controller is not delegated to users; as root: systemctl edit user@.service, with "
        "[Service] Delegate=cpu memory pids";
    limit_leaf(c, scope, NULL);
}

void cgroup_v2_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
    ret->cpu_usec = cgroup_get_number(c->fds[0], "cpu.stat", "usage_usec");
    ret->memory_peak = cgroup_get_number(c->fds[0], "memory.peak", NULL);
    ret->memory_now = cgroup_get_number(c->fds[0], "memory.current", NULL);
    ret->pids_now = cgroup_get_number(c->fds[0], "pids.current", NULL);
    ret->oom_kills = cgroup_get_number(c->fds[0], "memory.events", "oom_kill");
    ret->pids_max_hits = cgroup_get_number(c->fds[0], "pids.events", "max");
}

void cgroup_v2_places(const struct cgroup_self *self, int (*f)(int fd, int *count), int *count)
{
    char path[4096];
    size_t top;

    if (!self->v2)
        return;
    top = own_path(self, path);
    while (next_parent(path, top)) {
        AUTOFREE char *petri = str_printf("%s/petri", path);
        AUTOCLOSE int fd = cgroup_open_dir(AT_FDCWD, petri);
        if (fd >= 0) {
            (void)f(fd, count);
            (void)rmdir(petri); /* only where it is empty now */
        }
    }
}
