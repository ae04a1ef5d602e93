#include "runtime/driver/launch.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "runtime/driver/crun.h"
#include "runtime/driver/ns.h"
#include "runtime/driver/rootfs.h"

/* Descriptors of the launcher while libcrun runs; INIT is the only one the sandbox keeps. */
enum { FD_INIT = 3, FD_USERNS, FD_NETNS, FD_REPORT, FD_READY };

struct self {
    const struct launch *l;
    int report, go;
};

static void say(int report, struct report *r, const char *text)
{
    char buf[1024];
    size_t n = text ? strlen(text) : 0;
    if (n > sizeof buf - sizeof *r)
        n = sizeof buf - sizeof *r;
    memcpy(buf, r, sizeof *r);
    if (n)
        memcpy(buf + sizeof *r, text, n);
    (void)!send(report, buf, sizeof *r + n, MSG_NOSIGNAL);
}

static int wait_go(struct self *s, struct err **e)
{
    char c;
    if (RETRY(read(s->go, &c, 1)) != 1)
        return err_new(e, ERR_FAILED, "petri went away during the start");
    return 0;
}

static void die_with_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

/* An ordinary user's launcher first becomes root of a namespace of its own. */
static int enter_own_namespace(struct self *s, pid_t parent, struct err **e)
{
    struct report maps = { .type = REPORT_MAPS };
    const struct ids *ids = s->l->ids;
    int rc;

    if (ids->mode == IDS_ROOT)
        return unshare(CLONE_NEWNS) < 0 ? err_sys(e, "make a mount namespace") : 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return err_new(e, ERR_UNSUPPORTED,
                       "this user may not make user namespaces (%s); petri doctor "
                       "says how to allow it",
                       strerror(errno));
    if (ids->mode == IDS_SINGLE) {
        rc = ids_write_outer(ids, getpid(), e);
    } else {
        say(s->report, &maps, NULL);
        rc = wait_go(s, e);
    }
    if (rc < 0)
        return err_wrap(e, "map user ids (see petri doctor)");
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_sys(e, "become root of the own namespace");
    if (ids->mode == IDS_SUB && syscall(SYS_setgroups, 0, NULL) < 0)
        return err_sys(e, "drop the supplementary groups");
    die_with_parent(parent);
    return 0;
}

/* Leaves exactly the descriptors of the enum above open; all but INIT are marked close-on-exec. READY only where
 * there is something to wait for. */
