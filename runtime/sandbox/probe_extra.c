/* runtime/sandbox/probe_extra.c - what is useful but not needed: more user ids, landlock, KVM, other
 * runtimes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

enum { RANGE = 65536 };

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

/* The user's first range of at least RANGE ids, by name or number; false: none. */
static bool subid_range(const char *file, const struct probe_host *h, uint64_t *ret)
{
    AUTOFREE char *text = NULL;
    char *save = NULL, uid[16];

    snprintf(uid, sizeof uid, "%u", h->uid);
    if (fs_read(AT_FDCWD, file, 1 << 20, &text, NULL, NULL) < 0)
        return false;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *a = strchr(l, ':'), *b = a ? strchr(a + 1, ':') : NULL;
        if (!b)
            continue;
        *a = *b = 0;
        if (!str_eq(l, h->me.name) && strcmp(l, uid))
            continue;
        *ret = strtoull(a + 1, NULL, 10);
        if (strtoull(b + 1, NULL, 10) >= RANGE)
            return true;
    }
    return false;
}

/* The end of the last range in both files: what is above belongs to nobody. */
static uint64_t free_range(void)
{
    static const char *const files[] = { "/etc/subuid", "/etc/subgid" };
    uint64_t end = 100000;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        AUTOFREE char *text = NULL;
        char *save = NULL;
        unsigned long long first, count;
        if (fs_read(AT_FDCWD, files[i], 1 << 20, &text, NULL, NULL) < 0)
            continue;
        for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
            if (sscanf(l, "%*[^:]:%llu:%llu", &first, &count) == 2 && first + count > end)
                end = first + count;
    }
    return end;
}

/* The helpers work by set-uid or by file capabilities. */
static bool privileged(const char *path)
{
    struct stat st;
    return !stat(path, &st) && ((st.st_mode & S_ISUID && !st.st_uid) ||
                                getxattr(path, "security.capability", NULL, 0) > 0);
}

void probe_subids(struct probe_report *r, const struct probe_host *h)
{
    static const char id[] = "subuid", title[] = "more user ids inside";
    static const char means[] = "one user id inside: no -u with another user, packages with users "
                                "of their own don't install";
    AUTOFREE char *umap = NULL, *gmap = NULL;
    const char *bad = NULL;
    uint64_t uids, gids;

    if (!h->uid) {
        probe_add(r, id, title, false, PROBE_OK, str_dup("root has its own range"), NULL, NULL);
        return;
    }
    umap = probe_find_program("newuidmap");
    gmap = probe_find_program("newgidmap");
    if (!umap || !gmap) {
        probe_add(r, id, title, false, PROBE_LIMITED,
                  str_printf("%s is not installed", umap ? "newgidmap" : "newuidmap"),
                  str_dup(means), str_dup("sudo apt install uidmap"));
        return;
    }
    if (!subid_range("/etc/subuid", h, &uids))
        bad = "/etc/subuid";
    else if (!subid_range("/etc/subgid", h, &gids))
        bad = "/etc/subgid";
    if (bad) {
        unsigned long long from = free_range();
        probe_add(
            r, id, title, false, PROBE_LIMITED, str_printf("no range in %s", bad), str_dup(means),
            str_printf("sudo usermod --add-subuids %llu-%llu --add-subgids %llu-%llu %s", from,
                       from + RANGE - 1, from, from + RANGE - 1, h->me.name ? h->me.name : "USER"));
        return;
    }
    if (h->no_new_privs) {
        probe_add(r, id, title, false, PROBE_LIMITED, str_dup("no_new_privs is set"),
                  str_dup(means),
                  str_dup("start petri outside the tool that set it (a container, a service with "
                          "NoNewPrivileges=)"));
    } else if (!privileged(umap) || !privileged(gmap)) {
        probe_add(r, id, title, false, PROBE_LIMITED,
                  str_printf("%s is not set-uid root", privileged(umap) ? gmap : umap),
                  str_dup(means), str_printf("sudo chmod u+s %s %s", umap, gmap));
    } else if (probe_try_subids(umap, gmap, uids, gids)) {
        probe_add(r, id, title, false, PROBE_LIMITED,
                  str_printf("%s failed for %llu", umap, (unsigned long long)uids), str_dup(means),
                  str_printf("%s: a set-uid program on a nosuid mount or inside a container; run "
                             "petri outside of it",
                             umap));
    } else {
        probe_add(r, id, title, false, PROBE_OK,
                  str_printf("%llu and 65535 above it", (unsigned long long)uids), NULL, NULL);
    }
}

