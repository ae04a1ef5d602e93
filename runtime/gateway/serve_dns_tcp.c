/* runtime/gateway/serve_dns_tcp.c - the same over TCP: two bytes of length, then the packet; several in a row. */
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/relay.h"
#include "runtime/gateway/resolve.h"
#include "runtime/gateway/serve_dns.h"

enum { ROOM = 2 + 2048, AT_ONCE = 64, BATCH = 16, IDLE_MS = 10000 };

struct dns_tcp {
    struct gw *gw;
    struct dns_tcp *prev, *next;
    struct source src;
    struct timer idle;
    struct lookup *look; /* nothing is read while one waits */
    struct dns_query q;
    struct str out;
    size_t sent, n;
    uint8_t in[ROOM];
};

static void tcp_free(struct dns_tcp *t)
{
    struct gw *gw = t->gw;
    resolve_cancel(TAKE_PTR(t->look));
    loop_del(gw->loop, &t->src);
    loop_disarm(gw->loop, &t->idle);
    close_p(&t->src.fd);
    *(t->prev ? &t->prev->next : serve_dns_tcp(gw)) = t->next;
    if (t->next)
        t->next->prev = t->prev;
    --*serve_dns_tcp_count(gw);
    str_reset(&t->out);
    free(t);
}

void serve_dns_tcp_drop(struct gw *gw)
{
    while (*serve_dns_tcp(gw))
        tcp_free(*serve_dns_tcp(gw));
}

static void on_idle(struct timer *timer)
{
    tcp_free(CONTAINER(timer, struct dns_tcp, idle));
}

static void add_answer(struct dns_tcp *t, const uint8_t *p, size_t n)
{
    str_addc(&t->out, (char)(n >> 8));
    str_addc(&t->out, (char)n);
    str_addn(&t->out, p, n);
}

static void work(struct dns_tcp *t);

static void on_passed(void *arg, const uint8_t *msg, size_t len)
{
    struct dns_tcp *t = arg;
    uint8_t out[DNS_ANSWER_MAX];
    size_t n = 0;
    t->look = NULL;
    if (msg) {
        AUTOFREE uint8_t *copy = mem_dup(msg, len);
        if ((n = serve_dns_adopt(&t->q, copy, len, 65535)))
            add_answer(t, copy, n);
    }
    if (!n)
        add_answer(t, out, dns_answer(&t->q, DNS_SERVFAIL, out));
    work(t);
}

/* False: it is gone. */
static bool flush_out(struct dns_tcp *t)
{
    while (t->sent < t->out.len) {
        ssize_t n =
            send(t->src.fd, t->out.p + t->sent, t->out.len - t->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno != EINTR) {
            tcp_free(t);
            return false;
        }
        t->sent += n > 0 ? (size_t)n : 0;
    }
    str_reset(&t->out);
    t->sent = 0;
    return true;
}

/* A whole question at the front of `in`: answered. False: there is none, or it waits. */
static bool answer_one(struct dns_tcp *t)
{
    uint8_t out[DNS_ANSWER_MAX];
    size_t len = t->n < 2 ? 0 : (size_t)t->in[0] << 8 | t->in[1];
    if (t->look || t->out.len || t->n < 2 || t->n < 2 + len)
        return false;
    size_t n = serve_dns_answer(t->gw, t->in + 2, len, &t->q, out);
    t->n -= 2 + len;
    memmove(t->in, t->in + 2 + len, t->n);
    if (n == SERVE_DNS_PASS)
        t->look = resolve_pass(t->gw, t->q.name, t->q.type, on_passed, t);
    else if (n)
        add_answer(t, out, n);
    return true;
}

/* Answers are sent before more questions are taken: a client that does not read them is not served. */
static void work(struct dns_tcp *t)
{
    do {
        if (!flush_out(t))
            return;
    } while (answer_one(t));
    if (!t->look && t->n >= 2 && (size_t)(t->in[0] << 8 | t->in[1]) > ROOM - 2) {
        t->gw->counts.malformed++;
        tcp_free(t);
        return;
    }
    uint32_t ev = t->out.len ? EPOLLOUT : t->look ? 0 : EPOLLIN;
    if (loop_set(t->gw->loop, &t->src, ev) < 0)
        tcp_free(t);
}

static void on_tcp(struct source *s, uint32_t ev)
{
    struct dns_tcp *t = CONTAINER(s, struct dns_tcp, src);
    if (!t->look && !t->out.len) {
        ssize_t n = recv(s->fd, t->in + t->n, ROOM - t->n, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            tcp_free(t);
            return;
        }
        t->n += n > 0 ? (size_t)n : 0;
        loop_arm(t->gw->loop, &t->idle, IDLE_MS);
    } else if (ev & (EPOLLERR | EPOLLHUP)) {
        tcp_free(t);
        return;
    }
    work(t);
}

bool serve_dns_accept(struct gw *gw, int listener)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        if (*serve_dns_tcp_count(gw) >= AT_ONCE) {
            relay_reset_fd(&fd);
            continue;
        }
        struct dns_tcp *t = mem_zalloc(sizeof(*t));
        t->gw = gw;
        t->src = (struct source){ .fd = fd, .on = on_tcp };
        t->idle.on = on_idle;
        t->next = *serve_dns_tcp(gw);
        if (t->next)
            t->next->prev = t;
        *serve_dns_tcp(gw) = t;
        ++*serve_dns_tcp_count(gw);
        loop_arm(gw->loop, &t->idle, IDLE_MS);
        if (loop_set(gw->loop, &t->src, EPOLLIN) < 0)
            tcp_free(t);
    }
    return true;
}
