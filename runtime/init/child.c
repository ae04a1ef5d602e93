/* runtime/init/child.c - what `petri run`'s command and a client's have in common. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/macros.h"
#include "runtime/init/init.h"

int say_hello(int sock)
{
    struct {
        struct proto_hello hello;
        char petri[sizeof PETRI_VERSION];
    } h = { { .version = PROTO_VERSION, .oldest = PROTO_OLDEST }, PETRI_VERSION };

    return proto_send_now(sock, PROTO_HELLO, &h, sizeof h.hello + sizeof h.petri, NULL, 0);
}

int pty_open(const struct proto_request *r, int *ret_slave)
{
    struct winsize ws = { .ws_row = r->head.rows, .ws_col = r->head.cols };
    AUTOCLOSE int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlock = 0, slave;

    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 ||
        (slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        return -1;
    ioctl(master, TIOCSWINSZ, &ws);
    *ret_slave = slave;
    return TAKE_FD(master);
}

void child_stdio(const struct proto_request *r, int slave)
{
    setsid();
    if (slave >= 0)
        ioctl(slave, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(slave >= 0 ? slave : r->stdio[i], i);
}

static const char *env_path(char **env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

int exec_search(char **argv, char **env)
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

struct proto_exit exit_frame(int status, bool timed_out, const struct rusage *u)
{
    struct proto_exit x = { .status = status, .timed_out = timed_out };

    x.cpu_usec = (uint64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000 +
                 (uint64_t)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
    x.maxrss_bytes = (uint64_t)u->ru_maxrss * 1024;
    return x;
}
