#define CARES_NO_DEPRECATED /* ares_query() is what every version has */
#include "runtime/gateway/resolve.h"

#include <ares.h>
#include <arpa/nameser.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "runtime/gateway/gw.h"
#include "runtime/gateway/namecache.h"

enum { CHECK_MS = 1000, TRY_MS = 2000, TRIES = 3 };

/* A socket of c-ares. */
struct sock {
    struct source src;
    struct resolve *r;
    struct sock *next;
};

/* One question to the servers, and all who wait for its answer. */
struct query {
    struct resolve *r;
    struct query *prev, *next; /* in flight, or answered and not yet told */
    char *name;
    uint16_t type; /* 0: addresses */
    bool flying, again;
    struct lookup *asked; /* the newest first */
    struct resolve_result res;
    uint8_t *msg;
    size_t len;
    struct task tell;
};

struct lookup {
    struct query *q;
    struct lookup *prev, *next;
    void (*done)(void *arg, const struct resolve_result *r);
    void (*raw)(void *arg, const uint8_t *msg, size_t len);
    void *arg;
};

struct resolve {
    struct gw *gw;
    ares_channel chan;
    struct sock *socks;
    struct timer timer;
    struct query *queries;
    unsigned n_flying, n_lookups;
    bool closing, moving; /* the channel is being destroyed: for good, for another one */
    struct namecache cache;
    struct stat conf; /* /etc/resolv.conf as it was read */
    uint64_t check_at;
};

/* --- c-ares in our loop ---------------------------------------------------------------------- */

static void rearm(struct resolve *r)
{
    struct timeval tv, *t = r->chan ? ares_timeout(r->chan, NULL, &tv) : NULL;
    if (t)
        loop_arm(r->gw->loop, &r->timer, (uint64_t)t->tv_sec * 1000 + (t->tv_usec + 999) / 1000);
    else
        loop_disarm(r->gw->loop, &r->timer);
}

static void on_timer(struct timer *t)
{
    struct resolve *r = CONTAINER(t, struct resolve, timer);
    ares_process_fd(r->chan, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    rearm(r);
}

static void on_sock(struct source *src, uint32_t events)
{
    struct sock *s = CONTAINER(src, struct sock, src);
    struct resolve *r = s->r;
    int fd = src->fd; /* the socket may be gone after the call */
    bool broken = events & (EPOLLERR | EPOLLHUP);
    ares_process_fd(r->chan, events & EPOLLIN || broken ? fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT || broken ? fd : ARES_SOCKET_BAD);
    rearm(r);
}

static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct resolve *r = arg;
    struct sock **at = &r->socks;
    while (*at && (*at)->src.fd != fd)
        at = &(*at)->next;
    struct sock *s = *at;
    if (!readable && !writable) {
        if (s) {
            *at = s->next;
            loop_del(r->gw->loop, &s->src);
            free(s);
        }
        return;
    }
    if (!s) {
        s = mem_zalloc(sizeof *s);
        *s = (struct sock){ .src = { .fd = fd, .on = on_sock }, .r = r, .next = r->socks };
        r->socks = s;
    }
    /* Where epoll has no room the query runs into its time-out. */
    loop_set(r->gw->loop, &s->src, (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0));
}

static int open_channel(struct resolve *r, ares_channel *ret)
{
    unsigned seed;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed)
        srand(
            seed); /* what old versions fall back to where /dev/urandom can't be opened any more */
    struct ares_options o = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TRY_MS,
        .tries = TRIES,
        .sock_state_cb = on_state,
        .sock_state_cb_data = r,
        .lookups = (char[]){ "fb" },
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
               ARES_OPT_LOOKUPS;
#ifdef ARES_OPT_UDP_MAX_QUERIES
    o.udp_max_queries = 64; /* then another source port */
    mask |= ARES_OPT_UDP_MAX_QUERIES;
#endif
#ifdef ARES_OPT_QUERY_CACHE
    o.qcache_max_ttl = 0;
    mask |= ARES_OPT_QUERY_CACHE;
#endif
    return ares_init_options(ret, &o, mask);
}

/* --- queries --------------------------------------------------------------------------------- */

