/* runtime/init/supervise.c - one client's exec: a child of PID 1 that owns all that comes of it.
 *
 * Owns:  the connection to the client (CTL) until the command ended, and, being a subreaper, every
 *        descendant of the command. Time out, client gone: it kills until none is left. When the
 *        command ended by itself, what runs on in the background keeps it as its reaper; where
 *        nothing does, it waits a moment for the next exec, which then costs no fork of PID 1's.
 * Crash: code inside has the same user and can stop or kill it. PID 1 then kills what it had.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/init/init.h"

struct exec {
    const struct exec_job *job;
    pid_t command;
    bool alone; /* no child is left */
    bool ended; /* the command has */
    int status;
    struct rusage usage;
    char in[sizeof(struct proto_header) + sizeof(uint32_t)]; /* a PROTO_SIGNAL as it comes in */
    size_t n_in;
};

static void say(const struct exec_job *job, enum exec_state state)
{
    job->states[job->order.slot] = (unsigned char)state;
}

static _Noreturn void fail(const struct exec_job *job, enum proto_stage stage, int error)
{
    struct proto_failed f = { .stage = stage, .error = error };
    say(job, EXEC_ENDED);
    proto_send_now(CTL, PROTO_FAILED, &f, sizeof f, NULL, 0);
    _exit(0);
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && (b[n] == '=' || b[n] == '\0');
}

/* The client's environment on top of the sandbox's. */
static char **merge_env(const struct proto_serving *base, const struct proto_request *r)
{
    char **env = calloc((size_t)base->head.n_env + r->head.n_env + 1, sizeof *env);
    size_t n = 0, i;

    if (!env)
        return NULL;
    for (char *const *b = base->env; *b; b++) {
        for (i = 0; i < r->head.n_env && !same_name(r->env[i], *b); i++)
            ;
        if (i == r->head.n_env)
            env[n++] = *b;
    }
    memcpy(env + n, r->env, r->head.n_env * sizeof *env);
    return env;
}

static void reap(struct exec *x)
{
    for (;;) {
        struct rusage u;
        int status;
        pid_t pid = wait4(-1, &status, WNOHANG, &u);
        if (pid == 0)
            return;
        if (pid < 0) {
            x->alone = errno == ECHILD;
            return;
        }
        if (pid == x->command) {
            x->ended = true;
            x->status = status;
            x->usage = u;
        }
    }
}

/* It shares this process's memory until it execs: what it could not do is in *f by then, and no page
 * is copied. All that is open but 0, 1 and 2 closes. */
static __attribute__((noinline)) pid_t spawn(const struct exec_job *job,
                                             const struct proto_request *r, char **env, int slave,
                                             volatile struct proto_failed *f)
{
    sigset_t none;
    pid_t pid = vfork();

    if (pid != 0)
        return pid;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    child_stdio(r, slave);
    syscall(SYS_close_range, 3, ~0U, 0);
    f->stage = STAGE_USER;
    f->error = user_become(&job->base->head, r->head.uid, r->head.gid);
    if (f->error)
        _exit(127);
    f->stage = STAGE_CHDIR;
    if ((r->cwd[0] != '/' && chdir(job->base->cwd) < 0) || (r->cwd[0] && chdir(r->cwd) < 0)) {
        f->error = errno;
    } else {
        f->stage = STAGE_EXEC;
        f->error = exec_search(r->argv, env);
    }
    _exit(127);
}

static bool other_user(const struct proto_serve *s, const struct proto_exec *x)
{
    if (s->expect & EXPECT_OWN_ID)
        return false;
    return (x->uid != PROTO_SAME_ID && x->uid != geteuid()) ||
           (x->gid != PROTO_SAME_ID && x->gid != getegid());
}

static pid_t start(const struct exec_job *job)
{
    struct proto_request r = { .stdio = { -1, -1, -1 } };
    volatile struct proto_failed f = { 0 };
    struct proto_header h;
    int n = 0, slave = -1, master = -1;
    char *frame = NULL, **env;
    pid_t pid;

    if (proto_recv(CTL, &h, &frame, r.stdio, 3, &n, NULL) < 0 || h.type != PROTO_EXEC ||
        proto_parse_exec(frame, h.len, &r) < 0 || n != (r.head.tty ? 0 : 3))
        fail(job, STAGE_REQUEST, EPROTO);
    if (other_user(&job->base->head, &r.head))
        fail(job, STAGE_USER, EPERM);
    env = merge_env(job->base, &r);
    if (!env)
        fail(job, STAGE_REQUEST, ENOMEM);
    if (r.head.tty && (master = pty_open(&r, &slave)) < 0)
        fail(job, STAGE_PTY, errno);
    pid = spawn(job, &r, env, slave, &f);
    if (pid < 0)
        fail(job, STAGE_FORK, errno);
    if (f.error) {
        waitpid(pid, NULL, 0);
        fail(job, (enum proto_stage)f.stage, f.error);
    }
    proto_send(CTL, PROTO_STARTED, NULL, 0, &master, master >= 0);
    syscall(SYS_close_range, JOBS + 1, ~0U, 0);
    free(env);
    free(r.argv);
    free(frame);
    return pid;
}

