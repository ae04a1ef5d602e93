#include "runtime/gateway/conn_impl.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/fakeip.h"

enum {
    BATCH = 256, /* accepted before others get their turn */
    HEAD_MS = 10000,
    QUIET_MS = 300,
    CROWD_MS = 1000, /* between two lines about too many connections */
};

struct conns {
    struct conn *all;
    struct conn *dead; /* freed when nobody can be inside any more */
    struct task bury;
    uint64_t crowd;
};

/* --- life ------------------------------------------------------------------------------------ */

static void on_bury(struct task *t)
{
    struct conns *s = CONTAINER(t, struct conns, bury);
    while (s->dead) {
        struct conn *c = s->dead;
        s->dead = c->next;
        free(c);
    }
}

int conns_new(struct gw *gw, struct err **e)
{
    gw->conns = mem_zalloc(sizeof(*gw->conns));
    gw->conns->bury.on = on_bury;
    return 0;
}

void conns_drop(struct gw *gw)
{
    while (gw->conns->all) {
        gw->conns->all->reset = true;
        conn_free(gw->conns->all);
    }
}

void conns_free(struct gw *gw)
{
    if (!gw->conns)
        return;
    conns_drop(gw);
    loop_forget(gw->loop, &gw->conns->bury);
    on_bury(&gw->conns->bury);
    free_p(&gw->conns);
}

const char *conn_fake(const struct conn *c)
{
    return c->fake ? fakeip_name(c->gw->names, c->fake) : NULL;
}

/* An allowed one leaves its line when it ends. */
static void log_end(struct conn *c, const char *why)
{
    if (!c->rule)
        return;
    struct gw_line l = { .allow = true, .proto = "tcp", .name = c->name, .addr = &c->dialled };
    l.port = c->port;
    l.rule = c->rule;
    l.why = why;
    l.in = c->relay.down.bytes;
    l.out = c->relay.up.bytes;
    gw_log(c->gw, &l);
    free_p(&c->rule);
}

void conn_free(struct conn *c)
{
    struct gw *gw = c->gw;
    struct conns *s = gw->conns;

    log_end(c, NULL);
    dial_cancel(TAKE_PTR(c->dial));
    loop_disarm(gw->loop, &c->head);
    if (c->reset)
        relay_reset(&c->relay);
    else
        relay_stop(&c->relay);
    if (c->reset)
        relay_linger(c->relay.in.fd);
    loop_close(gw->loop, &c->relay.in);
    if (c->fake)
        fakeip_unpin(gw->names, c->fake);
    free_p(&c->name);
    free_p(&c->http);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->all = c->next;
    if (c->next)
        c->next->prev = c->prev;
    limits_leave(gw);
    c->next = s->dead;
    s->dead = c;
    loop_later(gw->loop, &s->bury);
}

ssize_t conn_peek(int fd, const char **ret)
{
    static char buf[PEEK_MAX];
    *ret = buf;
    return recv(fd, buf, sizeof(buf), MSG_PEEK | MSG_DONTWAIT);
}

/* --- refusals -------------------------------------------------------------------------------- */

/* Can something be said between what the server said? Only where an answer of its own is complete, as far as
 * can be told. */
static bool can_speak(const struct conn *c)
{
    const struct flow *down = &c->relay.down;
    if (c->state != CONN_RELAY)
        return true;
    if (down->held || down->shut)
        return false;
    if (c->http)
        return !c->http->first_seen || down->bytes > c->http->answered;
    return down->bytes == 0;
}

void conn_deny(struct conn *c, const char *name, const struct net_verdict *v, enum gw_hint hint)
{
    struct gw_line l = { .proto = "tcp", .port = c->port, .rule = v->rule, .why = v->why };
    l.name = name && *name ? name : conn_fake(c);
    l.addr = c->dialled.family ? &c->dialled : c->fake ? NULL : &c->addr;
    if (!l.name && !l.addr)
        l.addr = &c->addr;
    l.hint = hint;
    log_end(c, NULL);
    gw_log(c->gw, &l);

    dial_cancel(TAKE_PTR(c->dial));
    loop_disarm(c->gw->loop, &c->head);
    bool speak = can_speak(c);
    if (!speak)
        c->speaks = SPEAKS_OTHER;
    if (c->state == CONN_RELAY && speak)
        c->relay.in.fd = relay_take_in(&c->relay);
    refuse(c, &l);
}

