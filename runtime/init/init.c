/* runtime/init/init.c - petri-init, PID 1 of every sandbox: starts the command, reaps, obeys the
 * keeper, and ends with it; or, when it is told to serve, answers clients (serve.c). Static, libc only.
 *
 * Owns:  descriptor 3, its connection to the keeper. When that closes, petri-init exits, and the
 *        kernel kills whatever else lives in the pid namespace.
 * Trust: it runs as the sandbox's own user. Nothing it says is believed beyond its protocol.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/init/init.h"

static void fail(enum proto_stage stage, int error)
{
    struct proto_failed f = { .stage = stage, .error = error };
    proto_send(CTL, PROTO_FAILED, &f, sizeof f, NULL, 0);
    _exit(125);
}

/* The isolation is the launcher's work; this is the last look before anything foreign runs. */
static uint32_t missing_protection(uint32_t expect)
{
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct d[2] = { 0 };
    const uint32_t own_caps = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                              1u << CAP_FSETID | 1u << CAP_SETUID | 1u << CAP_SETGID |
                              1u << CAP_KILL | 1u << CAP_SETPCAP;
    uint32_t missing = 0;

    if ((expect & EXPECT_PID1) && getpid() != 1)
        missing |= EXPECT_PID1;
    if ((expect & EXPECT_SECCOMP) && prctl(PR_GET_SECCOMP) != 2)
        missing |= EXPECT_SECCOMP;
    if ((expect & EXPECT_NO_NEW_PRIVS) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        missing |= EXPECT_NO_NEW_PRIVS;
    if ((expect & EXPECT_OWN_ID) &&
        (syscall(SYS_capget, &h, d) < 0 || (d[0].permitted & ~own_caps) || d[0].inheritable ||
         d[1].permitted || d[1].inheritable))
        missing |= EXPECT_OWN_ID;
    if ((expect & EXPECT_NO_CAPS) &&
        (syscall(SYS_capget, &h, d) < 0 || d[0].effective || d[0].permitted || d[0].inheritable ||
         d[1].effective || d[1].permitted || d[1].inheritable))
        missing |= EXPECT_NO_CAPS;
    return missing;
}

static void child(const struct proto_request *r, int slave, int report)
{
    struct proto_failed f = { .stage = STAGE_EXEC };
    sigset_t none;
    int fd;

    sigemptyset(&none);
    for (int s = 1; s < 65; s++)
        signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    child_stdio(r, slave);
    report = fcntl(report, F_DUPFD_CLOEXEC, 10);
    dup2(report, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, 4, ~0U, 0);
    /* its own /proc files belong to it again; when memory runs out, it goes before PID 1 */
    prctl(PR_SET_DUMPABLE, 1);
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "100", 3);
        close(fd);
    }
    if (chdir(r->cwd) < 0) {
        f.stage = STAGE_CHDIR;
        f.error = errno;
    } else {
        f.error = exec_search(r->argv, r->env);
    }
    (void)!write(3, &f, sizeof f);
    _exit(127);
}

static pid_t start(const struct proto_request *r)
{
    struct proto_failed f;
    int pipefd[2], slave = -1, master = -1;
    pid_t pid;

    if (pipe2(pipefd, O_CLOEXEC) < 0)
        fail(STAGE_EXEC, errno);
    if (r->head.tty && (master = pty_open(r, &slave)) < 0)
        fail(STAGE_PTY, errno);
    pid = fork();
    if (pid < 0)
        fail(STAGE_EXEC, errno);
    if (pid == 0)
        child(r, slave, pipefd[1]);
    close(pipefd[1]);
    if (slave >= 0)
        close(slave);
    for (int i = 0; i < 3; i++)
        if (r->stdio[i] >= 0)
            close(r->stdio[i]);
    if (read(pipefd[0], &f, sizeof f) == sizeof f)
        fail(f.stage, f.error);
    close(pipefd[0]);
    if (proto_send(CTL, PROTO_STARTED, NULL, 0, &master, master >= 0) < 0)
        _exit(125);
    if (master >= 0)
        close(master);
    return pid;
}

