#include "runtime/init/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int proto_parse_exec(char *frame, size_t len, struct proto_request *r)
{
    char *s = frame + sizeof r->head, *end = frame + len;
    uint64_t words;

    if (len < sizeof r->head + 1 || end[-1] != '\0')
        return -1;
    memcpy(&r->head, frame, sizeof r->head);
    words = (uint64_t)r->head.n_argv + r->head.n_env;
    if (!r->head.n_argv || words > len)
        return -1;
    r->argv = calloc(words + 2, sizeof *r->argv);
    if (!r->argv)
        return -1;
    r->env = r->argv + r->head.n_argv + 1;
    r->cwd = s;
    s += strlen(s) + 1;
    for (uint64_t i = 0; i < words; i++, s += strlen(s) + 1) {
        if (s >= end)
            return -1;
        r->argv[i < r->head.n_argv ? i : i + 1] = s;
    }
    return s == end ? 0 : -1;
}

static int send_all(int sock, const char *p, size_t n)
{
    while (n) {
        ssize_t w = send(sock, p, n, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int proto_send(int sock, enum proto_type type, const void *p, size_t n, const int *fds, int n_fds)
{
    struct proto_header h = {
        .magic = PROTO_MAGIC, .version = PROTO_VERSION, .type = (uint16_t)type, .len = (uint32_t)n
    };
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
    } c = { 0 };
    struct iovec iov = { &h, sizeof h };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t w;

    if (n > PROTO_MAX || n_fds > PROTO_MAX_FDS) {
        errno = E2BIG;
        return -1;
    }
    if (n_fds) {
        struct cmsghdr *cm;
        m.msg_control = c.buf;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(cm), fds, (size_t)n_fds * sizeof(int));
    }
    do
        w = sendmsg(sock, &m, MSG_NOSIGNAL);
    while (w < 0 && errno == EINTR);
    if (w < 0)
        return -1;
    if (send_all(sock, (const char *)&h + w, sizeof h - (size_t)w) < 0)
        return -1;
    return send_all(sock, p, n);
}

static int recv_all(int sock, char *p, size_t n)
{
    while (n) {
        ssize_t r = recv(sock, p, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            errno = ECONNRESET;
        if (r <= 0)
            return -1;
        p += r;
        n -= (size_t)r;
    }
    return 0;
}

/* Sorts what came with the first byte; returns -1 when it is not what was asked for. */
static int take_control(struct msghdr *m, int *fds, int max, int *n_fds, pid_t *pid)
{
    int bad = m->msg_flags & MSG_CTRUNC;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < k; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
                if (*n_fds < max && !bad) {
                    fds[(*n_fds)++] = fd;
                } else {
                    close(fd);
                    bad = 1;
                }
            }
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && pid) {
            struct ucred u;
            memcpy(&u, CMSG_DATA(c), sizeof u);
            *pid = u.pid;
        }
    }
    return bad ? -1 : 0;
}

int proto_recv(int sock, struct proto_header *ret_h, char **ret_p, int *ret_fds, int max_fds,
               int *ret_n_fds, pid_t *ret_pid)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } c;
    struct iovec iov = { ret_h, sizeof *ret_h };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf
    };
    int n_fds = 0;
    char *p = NULL;
    ssize_t r;

    do
        r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        errno = ECONNRESET;
    if (r <= 0)
        return -1;
    if (take_control(&m, ret_fds, max_fds, &n_fds, ret_pid) < 0)
        errno = EPROTO;
    else if (recv_all(sock, (char *)ret_h + r, sizeof *ret_h - (size_t)r) == 0) {
        if (ret_h->magic != PROTO_MAGIC || ret_h->len > PROTO_MAX)
            errno = EPROTO;
        else if ((p = calloc(1, (size_t)ret_h->len + 1)) && recv_all(sock, p, ret_h->len) == 0) {
            *ret_p = p;
            *ret_n_fds = n_fds;
            return 0;
        }
    }
    r = errno;
    free(p);
    while (n_fds)
        close(ret_fds[--n_fds]);
    errno = (int)r;
    return -1;
}
