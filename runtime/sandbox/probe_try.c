/* runtime/sandbox/probe_try.c - does in a forked child what a sandbox would do, and notes how far it
 * got. The child's namespaces vanish with it.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

enum { DEADLINE_MS = 3000 };

static int note(int rc)
{
    return rc < 0 ? errno : 0;
}

/* Waits for a child, at most DEADLINE_MS; then it is killed. Returns its status. */
int probe_reap(pid_t pid)
{
    int status = 0;
    AUTOCLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (fd >= 0 && RETRY(poll(&p, 1, DEADLINE_MS)) == 0)
        kill(pid, SIGKILL);
    if (RETRY(waitpid(pid, &status, 0)) < 0)
        return 0;
    return status;
}

int probe_write(const char *path, const char *text)
{
    AUTOCLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? errno : 0;
}

int probe_map_self(uid_t uid, gid_t gid)
{
    char line[48];
    int rc = probe_write("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "0 %u 1", uid);
    rc = rc && rc != ENOENT ? rc : probe_write("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "0 %u 1", gid);
    return rc ? rc : probe_write("/proc/self/gid_map", line);
}

/* One by one, so that the one that is switched off can be named. */
static int other_namespaces(const char **ret_name)
{
    static const struct {
        int flag;
        const char *name;
    } all[] = {
        { CLONE_NEWNS, "mnt" },  { CLONE_NEWPID, "pid" }, { CLONE_NEWIPC, "ipc" },
        { CLONE_NEWUTS, "uts" }, { CLONE_NEWNET, "net" }, { CLONE_NEWCGROUP, "cgroup" },
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (unshare(all[i].flag) < 0) {
            *ret_name = all[i].name;
            return errno;
        }
    return 0;
}

static int mnt_open(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static int mnt_set(int fs, unsigned cmd, const char *key, const void *value, int aux)
{
    return (int)syscall(SYS_fsconfig, fs, cmd, key, value, aux);
}

/* Creates and mounts what `fs` describes, detached; a mount fd, or -1 with errno. */
static int mnt_make(int fs)
{
    if (mnt_set(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
}

/* A tmpfs of our own, put on top of "/": no path leads there, the descriptor does. From then on this
 * process counts as chrooted, and can make no further user namespace. */
static int scratch(void)
{
    AUTOCLOSE int fs = mnt_open("tmpfs");
    AUTOCLOSE int mnt = fs < 0 ? -1 : mnt_make(fs);
    if (mnt < 0 || syscall(SYS_move_mount, mnt, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -1;
    return TAKE_FD(mnt);
}

/* An ordinary user's overlay needs userxattr; a detached mount fd, or -1 with errno. */
static int overlay(const char *lower, const char *upper, const char *work, bool plus, bool as_root)
{
    AUTOCLOSE int fs = mnt_open("overlay");
    if (fs < 0 || mnt_set(fs, FSCONFIG_SET_STRING, plus ? "lowerdir+" : "lowerdir", lower, 0) < 0 ||
        mnt_set(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
        mnt_set(fs, FSCONFIG_SET_STRING, "workdir", work, 0) < 0 ||
        (!as_root && mnt_set(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0))
        return -1;
    return mnt_make(fs);
}

/* Makes l, u, w below dir and an overlay of them. `use`: removes a lower directory and makes it
 * again, which needs whiteouts and extended attributes to work. */
static int overlay_in(int dir, const char *lower, bool plus, bool use, bool as_root)
{
    char path[3][64];
    static const char *const names[] = { "l", "u", "w" };
    AUTOCLOSE int mnt = -EBADF;

    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "/proc/self/fd/%d/%s", dir, names[i]);
        if (mkdirat(dir, names[i], 0700) < 0 && errno != EEXIST)
            return errno;
    }
    if (mkdirat(dir, "l/d", 0700) < 0 && errno != EEXIST)
        return errno;
    mnt = overlay(lower ? lower : path[0], path[1], path[2], plus, as_root);
    if (mnt < 0)
        return errno;
    if (!use)
        return 0;
    return note(unlinkat(mnt, "d", AT_REMOVEDIR) < 0 || mkdirat(mnt, "d", 0700) < 0 ? -1 : 0);
}

static int tmpfs_xattr(int dir)
{
    AUTOCLOSE int fd = openat(dir, "x", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return note(fd < 0 ? -1 : fsetxattr(fd, "user.petri", "1", 1, 0));
}

static int layer_by_fd(int dir)
{
    AUTOCLOSE int fs = mnt_open("overlay"),
                  fd = openat(dir, "l", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return note(fs < 0 || fd < 0 ? -1 : mnt_set(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, fd));
}

/* Overlays on a tmpfs, on the store's file system, over the project. */
static void try_overlays(struct probe_tries *t, const char *probe_dir, const char *project)
{
    static const char *const names[] = { "a", "b", "c" };
    AUTOCLOSE int store = -EBADF, below = -EBADF, tmp = -EBADF;
    int dirs[3];
    char lower[64];

    /* Opened in this mount namespace: layers must belong to it. */
    store = probe_dir ? open(probe_dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    below = project ? open(project, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    tmp = scratch();
    if (tmp < 0)
        return;
    t->tmpfs_xattr = tmpfs_xattr(tmp);
    for (int i = 0; i < 3; i++) {
        mkdirat(tmp, names[i], 0700);
        dirs[i] = openat(tmp, names[i], O_PATH | O_CLOEXEC);
    }
    t->overlay = overlay_in(dirs[0], NULL, false, true, t->as_root);
    t->layers_plus = overlay_in(dirs[1], NULL, true, false, t->as_root);
    t->layers_fd = layer_by_fd(dirs[0]);
    if (store >= 0)
        t->store_upper = overlay_in(store, NULL, false, true, t->as_root);
    if (below >= 0) {
        snprintf(lower, sizeof lower, "/proc/self/fd/%d", below);
        t->project_lower = overlay_in(dirs[2], lower, false, false, t->as_root);
    }
    for (int i = 0; i < 3; i++)
        close_p(&dirs[i]);
}

static int try_tmpfs(void)
{
    AUTOCLOSE int fd = scratch();
    return note(fd);
}

/* A fresh /proc needs a process in the new pid namespace. */
static int try_proc(void)
{
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (!pid) {
        AUTOCLOSE int fs = mnt_open("proc");
        _exit(note(fs < 0 ? -1 : mnt_make(fs)));
    }
    int status = probe_reap(pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static int try_seccomp(void)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog prog = { .len = 1, .filter = &allow };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return errno;
    return note((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
}

/* The other calls that start a sandbox: a filter around us may let namespaces through and stop these.
 * With arguments that can't work, any answer but a refusal is good. */
static int try_calls(const char **ret_name)
{
    static const char host[] = "probe", nowhere[] = "/proc/self/nowhere";
    AUTOCLOSE int ns = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    const struct {
        const char *name;
        long rc;
        int err;
    } calls[] = {
        { "sethostname", sethostname(host, sizeof host - 1), errno },
        { "setns", setns(ns, CLONE_NEWUTS), errno },
        { "umount2", umount2(nowhere, MNT_DETACH), errno },
        { "pivot_root", syscall(SYS_pivot_root, nowhere, nowhere), errno },
        { "open_tree", syscall(SYS_open_tree, -1, "x", 0), errno },
        { "mount_setattr", syscall(SYS_mount_setattr, -1, "x", 0, NULL, 0), errno },
    };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (calls[i].rc < 0 &&
            (calls[i].err == EPERM || calls[i].err == EACCES || calls[i].err == ENOSYS)) {
            *ret_name = calls[i].name;
            return calls[i].err;
        }
    return 0;
}

static void child(struct probe_tries *t, const char *probe_dir, const char *project)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    t->userns = note(unshare(CLONE_NEWUSER));
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the new credentials cleared it */
    if (!t->userns)
        t->maps = probe_map_self(uid, gid);
    if (!t->maps)
        t->namespaces = other_namespaces(&t->ns_name);
    if (!t->namespaces)
        t->calls = try_calls(&t->call_name);
    if (!t->namespaces)
        t->tmpfs = note(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    if (!t->tmpfs)
        t->tmpfs = try_tmpfs();
    if (!t->tmpfs && !t->as_root)
        try_overlays(t, probe_dir, project);
    if (!t->tmpfs)
        t->proc = try_proc();
    t->seccomp = try_seccomp();
}

/* Root mounts overlays outside the sandbox's user namespace, where it has the right to. */
static void root_child(struct probe_tries *t, const char *probe_dir, const char *project)
{
    t->as_root = !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (t->as_root)
        try_overlays(t, probe_dir, project);
}

/* --- in the parent --------------------------------------------------------------------------- */

/* Signals that a terminal or a supervisor sends wait, so that the probe's directory goes. */
static void in_child(void (*fn)(struct probe_tries *t, const char *a, const char *b),
                     struct probe_tries *t, const char *a, const char *b)
{
    pid_t pid = fork();
    if (pid < 0) {
        t->userns = t->userns == PROBE_NOT_TRIED ? errno : t->userns;
        return;
    }
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(t, a, b);
        _exit(0);
    }
    int status = probe_reap(pid);
    if (WIFSIGNALED(status))
        t->died = WTERMSIG(status);
}

void probe_try(const char *probe_dir, const char *project, struct probe_tries *ret)
{
    static const struct probe_tries none = {
        .userns = -1,
        .maps = -1,
        .namespaces = -1,
        .calls = -1,
        .tmpfs = -1,
        .proc = -1,
        .overlay = -1,
        .tmpfs_xattr = -1,
        .store_upper = -1,
        .project_lower = -1,
        .layers_plus = -1,
        .layers_fd = -1,
        .seccomp = -1,
        .net = -1,
        .net_full = -1,
        .resolver = -1,
        .idmap_project = -1,
        .idmap_usr = -1,
    };
    struct probe_tries *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ret = none;
    if (t == MAP_FAILED)
        return;
    *t = none;
    if (!geteuid() && probe_all_ids())
        in_child(root_child, t, probe_dir, project);
    in_child(child, t, probe_dir, project);
    if (!geteuid() && !t->userns)
        in_child(probe_try_idmap, t, NULL, project);
    if (!t->namespaces)
        in_child(probe_try_net, t, NULL, NULL);
    in_child(probe_try_resolver, t, NULL, NULL);
    *ret = *t;
    munmap(t, sizeof *t);
}
