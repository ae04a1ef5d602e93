#include "runtime/gateway/walls.h"

#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/conn.h"
#include "runtime/gateway/packets.h"
#include "runtime/gateway/publish.h"
#include "runtime/gateway/serve_dns.h"
#include "runtime/gateway/udp.h"
#include "runtime/network/listen.h"

enum { BATCH = 64, PAUSE_MS = 100 };

/* A question of our own: for a listener. */
struct wish {
    struct walls_ask ask;
    struct gw *gw;
};

struct door {
    struct source src;
    struct gw *gw;
    uint16_t kind, port;
};

struct walls {
    struct gw *gw;
    struct source feed;
    uint32_t tag, hello; /* the last one given, that of our hello; 0: it came */
    struct door *doors[FEED_MAX_FDS];
    size_t n;
    struct walls_ask *asks, **last; /* in the order they were asked */
    struct task failed;
    struct timer pause; /* no descriptors left: those who come wait in the backlog */
    int idle; /* the packet socket of walls that are gone; closing it takes milliseconds */
};

/* --- doors ----------------------------------------------------------------------------------- */

static void on_door(struct source *s, uint32_t ev)
{
    struct door *d = CONTAINER(s, struct door, src);
    struct gw *gw = d->gw;
    bool more = true;
    switch (d->kind) {
    case FEED_TCP:
    case FEED_TPROXY_TCP:
        more = conns_accept(gw, s->fd);
        break;
    case FEED_DNS_UDP:
        serve_dns_udp(gw, s->fd);
        break;
    case FEED_DNS_TCP:
        more = serve_dns_accept(gw, s->fd);
        break;
    case FEED_PACKET:
        packets_read(gw, s->fd);
        break;
    }
    if (!more) {
        loop_del(gw->loop, s);
        if (!gw->walls->pause.pos)
            loop_arm(gw->loop, &gw->walls->pause, PAUSE_MS);
    }
}

static void open_all(struct walls *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (!w->doors[i]->src.added && loop_set(w->gw->loop, &w->doors[i]->src, EPOLLIN) < 0)
            gw_fail(w->gw, "watch a listener: %s", strerror(errno));
}

static void on_pause(struct timer *t)
{
    open_all(CONTAINER(t, struct walls, pause));
}

static void add_door(struct walls *w, uint16_t kind, uint16_t port, int fd)
{
    if (w->n == FEED_MAX_FDS) {
        close(fd);
        return;
    }
    struct door *d = mem_zalloc(sizeof(*d));
    *d = (struct door){
        .src = { .fd = fd, .on = on_door }, .gw = w->gw, .kind = kind, .port = port
    };
    w->doors[w->n++] = d;
}

static void close_doors(struct walls *w)
{
    for (size_t i = 0; i < w->n; i++) {
        loop_del(w->gw->loop, &w->doors[i]->src);
        if (w->doors[i]->kind == FEED_PACKET && w->idle < 0)
            w->idle = TAKE_FD(w->doors[i]->src.fd);
        close_p(&w->doors[i]->src.fd);
        free(w->doors[i]);
    }
    w->n = 0;
    loop_disarm(w->gw->loop, &w->pause);
}

static bool has_door(const struct walls *w, uint16_t port)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->doors[i]->kind == FEED_TPROXY_TCP ||
            (w->doors[i]->kind == FEED_TCP && w->doors[i]->port == port))
            return true;
    return false;
}

/* --- questions ------------------------------------------------------------------------------- */

static uint32_t next_tag(struct walls *w)
{
    return ++w->tag ? w->tag : ++w->tag;
}

/* Those that could not be asked have no tag. A callback may ask or cancel: back to the start after each. */
static void fail_asks(struct walls *w, bool all)
{
    struct walls_ask *a = w->asks;
    while (a) {
        if (!all && a->tag) {
            a = a->next;
            continue;
        }
        walls_cancel(w->gw, a);
        a->done(a, -1, ENOTCONN);
        a = w->asks;
    }
}

static void on_failed(struct task *t)
{
    fail_asks(CONTAINER(t, struct walls, failed), false);
}

void walls_ask(struct gw *gw, enum feed_op op, uint16_t port, struct walls_ask *a)
{
    struct walls *w = gw->walls;
    a->op = op;
    a->port = port;
    a->next = NULL;
    a->tag = next_tag(w);
    *w->last = a;
    w->last = &a->next;
    if (w->feed.fd < 0 || feed_ask(w->feed.fd, op, a->tag, port) < 0) {
        a->tag = 0;
        loop_later(gw->loop, &w->failed);
    }
}

void walls_cancel(struct gw *gw, struct walls_ask *ask)
{
    struct walls *w = gw->walls;
    for (struct walls_ask **at = &w->asks; *at; at = &(*at)->next) {
        if (*at != ask)
            continue;
        *at = ask->next;
        if (w->last == &ask->next)
            w->last = at;
        return;
    }
}

/* What has a listener is refused by nobody: the socket that sees refusals is told. */
static void filter_again(struct walls *w)
{
    struct feed_item v[FEED_MAX_FDS];
    int packets = -1;
    for (size_t i = 0; i < w->n; i++) {
        v[i] = (struct feed_item){ .kind = w->doors[i]->kind, .port = w->doors[i]->port };
        if (v[i].kind == FEED_PACKET)
            packets = w->doors[i]->src.fd;
    }
    if (packets >= 0)
        (void)listen_refused_filter(packets, v, w->n);
}

