/* tests/unit/net_world.h - one sandbox's network without a sandbox: a real agent in namespaces of its own, the
 * gateway's end of its feed, and sockets that were made inside, to be used from here. */
#pragma once
#include "runtime/network/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "tests/unit/check.h"

enum { TCP = 16, UDP = 4, WAIT_MS = 20000 };

/* One sandbox: its agent, what the agent handed out, and fresh sockets that are inside. */
struct world {
    pid_t pid;
    int feed;
    int tcp[TCP], udp[UDP], six;
    size_t n_tcp, n_udp;
    struct feed_hello hello;
    int fd[FEED_MAX_FDS];
    size_t n_fd;
    uint32_t tag;
};

static inline void write_file(const char *path, const char *text)
{
    struct err *e = NULL;
    if (fs_write_at(AT_FDCWD, path, text, &e) < 0) {
        fprintf(stderr, "%s: %s\n", path, e->msg);
        _exit(2);
    }
}

static inline int become_root(void)
{
    char map[64];
    unsigned uid = getuid(), gid = getgid();

    if (unshare(CLONE_NEWUSER) < 0)
        return -1;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    write_file("/proc/self/gid_map", map);
    return 0;
}

static inline bool possible(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNET) < 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The other process: set up, hand over sockets that are inside, serve. */
static inline _Noreturn void holder(const struct net_policy *policy, int feed, int other)
{
    struct agent_req req = { .policy = policy, .feed = feed };
    int fds[TCP + UDP + 1], n = 0;
    struct agent a;
    struct err *e = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(other);
    if (become_root() < 0 || agent_setup(&req, &a, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        fprintf(stderr, "agent_setup: %s\n", text);
        _exit(2);
    }
    for (; n < TCP; n++)
        fds[n] = socket(AF_INET, SOCK_STREAM, 0);
    for (; n < TCP + UDP; n++)
        fds[n] = socket(AF_INET, SOCK_DGRAM, 0);
    fds[n] = socket(AF_INET6, SOCK_STREAM, 0);
    if (fds[n] < 0) /* a kernel without IPv6: one that can do nothing with its addresses */
        fds[n] = socket(AF_INET, SOCK_STREAM, 0);
    n++;
    if (feed_send(feed, "x", 1, fds, (size_t)n, 0) < 0)
        _exit(2);
    agent_serve(&a);
}

static inline struct world start(const struct net_policy *policy)
{
    struct world w = { .feed = -1 };
    int pair[2], fds[TCP + UDP + 1];
    size_t n = 0;
    char c;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || (w.pid = fork()) < 0)
        exit(1);
    if (w.pid == 0)
        holder(policy, pair[1], pair[0]);
    close(pair[1]);
    w.feed = pair[0];
    if (feed_recv(w.feed, &c, 1, fds, ARRAY_LEN(fds), &n, 0) != 1 || n != ARRAY_LEN(fds)) {
        fprintf(stderr, "the agent did not come up\n");
        exit(1);
    }
    memcpy(w.tcp, fds, sizeof w.tcp);
    memcpy(w.udp, fds + TCP, sizeof w.udp);
    w.six = fds[TCP + UDP];
    return w;
}

static inline int tcp_socket(struct world *w)
{
    if (w->n_tcp == TCP)
        abort();
    return w->tcp[w->n_tcp++];
}

static inline int udp_socket(struct world *w)
{
    if (w->n_udp == UDP)
        abort();
    return w->udp[w->n_udp++];
}

static inline void drop_hello(struct world *w)
{
    for (size_t i = 0; i < w->n_fd; i++)
        close(w->fd[i]);
    w->n_fd = 0;
}

static inline void stop(struct world *w)
{
    int status = 0;

    drop_hello(w);
    close(w->feed);
    for (size_t i = 0; i < TCP; i++)
        close(w->tcp[i]);
    for (size_t i = 0; i < UDP; i++)
        close(w->udp[i]);
    close(w->six);
    CHECK(waitpid(w->pid, &status, 0) == w->pid && status == 0, "agent's end: %x", status);
}

static inline bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, WAIT_MS) == 1;
}

static inline bool get_hello(struct world *w)
{
    union feed_packet p;
    ssize_t n;

    CHECK(feed_ask(w->feed, FEED_HELLO, ++w->tag, 0) == 0, "%m");
    CHECK(readable(w->feed), "no hello");
    n = feed_recv(w->feed, &p, sizeof p, w->fd, FEED_MAX_FDS, &w->n_fd, 0);
    CHECK(n > 0 && feed_is_hello(&p, (size_t)n, w->n_fd), "%zd bytes, %zu sockets", n, w->n_fd);
    if (n <= 0 || !feed_is_hello(&p, (size_t)n, w->n_fd))
        return false;
    CHECK(p.hello.tag == w->tag, "tag %u", p.hello.tag);
    memcpy(&w->hello, &p.hello, sizeof w->hello);
    for (size_t i = 0; i < w->n_fd; i++)
        CHECK((fcntl(w->fd[i], F_GETFL) & O_NONBLOCK) && fcntl(w->fd[i], F_GETFD) == FD_CLOEXEC,
              "socket %zu", i);
    return true;
}

/* The socket of a kind (and port, if not 0) from the hello. */
static inline int item(const struct world *w, enum feed_kind kind, uint16_t port)
{
    for (size_t i = 0; i < w->n_fd; i++)
        if (w->hello.v[i].kind == kind && (!port || w->hello.v[i].port == port))
            return w->fd[i];
    CHECK(false, "no socket of kind %d, port %u", kind, port);
    return -1;
}

/* An answer to LISTEN or DIAL: a socket, or -1 and the error. */
static inline int ask(struct world *w, enum feed_op op, uint16_t port, int *ret_error)
{
    union feed_packet p;
    int fd = -1;
    size_t n_fds = 0;
    ssize_t n;

    CHECK(feed_ask(w->feed, op, ++w->tag, port) == 0 && readable(w->feed), "%m");
    n = feed_recv(w->feed, &p, sizeof p, &fd, 1, &n_fds, 0);
    CHECK(n > 0 && feed_is_answer(&p, (size_t)n, n_fds) && p.answer.tag == w->tag &&
              p.answer.op == op,
          "%zd bytes", n);
    *ret_error = n > 0 ? p.answer.error : -1;
    return n_fds ? fd : -1;
}
