#include "runtime/init/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/macros.h"

/* Takes n strings that end at or before `end`; what follows them, or NULL. */
static char *take_strings(char *s, char *end, char **out, size_t n)
{
    for (size_t i = 0; i < n; i++, s += strlen(s) + 1) {
        if (!s || s >= end)
            return NULL;
        out[i] = s;
    }
    return s;
}

int proto_parse_exec(char *frame, size_t len, struct proto_request *r)
{
    char *s, *end = frame + len;

    if (len < sizeof r->head + 1 || end[-1] != '\0')
        return -1;
    memcpy(&r->head, frame, sizeof r->head);
    if (!r->head.n_argv || (uint64_t)r->head.n_argv + r->head.n_env > len)
        return -1;
    r->argv = calloc((size_t)r->head.n_argv + r->head.n_env + 2, sizeof *r->argv);
    if (!r->argv)
        return -1;
    r->env = r->argv + r->head.n_argv + 1;
    s = take_strings(frame + sizeof r->head, end, &r->cwd, 1);
    s = take_strings(s, end, r->argv, r->head.n_argv);
    return take_strings(s, end, r->env, r->head.n_env) == end ? 0 : -1;
}

int proto_parse_serve(char *frame, size_t len, struct proto_serving *s)
{
    char *p, *end = frame + len;

    if (len < sizeof s->head + 1 || end[-1] != '\0')
        return -1;
    memcpy(&s->head, frame, sizeof s->head);
    if (s->head.n_env > len)
        return -1;
    s->env = calloc((size_t)s->head.n_env + 1, sizeof *s->env);
    if (!s->env)
        return -1;
    p = take_strings(frame + sizeof s->head, end, &s->cwd, 1);
    return take_strings(p, end, s->env, s->head.n_env) == end ? 0 : -1;
}

int proto_parse_fs(char *frame, size_t len, struct proto_fs_request *r)
{
    char *end = frame + len;

    if (len < sizeof r->head)
        return -1;
    memcpy(&r->head, frame, sizeof r->head);
    if (r->head.n_paths > 2 || (r->head.n_paths && end[-1] != '\0'))
        return -1;
    r->path[0] = r->path[1] = NULL;
    return take_strings(frame + sizeof r->head, end, r->path, r->head.n_paths) == end ? 0 : -1;
}

int proto_check_hello(const char *payload, size_t len, struct proto_hello *ret_hello,
                      const char **ret_petri)
{
    if (len < sizeof *ret_hello) {
        errno = EPROTO;
        return -1;
    }
    memcpy(ret_hello, payload, sizeof *ret_hello);
    *ret_petri = payload + sizeof *ret_hello;
    if (PROTO_VERSION >= ret_hello->oldest && PROTO_OLDEST <= ret_hello->version)
        return 0;
    errno = EPROTONOSUPPORT;
    return -1;
}

static int send_frame(int sock, enum proto_type type, const void *p, size_t n, const int *fds,
                      int n_fds, int flags)
{
    struct proto_header h = {
        .magic = PROTO_MAGIC, .version = PROTO_VERSION, .type = (uint16_t)type, .len = (uint32_t)n
    };
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(PROTO_MAX_FDS * sizeof(int))];
    } c = { 0 };
    struct iovec iov[2] = { { &h, sizeof h }, { (void *)p, n } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

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
    while (iov[0].iov_len + iov[1].iov_len) {
        ssize_t w = RETRY(sendmsg(sock, &m, MSG_NOSIGNAL | flags));
        if (w < 0)
            return -1;
        for (int i = 0; i < 2; i++) {
            size_t k = (size_t)w < iov[i].iov_len ? (size_t)w : iov[i].iov_len;
            iov[i].iov_base = (char *)iov[i].iov_base + k;
            iov[i].iov_len -= k;
            w -= (ssize_t)k;
        }
        m.msg_control = NULL;
        m.msg_controllen = 0;
    }
    return 0;
}

int proto_send(int sock, enum proto_type type, const void *p, size_t n, const int *fds, int n_fds)
{
    return send_frame(sock, type, p, n, fds, n_fds, 0);
}

int proto_send_now(int sock, enum proto_type type, const void *p, size_t n, const int *fds,
                   int n_fds)
{
    return send_frame(sock, type, p, n, fds, n_fds, MSG_DONTWAIT);
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

    r = RETRY(recvmsg(sock, &m, MSG_CMSG_CLOEXEC));
    if (r == 0)
        errno = ECONNRESET;
    if (r <= 0)
        return -1;
    if (take_control(&m, ret_fds, max_fds, &n_fds, ret_pid) < 0)
        errno = EPROTO;
    else if (recv_all(sock, (char *)ret_h + r, sizeof *ret_h - (size_t)r) == 0) {
        if (ret_h->magic != PROTO_MAGIC || ret_h->len > PROTO_MAX)
            errno = EPROTO;
        else if ((ret_h->version < PROTO_OLDEST || ret_h->version > PROTO_VERSION) &&
                 ret_h->type != PROTO_HELLO)
            errno = EPROTONOSUPPORT;
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