static void deny_why(struct conn *c, const char *rule, const char *why)
{
    struct net_verdict v = { .rule = rule, .why = why };
    conn_deny(c, NULL, &v, GW_HINT_NONE);
}

/* --- to the world ---------------------------------------------------------------------------- */

static void on_relayed(struct relay *r, int error)
{
    conn_free(CONTAINER(r, struct conn, relay));
}

static void dial_failed(struct conn *c, const struct dial_result *r)
{
    c->dialled = r->addr;
    if (r->error == EACCES) {
        free_p(&c->rule);
        conn_deny(c, c->name, &r->verdict, GW_HINT_ADDR);
        return;
    }
    if (!c->rule)
        c->rule = str_dup(r->verdict.rule ? r->verdict.rule : "default");
    log_end(c, r->why ? r->why : strerror(r->error));
    c->reset = true;
    conn_free(c);
}

static void on_dialled(void *arg, int fd, const struct dial_result *r)
{
    struct conn *c = arg;
    bool first = c->server_first;
    c->dial = NULL;
    if (fd < 0) {
        dial_failed(c, r);
        return;
    }
    c->dialled = r->addr;
    if (!c->rule)
        c->rule = str_dup(r->verdict.rule ? r->verdict.rule : "default");
    c->state = CONN_RELAY;
    relay_start(&c->relay, c->gw, c->relay.in.fd, fd, on_relayed);
    if (first)
        conn_look_first(c);
    else if (c->speaks == SPEAKS_HTTP)
        conn_look_http(c);
}

/* A client that gives up frees what was begun for it. */
static void on_wait(struct source *s, uint32_t ev)
{
    if (ev & (EPOLLERR | EPOLLHUP))
        conn_free(CONTAINER(s, struct conn, relay.in));
}

/* `rule`: the one that allows the name; of an address dial.c finds it. */
static void start_dial(struct conn *c, const char *name, const char *rule)
{
    struct dial_req req = { .gw = c->gw, .addr = c->addr, .port = c->port };
    loop_disarm(c->gw->loop, &c->head);
    c->state = CONN_DIAL;
    c->relay.in.on = on_wait;
    if (name && *name) {
        c->name = str_dup(name);
        c->rule = str_dup(rule);
    }
    req.name = c->name;
    req.done = on_dialled;
    req.arg = c;
    c->dial = dial_start(&req);
}

/* --- first bytes ----------------------------------------------------------------------------- */

static void look_at_head(struct conn *c)
{
    const char *p = NULL;
    struct inspect got;
    ssize_t n = conn_peek(c->relay.in.fd, &p);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        conn_free(c); /* gone before it said what it wanted */
        return;
    }
    struct inspect_ask ask = {
        .policy = &c->gw->policy, .fake = conn_fake(c), .addr = c->addr, .port = c->port, .p = p
    };
    ask.n = n > 0 ? (size_t)n : 0;
    ask.quiet = c->hushed;
    inspect(&ask, &got);
    c->speaks = got.speaks;
    c->gw->counts.malformed += got.malformed;
    if (got.what == INSPECT_DENY) {
        conn_deny(c, got.name, &got.verdict, got.hint);
    } else if (got.what == INSPECT_PASS) {
        c->server_first = got.speaks == SPEAKS_NOTHING;
        start_dial(c, got.name, got.verdict.rule);
    } else if (c->ended) {
        c->gw->counts.malformed++; /* half of something, and no more will come */
        conn_free(c);
    }
}

static void on_head(struct source *s, uint32_t ev)
{
    struct conn *c = CONTAINER(s, struct conn, relay.in);
    c->ended |= (ev & (EPOLLRDHUP | EPOLLHUP)) != 0;
    look_at_head(c);
}

