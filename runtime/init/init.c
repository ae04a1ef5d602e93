/* runtime/init/init.c - petri-init, PID 1 of every sandbox: starts the command, reaps, obeys the
 * keeper, and ends with it. Static, no allocation but for a request, no state of its own.
 *
 * Owns:  descriptor 3, its connection to the keeper. When that closes, petri-init exits, and the
 *        kernel kills whatever else lives in the pid namespace.
 * Trust: it runs as the sandbox's own user. Nothing it says is believed beyond its protocol.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/init/proto.h"

enum { CTL = 3 };

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
    uint32_t missing = 0;

    if ((expect & EXPECT_PID1) && getpid() != 1)
        missing |= EXPECT_PID1;
    if ((expect & EXPECT_SECCOMP) && prctl(PR_GET_SECCOMP) != 2)
        missing |= EXPECT_SECCOMP;
    if ((expect & EXPECT_NO_NEW_PRIVS) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        missing |= EXPECT_NO_NEW_PRIVS;
    if ((expect & EXPECT_NO_CAPS) &&
        (syscall(SYS_capget, &h, d) < 0 || d[0].effective || d[0].permitted || d[0].inheritable ||
         d[1].effective || d[1].permitted || d[1].inheritable))
        missing |= EXPECT_NO_CAPS;
    return missing;
}

static int open_pty(const struct proto_request *r, int *ret_slave)
{
    struct winsize ws = { .ws_row = r->head.rows, .ws_col = r->head.cols };
    int unlock = 0, slave, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 ||
        (slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        fail(STAGE_PTY, errno);
    ioctl(master, TIOCSWINSZ, &ws);
    *ret_slave = slave;
    return master;
}

static const char *env_path(char **env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* execvpe() with the request's own PATH; tells "not found" from "not executable" by errno. */
static int exec_search(char **argv, char **env)
{
    char buf[4096];
    int worst = ENOENT;

    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, env);
        return errno;
    }
    for (const char *p = env_path(env), *q; *p; p = *q ? q + 1 : q) {
        q = strchrnul(p, ':');
        if (q == p ||
            (size_t)snprintf(buf, sizeof buf, "%.*s/%s", (int)(q - p), p, argv[0]) >= sizeof buf)
            continue;
        execve(buf, argv, env);
        if (errno != ENOENT && errno != ENOTDIR)
            worst = errno;
    }
    return worst;
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
    setsid();
    if (slave >= 0)
        ioctl(slave, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(slave >= 0 ? slave : r->stdio[i], i);
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
    if (r->head.tty)
        master = open_pty(r, &slave);
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
    struct rusage u;
    struct proto_exit x = { .status = status, .timed_out = timed_out };

    getrusage(RUSAGE_CHILDREN, &u);
    x.cpu_usec = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
                 (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    x.maxrss_bytes = (uint64_t)u.ru_maxrss * 1024;
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

int main(void)
{
    struct proto_hello hello = { .version = PROTO_VERSION, .oldest = PROTO_OLDEST };
    struct proto_request r = { .stdio = { -1, -1, -1 } };
    struct proto_header h;
    struct pollfd pfd[3];
    struct itimerspec deadline = { 0 };
    sigset_t chld;
    char *frame = NULL;
    uint32_t missing;
    int n = 0;
    pid_t command;

    prctl(PR_SET_DUMPABLE, 0);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    fcntl(CTL, F_SETFD, FD_CLOEXEC);
    if (proto_send(CTL, PROTO_HELLO, &hello, sizeof hello, NULL, 0) < 0 ||
        proto_recv(CTL, &h, &frame, r.stdio, 3, &n, NULL) < 0 || h.type != PROTO_EXEC ||
        proto_parse_exec(frame, h.len, &r) < 0 || n != (r.head.tty ? 0 : 3))
        fail(STAGE_REQUEST, EPROTO);
    missing = missing_protection(r.head.expect);
    if (missing)
        fail(STAGE_EXPECT, (int)missing);
    pfd[0] = (struct pollfd){ .fd = CTL, .events = POLLIN };
    pfd[1] =
        (struct pollfd){ .fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN };
    pfd[2] = (struct pollfd){ .fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC), .events = POLLIN };
    if (pfd[1].fd < 0 || pfd[2].fd < 0)
        fail(STAGE_REQUEST, errno);
    command = start(&r);
    deadline.it_value.tv_sec = (time_t)(r.head.timeout_ms / 1000);
    deadline.it_value.tv_nsec = (long)(r.head.timeout_ms % 1000) * 1000000;
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
