#include "runtime/network/feed.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

int feed_send(int feed, const void *p, size_t n, const int *fds, size_t n_fds, int flags)
{
    union {
        char buf[CMSG_SPACE(FEED_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } u;
    struct iovec iov = { .iov_base = (void *)p, .iov_len = n };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (n_fds > FEED_MAX_FDS) {
        errno = EINVAL;
        return -1;
    }
    if (n_fds) {
        memset(&u, 0, sizeof u);
        m.msg_control = u.buf;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    return RETRY(sendmsg(feed, &m, flags | MSG_NOSIGNAL)) < 0 ? -1 : 0;
}

int feed_ask(int feed, enum feed_op op, uint32_t tag, uint16_t port)
{
    struct feed_ask a = { .op = (uint32_t)op, .tag = tag, .port = port };
    return feed_send(feed, &a, sizeof a, NULL, 0, MSG_DONTWAIT);
}

/* Takes the sockets out of a message; those that don't fit are closed and counted only. */
static size_t take_fds(struct msghdr *m, int *fds, size_t max)
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int), n++) {
            int fd;
            memcpy(&fd, (char *)c + at, sizeof fd);
            if (n < max)
                fds[n] = fd;
            else
                close(fd);
        }
    }
    return n;
}

ssize_t feed_recv(int feed, void *p, size_t size, int *fds, size_t max, size_t *ret_n_fds,
                  int flags)
{
    union {
        char buf[CMSG_SPACE(FEED_MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } u;
    struct iovec iov = { .iov_base = p, .iov_len = size };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof u.buf
    };
    ssize_t len = RETRY(recvmsg(feed, &m, flags | MSG_CMSG_CLOEXEC));
    size_t n;

    *ret_n_fds = 0;
    if (len < 0)
        return -1;
    n = take_fds(&m, fds, max);
    if (n > max || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        for (size_t i = 0; i < n && i < max; i++)
            close(fds[i]);
        errno = EPROTO;
        return -1;
    }
    *ret_n_fds = n;
    return len;
}

bool feed_is_hello(const union feed_packet *p, size_t len, size_t n_fds)
{
    size_t head = offsetof(struct feed_hello, v);

    return len >= head && p->word == FEED_MAGIC && p->hello.n <= FEED_MAX_FDS &&
           len == head + p->hello.n * sizeof p->hello.v[0] && n_fds == p->hello.n;
}

bool feed_is_answer(const union feed_packet *p, size_t len, size_t n_fds)
{
    return len == sizeof p->answer && p->word != FEED_MAGIC && n_fds == (p->answer.error ? 0 : 1);
}