static void probe_landlock(struct probe_report *r)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    bool off = abi < 0 && errno == EOPNOTSUPP;

    if (abi > 0)
        probe_add(r, "landlock", "landlock", false, PROBE_OK, str_printf("ABI %ld", abi), NULL,
                  NULL);
    else
        probe_add(r, "landlock", "landlock", false, PROBE_LIMITED,
                  str_dup(off ? "switched off" : "not available"),
                  str_dup("sandboxes do not depend on it; their gateways have a wall less"),
                  off ? str_dup("add landlock to the kernel parameter lsm=") : NULL);
}

static bool cpu_has_virtualization(void)
{
    AUTOCLOSE int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    char buf[8192];
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1); /* the first processor is enough */
    if (n <= 0)
        return false;
    buf[n] = 0;
#ifdef __x86_64__
    return strstr(buf, " vmx") || strstr(buf, " svm");
#else
    return true;
#endif
}

/* For virtual machines as sandboxes only: never needed for `petri run`. */
static void probe_kvm(struct probe_report *r, const struct probe_host *h)
{
    enum { KVM_GET_API_VERSION_ = 0xae00, KVM_CREATE_VM_ = 0xae01 };
    static const char means[] = "no sandbox in a virtual machine of its own";
    AUTOCLOSE int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm = -EBADF;
    const char *user = h->me.name ? h->me.name : "USER";
    struct stat st;

    if (fd < 0) {
        bool there = !stat("/dev/kvm", &st), group = there && (st.st_mode & 060) == 060;
        probe_add(
            r, "kvm", "KVM", false, PROBE_LIMITED,
            str_dup(there ? "no access to /dev/kvm" : "no /dev/kvm"), str_dup(means),
            group   ? str_printf("sudo usermod -aG kvm %s, then log in again", user)
            : there ? str_printf("sudo setfacl -m u:%s:rw /dev/kvm", user)
            : h->container
                ? str_dup("start the container with --device /dev/kvm")
                : str_dup("switch on virtualization in the firmware, then sudo modprobe kvm"));
        return;
    }
    vm = ioctl(fd, KVM_GET_API_VERSION_, 0) == 12 ? ioctl(fd, KVM_CREATE_VM_, 0) : -1;
    if (vm < 0)
        probe_add(r, "kvm", "KVM", false, PROBE_LIMITED, str_dup("/dev/kvm makes no machine"),
                  str_dup(means), NULL);
    else if (!cpu_has_virtualization())
        probe_add(r, "kvm", "KVM", false, PROBE_LIMITED,
                  str_dup("opens, but the cpu shows neither vmx nor svm"), str_dup(means), NULL);
    else
        probe_add(r, "kvm", "KVM", false, PROBE_OK, str_dup("works"), NULL, NULL);
}

static void probe_runtimes(struct probe_report *r)
{
    static const char *const names[] = { "crun", "runc", "runsc", "docker", "podman", "bwrap" };
    struct str found = STR_INIT;

    str_add(&found, "libcrun (built in)");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTOFREE char *path = probe_find_program(names[i]);
        if (path)
            str_addf(&found, " %s", names[i]);
    }
    probe_add(r, "runtimes", "runtimes", false, PROBE_OK, str_take(&found), NULL, NULL);
}

void probe_extras(struct probe_report *r, const struct probe_host *h)
{
    probe_landlock(r);
    probe_kvm(r, h);
    probe_runtimes(r);
}