static int arrange_fds(struct self *s, int userns, int netns, int ready, struct err **e)
{
    const int from[] = { s->l->control, userns, netns, s->report, ready };
    size_t n_fds = ARRAY_LEN(from) - (ready < 0);
    int high[ARRAY_LEN(from)], idle[2];

    for (size_t i = 0; i < n_fds; i++)
        high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
    /* libcrun chowns its stdio to the sandbox's user: /dev/null there would be the host's own */
    if (pipe2(idle, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    for (int i = 0; i < 3; i++) {
        int fd = fcntl(idle[i > 0], F_DUPFD_CLOEXEC, 64);
        if (fd < 0 || dup2(fd, i) < 0)
            return err_sys(e, "open files for the sandbox (ulimit -n should be 256 or more)");
    }
    for (size_t i = 0; i < n_fds; i++)
        if (dup3(high[i], FD_INIT + (int)i, i ? O_CLOEXEC : 0) < 0)
            return err_sys(e, "descriptors of the launcher");
    if (close_range(FD_INIT + (unsigned)n_fds, ~0U, 0) < 0)
        return err_sys(e, "close_range");
    s->report = FD_REPORT;
    return 0;
}

static int run_container(struct self *s, struct err **e)
{
    const struct launch *l = s->l;
    AUTOFREE char *state = path_join(l->scratch->at, "s"),
                  *root = path_join(l->scratch->at, "root"),
                  *empty = path_join(l->scratch->at, "m");
    struct bundle b = {
        .rootfs = root,
        .init = ROOTFS_INIT,
        .empty = empty,
        .userns = weakened() & WEAK_USERNS ? NULL : "/proc/self/fd/4",
        .netns = weakened() & WEAK_USERNS ? NULL : "/proc/self/fd/5",
        .uids = l->ids->uids,
        .gids = l->ids->gids,
        .root_id = ids_is_root(l->ids),
        .init_id = ids_init(l->ids, l->plan),
        .nproc = l->nproc,
    };
    AUTOFREE char *config = config_json(l->plan, &b);
    struct crun_req req = {
        .id = l->plan->id,
        .state_root = state,
        .config = config,
        .keep_fds = 1,
        .wait_fd = l->feed >= 0 ? FD_READY : -1,
    };
    return crun_run(&req, e);
}

/* After the sandbox ended, while its layers are still mounted here. */
static int report_end(struct self *s, struct err **e)
{
    const struct launch *l = s->l;
    struct report r = { .type = REPORT_END };
    struct statvfs vfs;
    int rc;

    if (chdir(l->scratch->at) < 0 || statvfs(".", &vfs) < 0)
        return err_sys(e, "look at the scratch directory");
    r.disk_full = !l->scratch->watched &&
                  (vfs.f_bfree * 200 < vfs.f_blocks || vfs.f_ffree * 200 < vfs.f_files);
    if (l->count_changes && l->plan->project && l->plan->mode == WORKSPACE_OVERLAY &&
        (rc = workspace_count(l->plan, &r.changes, e)) < 0)
        return rc;
    say(s->report, &r, NULL);
    /* files of mapped ids can only be removed from inside the mapping */
    if (l->scratch->kind == SCRATCH_DIR &&
        (chdir("/") < 0 || umount2(l->scratch->at, MNT_DETACH) < 0 ||
         fs_remove_tree(AT_FDCWD, l->scratch->dir, NULL) < 0))
        return err_new(e, ERR_FAILED, "files of the sandbox are left in '%s'", l->scratch->dir);
    return 0;
}

static void say_error(int report, const struct err *why)
{
    struct report r = { .type = REPORT_ERROR, .code = why ? why->code : ERR_INTERNAL };
    AUTOFREE char *text = err_text(why);
    say(report, &r, text);
}

static void on_agent_failed(void *arg, const struct err *why)
{
    say_error(((struct self *)arg)->report, why);
}

static int launcher_main(struct self *s, pid_t parent, struct err **e)
{
    const struct launch *l = s->l;
    bool root = l->ids->mode == IDS_ROOT;
    struct rootfs r = {
        .plan = l->plan,
        .ids = l->ids,
        .scratch = l->scratch,
        .init = l->init,
        .dirs = l->dirs,
        .skeleton = l->skeleton,
        .userns = -1,
        .project_userns = -1,
    };
    struct holder_agent agent = { .req = { .policy = l->net, .feed = l->feed },
                                  .failed = on_agent_failed,
                                  .arg = s };
    struct holder h, project = { 0 };
    int userns = -1, netns = -1, ready = -1, rc;

    die_with_parent(parent);
    if (l->cgroup && cgroup_dirfd(l->cgroup) < 0 && (rc = cgroup_enter(l->cgroup, e)) < 0)
        return rc;
    if ((rc = enter_own_namespace(s, parent, e)) < 0 ||
        (rc = holder_start(&l->ids->uids, &l->ids->gids, l->ids->mode == IDS_SINGLE,
                           l->feed >= 0 ? &agent : NULL, &h, e)) < 0)
        return rc;
    if (root && l->ids->swap && !l->ids->direct &&
        (rc = holder_start_bare(&l->ids->project_uids, &l->ids->project_gids, &project, e)) < 0)
        return rc;
    if ((rc = rootfs_scratch(&r, e)) < 0 || (rc = holder_user(&h, &userns, e)) < 0)
        return rc;
    if (root) {
        r.userns = userns;
        r.project_userns = l->ids->direct ? -1 : userns;
        if (l->ids->swap && !l->ids->direct &&
            (rc = holder_user(&project, &r.project_userns, e)) < 0)
            return rc;
    }
    if ((rc = rootfs_build(&r, e)) < 0 || (rc = holder_net(&h, &netns, e)) < 0)
        return rc;
    die_with_parent(parent); /* acting as others took it away */
    if (l->feed >= 0 && (rc = holder_ready(&h, &ready, e)) < 0)
        return rc;
    if (l->feed >= 0)
        holder_serve(&h);
    else
        holder_end(&h);
    if (project.pid)
        holder_end(&project);
    if ((rc = arrange_fds(s, userns, netns, ready, e)) < 0 || (rc = run_container(s, e)) < 0)
        return rc;
    /* an agent would be the last one here, and take the mounts apart after us */
    if (l->feed >= 0)
        holder_end(&h);
    return report_end(s, e);
}

/* fork(), into the cgroup right away where the kernel can. */
static pid_t fork_into(int cgroup_fd)
{
    struct clone_args a = { .flags = cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0,
                            .exit_signal = SIGCHLD,
                            .cgroup = (uint64_t)(cgroup_fd >= 0 ? cgroup_fd : 0) };
    if (cgroup_fd < 0)
        return fork();
    return (pid_t)syscall(SYS_clone3, &a, sizeof a);
}

int launcher_start(const struct launch *l, struct launcher *ret, struct err **e)
{
    int report[2] = { -1, -1 }, go[2] = { -1, -1 };
    pid_t parent = getpid(), pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0 ||
        pipe2(go, O_CLOEXEC) < 0)
        return err_sys(e, "pipes of the launcher");
    pid = fork_into(l->cgroup ? cgroup_dirfd(l->cgroup) : -1);
    if (pid < 0)
        return err_sys(e, "start the launcher");
    if (pid == 0) {
        struct self s = { .l = l, .report = report[1], .go = go[0] };
        struct err *why = NULL;
        /* the parent's ends of these would keep everybody waiting when the parent dies */
        close(report[0]);
        close(go[1]);
        if (launcher_main(&s, parent, &why) < 0) {
            say_error(s.report, why);
            _exit(1);
        }
        _exit(0);
    }
    close(report[1]);
    close(go[0]);
    *ret = (struct launcher){ .pid = pid, .report = report[0], .go = go[1] };
    return 0;
}

int launcher_go(struct launcher *l, struct err **e)
{
    if (RETRY(write(l->go, "", 1)) != 1)
        return err_sys(e, "talk to the launcher");
    return 0;
}
