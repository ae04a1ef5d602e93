#include "runtime/gateway/tunnel.h"

#include <sys/socket.h>

void tunnel_stop(struct tunnel *t)
{
    if (t->loop)
        loop_del(t->loop, &t->src);
    str_reset(&t->out);
}

static void end(struct tunnel *t, int error, int status)
{
    tunnel_stop(t);
    t->done(t, error, status);
}

/* 0, or an errno. */
static int send_rest(struct tunnel *t)
{
    while (t->sent < t->out.len) {
        ssize_t n = RETRY(send(t->src.fd, t->out.p + t->sent, t->out.len - t->sent, MSG_NOSIGNAL));
        if (n < 0)
            return errno == EAGAIN ? 0 : errno;
        t->sent += n;
    }
    return 0;
}

/* Edge-triggered: bytes that are only looked at wake nobody a second time. */
static void on_event(struct source *src, uint32_t events)
{
    struct tunnel *t = CONTAINER(src, struct tunnel, src);
    char head[PROXY_HEAD];
    int status = 0, error = send_rest(t);
    if (error) {
        end(t, error, 0);
        return;
    }
    ssize_t n = RETRY(recv(src->fd, head, sizeof head, MSG_PEEK));
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        end(t, n < 0 ? errno : ECONNRESET, 0);
        return;
    }
    int len = proxy_answer(head, n, &status);
    if (len < 0)
        end(t, EPROTO, 0);
    else if (!len && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        end(t, ECONNRESET, 0);
    else if (len && RETRY(recv(src->fd, head, len, 0)) != len)
        end(t, EPROTO, 0);
    else if (len)
        end(t, status / 100 == 2 ? 0 : ECONNREFUSED, status);
}

void tunnel_start(struct tunnel *t, struct loop *l, int fd, const struct proxy_way *w,
                  const char *name, const struct net_addr *addr, uint16_t port)
{
    t->loop = l;
    t->src = (struct source){ .fd = fd, .on = on_event };
    t->sent = 0;
    proxy_ask(w, name, addr, port, &t->out);
    /* Where epoll has no room the dial's own limit ends it. */
    loop_set(l, &t->src, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}
