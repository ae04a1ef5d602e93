#include "runtime/client/conn.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/macros.h"

enum { PATIENCE_MS = 30000 }; /* for a peer that takes nothing */

/* Too many wait to be accepted: a non-blocking connect says so at once; wait in line, but not for ever. */
static int connect_patiently(int fd, const struct sockaddr_un *a)
{
    struct timeval t = { .tv_sec = PATIENCE_MS / 1000 };
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) < 0 ||
        fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ||
        RETRY(connect(fd, (const struct sockaddr *)a, sizeof *a)) < 0)
        return -1;
    return fcntl(fd, F_SETFL, flags);
}

int conn_open(const char *dir, const char *door, struct conn *ret)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    AUTOCLOSE int at = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, door) >= (int)sizeof a.sun_path) {
        /* longer than a socket's name may be: through the directory */
        if ((at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
            return -1;
        snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", at, door);
    }
    if (RETRY(connect(fd, (const struct sockaddr *)&a, sizeof a)) < 0 &&
        (errno != EAGAIN || connect_patiently(fd, &a) < 0))
        return -1;
    ret->fd = TAKE_FD(fd);
    ret->passed = -1;
    ret->off = ret->len = 0;
    ret->other[0] = '\0';
    ret->blocking = false;
    return 0;
}

int conn_block(struct conn *c, int ms)
{
    struct timeval t = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

    if (setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) < 0 ||
        setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) < 0 ||
        fcntl(c->fd, F_SETFL, O_RDWR) < 0)
        return -1;
    c->blocking = true;
    return 0;
}

void conn_close(struct conn *c)
{
    close_p(&c->fd);
    close_p(&c->passed);
}

static int wait_for(int fd, short events, int ms)
{
    struct pollfd p = { .fd = fd, .events = events };
    int rc = RETRY(poll(&p, 1, ms));
    if (rc == 0)
        errno = ETIMEDOUT;
    return rc > 0 ? 0 : -1;
}

int conn_send(struct conn *c, enum proto_type type, const void *p, size_t n, const int *fds,
              int n_fds)
{
    struct proto_header h = {
        .magic = PROTO_MAGIC, .version = PROTO_VERSION, .type = (uint16_t)type, .len = (uint32_t)n
    };
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec iov[2] = { { &h, sizeof h }, { (void *)(uintptr_t)p, n } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

    if (n > PROTO_MAX) {
        errno = E2BIG;
        return -1;
    }
    if (n_fds) {
        m.msg_control = control.buf;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(cm), fds, (size_t)n_fds * sizeof(int));
    }
    for (size_t left = sizeof h + n; left;) {
        ssize_t w = RETRY(sendmsg(c->fd, &m, MSG_NOSIGNAL));
        if (w < 0 && errno == EAGAIN && wait_for(c->fd, POLLOUT, PATIENCE_MS) == 0)
            continue;
        if (w < 0)
            return -1;
        left -= (size_t)w;
        m.msg_control = NULL; /* they went with the first byte */
        m.msg_controllen = 0;
        for (size_t i = 0; i < 2; i++) {
            size_t k = (size_t)w < iov[i].iov_len ? (size_t)w : iov[i].iov_len;
            iov[i].iov_base = (char *)iov[i].iov_base + k;
            iov[i].iov_len -= k;
            w -= (ssize_t)k;
        }
    }
    return 0;
}

/* At most one descriptor at a time; a second one, or a message that did not fit, is foul play. */
static int take_control(struct conn *c, struct msghdr *m)
{
    bool bad = m->msg_flags & MSG_CTRUNC;
    for (struct cmsghdr *cm = CMSG_FIRSTHDR(m); cm; cm = CMSG_NXTHDR(m, cm)) {
        size_t k = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS && i < k;
             i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof fd);
            if (c->passed < 0 && !bad) {
                c->passed = fd;
            } else {
                close(fd);
                bad = true;
            }
        }
    }
    return bad ? -1 : 0;
}

static int fill(struct conn *c, bool wait)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
    } control;
    struct iovec iov = { c->buf + c->len, sizeof c->buf - c->len };
    struct msghdr m = { .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.buf,
                        .msg_controllen = sizeof control.buf };
    ssize_t r = RETRY(recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT)));

    if (r < 0)
        return errno == EAGAIN ? 0 : -1;
    if (take_control(c, &m) < 0) {
        errno = EPROTO;
        return -1;
    }
    if (r == 0) {
        errno = ECONNRESET;
        return -1;
    }
    c->len += (size_t)r;
    return 1;
}

static int next(struct conn *c, bool wait, struct frame *ret)
{
    struct proto_header h;

    for (;;) {
        size_t have = c->len - c->off;
        if (have >= sizeof h) {
            memcpy(&h, c->buf + c->off, sizeof h);
            if (h.magic != PROTO_MAGIC || h.len > sizeof c->buf - sizeof h) {
                errno = EPROTO;
                return -1;
            }
            if (have >= sizeof h + h.len) {
                *ret = (struct frame){ h.type, c->buf + c->off + sizeof h, h.len };
                if (h.type == PROTO_HELLO && h.len > sizeof(struct proto_hello))
                    snprintf(c->other, sizeof c->other, "%.*s",
                             (int)(h.len - sizeof(struct proto_hello)),
                             ret->p + sizeof(struct proto_hello));
                c->off += sizeof h + h.len;
                return 1;
            }
        }
        memmove(c->buf, c->buf + c->off, have);
        c->off = 0;
        c->len = have;
        int rc = fill(c, wait);
        if (rc <= 0)
            return rc;
    }
}

int conn_next(struct conn *c, struct frame *ret)
{
    return next(c, false, ret);
}

int conn_wait(struct conn *c, int ms, struct frame *ret)
{
    int rc;

    while ((rc = next(c, c->blocking, ret)) == 0) {
        if (c->blocking && ms < 0)
            continue;
        errno = ETIMEDOUT;
        if (c->blocking || wait_for(c->fd, POLLIN, ms) < 0)
            return -1;
    }
    return rc;
}

int conn_take_fd(struct conn *c)
{
    return TAKE_FD(c->passed);
}
