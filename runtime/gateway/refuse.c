/* runtime/gateway/refuse.c - how a client hears that it may not: 403, a TLS alert, or a reset. */
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/conn_impl.h"

enum { READ_MS = 2000, DRAIN_MAX = 64 };

static void http_text(const struct conn *c, const struct gw_line *l, struct str *ret)
{
    AUTOSTR struct str body = STR_INIT;
    AUTOSTR struct str allow = STR_INIT;
    char addr[INET6_ADDRSTRLEN];
    addr_text(l->addr && l->addr->family ? l->addr : &c->addr, addr);
    str_addf(&body, "petri: %s port %u: %s (rule: %s)\n", l->name ? l->name : addr, l->port,
             l->why ? l->why : "denied", l->rule ? l->rule : "default");
    if (gw_allow_text(c->gw, l, &allow))
        str_addf(&body, "To allow it: petri net allow %s\n", allow.p);
    str_addf(ret,
             "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
             body.len, body.p);
}

/* What the client still sends is dropped, else the kernel's RST could overtake our answer. */
static void on_drain(struct source *s, uint32_t ev)
{
    struct conn *c = CONTAINER(s, struct conn, relay.in);
    for (int i = 0; i < DRAIN_MAX; i++) {
        ssize_t n = recv(s->fd, NULL, 1 << 20, MSG_TRUNC | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            break;
    }
    conn_free(c);
}

static void on_read(struct timer *t)
{
    conn_free(CONTAINER(t, struct conn, head));
}

void refuse(struct conn *c, const struct gw_line *line)
{
    static const char unrecognized_name[] = "\x15\x03\x03\x00\x02\x02\x70";
    static const char access_denied[] = "\x15\x03\x03\x00\x02\x02\x31";
    AUTOSTR struct str text = STR_INIT;
    struct source *s = &c->relay.in;

    if (c->speaks == SPEAKS_HTTP)
        http_text(c, line, &text);
    else if (c->speaks == SPEAKS_TLS)
        str_addn(&text, line->hint == GW_HINT_NAME ? unrecognized_name : access_denied, 7);
    c->state = CONN_REFUSED;
    if (!text.len ||
        send(s->fd, text.p, text.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)text.len ||
        shutdown(s->fd, SHUT_WR) < 0) {
        c->reset = true;
        conn_free(c);
        return;
    }
    s->on = on_drain;
    c->head.on = on_read;
    loop_arm(c->gw->loop, &c->head, READ_MS);
    /* set anew, so that what is there already makes an event */
    if (loop_set(c->gw->loop, s, EPOLLIN | EPOLLRDHUP) < 0)
        conn_free(c);
}
