#include "runtime/gateway/publish.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/gw.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/relay.h"
#include "runtime/gateway/walls.h"

enum { ACCEPT_BATCH = 64, PAUSE_MS = 100 };

struct listener {
    struct source src;
    struct publish *p;
    uint16_t port;
};

/* Somebody on the host who came in. */
struct guest {
    struct publish *p;
    struct guest *prev, *next;
    int fd; /* until it is relayed */
    bool asking, relayed;
    struct source inside; /* while it still connects there */
    struct walls_ask ask;
    struct timer limit;
    struct relay relay;
};

struct publish {
    struct gw *gw;
    struct listener **listeners;
    size_t n;
    struct guest *guests;
    unsigned asks;
    bool paused;
    struct timer pause;
};

/* --- listeners ------------------------------------------------------------------------------- */

static void listen_all(struct publish *p)
{
    p->paused = false;
    loop_disarm(p->gw->loop, &p->pause);
    for (size_t i = 0; i < p->n; i++)
        loop_set(p->gw->loop, &p->listeners[i]->src, EPOLLIN);
}

/* Who comes now waits in the backlog. */
static void pause_all(struct publish *p)
{
    p->paused = true;
    for (size_t i = 0; i < p->n; i++)
        loop_del(p->gw->loop, &p->listeners[i]->src);
    loop_arm(p->gw->loop, &p->pause, PAUSE_MS);
}

static void on_pause(struct timer *t)
{
    struct publish *p = CONTAINER(t, struct publish, pause);
    if (p->asks < PUBLISH_ASKS)
        listen_all(p);
    else
        loop_arm(p->gw->loop, &p->pause, PAUSE_MS);
}

static void close_listeners(struct publish *p)
{
    for (size_t i = 0; i < p->n; i++) {
        loop_del(p->gw->loop, &p->listeners[i]->src);
        close_p(&p->listeners[i]->src.fd);
        free(p->listeners[i]);
    }
    free_p(&p->listeners);
    p->n = 0;
}

/* --- guests ---------------------------------------------------------------------------------- */

static void asked(struct guest *g)
{
    if (!g->asking)
        return;
    g->asking = false;
    g->p->asks--;
    if (g->p->paused && g->p->asks < PUBLISH_ASKS / 2)
        listen_all(g->p);
}

/* Ends it; where it was not relayed yet, with a reset. */
static void guest_free(struct guest *g)
{
    struct publish *p = g->p;
    if (g->asking)
        walls_cancel(p->gw, &g->ask);
    asked(g);
    if (g->relayed)
        relay_stop(&g->relay);
    loop_disarm(p->gw->loop, &g->limit);
    loop_del(p->gw->loop, &g->inside);
    close_p(&g->inside.fd);
    if (g->fd >= 0)
        setsockopt(g->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                   sizeof(struct linger));
    close_p(&g->fd);
    *(g->prev ? &g->prev->next : &p->guests) = g->next;
    if (g->next)
        g->next->prev = g->prev;
    limits_leave(p->gw);
    free(g);
}

static void on_relayed(struct relay *r, int error)
{
    guest_free(CONTAINER(r, struct guest, relay));
}

static void relay_both(struct guest *g)
{
    loop_disarm(g->p->gw->loop, &g->limit);
    g->relayed = true;
    relay_start(&g->relay, g->p->gw, TAKE_FD(g->inside.fd), TAKE_FD(g->fd), on_relayed);
}

static void on_connect(struct source *src, uint32_t events)
{
    struct guest *g = CONTAINER(src, struct guest, inside);
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(src->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error) {
        guest_free(g);
    } else if (events & EPOLLOUT) {
        loop_del(g->p->gw->loop, src);
        relay_both(g);
    }
}

static void on_inside(struct walls_ask *a, int fd, int error)
{
    struct guest *g = CONTAINER(a, struct guest, ask);
    asked(g);
    g->inside.fd = fd;
    if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        guest_free(g);
        return;
    }
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    if (!getpeername(fd, (void *)&peer, &len))
        relay_both(g);
    else if (loop_set(g->p->gw->loop, &g->inside, EPOLLOUT) < 0)
        guest_free(g);
}

static void on_limit(struct timer *t)
{
    guest_free(CONTAINER(t, struct guest, limit));
}

static void welcome(struct listener *l, int fd)
{
    struct publish *p = l->p;
    struct guest *g = mem_zalloc(sizeof *g);
    *g = (struct guest){ .p = p, .fd = fd, .asking = true, .next = p->guests };
    g->inside = (struct source){ .fd = -1, .on = on_connect };
    g->limit.on = on_limit;
    g->ask.done = on_inside;
    if (g->next)
        g->next->prev = g;
    p->guests = g;
    p->asks++;
    loop_arm(p->gw->loop, &g->limit, PUBLISH_LIMIT_MS);
    walls_ask(p->gw, FEED_DIAL, l->port, &g->ask);
}

static void on_listener(struct source *src, uint32_t events)
{
    struct listener *l = CONTAINER(src, struct listener, src);
    struct publish *p = l->p;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        if (p->asks >= PUBLISH_ASKS) {
            pause_all(p);
            return;
        }
        int fd = accept4(src->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_all(p);
            return;
        }
        if (limits_enter(p->gw))
            welcome(l, fd);
        else
            close(fd);
    }
}

/* --- the door -------------------------------------------------------------------------------- */

int publish_new(struct gw *gw, struct err **e)
{
    gw->publish = mem_zalloc(sizeof *gw->publish);
    gw->publish->gw = gw;
    gw->publish->pause.on = on_pause;
    return 0;
}

void publish_drop(struct gw *gw)
{
    struct publish *p = gw->publish;
    while (p && p->guests)
        guest_free(p->guests);
}

void publish_free(struct gw *gw)
{
    if (!gw->publish)
        return;
    publish_drop(gw);
    close_listeners(gw->publish);
    loop_disarm(gw->loop, &gw->publish->pause);
    free_p(&gw->publish);
}

void publish_set(struct gw *gw, const struct net_publish *v, const int *fds, size_t n)
{
    struct publish *p = gw->publish;
    close_listeners(p);
    p->listeners = mem_zalloc((n + 1) * sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        struct listener *l = p->listeners[p->n++] = mem_zalloc(sizeof *l);
        *l = (struct listener){ .src = { .fd = fds[i], .on = on_listener }, .p = p };
        l->port = v[i].port;
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    if (!p->paused)
        listen_all(p);
}
