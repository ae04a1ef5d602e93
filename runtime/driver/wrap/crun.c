/* runtime/driver/wrap/crun.c - four functions that libcrun gets instead of its own (ld --wrap). A
 * library of its own, so that it is found wherever libcrun is linked. */
#include <config.h> /* libcrun's own, before its headers */

#include <errno.h>
#include <fcntl.h>
#include <libcrun/error.h>
#include <libcrun/linux.h>
#include <libcrun/seccomp.h>
#include <libcrun/utils.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "base/fs.h"
#include "oci/config.h"
#include "seccomp_bpf.h"

/* libcrun re-executes its program from a sealed copy before main(), against a container that writes
 * to its runtime through /proc/self/exe. Here the first process of every container is petri's own
 * read-only init in another user namespace, so the copy (2 ms for every command, --version too) buys
 * nothing: the linker is told (--wrap) to take this one instead of the library's. */
int __wrap_ensure_cloned_binary(void);
int __wrap_ensure_cloned_binary(void)
{
    return 0;
}

/* It also asks the name service who we are, for a status file that nobody reads; in a static program
 * that would load the machine's own libraries. */
int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret);
int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t n, struct passwd **ret)
{
    *ret = NULL;
    return ENOENT;
}

/* The compiled filter, as it is. It would be base64 in config.json, which the library takes longer to read back and
 * decode than the kernel to load it, while the container waits. */
__typeof__(libcrun_copy_seccomp) __wrap_libcrun_copy_seccomp;
int __wrap_libcrun_copy_seccomp(struct libcrun_seccomp_gen_ctx_s *gen, const char *data,
                                libcrun_error_t *err)
{
    if (strcmp(data, CONFIG_SECCOMP) != 0)
        return crun_make_error(err, 0, "not petri's seccomp filter");
    if (fs_write_all(gen->fd, seccomp_bpf, sizeof seccomp_bpf) < 0)
        return crun_make_error(err, errno, "write the seccomp filter");
    return 0;
}

/* What code in the sandbox could use up of its user's host-wide allowance. Namespaces can't be made inside at all
 * (seccomp); these numbers are the second wall, and enough for a start that goes on beside this. */
static const struct {
    const char *file, *value;
} limits[] = {
    { "sys/user/max_user_namespaces", "0" },
    { "sys/user/max_net_namespaces", "2" }, /* with the gateway's */
    { "sys/user/max_mnt_namespaces", "2" },
    { "sys/user/max_pid_namespaces", "1" },
    { "sys/user/max_ipc_namespaces", "1" },
    { "sys/user/max_uts_namespaces", "1" },
    { "sys/user/max_cgroup_namespaces", "1" },
    { "sys/user/max_time_namespaces", "0" },
    { "sys/user/max_inotify_instances", "64" },
    { "sys/user/max_fanotify_groups", "0" },
    { "sys/user/max_fanotify_marks", "0" },
    { "sys/net/ipv4/ip_unprivileged_port_start", "0" }, /* nobody else has ports here */
};

/* Half of what a user of this machine may have, where that is not much. */
static void half_of_watches(int proc, char ret[24])
{
    AUTOFREE char *text = NULL;
    uint64_t most = 65536;

    if (fs_read(proc, "sys/fs/inotify/max_user_watches", 64, &text, NULL, NULL) == 0 &&
        strtoull(text, NULL, 10) < most)
        most = strtoull(text, NULL, 10);
    snprintf(ret, 24, "%llu", (unsigned long long)most / 2);
}

/* A kernel that does not have one of these has nothing to use up there. */
static int lower(int proc, const char *file, const char *value, libcrun_error_t *err)
{
    if (fs_write_at(proc, file, value, NULL) < 0 && errno != ENOENT)
        return crun_make_error(err, errno, "write /proc/%s", file);
    return 0;
}

static int lower_limits(libcrun_error_t *err)
{
    /* /proc/sys is read-only already; without what is mounted on it, it is not. It has to be this /proc: of one that
     * many sandboxes are started through, the kernel remembers these files for each, and looks through them all. */
    AUTOCLOSE int proc = open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    char watches[24];
    int rc = 0;

    if (proc < 0)
        return crun_make_error(err, errno, "look into the sandbox's /proc");
    half_of_watches(proc, watches);
    for (size_t i = 0; i < ARRAY_LEN(limits) && rc == 0; i++)
        rc = lower(proc, limits[i].file, limits[i].value, err);
    return rc < 0 ? rc : lower(proc, "sys/user/max_inotify_watches", watches, err);
}

/* The last moment as root of the container with its file systems there. */
__typeof__(libcrun_set_hostname) __wrap_libcrun_set_hostname, __real_libcrun_set_hostname;
int __wrap_libcrun_set_hostname(libcrun_container_t *container, libcrun_error_t *err)
{
    int rc = find_annotation(container, CONFIG_LIMITS) ? lower_limits(err) : 0;

    return rc < 0 ? rc : __real_libcrun_set_hostname(container, err);
}
