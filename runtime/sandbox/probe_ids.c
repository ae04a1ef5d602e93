/* runtime/sandbox/probe_ids.c - tries what needs more than one id: idmapped mounts (root), and the
 * ranges of /etc/subuid with the set-uid helpers that map them (others).
 */
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

static int idmap_clone(const char *path, int userns)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns };
    AUTOCLOSE int mnt = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | O_CLOEXEC);
    if (mnt < 0 || syscall(SYS_mount_setattr, mnt, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return errno;
    return 0;
}

/* A child that sits in a new user namespace until `hold` closes. */
static pid_t userns_child(int *ret_hold)
{
    int ready[2], hold[2];
    char byte = 0;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(hold, O_CLOEXEC) < 0) {
        close(ready[0]);
        close(ready[1]);
        return -1;
    }
    pid = fork();
    if (!pid) {
        close(hold[1]);
        close(ready[0]);
        byte = (char)(unshare(CLONE_NEWUSER) < 0 ? errno : 0);
        if (write(ready[1], &byte, 1) == 1 && read(hold[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    close(ready[1]);
    close(hold[0]);
    if (pid > 0 && (RETRY(read(ready[0], &byte, 1)) != 1 || byte)) {
        close(hold[1]);
        probe_reap(pid);
        errno = byte ? byte : EIO;
        pid = -1;
    } else if (pid < 0) {
        close(hold[1]);
    } else {
        *ret_hold = hold[1];
    }
    close(ready[0]);
    return pid;
}

void probe_try_idmap(struct probe_tries *t, const char *unused, const char *project)
{
    AUTOCLOSE int hold = -EBADF, ns = -EBADF;
    char path[64];
    int rc;
    pid_t pid = userns_child(&hold);

    if (pid < 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    rc = probe_write(path, "0 524288 65536");
    snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    rc = rc ? rc : probe_write(path, "0 524288 65536");
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    rc = rc ? rc : ns < 0 || unshare(CLONE_NEWNS) < 0 ? errno : 0;
    t->idmap_usr = rc ? rc : idmap_clone("/usr", ns);
    t->idmap_project = rc ? rc : idmap_clone(project, ns);
    close_p(&hold);
    probe_reap(pid);
}

static bool run_helper(const char *path, pid_t pid, uint64_t inside_to, uint64_t start)
{
    char p[16], own[24], first[24];
    pid_t helper;

    snprintf(p, sizeof p, "%d", pid);
    snprintf(own, sizeof own, "%llu", (unsigned long long)inside_to);
    snprintf(first, sizeof first, "%llu", (unsigned long long)start);
    helper = fork();
    if (!helper) {
        char *argv[] = { (char *)path,    p,     (char[]){ "0" }, own, (char[]){ "1" },
                         (char[]){ "1" }, first, (char[]){ "1" }, NULL };
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null >= 0) {
            dup2(null, 1);
            dup2(null, 2);
        }
        execv(path, argv);
        _exit(127);
    }
    int status = helper < 0 ? 1 : probe_reap(helper);
    return helper > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

int probe_try_subids(const char *newuidmap, const char *newgidmap, uint64_t uid_start,
                     uint64_t gid_start)
{
    AUTOCLOSE int hold = -EBADF;
    pid_t pid = userns_child(&hold);
    bool ok;

    if (pid < 0)
        return errno ? errno : EIO;
    ok = run_helper(newuidmap, pid, geteuid(), uid_start) &&
         run_helper(newgidmap, pid, getegid(), gid_start);
    close_p(&hold);
    probe_reap(pid);
    return ok ? 0 : EPERM;
}
