#include "runtime/gateway/dial.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/gateway/gw.h"
#include "runtime/gateway/hostaddr.h"
#include "runtime/gateway/proxy.h"
#include "runtime/gateway/resolve.h"
#include "runtime/gateway/tunnel.h"

enum { PROXY_NAME_MS = 3000 }; /* for the host to resolve what the proxy will resolve anyway */

/* Somewhere to connect to. */
struct goal {
    struct net_addr addr;
    bool local; /* the host's own */
};

struct attempt {
    struct source src; /* fd < 0: over, or never made */
    struct dial *d;
    struct goal to;
};

struct dial {
    struct gw *gw;
    char *name;     /* NULL: by address */
    struct goal to; /* where name is NULL */
    uint16_t port;
    void (*done)(void *arg, int fd, const struct dial_result *r);
    void *arg;

    struct lookup *look;
    struct task start;
    struct timer limit, next;
    struct goal todo[DIAL_TRIES];
    unsigned n_todo, at;
    struct attempt tries[DIAL_TRIES];
    unsigned pending;
    int error; /* of the last attempt that failed */

    const struct proxy_way *way; /* the attempts go to it */
    struct tunnel tunnel;
    int tunnel_fd;
    char why[64];
};

static void stop(struct dial *d)
{
    struct loop *l = d->gw->loop;
    resolve_cancel(TAKE_PTR(d->look));
    loop_forget(l, &d->start);
    loop_disarm(l, &d->limit);
    loop_disarm(l, &d->next);
    for (unsigned i = 0; i < d->at; i++) {
        if (d->tries[i].src.fd >= 0)
            loop_del(l, &d->tries[i].src);
        close_p(&d->tries[i].src.fd);
    }
    tunnel_stop(&d->tunnel);
    close_p(&d->tunnel_fd);
}

static void dial_free(struct dial *d)
{
    stop(d);
    free(d->name);
    free(d);
}

void dial_cancel(struct dial *d)
{
    if (d)
        dial_free(d);
}

static void finish(struct dial *d, int fd, const struct dial_result *r)
{
    stop(d);
    d->done(d->arg, fd, r);
    dial_free(d);
}

static void fail(struct dial *d, int error, const char *why)
{
    struct dial_result r = { .error = error, .why = why };
    if (d->at && !d->way)
        r.addr = d->todo[d->at - 1].addr;
    finish(d, -1, &r);
}

/* The only place that says yes to an address of the sandbox's choice. */
static struct net_verdict judge(struct dial *d, const struct goal *g)
{
    return net_judge_addr(&d->gw->policy, &g->addr, g->local, d->port, d->name);
}

/* Asked again at the end: the policy may be another one since the dial began. NULL: by a proxy. */
static void connected(struct dial *d, int fd, const struct goal *g)
{
    struct dial_result r = { .verdict.allow = true };
    if (g)
        r.addr = g->addr;
    if (d->name)
        r.verdict = net_judge_name(&d->gw->policy, d->name, d->port);
    if (g && r.verdict.allow) {
        struct net_verdict v = judge(d, g);
        if (!d->name || !v.allow)
            r.verdict = v;
    }
    if (!r.verdict.allow) {
        close_p(&fd);
        r.error = EACCES;
    }
    finish(d, fd, &r);
}

static void refused(struct dial *d, const struct net_addr *a, struct net_verdict v)
{
    finish(d, -1, &(struct dial_result){ .error = EACCES, .verdict = v, .addr = *a });
}

/* --- attempts -------------------------------------------------------------------------------- */

static void on_tunnel(struct tunnel *t, int error, int status)
{
    struct dial *d = CONTAINER(t, struct dial, tunnel);
    if (!error) {
        connected(d, TAKE_FD(d->tunnel_fd), d->name ? NULL : &d->to);
        return;
    }
    if (status)
        snprintf(d->why, sizeof d->why, "the host's proxy answers %d", status);
    else
        snprintf(d->why, sizeof d->why, "the host's proxy: %s", strerror(error));
    fail(d, ECONNREFUSED, d->why);
}