static void query_free(struct query *q)
{
    struct resolve *r = q->r;
    *(q->prev ? &q->prev->next : &r->queries) = q->next;
    if (q->next)
        q->next->prev = q->prev;
    r->n_flying -= q->flying;
    loop_forget(r->gw->loop, &q->tell);
    free(q->name);
    free(q->msg);
    free(q);
}

/* Every answer comes by this task: nobody is called from within c-ares or from within resolve_name(). */
static void tell(struct task *t)
{
    struct query *q = CONTAINER(t, struct query, tell);
    for (struct lookup *l; (l = q->asked);) {
        q->asked = l->next;
        if (l->next)
            l->next->prev = NULL;
        q->r->n_lookups--;
        struct lookup it = *l;
        free(l);
        if (it.raw)
            it.raw(it.arg, q->msg, q->len);
        else
            it.done(it.arg, &q->res);
    }
    query_free(q);
}

static void answered(struct query *q, int error)
{
    q->r->n_flying -= q->flying;
    q->flying = false;
    q->res.error = error;
    loop_later(q->r->gw->loop, &q->tell);
}

/* The channel was closed: true where the query has no answer yet for that reason. */
static bool cut_off(struct query *q, int status)
{
    if (status != ARES_EDESTRUCTION)
        return false;
    q->again = q->r->moving;
    return q->r->moving || q->r->closing;
}

static int status_errno(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENODATA:
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:
        return ENOENT;
    case ARES_ETIMEOUT:
        return ETIMEDOUT;
    default:
        return EIO;
    }
}

static void on_addrs(void *arg, int status, int timeouts, struct ares_addrinfo *ai)
{
    struct query *q = arg;
    if (cut_off(q, status)) {
        if (ai)
            ares_freeaddrinfo(ai);
        return;
    }
    int ttl = INT32_MAX;
    struct resolve_result *res = &q->res;
    for (struct ares_addrinfo_node *n = ai ? ai->nodes : NULL; n && res->n < RESOLVE_ADDRS;
         n = n->ai_next) {
        if (addr_from_sockaddr(n->ai_addr, &res->v[res->n], NULL) < 0)
            continue;
        res->n++;
        if (n->ai_ttl < ttl)
            ttl = n->ai_ttl;
    }
    if (ai)
        ares_freeaddrinfo(ai);
    int error = res->n ? 0 : status_errno(status);
    if (!error && !res->n)
        error = ENOENT;
    if (res->n && ttl > 0) /* of /etc/hosts: 0, it is read each time */
        namecache_put(&q->r->cache, q->name, res->v, res->n,
                      loop_now(q->r->gw->loop) +
                          (ttl < RESOLVE_KEEP_MS / 1000 ? (unsigned)ttl * 1000 : RESOLVE_KEEP_MS));
    answered(q, error);
}

static void on_raw(void *arg, int status, int timeouts, unsigned char *msg, int len)
{
    struct query *q = arg;
    if (cut_off(q, status))
        return;
    if (msg && len >= NS_HFIXEDSZ) {
        q->msg = mem_dup(msg, len);
        q->len = len;
    }
    answered(q, status_errno(status));
}

static void query_send(struct query *q)
{
    struct resolve *r = q->r;
    q->again = false;
    if (q->type) {
        ares_query(r->chan, q->name, ns_c_in, q->type, on_raw, q);
    } else {
        struct ares_addrinfo_hints h = { .ai_flags = ARES_AI_NOSORT, .ai_family = AF_UNSPEC };
        ares_getaddrinfo(r->chan, q->name, NULL, &h, on_addrs, q);
    }
}

/* Servers changed: what is under way is asked anew. */
static void check_conf(struct resolve *r)
{
    uint64_t now = loop_now(r->gw->loop);
    struct stat st = { 0 };
    if (now < r->check_at)
        return;
    r->check_at = now + CHECK_MS;
    if (stat("/etc/resolv.conf", &st) < 0)
        return; /* being replaced, or gone: the servers we know are better than none */
    if (st.st_ino == r->conf.st_ino && st.st_size == r->conf.st_size &&
        st.st_mtim.tv_sec == r->conf.st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == r->conf.st_mtim.tv_nsec)
        return;
    ares_channel chan, old = r->chan;
    if (open_channel(r, &chan) != ARES_SUCCESS)
        return;
    r->conf = st;
    r->moving = true;
    ares_destroy(old);
    r->moving = false;
    r->chan = chan;
    namecache_clear(&r->cache);
    for (struct query *q = r->queries, *next; q; q = next) {
        next = q->next;
        if (q->again)
            query_send(q);
    }
}

