/* runtime/sandbox/probe_limits.c - can limits be enforced, will sandboxes outlive a logout, is there
 * room. The control group is made and removed for real, in a child: a scope moves its asker.
 */
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/driver/cgroup.h"
#include "runtime/sandbox/probe.h"

enum { N_LIMITS = 3 };
static const char *const limit_names[N_LIMITS] = { "memory", "cpus", "pids" };

struct cgroup_try {
    enum cgroup_enforce how[N_LIMITS];
    char why[400];
};

static bool try_group(const struct cgroup_limits *l, struct cgroup_try *t)
{
    CLEANUP(cgroup_free_p) struct cgroup *c = NULL;
    CLEANUP(err_free_p) struct err *e = NULL;

    if (cgroup_create("doctor", l, &c, &e) < 0 || cgroup_wait(c, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        snprintf(t->why, sizeof t->why, "%s", text);
        return false;
    }
    for (size_t i = 0; i < N_LIMITS; i++)
        t->how[i] = cgroup_enforced(c, limit_names[i]);
    return true;
}

/* A default that can't hold is no error; asked for, it is, and the error says why. */
static void group_child(struct cgroup_try *t)
{
    struct cgroup_limits l = { .memory = 1ULL << 30, .cpu_milli = 1000, .pids = 64 };
    struct cgroup_try again = { 0 };

    if (!try_group(&l, t))
        return;
    l.memory_asked = t->how[0] == CG_NONE;
    l.cpu_asked = t->how[1] == CG_NONE;
    if ((l.memory_asked || l.cpu_asked) && !try_group(&l, &again))
        memcpy(t->why, again.why, sizeof t->why);
}

static const char *layout(void)
{
    struct statfs top, sub;
    if (statfs("/sys/fs/cgroup", &top) < 0)
        return "not mounted";
    if (top.f_type == CGROUP2_SUPER_MAGIC)
        return "v2";
    if (!statfs("/sys/fs/cgroup/unified", &sub) && sub.f_type == CGROUP2_SUPER_MAGIC)
        return "v1 and v2 (hybrid)";
    return fs_is_dir("/sys/fs/cgroup/memory") ? "v1" : "no controllers";
}

/* "the limit for memory can't be enforced: REASON; REMEDY" */
static char *remedy(const char *why, char **ret_reason)
{
    const char *reason = strstr(why, ": "), *fix;
    reason = reason ? reason + 2 : why;
    fix = strstr(reason, "; ");
    *ret_reason = fix ? str_printf("%.*s", (int)(fix - reason), reason) : str_dup(reason);
    return fix ? str_dup(fix + 2) : NULL;
}

void probe_cgroups(struct probe_report *r, const struct probe_host *h)
{
    struct cgroup_try *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct str have = STR_INIT, lost = STR_INIT;
    char *reason = NULL, *fix = NULL;
    pid_t pid = t == MAP_FAILED ? -1 : fork();

    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        group_child(t);
        _exit(0);
    }
    if (pid > 0)
        probe_reap(pid);
    str_addf(&have, "%s:", layout());
    for (size_t i = 0; i < N_LIMITS; i++) {
        enum cgroup_enforce how = t == MAP_FAILED ? CG_NONE : t->how[i];
        if (how == CG_CGROUP_V1 || how == CG_CGROUP_V2)
            str_addf(&have, " %s", limit_names[i]);
        else if (how == CG_RLIMIT)
            str_addf(&have, " %s (rlimit)", limit_names[i]);
        else
            str_addf(&lost, "%s%s", lost.len ? ", " : "", limit_names[i]);
    }
    if (!lost.len) {
        probe_add(r, "cgroup", "limits by cgroups", false, PROBE_OK, str_take(&have), NULL, NULL);
    } else {
        char *means;
        fix = remedy(t == MAP_FAILED ? "no memory" : t->why, &reason);
        means = str_printf("no limit for %s%s%s; a run that asks for one is refused", lost.p,
                           *reason ? ": " : "", reason);
        probe_add(r, "cgroup", "limits by cgroups", false, PROBE_LIMITED, str_take(&have), means,
                  fix);
    }
    free(reason);
    str_reset(&lost);
    if (t != MAP_FAILED)
        munmap(t, sizeof *t);
}

void probe_linger(struct probe_report *r, const struct probe_host *h)
{
    AUTOFREE char *path = NULL;
    const char *user = h->me.name;

    if (!h->uid || !h->systemd || !user) {
        probe_add(r, "linger", "linger", false, PROBE_OK,
                  str_printf("not needed%s", !h->uid ? " for root" : ""), NULL, NULL);
        return;
    }
    path = str_printf("/var/lib/systemd/linger/%s", user);
    if (fs_exists(path))
        probe_add(r, "linger", "linger", false, PROBE_OK, str_dup("on"), NULL, NULL);
    else
        probe_add(r, "linger", "linger", false, PROBE_LIMITED, str_dup("off"),
                  str_dup("sandboxes that are kept running end with your last logout"),
                  str_printf("sudo loginctl enable-linger %s", user));
}

/* Below a quarter of a sandbox's memory limit a start is refused. */
static void probe_memory(struct probe_report *r)
{
    enum { DEFAULT_LIMIT_MIB = 2048 };
    AUTOFREE char *text = NULL;
    unsigned long long kib = 0;
    const char *p;
    char size[24];

    if (fs_read(-1, "/proc/meminfo", 64 << 10, &text, NULL, NULL) >= 0 &&
        (p = strstr(text, "MemAvailable:")))
        kib = strtoull(p + 13, NULL, 10);
    format_size(kib / 1024 << 20, size);
    if (kib / 1024 >= DEFAULT_LIMIT_MIB)
        probe_add(r, "memory", "memory", false, PROBE_OK, str_printf("%s available", size), NULL,
                  NULL);
    else if (kib / 1024 >= DEFAULT_LIMIT_MIB / 4)
        probe_add(r, "memory", "memory", false, PROBE_LIMITED, str_printf("%s available", size),
                  str_dup("less than the 2G a sandbox may use by default"),
                  str_dup("petri run -m 512M -- CMD"));
    else
        probe_add(r, "memory", "memory", false, PROBE_LIMITED, str_printf("%s available", size),
                  str_dup("a sandbox with the default limit of 2G does not start"),
                  str_dup("petri run -m 256M -- CMD, or end other programs"));
}

void probe_room(struct probe_report *r, const char *store)
{
    struct statvfs s;
    uint64_t bytes;
    char size[24];

    probe_memory(r);
    if (statvfs(store, &s) < 0)
        return;
    bytes = (uint64_t)s.f_bavail * s.f_frsize;
    format_size(bytes >> 20 << 20, size);
    if (bytes < 1ULL << 30 || (s.f_files && s.f_favail < 10000))
        probe_add(r, "disk", "room for the store", false, PROBE_LIMITED,
                  bytes < 1ULL << 30
                      ? str_printf("%s free", size)
                      : str_printf("%llu files free", (unsigned long long)s.f_favail),
                  str_dup("images and kept sandboxes may not fit"),
                  str_printf("make room on '%s', or set PETRI_HOME to a larger disk", store));
    else
        probe_add(r, "disk", "room for the store", false, PROBE_OK, str_printf("%s free", size),
                  NULL, NULL);
}
