#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cgroup_put(int dir, const char *file, const char *text)
{
    AUTOCLOSE int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
    return fd < 0 || RETRY(write(fd, text, strlen(text))) < 0 ? -errno : 0;
}

int cgroup_putf(int dir, const char *file, const char *fmt, ...)
{
    char buf[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return cgroup_put(dir, file, buf);
}

int cgroup_get(int dir, const char *file, char *buf, size_t n)
{
    AUTOCLOSE int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : RETRY(read(fd, buf, n - 1));
    if (got < 0)
        return -errno;
    buf[got] = '\0';
    return 0;
}

uint64_t cgroup_get_number(int dir, const char *file, const char *key)
{
    char buf[4096], *p = buf;
    if (dir < 0 || cgroup_get(dir, file, buf, sizeof buf) < 0)
        return 0;
    for (size_t k = key ? strlen(key) : 0; key; p++) {
        if (!strncmp(p, key, k) && p[k] == ' ') {
            p += k;
            break;
        }
        p = strchr(p, '\n');
        if (!p)
            return 0;
    }
    return strtoull(p, NULL, 10);
}

int cgroup_open_dir(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

void cgroup_cpu_quota(uint64_t milli, uint64_t *ret_quota, uint64_t *ret_period)
{
    *ret_period = milli < 10 ? 1000000 : 100000;
    *ret_quota = milli * *ret_period / 1000;
}

static bool id_valid(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n && n <= 64 && !id[n];
}

/* ---- create -------------------------------------------------------------------------------- */

static const char *const limit_names[LIMIT_N] = { "memory", "cpus", "pids" };

/* Nothing asked for may stay without effect. A number of processes is limited by rlimit if need be. */
static int settle(struct cgroup *c, struct err **e)
{
    const bool asked[LIMIT_N] = { c->limits.memory_asked, c->limits.cpu_asked, false };
    const uint64_t value[LIMIT_N] = { c->limits.memory, c->limits.cpu_milli, c->limits.pids };

    for (int i = 0; i < LIMIT_N; i++) {
        if (asked[i] && value[i] && c->enforced[i] == CG_NONE)
            return err_new(e, ERR_UNSUPPORTED, "the limit for %s can't be enforced: %s",
                           limit_names[i], c->why ? c->why : "the kernel lacks the controller");
    }
    if (c->limits.pids && c->enforced[LIMIT_PIDS] == CG_NONE)
        c->enforced[LIMIT_PIDS] = CG_RLIMIT;
    return 0;
}

int cgroup_create(const char *id, const struct cgroup_limits *l, struct cgroup **ret,
                  struct err **e)
{
    AUTOSELF struct cgroup_self self = { 0 };
    CLEANUP(cgroup_free_p) struct cgroup *c = mem_zalloc(sizeof *c);
    int rc;

    c->limits = *l;
    for (int i = 0; i < CTL_N; i++)
        c->fds[i] = -EBADF;
    c->guard_fd = -EBADF;
    if (!id_valid(id))
        return err_new(e, ERR_INVALID, "'%s' can't be the name of a control group", id);
    c->name = cgroup_leaf_name(id);
    if (cgroup_self_read(&self) < 0)
        c->why = "/proc/self/cgroup or " CGROUP_ROOT " can't be read; mount the cgroup file system";
    else if (self.v2_mount)
        cgroup_v2_create(c, &self);
    else
        cgroup_v1_create(c, &self);
    rc = c->scope ? 0 : settle(c, e);
    if (rc == 0)
        *ret = TAKE_PTR(c);
    return rc;
}

int cgroup_wait(struct cgroup *c, struct err **e)
{
    CLEANUP(err_free_p) struct err *cause = NULL;

    if (!c->scope)
        return 0;
    if (scope_wait(c->scope, &cause) < 0) {
        AUTOFREE char *text = err_text(cause);
        c->why_text = str_printf("%s; see `journalctl --user`, or run petri as root", text);
        c->why = c->why_text;
    } else {
        cgroup_v2_finish(c);
    }
    c->scope = scope_free(c->scope);
    return settle(c, e);
}

int cgroup_dirfd(const struct cgroup *c)
{
    return c->kind == CG_CGROUP_V2 ? c->fds[0] : -1;
}

int cgroup_enter(const struct cgroup *c, struct err **e)
{
    /* "tasks" moves one thread: for the writer itself the kernel then skips the lock whose RCU wait
     * makes the same write to cgroup.procs take milliseconds. v2 has no such file. */
    const char *file = c->kind == CG_CGROUP_V1 ? "tasks" : "cgroup.procs";

    for (int i = 0; i < CTL_N; i++) {
        int rc = !c->parents[i] ? 0 : cgroup_put(c->fds[i], file, "0");
        if (rc < 0) {
            errno = -rc;
            return err_sys(e, "enter the control group '%s/%s'", c->parents[i], c->name);
        }
    }
    return 0;
}

enum cgroup_enforce cgroup_enforced(const struct cgroup *c, const char *what)
{
    for (int i = 0; i < LIMIT_N; i++) {
        if (str_eq(what, limit_names[i]))
            return c->enforced[i];
    }
    return CG_NONE;
}

void cgroup_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
    *ret = (struct cgroup_stats){ 0 };
    if (c->kind == CG_CGROUP_V1)
        cgroup_v1_stats(c, ret);
    else if (c->kind == CG_CGROUP_V2)
        cgroup_v2_stats(c, ret);
    else
        cgroup_proc_stats(c, ret);
}

void cgroup_set_root(struct cgroup *c, pid_t pid)
{
    c->root = pid;
    c->root_start = cgroup_start_time(pid);
}

struct cgroup *cgroup_free(struct cgroup *c)
{
    if (!c)
        return NULL;
    cgroup_thaw(c);
    scope_free(c->scope);
    for (int i = CTL_N - 1; i >= 0; i--) {
        /* through the leaf: the caller may have another view of /sys by now */
        AUTOCLOSE int parent = !c->parents[i] ? -1 : cgroup_open_dir(c->fds[i], "..");
        AUTOCLOSE int above = parent < 0 ? -1 : cgroup_open_dir(parent, "..");
        close_p(&c->fds[i]);
        if (parent >= 0)
            (void)cgroup_remove_leaf(parent, c->name);
        if (above >= 0 && str_ends(c->parents[i], "/petri"))
            (void)unlinkat(above, "petri", AT_REMOVEDIR); /* where this was the last one */
        free(c->parents[i]);
    }
    free(c->why_text);
    free(c->name);
    free(c);
    return NULL;
}