/* Whether the client is still there and makes sense. */
static bool obey(struct exec *x)
{
    struct proto_header h;
    uint32_t sig;
    ssize_t n = recv(CTL, x->in + x->n_in, sizeof x->in - x->n_in, MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    x->n_in += (size_t)n;
    if (x->n_in < sizeof x->in)
        return true;
    x->n_in = 0;
    memcpy(&h, x->in, sizeof h);
    memcpy(&sig, x->in + sizeof h, sizeof sig);
    if (h.magic != PROTO_MAGIC || h.type != PROTO_SIGNAL || h.len != sizeof sig)
        return false;
    if (sig > 0 && sig < 65)
        kill(-x->command, (int)sig);
    return true;
}

static void kill_all(struct exec *x, const sigset_t *mask)
{
    struct timespec again = { .tv_nsec = 20 * 1000000 };
    int list = children_open();

    for (;;) {
        reap(x);
        if (x->alone)
            break;
        if (kill_children(list, NULL, NULL) < 0)
            _exit(1); /* PID 1 has another way */
        ppoll(NULL, 0, &again, mask);
    }
    close(list);
}

static void report(struct exec *x, bool timed_out)
{
    struct proto_exit e = exit_frame(timed_out ? SIGKILL : x->status, timed_out, &x->usage);
    bool stay = x->alone && x->job->again;

    say(x->job, stay ? EXEC_SPARE : EXEC_ENDED);
    proto_send_now(CTL, PROTO_EXIT, &e, sizeof e, NULL, 0);
    close(CTL);
    if (stay)
        return;
    reap(x);
    if (x->alone)
        _exit(0);
    say(x->job, EXEC_BACKGROUND);
    for (;;) {
        pid_t pid = waitpid(-1, NULL, 0);
        if (pid < 0 && errno == ECHILD)
            _exit(0);
    }
}

static int timer(uint64_t deadline)
{
    struct itimerspec t = { .it_value = { .tv_sec = (time_t)(deadline / 1000000000),
                                          .tv_nsec = (long)(deadline % 1000000000) } };
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);

    if (fd >= 0)
        timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
    return fd;
}

static void one(struct exec_job *job)
{
    struct exec x = { .job = job };
    struct pollfd pfd[2] = { { .fd = CTL, .events = POLLIN | POLLRDHUP }, { -1, POLLIN, 0 } };
    sigset_t mask;

    sigfillset(&mask);
    sigdelset(&mask, SIGCHLD);
    x.command = start(job);
    if (job->order.deadline)
        pfd[1].fd = timer(job->order.deadline);
    for (;;) {
        reap(&x);
        if (x.ended) {
            report(&x, false);
            return;
        }
        if (ppoll(pfd, 2, NULL, &mask) < 0)
            continue;
        if (pfd[1].revents) {
            kill_all(&x, &mask);
            report(&x, true);
            return;
        }
        if (pfd[0].revents && !obey(&x)) {
            kill_all(&x, &mask);
            _exit(0);
        }
    }
}

/* Waits for PID 1 to send the next client, or to hang up. */
static void next(struct exec_job *job)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } c;
    struct iovec iov = { &job->order, sizeof job->order };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf
    };
    struct cmsghdr *cm;
    int fd;

    if (recvmsg(JOBS, &m, MSG_CMSG_CLOEXEC) != sizeof job->order || !(cm = CMSG_FIRSTHDR(&m)))
        _exit(0);
    say(job, EXEC_RUNS);
    memcpy(&fd, CMSG_DATA(cm), sizeof fd);
    if (fd != CTL) {
        dup3(fd, CTL, O_CLOEXEC);
        close(fd);
    }
}

_Noreturn void supervise(struct exec_job *job)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (;;) {
        one(job);
        next(job);
    }
}
