#include "runtime/gateway/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"
#include "runtime/gateway/conn.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/publish.h"
#include "runtime/gateway/serve_dns.h"
#include "runtime/gateway/udp.h"
#include "runtime/gateway/walls.h"

enum { PACKET_MAX = 64 << 10, FDS_MAX = 64, BATCH = 16, HELD = 32, HELD_MS = 20 };

struct control {
    struct gw *gw;
    struct source src;
    bool pong_due;
    uint64_t pong;
    /* Lines about connections that ended well: in no hurry, and each packet wakes the keeper. */
    struct str held[HELD];
    unsigned n_held;
    struct timer late;
};

/* --- out ------------------------------------------------------------------------------------- */

static void send_held(struct control *c)
{
    struct mmsghdr m[HELD] = { 0 };
    struct iovec v[HELD];
    int sent = 0;

    for (unsigned i = 0; i < c->n_held; i++) {
        v[i] = (struct iovec){ c->held[i].p, c->held[i].len };
        m[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i], .msg_iovlen = 1 };
    }
    if (c->n_held)
        sent = sendmmsg(c->src.fd, m, c->n_held, MSG_DONTWAIT | MSG_NOSIGNAL);
    c->gw->counts.lost += c->n_held - (sent > 0 ? (unsigned)sent : 0);
    while (c->n_held)
        str_reset(&c->held[--c->n_held]);
    loop_disarm(c->gw->loop, &c->late);
}

static void on_late(struct timer *t)
{
    send_held(CONTAINER(t, struct control, late));
}

static void hold(struct control *c, struct jsonw *w)
{
    if (c->n_held == HELD)
        send_held(c);
    if (!c->n_held)
        loop_arm(c->gw->loop, &c->late, HELD_MS);
    c->held[c->n_held++] = w->out;
    w->out = (struct str)STR_INIT;
}

/* Never before what was held. */
static int send_json(struct control *c, const struct jsonw *w)
{
    send_held(c);
    return send(c->src.fd, w->out.p, w->out.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static void pong(struct control *c)
{
    AUTOJSONW struct jsonw w = { 0 };
    const struct gw_counts *n = &c->gw->counts;
    send_held(c);
    jw_obj(&w, NULL);
    jw_str(&w, "type", "pong");
    jw_u64(&w, "n", c->pong);
    jw_u64(&w, "open", limits_open(c->gw));
    jw_u64(&w, "allowed", n->allowed);
    jw_u64(&w, "denied", n->denied);
    jw_u64(&w, "bytes_in", n->bytes_in);
    jw_u64(&w, "bytes_out", n->bytes_out);
    jw_u64(&w, "malformed", n->malformed);
    jw_u64(&w, "lost", n->lost);
    jw_end_obj(&w);
    c->pong_due = send_json(c, &w) < 0 && errno == EAGAIN;
    loop_set(c->gw->loop, &c->src, EPOLLIN | (c->pong_due ? EPOLLOUT : 0));
}

static bool denied_by_rule(const struct gw *gw, const char *rule)
{
    for (size_t i = 0; rule && i < gw->policy.deny.n; i++)
        if (strcmp(gw->policy.deny.v[i].text, rule) == 0)
            return true;
    return false;
}

bool gw_allow_text(const struct gw *gw, const struct gw_line *l, struct str *ret)
{
    char addr[INET6_ADDRSTRLEN];
    const char *what = l->name;
    bool six = false;
    if (l->hint == GW_HINT_NONE || gw->policy.mode == NET_NONE || denied_by_rule(gw, l->rule))
        return false; /* deny beats allow */
    if (l->hint == GW_HINT_ADDR) {
        if (!l->addr || !l->addr->family)
            return false;
        addr_text(l->addr, addr);
        six = l->addr->family == AF_INET6;
        what = addr;
    }
    if (!what)
        return false;
    if (!l->port || net_own_port(&gw->policy, l->port))
        str_add(ret, what);
    else
        str_addf(ret, six ? "[%s]:%u" : "%s:%u", what, l->port);
    return true;
}

void gw_log(struct gw *gw, const struct gw_line *l)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOSTR struct str allow = STR_INIT;
    char addr[INET6_ADDRSTRLEN];
    if (l->allow)
        gw->counts.allowed++;
    else
        gw->counts.denied++;
    if (!gw->control)
        return;
    jw_obj(&w, NULL);
    jw_str(&w, "type", "log");
    jw_str(&w, "verdict", l->allow ? "allow" : "deny");
    jw_str(&w, "proto", l->proto);
    if (l->name)
        jw_str(&w, "name", l->name);
    if (l->addr && l->addr->family) {
        addr_text(l->addr, addr);
        jw_str(&w, "addr", addr);
    }
    if (l->port)
        jw_u64(&w, "port", l->port);
    jw_u64(&w, "in", l->in);
    jw_u64(&w, "out", l->out);
    if (l->rule)
        jw_str(&w, "rule", l->rule);
    if (l->why)
        jw_str(&w, "why", l->why);
    if (!l->allow && gw_allow_text(gw, l, &allow))
        jw_str(&w, "allow", allow.p);
    jw_end_obj(&w);
    if (l->allow)
        hold(gw->control, &w);
    else if (send_json(gw->control, &w) < 0)
        gw->counts.lost++;
}

void gw_fail(struct gw *gw, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (gw->control) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_obj(&w, NULL);
        jw_str(&w, "type", "failed");
        jw_str(&w, "why", text);
        jw_end_obj(&w);
        send_json(gw->control, &w);
    }
    _exit(1);
}