static void on_listener(struct walls_ask *a, int fd, int error)
{
    struct wish *wish = CONTAINER(a, struct wish, ask);
    struct walls *w = wish->gw->walls;
    if (fd >= 0) {
        add_door(w, FEED_TCP, a->port, fd);
        filter_again(w);
        open_all(w);
    }
    free(wish);
}

static bool wished(const struct walls *w, uint16_t port)
{
    for (const struct walls_ask *a = w->asks; a; a = a->next)
        if (a->op == FEED_LISTEN && a->port == port)
            return true;
    return false;
}

void walls_listen(struct gw *gw)
{
    struct walls *w = gw->walls;
    AUTOFREE uint16_t *ports = NULL;
    if (w->feed.fd < 0 || w->hello || gw->policy.mode == NET_NONE)
        return;
    size_t n = net_ports(&gw->policy, &ports);
    for (size_t i = 0; i < n; i++) {
        if (has_door(w, ports[i]) || wished(w, ports[i]))
            continue;
        struct wish *wish = mem_zalloc(sizeof(*wish));
        wish->gw = gw;
        wish->ask.done = on_listener;
        walls_ask(gw, FEED_LISTEN, ports[i], &wish->ask);
    }
}

/* --- answers --------------------------------------------------------------------------------- */

static void take_hello(struct walls *w, const struct feed_hello *h, const int *fds)
{
    int tproxy = -1, raw = -1;
    w->hello = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].kind == FEED_TPROXY_UDP && tproxy < 0)
            tproxy = fds[i];
        else if (h->v[i].kind == FEED_RAW && raw < 0)
            raw = fds[i];
        else
            add_door(w, h->v[i].kind, h->v[i].port, fds[i]);
    }
    udp_attach(w->gw, tproxy, raw);
    open_all(w);
    walls_listen(w->gw);
}

static void take_answer(struct walls *w, const struct feed_answer *f, int fd)
{
    struct walls_ask *a = w->asks;
    while (a && a->tag != f->tag)
        a = a->next;
    if (!a) { /* nobody waits for it any more */
        close_p(&fd);
        return;
    }
    walls_cancel(w->gw, a);
    a->done(a, fd, f->error);
}

static void detach(struct walls *w)
{
    struct gw *gw = w->gw;
    loop_del(gw->loop, &w->feed);
    close_p(&w->feed.fd);
    close_doors(w);
    publish_drop(gw);
    fail_asks(w, true);
    udp_attach(gw, -1, -1);
    conns_drop(gw);
    serve_dns_drop(gw);
}

static void on_feed(struct source *s, uint32_t ev)
{
    struct walls *w = CONTAINER(s, struct walls, feed);
    static union feed_packet p;
    int fds[FEED_MAX_FDS];
    for (int i = 0; i < BATCH && s->fd >= 0; i++) {
        size_t n_fds = 0;
        ssize_t n = feed_recv(s->fd, &p, sizeof(p), fds, FEED_MAX_FDS, &n_fds, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0 && errno == EPROTO)
            continue;
        if (n <= 0) { /* the walls are gone, and whoever was behind them */
            detach(w);
            return;
        }
        if (w->hello && feed_is_hello(&p, (size_t)n, n_fds) && p.hello.tag == w->hello)
            take_hello(w, &p.hello, fds);
        else if (w->hello && feed_is_answer(&p, (size_t)n, n_fds) && p.answer.op == FEED_HELLO &&
                 p.answer.tag == w->hello && n_fds == 0)
            gw_fail(w->gw, "the agent has no sockets for us: %s", strerror(p.answer.error));
        else if (!w->hello && feed_is_answer(&p, (size_t)n, n_fds))
            take_answer(w, &p.answer, n_fds ? fds[0] : -1);
        else
            for (size_t k = 0; k < n_fds; k++)
                close(fds[k]);
    }
}

/* --- life ------------------------------------------------------------------------------------ */

int walls_new(struct gw *gw, struct err **e)
{
    struct walls *w = mem_zalloc(sizeof(*w));
    w->gw = gw;
    w->feed = (struct source){ .fd = -1, .on = on_feed };
    w->idle = -1;
    w->last = &w->asks;
    w->failed.on = on_failed;
    w->pause.on = on_pause;
    gw->walls = w;
    return 0;
}

void walls_free(struct gw *gw)
{
    if (!gw->walls)
        return;
    detach(gw->walls);
    close_p(&gw->walls->idle);
    loop_forget(gw->loop, &gw->walls->failed);
    free_p(&gw->walls);
}

void walls_attach(struct gw *gw, int feed)
{
    struct walls *w = gw->walls;
    detach(w);
    close_p(&w->idle); /* the keeper waits for no answer now, as it may when walls end */
    w->feed.fd = feed;
    w->hello = next_tag(w);
    if (loop_set(gw->loop, &w->feed, EPOLLIN) < 0)
        gw_fail(gw, "watch the agent's socket: %s", strerror(errno));
    if (feed_ask(feed, FEED_HELLO, w->hello, 0) < 0)
        detach(w); /* it has ended already, and the sandbox with it */
}