static void on_head_late(struct timer *t)
{
    struct conn *c = CONTAINER(t, struct conn, head);
    if (c->hushed) {
        deny_why(c, "default", "said nothing in time");
        return;
    }
    c->hushed = true;
    loop_arm(c->gw->loop, &c->head, HEAD_MS - QUIET_MS);
    look_at_head(c);
}

static void wait_for_head(struct conn *c)
{
    bool web = c->port == 80 || c->port == 443;
    c->relay.in.on = on_head;
    c->head.on = on_head_late;
    c->hushed = web; /* there the client speaks first */
    loop_arm(c->gw->loop, &c->head, web ? HEAD_MS : QUIET_MS);
}

/* --- accept ---------------------------------------------------------------------------------- */

static uint32_t v4(const struct net_addr *a)
{
    uint32_t n;
    memcpy(&n, a->b, sizeof(n));
    return ntohl(n);
}

/* By what it was connected to. */
static void begin(struct conn *c)
{
    const struct net_policy *p = &c->gw->policy;
    const char *fake = conn_fake(c);
    if (limits_spent(c->gw)) {
        deny_why(c, "bytes", "byte limit reached");
    } else if (!fake && c->addr.family == AF_INET && fakeip_range(v4(&c->addr))) {
        deny_why(c, "default", "an address that no name has");
    } else if (inspect_needed(p, fake, &c->addr, c->port)) {
        wait_for_head(c);
    } else if (fake) {
        struct net_verdict v = net_judge_name(p, fake, c->port);
        if (v.allow)
            start_dial(c, fake, v.rule);
        else
            conn_deny(c, fake, &v, GW_HINT_NAME);
    } else {
        start_dial(c, NULL, NULL);
    }
}

static void welcome(struct gw *gw, int fd)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct conns *s = gw->conns;
    struct conn *c = mem_zalloc(sizeof(*c));

    c->gw = gw;
    c->relay.gw = gw;
    c->relay.in = (struct source){ .fd = fd, .on = on_wait };
    c->next = s->all;
    if (c->next)
        c->next->prev = c;
    s->all = c;
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0 ||
        addr_from_sockaddr((struct sockaddr *)&sa, &c->addr, &c->port) < 0 ||
        loop_set(gw->loop, &c->relay.in, RELAY_EVENTS) < 0) {
        c->reset = true;
        conn_free(c);
        return;
    }
    if (c->addr.family == AF_INET && fakeip_pin(gw->names, v4(&c->addr)))
        c->fake = v4(&c->addr);
    begin(c);
}

static void too_many(struct gw *gw, int fd)
{
    uint64_t now = loop_now(gw->loop);
    struct gw_line l = { .proto = "tcp", .rule = "connections", .why = "too many connections" };
    relay_reset_fd(&fd);
    if (gw->conns->crowd && now - gw->conns->crowd < CROWD_MS) {
        gw->counts.denied++;
        return;
    }
    gw->conns->crowd = now;
    gw_log(gw, &l);
}

bool conns_accept(struct gw *gw, int listener)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        if (limits_enter(gw))
            welcome(gw, fd);
        else
            too_many(gw, fd);
    }
    return true;
}

/* --- another policy -------------------------------------------------------------------------- */

static struct net_verdict judge_again(const struct conn *c)
{
    const struct net_policy *p = &c->gw->policy;
    struct net_verdict v = { .allow = true };
    if (c->state != CONN_DIAL && c->state != CONN_RELAY)
        return v;
    if (c->name)
        v = net_judge_name(p, c->name, c->port);
    if (v.allow && c->dialled.family)
        v = net_judge_addr(p, &c->dialled, false, c->port, c->name != NULL);
    return v;
}

void conns_policy(struct gw *gw)
{
    for (struct conn *c = gw->conns->all, *next; c; c = next) {
        next = c->next;
        struct net_verdict v = judge_again(c);
        if (!v.allow) {
            c->speaks = SPEAKS_OTHER;
            conn_deny(c, c->name, &v, c->name ? GW_HINT_NAME : GW_HINT_ADDR);
        }
    }
}
