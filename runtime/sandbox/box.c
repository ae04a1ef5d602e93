#include "runtime/sandbox/box.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/init/proto.h"
#include "runtime/sandbox/totals.h"

/* All sandboxes together: none is started that the machine could not carry. */
static int enough_memory(const struct plan *p, struct err **e)
{
    AUTOFREE char *text = NULL;
    char *line, have[24], need[24];
    uint64_t kb = 0;

    if (fs_read(AT_FDCWD, "/proc/meminfo", 65536, &text, NULL, NULL) < 0 ||
        !(line = strstr(text, "MemAvailable:")))
        return 0;
    kb = strtoull(line + strlen("MemAvailable:"), NULL, 10);
    if (kb * 1024 >= p->memory.value / 4)
        return 0;
    format_size(kb * 1024, have);
    format_size(p->memory.value / 4, need);
    return err_new(
        e, ERR_LIMIT,
        "%s of memory are available, less than a quarter of the sandbox's limit (%s); end "
        "something or lower --memory",
        have, need);
}

/* Where the launcher mounts the scratch, in its own mount namespace. Root's sandboxes run under other ids and
 * must get through to it, which petri's own directories (0700) forbid: /boot is on every system, open to
 * be passed, and no project's place. */
static char *mount_point(const struct paths *paths)
{
    struct stat st;
    if (geteuid() == 0 && lstat("/boot", &st) == 0 && S_ISDIR(st.st_mode) && st.st_mode & S_IXOTH)
        return str_dup("/boot");
    return path_join(paths->run, "mnt");
}

/* What it may write to the store; a scratch in memory is memory. */
static uint64_t box_disk(const struct box *b)
{
    return b->scratch.watched || b->scratch.kind != SCRATCH_TMPFS ? b->scratch.size : 0;
}

struct cgroup_limits box_limits(const struct plan *p)
{
    return (struct cgroup_limits){
        .memory = p->memory.value,
        .cpu_milli = p->cpus_milli.value,
        .pids = p->pids.value,
        .memory_asked = p->memory.asked,
        .cpu_asked = p->cpus_milli.asked,
        .pids_asked = p->pids.asked,
    };
}

int box_prepare(struct box *b, void (*on_prepare)(void), struct err **e)
{
    const struct plan *p = b->plan;
    AUTOFREE char *at = mount_point(b->paths), *layers = path_join(b->paths->data, "layers");
    bool many = geteuid() != 0 && p->uid != getuid() && strcmp(p->image, "host") == 0;
    struct cgroup_limits limits = box_limits(p);
    int rc;

    if ((rc = ids_plan(p, many, &b->ids, e)) < 0 ||
        (rc = scratch_choose(p, b->paths->data, at, &b->scratch, e)) < 0 ||
        (rc = enough_memory(p, e)) < 0 ||
        (rc = totals_enter(b->paths, p, box_disk(b), &b->counted, e)) < 0)
        return rc;
    if ((rc = gate_open(&b->gate, p->net, e)) < 0)
        return rc;
    if (!(b->helper = paths_helper("petri-init", e)))
        return -ERR_NOT_FOUND;
    /* before limits and the deadline count */
    if ((rc = dirlayer_open(layers, p, &b->ids, on_prepare, &b->dirs, e)) < 0)
        return rc;
    skeleton_hold(layers, p, &b->ids, &b->skeleton);
    if ((rc = cgroup_create(p->id, &limits, &b->cgroup, e)) < 0 ||
        (rc = cgroup_wait(b->cgroup, e)) < 0)
        return rc;
    return fs_mkdirs(at, 0700, e);
}

int box_launch(struct box *b, bool count_changes, struct err **e)
{
    struct launch l = {
        .plan = b->plan,
        .ids = &b->ids,
        .scratch = &b->scratch,
        .dirs = &b->dirs,
        .skeleton = b->skeleton.path,
        .init = b->helper,
        .count_changes = count_changes,
        .cgroup = weakened() & WEAK_LIMITS ? NULL : b->cgroup,
        .net = b->plan->net,
    };
    int pair[2], one = 1, rc = gate_feed(&b->gate, &l.feed, e);

    if (rc < 0)
        return rc;

    if (cgroup_enforced(b->cgroup, "pids") == CG_RLIMIT && !(weakened() & WEAK_LIMITS))
        l.nproc = b->plan->pids.value;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        rc = err_sys(e, "socketpair");
        close_p(&l.feed);
        return rc;
    }
    b->control = pair[0];
    l.control = pair[1];
    setsockopt(b->control, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    rc = launcher_start(&l, &b->launcher, e);
    close(pair[1]);
    close_p(&l.feed);
    if (rc < 0)
        return rc;
    cgroup_set_root(b->cgroup, b->launcher.pid);
    b->launcher_pidfd = (int)syscall(SYS_pidfd_open, b->launcher.pid, 0);
    if (b->launcher_pidfd < 0)
        rc = err_sys(e, "pidfd of the launcher");
    else /* while the launcher works */
        rc = gate_walls(&b->gate, e);
    if (rc < 0)
        box_end(b);
    return rc;
}

uint32_t box_expect(const struct plan *p)
{
    unsigned weak = weakened();
    return EXPECT_PID1 | (weak & WEAK_SECCOMP ? 0 : EXPECT_SECCOMP) |
           (weak & WEAK_NNP ? 0 : EXPECT_NO_NEW_PRIVS) |
           (p->uid == 0 || weak & WEAK_CAPS ? 0 : EXPECT_NO_CAPS);
}

int box_serve_maps(struct box *b, struct err **e)
{
    int rc = ids_write_outer(&b->ids, b->launcher.pid, e);
    return rc < 0 ? rc : launcher_go(&b->launcher, e);
}

void box_end(struct box *b)
{
    close_p(&b->control);
    if (b->init > 0)
        kill(b->init, SIGKILL);
    else if (b->launcher.pid > 0)
        kill(b->launcher.pid, SIGKILL);
}

void box_wait(struct box *b)
{
    if (b->launcher.pid > 0)
        (void)RETRY(waitpid(b->launcher.pid, NULL, 0));
    close_p(&b->launcher.report);
    close_p(&b->launcher.go);
    close_p(&b->launcher_pidfd);
    close_p(&b->control);
    b->launcher.pid = 0;
    b->init = 0;
}

void box_free_p(struct box *b)
{
    box_wait(b);
    gate_close(&b->gate);
    b->cgroup = cgroup_free(b->cgroup);
    scratch_free_p(&b->scratch);
    dirlayer_free_p(&b->dirs);
    skeleton_free_p(&b->skeleton);
    totals_leave(b->paths, b->plan, &b->counted);
    free(b->helper);
    b->helper = NULL;
}