/* --- in -------------------------------------------------------------------------------------- */

static void take_policy(struct gw *gw, const struct json *j)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    struct net_policy p = { 0 };
    uint64_t used;
    if (net_policy_from_json(json_get(j, "policy"), &p, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        gw_fail(gw, "the keeper's policy: %s", text);
    }
    net_policy_free_p(&gw->policy);
    gw->policy = p;
    if (!gw->have_policy && json_u64(j, "used", &used))
        limits_used(gw, used);
    gw->have_policy = true;
    limits_policy(gw);
    serve_dns_policy(gw);
    conns_policy(gw);
    udp_policy(gw);
    walls_listen(gw);
}

static void take_publish(struct gw *gw, const struct json *j, int *fds, size_t n_fds)
{
    const struct json *ports = json_arr(j, "ports");
    struct net_publish v[FDS_MAX] = { 0 };
    if (!ports || ports->n != n_fds)
        gw_fail(gw, "the keeper's ports: not as many sockets as ports");
    for (size_t i = 0; i < n_fds; i++) {
        const char *host = json_str(ports->items[i], "host");
        uint64_t outside = 0, inside = 0;
        json_u64(ports->items[i], "host_port", &outside);
        if (!host || addr_parse(host, &v[i].host) < 0 ||
            !json_u64(ports->items[i], "port", &inside) || inside - 1 > 65534 || outside > 65535)
            gw_fail(gw, "the keeper's ports: the one at place %zu can't be read", i);
        v[i].host_port = (uint16_t)outside;
        v[i].port = (uint16_t)inside;
    }
    publish_set(gw, v, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = -1;
}

static void take(struct control *c, const char *p, size_t n, int *fds, size_t n_fds)
{
    AUTOJSON struct json *j = NULL;
    struct gw *gw = c->gw;
    if (json_parse(p, n, &j, NULL) < 0 || !json_str(j, "type"))
        gw_fail(gw, "the keeper's packet of %zu bytes can't be read", n);
    const char *type = json_str(j, "type");
    if (strcmp(type, "policy") == 0) {
        take_policy(gw, j);
    } else if (strcmp(type, "walls") == 0) {
        if (n_fds != 1 || !gw->have_policy)
            gw_fail(gw, "walls without %s", n_fds == 1 ? "a policy" : "a socket");
        walls_attach(gw, TAKE_FD(fds[0]));
    } else if (strcmp(type, "publish") == 0) {
        take_publish(gw, j, fds, n_fds);
    } else if (strcmp(type, "ping") == 0) {
        json_u64(j, "n", &c->pong);
        pong(c);
    }
}

/* One packet; false: there is none. */
static bool read_one(struct control *c)
{
    static char buf[PACKET_MAX];
    union {
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } u;
    struct iovec iov = { buf, sizeof(buf) };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room };
    int fds[FDS_MAX];
    size_t n_fds = 0;

    m.msg_controllen = sizeof(u.room);
    ssize_t n = recvmsg(c->src.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) { /* the keeper is gone */
        loop_stop(c->gw->loop);
        return false;
    }
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            n_fds = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds, CMSG_DATA(h), n_fds * sizeof(int));
        }
    if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        gw_fail(c->gw, "the keeper's packet is too large");
    take(c, buf, (size_t)n, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        close_p(&fds[i]);
    return true;
}

static void on_control(struct source *s, uint32_t ev)
{
    struct control *c = CONTAINER(s, struct control, src);
    if (c->pong_due && (ev & EPOLLOUT))
        pong(c);
    if (ev & (EPOLLIN | EPOLLHUP | EPOLLERR))
        for (int i = 0; i < BATCH && read_one(c); i++)
            ;
}

int control_new(struct gw *gw, int fd, struct err **e)
{
    struct control *c = mem_zalloc(sizeof(*c));
    c->gw = gw;
    c->src = (struct source){ .fd = fd, .on = on_control };
    c->late.on = on_late;
    gw->control = c;
    if (loop_set(gw->loop, &c->src, EPOLLIN) < 0)
        return err_sys(e, "watch the keeper's socket");
    return 0;
}

void control_free(struct gw *gw)
{
    if (!gw->control)
        return;
    send_held(gw->control);
    loop_del(gw->loop, &gw->control->src);
    close_p(&gw->control->src.fd);
    free_p(&gw->control);
}
