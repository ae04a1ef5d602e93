/* runtime/sandbox/probe_host.c - what is around us, read from files: user, container, kernel, LSM. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

enum { SMALL = 64 << 10, LARGE = 4 << 20 };

static char *slurp(const char *path, size_t max)
{
    char *text = NULL;
    return fs_read(AT_FDCWD, path, max, &text, NULL, NULL) < 0 ? NULL : text;
}

int64_t probe_sysctl(const char *path)
{
    AUTOFREE char *text = slurp(path, SMALL);
    char *end;
    if (!text)
        return -1;
    long long v = strtoll(text, &end, 10);
    return end == text ? -1 : v;
}

char *probe_find_program(const char *name)
{
    const char *env = getenv("PATH");
    AUTOFREE char *dirs = str_printf(
        "%s:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", env ? env : "");
    char *save = NULL;

    for (char *d = strtok_r(dirs, ":", &save); d; d = strtok_r(NULL, ":", &save)) {
        AUTOFREE char *path = *d == '/' ? path_join(d, name) : NULL;
        struct stat st;
        if (path && !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK))
            return TAKE_PTR(path);
    }
    return NULL;
}

/* "key:\tvalue" in /proc/self/status; -1: not there. */
static long status_field(const char *status, const char *key)
{
    AUTOFREE char *want = str_printf("\n%s:", key);
    const char *p = status ? strstr(status, want) : NULL;
    return p ? strtol(p + strlen(want), NULL, 10) : -1;
}

/* mountinfo tells two things: whether "/" is there (it is not in a chroot to a plain directory),
 * and whether something covers parts of /proc, as container engines do. */
static void read_mounts(struct probe_host *h)
{
    AUTOFREE char *text = slurp("/proc/self/mountinfo", LARGE);
    char *save = NULL;

    h->chrooted = text != NULL;
    for (char *l = text ? strtok_r(text, "\n", &save) : NULL; l; l = strtok_r(NULL, "\n", &save)) {
        char point[256];
        if (sscanf(l, "%*s %*s %*s %*s %255s", point) != 1)
            continue;
        if (!strcmp(point, "/"))
            h->chrooted = false;
        if (str_starts(point, "/proc/") && strcmp(point, "/proc/sys/fs/binfmt_misc"))
            h->proc_masked = true;
    }
}

static void read_container(struct probe_host *h)
{
    AUTOFREE char *cgroup = slurp("/proc/self/cgroup", SMALL);
    /* systemd wrote down what it found at boot; other inits leave it in the environment of pid 1,
     * usually first (and a NUL ends the text here). */
    AUTOFREE char *found = slurp("/run/systemd/container", SMALL);
    AUTOFREE char *env = found ? NULL : slurp("/proc/1/environ", SMALL);
    const char *var = getenv("container");

    if (!var)
        var = found ? found : env && str_starts(env, "container=") ? env + 10 : "";
    const struct {
        bool is;
        const char *kind, *sign;
    } signs[] = {
        { str_starts(var, "podman"), "podman", "$container" },
        { str_starts(var, "docker"), "docker", "$container" },
        { str_starts(var, "lxc"), "lxc", "$container" },
        { getenv("KUBERNETES_SERVICE_HOST"), "kubernetes", "$KUBERNETES_SERVICE_HOST" },
        { cgroup && strstr(cgroup, "kubepods"), "kubernetes", "its cgroup" },
        { fs_exists("/run/.containerenv"), "podman", "/run/.containerenv" },
        { fs_exists("/.dockerenv"), "docker", "/.dockerenv" },
        { cgroup && (strstr(cgroup, "/docker/") || strstr(cgroup, "/docker-")), "docker",
          "its cgroup" },
        { cgroup && strstr(cgroup, "libpod"), "podman", "its cgroup" },
        { cgroup && strstr(cgroup, "/lxc"), "lxc", "its cgroup" },
        { *var, "container", "$container" },
    };
    for (size_t i = 0; i < ARRAY_LEN(signs) && !h->container; i++)
        if (signs[i].is) {
            h->container = signs[i].kind;
            h->container_sign = signs[i].sign;
        }
}

/* "docker-default (enforce)", NULL when there is no AppArmor or it lets us be. */
static void read_apparmor(struct probe_host *h)
{
    AUTOFREE char *on = slurp("/sys/module/apparmor/parameters/enabled", 16);
    AUTOFREE char *label = slurp("/proc/self/attr/apparmor/current", SMALL);

    if (!label && on && *on == 'Y')
        label = slurp("/proc/self/attr/current", SMALL);
    if (!label || !*label || str_starts(label, "unconfined"))
        return;
    label[strcspn(label, "\n")] = 0;
    h->apparmor = TAKE_PTR(label);
}

bool probe_all_ids(void)
{
    AUTOFREE char *map = slurp("/proc/self/uid_map", SMALL);
    unsigned long inside, outside, count;
    return map && sscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 && !inside &&
           !outside && count == 4294967295UL;
}

void probe_host_read(struct probe_host *ret)
{
    struct probe_host h = { .uid = geteuid() };
    AUTOFREE char *status = slurp("/proc/self/status", SMALL);
    struct utsname u;

    if (!uname(&u)) {
        h.release = str_dup(u.release);
        sscanf(u.release, "%u.%u", &h.major, &h.minor);
    }
    h.seccomp_mode = (int)status_field(status, "Seccomp");
    h.no_new_privs = status_field(status, "NoNewPrivs") == 1;
    h.systemd = fs_is_dir("/run/systemd/system");
    user_by_uid(h.uid, &h.me);
    read_mounts(&h);
    read_container(&h);
    read_apparmor(&h);
    *ret = h;
}

void probe_host_free_p(struct probe_host *h)
{
    user_free_p(&h->me);
    free(h->apparmor);
    free(h->release);
    *h = (struct probe_host){ 0 };
}
