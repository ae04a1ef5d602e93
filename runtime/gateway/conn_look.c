/* runtime/gateway/conn_look.c - what passes a relay under watch: each request of an HTTP connection, and the
 * first word where the server speaks first. */
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/conn_impl.h"

enum { HEAD_MS = 10000 };

/* A client that starts a request has to end it. */
static void on_slow(struct timer *t)
{
    struct conn *c = CONTAINER(t, struct conn, head);
    struct net_verdict v = { .rule = "default", .why = "no complete request in time" };
    conn_deny(c, c->name, &v, GW_HINT_NONE);
}

/* Nothing to look at: an end or an error is the relay's business. */
static int not_there(struct flow *f, ssize_t n)
{
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        f->readable = false;
        return 0;
    }
    f->may = 1;
    return 1;
}

static int wait_for_more(struct conn *c, struct flow *f)
{
    f->readable = false;
    if (!c->head.pos)
        loop_arm(c->gw->loop, &c->head, HEAD_MS);
    return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static int bad_request(struct conn *c, const char *name, const char *why)
{
    struct net_verdict v = { .rule = net_mode_word(c->gw->policy.mode), .why = why };
    conn_deny(c, name, &v, GW_HINT_NONE);
    return -1;
}

static int other_host(struct conn *c, const char *host)
{
    struct net_verdict v = net_judge_name(&c->gw->policy, host, c->port);
    bool deny = host[0] && !v.allow && !c->http->http.head.literal;
    if (!deny)
        v = (struct net_verdict){ .rule = net_mode_word(c->gw->policy.mode),
                                  .why = "a second host on one connection" };
    conn_deny(c, host[0] ? host : NULL, &v, deny ? GW_HINT_NAME : GW_HINT_NONE);
    return -1;
}

static int take_head(struct conn *c, struct flow *f, size_t used)
{
    struct http_watch *w = c->http;
    const struct http_head *h = &w->http.head;
    char host[NET_NAME_SIZE];

    inspect_host(h, host);
    if (h->connect)
        return bad_request(c, c->name, "CONNECT is refused");
    if (!w->first_seen)
        memcpy(w->host, host, sizeof(host));
    else if (strcmp(host, w->host) != 0)
        return other_host(c, host);
    if (h->upgrade != HTTP_UPGRADE_NONE) {
        if (w->first_seen)
            return bad_request(c, c->name, "upgrade of a connection that was used before");
        w->upgrade = h->upgrade;
        w->waits = true;
        c->relay.down.may = 0;
    }
    w->first_seen = true;
    w->answered = c->relay.down.bytes;
    f->may = used;
    return 1;
}

static int look_request(struct conn *c, struct flow *f)
{
    struct http_watch *w = c->http;
    uint64_t through = http_through(&w->http);
    const char *p;
    size_t used = 0;

    if (through) {
        f->may = through;
        http_passed(&w->http, through);
        return 1;
    }
    if (w->waits && http_idle(&w->http))
        return 0; /* until the server has answered; then the relay is kicked */
    ssize_t n = conn_peek(c->relay.in.fd, &p);
    if (n <= 0)
        return not_there(f, n);
    switch (http_next(&w->http, p, (size_t)n, &used)) {
    case HTTP_MORE:
        return wait_for_more(c, f);
    case HTTP_HEAD:
        loop_disarm(c->gw->loop, &c->head);
        return take_head(c, f, used);
    case HTTP_BODY:
        loop_disarm(c->gw->loop, &c->head);
        f->may = used;
        return 1;
    case HTTP_BAD:
        break;
    }
    c->gw->counts.malformed++;
    return bad_request(c, c->name, http_why(w->http.bad));
}

/* The answer to an upgrade: from here on either both sides speak something else, or it is HTTP as before. */
static int look_answer(struct conn *c, struct flow *f)
{
    struct http_watch *w = c->http;
    const char *p;
    ssize_t n = conn_peek(c->relay.out.fd, &p);
    if (n <= 0)
        return not_there(f, n);
    int switched = http_switched(p, (size_t)n);
    if (switched < 0) {
        f->readable = false;
        return 0;
    }
    if (switched && w->upgrade != HTTP_UPGRADE_WEBSOCKET)
        return bad_request(c, c->name, "upgrade to a protocol that can't be checked");
    w->waits = false;
    f->may = RELAY_ALL;
    if (switched) {
        loop_disarm(c->gw->loop, &c->head);
        c->relay.up.may = RELAY_ALL;
        free_p(&c->http);
    }
    relay_kick(&c->relay);
    return 1;
}

static int look(struct relay *r, struct flow *f);

void conn_look_http(struct conn *c)
{
    c->http = mem_zalloc(sizeof(*c->http));
    http_init(&c->http->http);
    c->head.on = on_slow;
    c->relay.look = look;
    c->relay.up.may = 0;
}

/* --- the server speaks first ------------------------------------------------------------------ */

static void both_may(struct conn *c)
{
    loop_disarm(c->gw->loop, &c->head);
    c->server_first = false;
    c->relay.up.may = c->relay.down.may = RELAY_ALL;
    relay_kick(&c->relay);
}

/* The client was first after all: then it names its server like all others, and it must be the one dialled. */
static int look_first(struct conn *c, struct flow *f)
{
    const char *p;
    ssize_t n = conn_peek(c->relay.in.fd, &p);
    if (n <= 0)
        return not_there(f, n);
    const char *fake = conn_fake(c);
    struct inspect_ask ask = { .policy = &c->gw->policy, .fake = fake, .addr = c->addr };
    struct inspect got;
    ask.port = c->port;
    ask.p = p;
    ask.n = (size_t)n;
    inspect(&ask, &got);
    if (got.what == INSPECT_MORE)
        return wait_for_more(c, f);
    c->speaks = got.speaks;
    c->gw->counts.malformed += got.malformed;
    if (got.what == INSPECT_DENY) {
        conn_deny(c, got.name, &got.verdict, got.hint);
        return -1;
    }
    if (c->gw->policy.mode == NET_ALLOWLIST && got.name[0] && !str_eq(got.name, c->name))
        return bad_request(c, got.name, "another server than the one connected to");
    both_may(c);
    if (got.speaks == SPEAKS_HTTP)
        conn_look_http(c);
    return 1;
}

static int look_server(struct conn *c, struct flow *f)
{
    const char *p;
    ssize_t n = conn_peek(c->relay.out.fd, &p);
    if (n <= 0)
        return not_there(f, n);
    c->speaks = SPEAKS_OTHER;
    both_may(c);
    return 1;
}

void conn_look_first(struct conn *c)
{
    c->server_first = true;
    c->head.on = on_slow;
    c->relay.look = look;
    c->relay.up.may = c->relay.down.may = 0;
}

static int look(struct relay *r, struct flow *f)
{
    struct conn *c = CONTAINER(r, struct conn, relay);
    if (c->server_first)
        return f == &r->up ? look_first(c, f) : look_server(c, f);
    return f == &r->up ? look_request(c, f) : look_answer(c, f);
}