static void won(struct dial *d, struct attempt *a)
{
    loop_del(d->gw->loop, &a->src);
    int fd = TAKE_FD(a->src.fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    if (!d->way) {
        connected(d, fd, &a->to);
        return;
    }
    for (unsigned i = 0; i < d->at; i++) {
        if (d->tries[i].src.fd >= 0)
            loop_del(d->gw->loop, &d->tries[i].src);
        close_p(&d->tries[i].src.fd);
    }
    loop_disarm(d->gw->loop, &d->next);
    d->tunnel_fd = fd;
    d->tunnel.done = on_tunnel;
    tunnel_start(&d->tunnel, d->gw->loop, fd, d->way, d->name, &d->to.addr, d->port);
}

static void try_next(struct dial *d);

static void on_connect(struct source *src, uint32_t events)
{
    struct attempt *a = CONTAINER(src, struct attempt, src);
    struct dial *d = a->d;
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(src->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (!error && !(events & EPOLLOUT))
        return;
    if (!error) {
        won(d, a);
        return;
    }
    loop_del(d->gw->loop, src);
    close_p(&src->fd);
    d->pending--;
    d->error = error;
    try_next(d);
}

/* Starts one attempt; false: it failed at once. */
static bool try_one(struct dial *d, struct attempt *a)
{
    struct sockaddr_storage sa;
    socklen_t len = addr_to_sockaddr(&a->to.addr, d->way ? d->way->port : d->port, &sa);
    AUTOCLOSE int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    a->src.fd = fd;
    if ((connect(fd, (void *)&sa, len) < 0 && errno != EINPROGRESS) ||
        loop_set(d->gw->loop, &a->src, EPOLLOUT) < 0) {
        a->src.fd = -1;
        return false;
    }
    TAKE_FD(fd);
    return true;
}

static void try_next(struct dial *d)
{
    while (d->at < d->n_todo) {
        struct attempt *a = &d->tries[d->at];
        *a = (struct attempt){ .src = { .fd = -1, .on = on_connect }, .d = d };
        a->to = d->todo[d->at++];
        if (try_one(d, a)) {
            d->pending++;
            if (d->at < d->n_todo)
                loop_arm(d->gw->loop, &d->next, DIAL_NEXT_MS);
            return;
        }
        d->error = errno;
    }
    loop_disarm(d->gw->loop, &d->next);
    if (!d->pending)
        fail(d, d->error, d->way ? "the host's proxy can't be reached" : NULL);
}

static void on_name(void *arg, const struct resolve_result *r);

static void on_next(struct timer *t)
{
    struct dial *d = CONTAINER(t, struct dial, next);
    if (!d->look) {
        try_next(d);
        return;
    }
    resolve_cancel(TAKE_PTR(d->look)); /* the proxy may know more than the host's servers */
    on_name(d, &(struct resolve_result){ .error = ETIMEDOUT });
}

static void on_limit(struct timer *t)
{
    fail(CONTAINER(t, struct dial, limit), ETIMEDOUT, NULL);
}

/* --- where to -------------------------------------------------------------------------------- */

/* IPv4 and IPv6 in turn, IPv4 first: a host without working IPv6 then loses nothing. */
static size_t in_turn(const struct resolve_result *r, struct net_addr ret[RESOLVE_ADDRS])
{
    size_t n = 0, at[2] = { 0, 0 };
    for (unsigned side = 0, stuck = 0; n < r->n && stuck < 2; side ^= 1) {
        int family = side ? AF_INET6 : AF_INET;
        while (at[side] < r->n && r->v[at[side]].family != family)
            at[side]++;
        stuck = at[side] < r->n ? 0 : stuck + 1;
        if (at[side] < r->n)
            ret[n++] = r->v[at[side]++];
    }
    return n;
}

static void add_todo(struct dial *d, const struct goal *g)
{
    if (d->n_todo < DIAL_TRIES)
        d->todo[d->n_todo++] = *g;
}

static void on_proxy_name(void *arg, const struct resolve_result *r)
{
    struct dial *d = arg;
    struct net_addr v[RESOLVE_ADDRS];
    d->look = NULL;
    size_t n = in_turn(r, v);
    for (size_t i = 0; i < n; i++)
        add_todo(d, &(struct goal){ .addr = v[i] });
    d->error = EHOSTUNREACH;
    try_next(d);
}

/* The proxy's own address is the host's configuration, not the sandbox's choice: it is not judged. */
static void by_proxy(struct dial *d, const struct proxy_way *w)
{
    if (w->bad) {
        struct net_verdict v = { .rule = "proxy", .why = w->bad };
        finish(d, -1, &(struct dial_result){ .error = EACCES, .verdict = v, .why = w->bad });
        return;
    }
    d->way = w;
    if (!w->literal) {
        d->look = resolve_name(d->gw, w->host, on_proxy_name, d);
        return;
    }
    add_todo(d, &(struct goal){ .addr = w->addr });
    try_next(d);
}

static void on_name(void *arg, const struct resolve_result *r)
{
    struct dial *d = arg;
    const struct proxy_way *w = proxy_for(d->gw, d->name, NULL, d->port);
    struct net_verdict v = net_judge_name(&d->gw->policy, d->name, d->port), first = { 0 };
    struct net_addr list[RESOLVE_ADDRS], *bad = NULL;
    d->look = NULL;
    loop_disarm(d->gw->loop, &d->next);
    if (!v.allow) {
        refused(d, &(struct net_addr){ 0 }, v);
        return;
    }
    size_t n = in_turn(r, list);
    for (size_t i = 0; i < n; i++) {
        struct goal g = { .addr = list[i], .local = hostaddr_local(d->gw, &list[i]) };
        v = judge(d, &g);
        if (v.allow) {
            add_todo(d, &g);
        } else if (!bad) {
            bad = &list[i];
            first = v;
        }
    }
    if (bad && (!d->n_todo || w)) { /* the proxy would choose one by itself */
        refused(d, bad, first);
    } else if (w) { /* which resolves by itself, where the host can't */
        d->n_todo = 0;
        by_proxy(d, w);
    } else if (!d->n_todo) {
        fail(d, r->error ? r->error : ENOENT,
             r->error == ENOENT ? "the name has no address" : "the name can't be resolved");
    } else {
        try_next(d);
    }
}

static void on_start(struct task *t)
{
    struct dial *d = CONTAINER(t, struct dial, start);
    d->to.local = hostaddr_local(d->gw, &d->to.addr);
    struct net_verdict v = judge(d, &d->to);
    const struct proxy_way *w = proxy_for(d->gw, NULL, &d->to.addr, d->port);
    if (!v.allow) {
        refused(d, &d->to.addr, v);
    } else if (w) {
        by_proxy(d, w);
    } else {
        add_todo(d, &d->to);
        try_next(d);
    }
}

struct dial *dial_start(const struct dial_req *req)
{
    struct dial *d = mem_zalloc(sizeof *d);
    *d = (struct dial){
        .gw = req->gw,
        .name = str_dup(req->name),
        .to.addr = req->addr,
        .port = req->port,
        .done = req->done,
        .arg = req->arg,
        .start = { .on = on_start },
        .limit = { .on = on_limit },
        .next = { .on = on_next },
        .tunnel_fd = -1,
    };
    loop_arm(d->gw->loop, &d->limit, DIAL_LIMIT_MS);
    if (d->name)
        d->look = resolve_name(d->gw, d->name, on_name, d);
    else
        loop_later(d->gw->loop, &d->start);
    if (d->name && proxy_for(d->gw, d->name, NULL, d->port))
        loop_arm(d->gw->loop, &d->next, PROXY_NAME_MS);
    return d;
}