static void finish(int status, bool timed_out)
{
    struct proto_exit x;
    struct rusage u;

    getrusage(RUSAGE_CHILDREN, &u);
    x = exit_frame(status, timed_out, &u);
    proto_send(CTL, PROTO_EXIT, &x, sizeof x, NULL, 0);
    _exit(0);
}

static void reap(pid_t command)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == command)
            finish(status, false);
}

static void obey(pid_t command)
{
    struct proto_header h;
    char *p = NULL;
    int fds[1], n = 0;
    uint32_t sig;

    if (proto_recv(CTL, &h, &p, fds, 0, &n, NULL) < 0 || h.type != PROTO_SIGNAL ||
        h.len != sizeof sig)
        _exit(125); /* the keeper is gone or talks nonsense: everything ends */
    memcpy(&sig, p, sizeof sig);
    free(p);
    if (sig > 0 && sig < 65)
        kill(-command, (int)sig);
}

/* petri run: one command, and PID 1 ends with it. */
static _Noreturn void run(const struct proto_request *r, const sigset_t *chld)
{
    struct itimerspec deadline = { 0 };
    struct pollfd pfd[3];
    pid_t command;

    pfd[0] = (struct pollfd){ .fd = CTL, .events = POLLIN };
    pfd[1] =
        (struct pollfd){ .fd = signalfd(-1, chld, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN };
    pfd[2] = (struct pollfd){ .fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC), .events = POLLIN };
    if (pfd[1].fd < 0 || pfd[2].fd < 0)
        fail(STAGE_REQUEST, errno);
    command = start(r);
    deadline.it_value.tv_sec = (time_t)(r->head.timeout_ms / 1000);
    deadline.it_value.tv_nsec = (long)(r->head.timeout_ms % 1000) * 1000000;
    timerfd_settime(pfd[2].fd, 0, &deadline, NULL);
    for (;;) {
        struct signalfd_siginfo si;
        if (poll(pfd, 3, -1) < 0 && errno != EINTR)
            _exit(125);
        if (pfd[1].revents) {
            while (read(pfd[1].fd, &si, sizeof si) > 0)
                ;
            reap(command);
        }
        if (pfd[2].revents)
            finish(SIGKILL, true);
        if (pfd[0].revents)
            obey(command);
    }
}

/* Not before the last look: what is missing is named, and nothing starts. */
static void check_protection(uint32_t expect)
{
    uint32_t missing = missing_protection(expect);
    if (missing)
        fail(STAGE_EXPECT, (int)missing);
}

static bool listens(int fd)
{
    int yes = 0;
    socklen_t len = sizeof yes;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) == 0 && yes;
}

int main(void)
{
    struct proto_request r = { 0 };
    struct proto_serving s = { 0 };
    struct proto_header h;
    sigset_t chld;
    char *frame = NULL;
    int fds[3] = { -1, -1, -1 }, n = 0;

    prctl(PR_SET_DUMPABLE, 0);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    fcntl(CTL, F_SETFD, FD_CLOEXEC);
    if (say_hello(CTL) < 0 || proto_recv(CTL, &h, &frame, fds, 3, &n, NULL) < 0)
        fail(STAGE_REQUEST, EPROTO);
    if (h.type == PROTO_SERVE && n == 1 && listens(fds[0]) &&
        proto_parse_serve(frame, h.len, &s) == 0) {
        user_settle(&s.head);
        check_protection(s.head.expect);
        serve(&s, fds[0]);
    }
    memcpy(r.stdio, fds, sizeof fds);
    if (h.type != PROTO_EXEC || proto_parse_exec(frame, h.len, &r) < 0 || n != (r.head.tty ? 0 : 3))
        fail(STAGE_REQUEST, EPROTO);
    check_protection(r.head.expect);
    run(&r, &chld);
}