/* --- the door -------------------------------------------------------------------------------- */

static struct query *query_new(struct resolve *r, const char *name, uint16_t type)
{
    struct query *q = mem_zalloc(sizeof *q);
    *q = (struct query){ .r = r, .name = str_dup(name), .type = type, .next = r->queries };
    q->tell.on = tell;
    if (q->next)
        q->next->prev = q;
    r->queries = q;
    return q;
}

static struct query *query_for(struct resolve *r, const char *name, uint16_t type)
{
    check_conf(r);
    for (struct query *q = r->queries; q; q = q->next)
        if (q->flying && q->type == type && !strcmp(q->name, name) &&
            r->n_lookups < RESOLVE_WAITERS)
            return q;
    struct query *q = query_new(r, name, type);
    if (!type)
        q->res.n = namecache_get(&r->cache, name, loop_now(r->gw->loop), q->res.v, RESOLVE_ADDRS);
    if (q->res.n) {
        answered(q, 0);
    } else if (r->n_flying >= RESOLVE_QUERIES || r->n_lookups >= RESOLVE_WAITERS) {
        answered(q, EAGAIN);
    } else {
        q->flying = true;
        r->n_flying++;
        query_send(q);
        rearm(r);
    }
    return q;
}

static struct lookup *ask(struct resolve *r, const char *name, uint16_t type)
{
    struct query *q = query_for(r, name, type);
    struct lookup *l = mem_zalloc(sizeof *l);
    *l = (struct lookup){ .q = q, .next = q->asked };
    if (l->next)
        l->next->prev = l;
    q->asked = l;
    r->n_lookups++;
    return l;
}

struct lookup *resolve_name(struct gw *gw, const char *name,
                            void (*done)(void *arg, const struct resolve_result *r), void *arg)
{
    struct lookup *l = ask(gw->resolve, name, 0);
    l->done = done;
    l->arg = arg;
    return l;
}

struct lookup *resolve_pass(struct gw *gw, const char *name, uint16_t type,
                            void (*done)(void *arg, const uint8_t *msg, size_t len), void *arg)
{
    struct lookup *l = ask(gw->resolve, name, type);
    l->raw = done;
    l->arg = arg;
    return l;
}

/* c-ares can't drop a single query: it goes on, counted, with nobody waiting. */
void resolve_cancel(struct lookup *l)
{
    if (!l)
        return;
    *(l->prev ? &l->prev->next : &l->q->asked) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    l->q->r->n_lookups--;
    free(l);
}

int resolve_new(struct gw *gw, struct err **e)
{
    struct resolve *r = mem_zalloc(sizeof *r);
    r->gw = gw;
    r->timer.on = on_timer;
    int rc = ares_library_init(ARES_LIB_INIT_ALL);
    if (rc == ARES_SUCCESS) {
        if (stat("/etc/resolv.conf", &r->conf) < 0)
            r->conf = (struct stat){ 0 };
        rc = open_channel(r, &r->chan);
    }
    if (rc != ARES_SUCCESS) {
        free(r);
        return err_new(e, ERR_FAILED, "gateway: no resolver: %s", ares_strerror(rc));
    }
    gw->resolve = r;
    return 0;
}

void resolve_free(struct gw *gw)
{
    struct resolve *r = gw->resolve;
    if (!r)
        return;
    gw->resolve = NULL;
    r->closing = true;
    ares_destroy(r->chan);
    r->chan = NULL;
    loop_disarm(gw->loop, &r->timer);
    while (r->queries) {
        while (r->queries->asked)
            resolve_cancel(r->queries->asked);
        query_free(r->queries);
    }
    namecache_clear(&r->cache);
    free(r);
    ares_library_cleanup();
}
