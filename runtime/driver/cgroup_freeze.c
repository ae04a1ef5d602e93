#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
enum { PATIENCE_MS = 20000 }; /* on a busy machine everything must run once more to halt */

void cgroup_thaw_leaf(int dir)
{
    (void)cgroup_put(dir, "freezer.state", "THAWED");
}

/* ---- the guard: frozen processes can't see that their keeper died ---------------------------- */

/* Waits for a byte (thawed) or for the end of the pipe (the keeper is gone: so is the sandbox). */
static _Noreturn void guard_main(int gate, int init, int leaf)
{
    sigset_t all;
    char byte;

    /* above what follows, so that no dup2 hits one of them; nothing else of the keeper's stays open */
    gate = fcntl(gate, F_DUPFD, 10);
    init = fcntl(init, F_DUPFD, 10);
    leaf = fcntl(leaf, F_DUPFD, 10);
    (void)dup2(gate, 0);
    (void)dup2(init, 1);
    if (leaf >= 0)
        (void)dup2(leaf, 2);
    else
        close(2);
    (void)syscall(SYS_close_range, 3, ~0U, 0);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    if (RETRY(read(0, &byte, 1)) == 0) {
        (void)syscall(SYS_pidfd_send_signal, 1, SIGKILL, NULL, 0);
        cgroup_thaw_leaf(2);
        (void)cgroup_put(2, "cgroup.freeze", "0");
    }
    _exit(0);
}

static int guard_start(struct cgroup *c, struct err **e)
{
    /* no signal at its end: it is nobody's business but ours */
    struct clone_args a = { .exit_signal = 0 };
    pid_t init = cgroup_find_init(c);
    AUTOCLOSE int fd = init > 0 ? (int)syscall(SYS_pidfd_open, init, 0) : -1;
    int p[2];

    if (fd < 0)
        return err_new(e, ERR_FAILED, "pause the sandbox: its first process is not to be found");
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, "pause the sandbox: pipe");
    c->guard = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    if (c->guard == 0) {
        close(p[1]);
        guard_main(p[0], fd, c->fds[0]);
    }
    close(p[0]);
    c->guard_fd = p[1];
    return c->guard > 0 ? 0 : err_sys(e, "pause the sandbox: fork");
}

static void guard_end(struct cgroup *c)
{
    if (c->guard > 0) {
        (void)RETRY(write(c->guard_fd, "", 1));
        (void)RETRY(waitpid(c->guard, NULL, __WALL));
    }
    c->guard = 0;
    close_p(&c->guard_fd);
}

/* ---- three ways ------------------------------------------------------------------------------ */

static bool v1_is_frozen(int dir)
{
    char buf[32];
    return cgroup_get(dir, "freezer.state", buf, sizeof buf) == 0 && str_starts(buf, "FROZEN");
}

/* cgroup v1 sometimes never gets there while processes appear in the cgroup, by fork or from outside: one of them is
 * overlooked. Beginning anew helps. */
static void freeze_anew(int dir)
{
    cgroup_thaw_leaf(dir);
    cgroup_pause_us(1000);
    (void)cgroup_put(dir, "freezer.state", "FROZEN");
}

enum { LOOKS_ANEW = 250 };

static bool by_kernel(struct cgroup *c)
{
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + PATIENCE_MS;
    bool v2 = c->frozen == FROZEN_V2;

    for (unsigned looks = 1; clock_ms(CLOCK_MONOTONIC) < end; looks++) {
        if (v2 ? cgroup_get_number(c->fds[0], "cgroup.events", "frozen") == 1
               : v1_is_frozen(c->fds[CTL_FREEZER]))
            return true;
        if (!v2 && looks % LOOKS_ANEW == 0)
            freeze_anew(c->fds[CTL_FREEZER]);
        cgroup_pause_us(200);
    }
    return false;
}

enum { ROUNDS_STUCK = 4 };

/* Whoever called vfork stands in the kernel until its child executes something or ends, which a halted one
 * does not: it goes on for a moment, and the parent halts. Only what we halted: a parent may also just be slow. */
static void release_children(const struct cgroup *c, const struct cgroup_procs *l, pid_t parent)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct cgroup_proc *ours = cgroup_procs_find(&c->stopped, l->v[i].pid);
        if (l->v[i].parent == parent && l->v[i].halted && ours && ours->start == l->v[i].start)
            cgroup_proc_signal(&l->v[i], SIGCONT);
    }
}

/* Every process that runs gets SIGSTOP until none does, parents first: a process that is halted starts
 * no new ones. The list of children may lack one while others end, hence two quiet rounds. */
static bool by_signal(struct cgroup *c)
{
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + PATIENCE_MS;

    for (int quiet = 0, round = 1; quiet < 2; round++) {
        AUTOPROCS struct cgroup_procs l = { 0 };
        bool busy = false;
        if (cgroup_procs_read(c, &l) < 0)
            return false;
        for (size_t i = 0; i < l.n; i++) {
            const struct cgroup_proc *p = &l.v[i], *known;
            if (p->halted || p->pid == getpid())
                continue;
            busy = true;
            known = cgroup_procs_find(&c->stopped, p->pid);
            if (!known || known->start != p->start)
                cgroup_procs_add(&c->stopped, p);
            cgroup_proc_signal(p, SIGSTOP);
            if (round % ROUNDS_STUCK == 0 && known && known->start == p->start)
                release_children(c, &l, p->pid);
        }
        quiet = busy ? 0 : quiet + 1;
        if (busy && clock_ms(CLOCK_MONOTONIC) >= end)
            return false;
        if (busy)
            cgroup_pause_us(500);
    }
    return true;
}

int cgroup_freeze(struct cgroup *c, struct err **e)
{
    bool done;
    int rc;

    if (c->frozen)
        return 0;
    if ((rc = guard_start(c, e)) < 0)
        return rc;
    if (c->kind == CG_CGROUP_V2 && cgroup_put(c->fds[0], "cgroup.freeze", "1") == 0)
        c->frozen = FROZEN_V2;
    else if (c->kind == CG_CGROUP_V1 && c->fds[CTL_FREEZER] >= 0 &&
             cgroup_put(c->fds[CTL_FREEZER], "freezer.state", "FROZEN") == 0)
        c->frozen = FROZEN_V1;
    else
        c->frozen = FROZEN_STOP;
    done = c->frozen == FROZEN_STOP ? by_signal(c) : by_kernel(c);
    if (done)
        return 0;
    cgroup_thaw(c);
    return err_new(e, ERR_BUSY,
                   "the sandbox's processes could not be paused within %d s (one waits for the "
                   "disk?); try again, or stop the sandbox",
                   PATIENCE_MS / 1000);
}

void cgroup_thaw(struct cgroup *c)
{
    if (c->frozen == FROZEN_V2)
        (void)cgroup_put(c->fds[0], "cgroup.freeze", "0");
    else if (c->frozen == FROZEN_V1)
        cgroup_thaw_leaf(c->fds[CTL_FREEZER]);
    /* children first: a parent that waits for them must not see them stopped */
    for (size_t i = c->stopped.n; i > 0; i--)
        cgroup_proc_signal(&c->stopped.v[i - 1], SIGCONT);
    cgroup_procs_free_p(&c->stopped);
    c->frozen = NOT_FROZEN;
    guard_end(c);
}
