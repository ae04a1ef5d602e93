/* The part of agent.h that stays: hands out sockets until the feed ends. */
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/network/agent_impl.h"
#include "runtime/network/listen.h"

enum {
    DIAL_WAIT_MS = 100,
    AGAIN_MS = 10, /* between tries while a dead gateway's sockets are still being closed */
    AGAIN_TIMES = 200,
};

static void pause_ms(long ms)
{
    const struct timespec t = { .tv_nsec = ms * 1000000 };
    nanosleep(&t, NULL);
}

/* This process belongs in the sandbox's network; if it can't go back there it must not go on. */
static void go(int ns)
{
    if (setns(ns, CLONE_NEWNET) < 0)
        _exit(1);
}

/* New sockets for a new gateway; those of the old one go when it is dead or has dropped them. */
static int open_again(struct agent *a)
{
    int rc = -1;

    go(a->outside);
    for (int i = 0; i < AGAIN_TIMES; i++) {
        rc = agent_open_items(a);
        if (rc == 0 || errno != EADDRINUSE)
            break;
        pause_ms(AGAIN_MS);
    }
    int saved = errno;
    go(a->inside);
    errno = saved;
    return rc;
}

/* As many sockets on their way at once may be too many for the user: then a moment later. */
static int send_patiently(int feed, const void *p, size_t n, const int *fds, size_t n_fds)
{
    for (int i = 0;; i++) {
        if (feed_send(feed, p, n, fds, n_fds, 0) == 0)
            return 0;
        if (errno != ETOOMANYREFS || i == AGAIN_TIMES)
            return -1;
        pause_ms(AGAIN_MS);
    }
}

static void answer(struct agent *a, const struct feed_ask *ask, int fd, int error)
{
    struct feed_answer r = { .op = ask->op, .tag = ask->tag, .error = fd < 0 ? error : 0 };

    if (send_patiently(a->feed, &r, sizeof r, &fd, fd >= 0) < 0)
        _exit(errno == EPIPE || errno == ECONNRESET ? 0 : 1);
}

static void serve_hello(struct agent *a, const struct feed_ask *ask)
{
    struct feed_hello h = { .magic = FEED_MAGIC, .tag = ask->tag, .n = (uint32_t)a->n };

    if (a->n && a->fd[0] < 0 && open_again(a) < 0) {
        answer(a, ask, -1, errno);
        return;
    }
    memcpy(h.v, a->v, a->n * sizeof h.v[0]);
    if (send_patiently(a->feed, &h, offsetof(struct feed_hello, v) + a->n * sizeof h.v[0], a->fd,
                       a->n) < 0)
        _exit(1);
    agent_close_items(a);
}

static bool listed(const struct agent *a, uint16_t port)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].kind == FEED_TCP && a->v[i].port == port)
            return true;
    return false;
}

static void serve_listen(struct agent *a, const struct feed_ask *ask)
{
    AUTOCLOSE int fd = -1;
    int error = 0;

    if (a->outside < 0 || a->full) {
        error = EOPNOTSUPP;
    } else if (!ask->port || a->fd[0] >= 0) { /* or before the first hello */
        error = EINVAL;
    } else if (a->n == FEED_MAX_FDS && !listed(a, ask->port)) {
        error = ENOBUFS;
    } else {
        go(a->outside);
        fd = listen_open(FEED_TCP, ask->port);
        error = errno;
        go(a->inside);
    }
    if (fd >= 0 && !listed(a, ask->port)) /* it is where the gateway closed it meanwhile */
        agent_add(a, FEED_TCP, ask->port);
    answer(a, ask, fd, error);
}

static void serve_dial(struct agent *a, const struct feed_ask *ask)
{
    AUTOCLOSE int fd = listen_dial(ask->port, DIAL_WAIT_MS);

    answer(a, ask, fd, errno);
}

/* --- becoming small --------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void close_others(const struct agent *a)
{
    int keep[FEED_MAX_FDS + 3], n = 0, next = 3;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < 3; i++)
        if (null < 0 || (null != i && dup2(null, i) < 0))
            close(i);
    keep[n++] = a->feed;
    keep[n++] = a->inside;
    keep[n++] = a->outside;
    for (size_t i = 0; i < a->n; i++)
        keep[n++] = a->fd[i];
    qsort(keep, (size_t)n, sizeof keep[0], by_number);
    for (int i = 0; i < n; i++) {
        if (keep[i] > next && close_range((unsigned)next, (unsigned)keep[i] - 1, 0) < 0)
            _exit(1);
        if (keep[i] >= next)
            next = keep[i] + 1;
    }
    if (close_range((unsigned)next, ~0U, 0) < 0)
        _exit(1);
}

/* setns(2), low ports, packet and transparent sockets: nothing else is needed any more. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = {
        { .permitted = 1U << CAP_SYS_ADMIN | 1U << CAP_NET_BIND_SERVICE | 1U << CAP_NET_RAW }
    };

    data[0].effective = data[0].permitted;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, data) < 0)
        _exit(1);
}

_Noreturn void agent_serve(struct agent *a)
{
    struct rlimit files;

    prctl(PR_SET_NAME, "petri-agent");
    prctl(PR_SET_DUMPABLE, 0);
    close_others(a);
    drop_capabilities();
    if (chdir("/") < 0)
        _exit(1);
    /* so many sockets may be on their way at once */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    for (;;) {
        struct feed_ask ask;
        size_t n_fds;
        ssize_t n = feed_recv(a->feed, &ask, sizeof ask, NULL, 0, &n_fds, 0);

        if (n <= 0)
            _exit(n < 0);
        if (n != sizeof ask)
            continue;
        if (ask.op == FEED_HELLO)
            serve_hello(a, &ask);
        else if (ask.op == FEED_LISTEN)
            serve_listen(a, &ask);
        else if (ask.op == FEED_DIAL)
            serve_dial(a, &ask);
        else
            answer(a, &ask, -1, EINVAL);
    }
}
