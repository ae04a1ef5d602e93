#include "runtime/gateway/udp.h"

#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/gw.h"
#include "runtime/gateway/hostaddr.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/resolve.h"
#include "runtime/gateway/udpwire.h"

enum { BUCKETS = 1024, BATCH = 64 };

enum flow_state {
    RESOLVING, /* datagrams are held */
    OPEN,
    SHUT, /* refused, or nowhere to go: each datagram is answered by ICMP, one line was logged */
};

struct held {
    size_t n;
    char p[];
};

struct uflow {
    struct udp *u;
    struct uflow *chain;         /* of its bucket */
    struct uflow *older, *newer; /* by the last datagram */
    struct udpwire wire;
    enum flow_state state;
    uint64_t last;
    struct source src; /* in the host's network */
    struct lookup *look;
    char *name;           /* behind a fake address; NULL: none */
    struct net_addr addr; /* of the destination */
    char *rule;           /* by which it was allowed */
    uint64_t in, out;
    struct held *held[UDP_HELD];
    unsigned n_held;
};

struct udp {
    struct gw *gw;
    struct source tproxy;
    int raw;
    struct uflow *buckets[BUCKETS];
    struct uflow *oldest, *newest;
    unsigned n;
    struct timer idle;
    char buf[UDPWIRE_MAX + 1]; /* of one datagram */
};

/* --- the table ------------------------------------------------------------------------------- */

static struct uflow **bucket(struct udp *u, const struct udpwire *w)
{
    uint64_t h = ((uint64_t)w->src << 32 | w->dst) ^ ((uint64_t)w->sport << 16 | w->dport) << 20;
    h *= 0x9e3779b97f4a7c15u;
    return &u->buckets[h >> 54];
}

static bool same(const struct udpwire *a, const struct udpwire *b)
{
    return a->src == b->src && a->dst == b->dst && a->sport == b->sport && a->dport == b->dport;
}

static void unlink_age(struct uflow *f)
{
    *(f->older ? &f->older->newer : &f->u->oldest) = f->newer;
    *(f->newer ? &f->newer->older : &f->u->newest) = f->older;
}

static void link_newest(struct uflow *f)
{
    struct udp *u = f->u;
    f->newer = NULL;
    f->older = u->newest;
    *(u->newest ? &u->newest->newer : &u->oldest) = f;
    u->newest = f;
    f->last = loop_now(u->gw->loop);
}

static void touch(struct uflow *f)
{
    unlink_age(f);
    link_newest(f);
}

static void drop_held(struct uflow *f)
{
    for (unsigned i = 0; i < f->n_held; i++)
        free_p(&f->held[i]);
    f->n_held = 0;
}

static void flow_free(struct uflow *f)
{
    struct udp *u = f->u;
    if (f->state == OPEN)
        gw_log(u->gw, &(struct gw_line){ .allow = true,
                                         .proto = "udp",
                                         .name = f->name,
                                         .addr = &f->addr,
                                         .port = f->wire.dport,
                                         .in = f->in,
                                         .out = f->out,
                                         .rule = f->rule });
    struct uflow **at = bucket(u, &f->wire);
    while (*at != f)
        at = &(*at)->chain;
    *at = f->chain;
    unlink_age(f);
    u->n--;
    resolve_cancel(f->look);
    loop_del(u->gw->loop, &f->src);
    close_p(&f->src.fd);
    drop_held(f);
    if (f->name)
        fakeip_unpin(u->gw->names, f->wire.dst);
    limits_leave(u->gw);
    free(f->name);
    free(f->rule);
    free(f);
}

static void arm_idle(struct udp *u)
{
    uint64_t now = loop_now(u->gw->loop), at = u->oldest ? u->oldest->last + UDP_IDLE_MS : 0;
    if (u->oldest)
        loop_arm(u->gw->loop, &u->idle, at > now ? at - now : 0);
    else
        loop_disarm(u->gw->loop, &u->idle);
}

static void on_idle(struct timer *t)
{
    struct udp *u = CONTAINER(t, struct udp, idle);
    while (u->oldest && u->oldest->last + UDP_IDLE_MS <= loop_now(u->gw->loop))
        flow_free(u->oldest);
    arm_idle(u);
}

/* --- a flow ---------------------------------------------------------------------------------- */

static void shut(struct uflow *f)
{
    loop_del(f->u->gw->loop, &f->src);
    close_p(&f->src.fd);
    if (f->n_held) /* of what comes now serve() tells */
        udpwire_refuse(f->u->raw, &f->wire);
    drop_held(f);
    f->state = SHUT;
}

static void deny(struct uflow *f, const struct net_addr *addr, struct net_verdict v,
                 enum gw_hint hint)
{
    gw_log(f->u->gw, &(struct gw_line){ .proto = "udp",
                                        .name = f->name,
                                        .addr = addr,
                                        .port = f->wire.dport,
                                        .rule = v.rule,
                                        .why = v.why,
                                        .hint = hint });
    shut(f);
}

static void pass(struct uflow *f, const void *p, size_t n)
{
    struct gw *gw = f->u->gw;
    if (!limits_packet(gw, n, false))
        return;
    ssize_t sent = RETRY(send(f->src.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL));
    if (sent >= 0)
        f->out += sent;
    else if (errno == ECONNREFUSED) /* of an earlier one */
        udpwire_refuse(f->u->raw, &f->wire);
}

static void on_answer(struct source *src, uint32_t events)
{
    struct uflow *f = CONTAINER(src, struct uflow, src);
    struct udp *u = f->u;
    for (int i = 0; i < BATCH; i++) {
        ssize_t n = RETRY(recv(src->fd, u->buf, sizeof u->buf, MSG_DONTWAIT));
        if (n < 0) {
            if (errno != EAGAIN)
                udpwire_refuse(u->raw, &f->wire);
            break;
        }
        if (limits_packet(u->gw, n, true) && udpwire_answer(u->raw, &f->wire, u->buf, n))
            f->in += n;
    }
    touch(f);
}

/* The sockaddr made here is of the address that was judged just before. */
static int open_socket(struct uflow *f, const struct net_addr *a)
{
    struct sockaddr_storage sa;
    socklen_t len = addr_to_sockaddr(a, f->wire.dport, &sa);
    AUTOCLOSE int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&sa, len) < 0)
        return -1;
    f->src.fd = fd;
    if (loop_set(f->u->gw->loop, &f->src, EPOLLIN) < 0) {
        f->src.fd = -1;
        return -1;
    }
    TAKE_FD(fd);
    return 0;
}

/* The first of these that the policy allows and the host can send to. */
static void open_flow(struct uflow *f, const struct net_addr *v, size_t n)
{
    struct gw *gw = f->u->gw;
    struct net_verdict first = { 0 };
    const struct net_addr *bad = NULL;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        struct net_verdict verdict =
            net_judge_addr(&gw->policy, &v[i], hostaddr_local(gw, &v[i]), f->wire.dport, f->name);
        if (!verdict.allow) {
            first = bad ? first : verdict;
            bad = bad ? bad : &v[i];
            continue;
        }
        any = true;
        if (open_socket(f, &v[i]) < 0)
            continue;
        f->state = OPEN;
        f->addr = v[i];
        f->rule = str_dup(verdict.rule);
        for (unsigned h = 0; h < f->n_held; h++)
            pass(f, f->held[h]->p, f->held[h]->n);
        drop_held(f);
        return;
    }
    if (bad && !any)
        deny(f, bad, first, GW_HINT_ADDR);
    else
        shut(f);
}

static void on_name(void *arg, const struct resolve_result *r)
{
    struct uflow *f = arg;
    struct net_verdict v = net_judge_name(&f->u->gw->policy, f->name, f->wire.dport);
    f->look = NULL;
    if (v.allow)
        open_flow(f, r->v, r->n);
    else /* the policy changed meanwhile */
        deny(f, NULL, v, GW_HINT_NAME);
}

/* Judged as a name first, where the address stands for one. */
static void begin(struct uflow *f)
{
    struct gw *gw = f->u->gw;
    uint8_t b[4] = { f->wire.dst >> 24, f->wire.dst >> 16, f->wire.dst >> 8, f->wire.dst };
    struct net_addr a = addr_make(AF_INET, b);
    if (!fakeip_range(f->wire.dst)) {
        open_flow(f, &a, 1);
        return;
    }
    const char *name = fakeip_name(gw->names, f->wire.dst);
    if (!name || !fakeip_pin(gw->names, f->wire.dst)) {
        struct net_verdict v = { .rule = "default", .why = "an address that stands for no name" };
        deny(f, &a, v, GW_HINT_NONE);
        return;
    }
    f->name = str_dup(name);
    struct net_verdict v = net_judge_name(&gw->policy, f->name, f->wire.dport);
    if (!v.allow)
        deny(f, NULL, v, GW_HINT_NAME);
    else
        f->look = resolve_name(gw, f->name, on_name, f);
}

static void serve(struct uflow *f, const void *p, size_t n)
{
    touch(f);
    if (f->state == OPEN) {
        pass(f, p, n);
    } else if (f->state == SHUT) {
        udpwire_refuse(f->u->raw, &f->wire);
    } else if (f->n_held < UDP_HELD) {
        struct held *h = mem_zalloc(sizeof *h + n);
        h->n = n;
        memcpy(h->p, p, n);
        f->held[f->n_held++] = h;
    }
}

static struct uflow *flow_for(struct udp *u, const struct udpwire *w)
{
    struct uflow **at = bucket(u, w);
    for (struct uflow *f = *at; f; f = f->chain)
        if (same(&f->wire, w))
            return f;
    if (u->n >= UDP_FLOWS)
        flow_free(u->oldest);
    if (!limits_enter(u->gw))
        return NULL;
    struct uflow *f = mem_zalloc(sizeof *f);
    *f = (struct uflow){ .u = u, .wire = *w, .chain = *at };
    f->src = (struct source){ .fd = -1, .on = on_answer };
    *at = f;
    u->n++;
    link_newest(f);
    begin(f);
    return f;
}

static void on_datagram(struct source *src, uint32_t events)
{
    struct udp *u = CONTAINER(src, struct udp, tproxy);
    for (int i = 0; i < BATCH; i++) {
        struct udpwire w;
        ssize_t n = udpwire_recv(src->fd, u->buf, sizeof u->buf, &w);
        if (n < 0 && errno == EPROTO)
            continue;
        if (n < 0)
            break;
        struct uflow *f = flow_for(u, &w);
        if (f)
            serve(f, u->buf, n);
    }
    arm_idle(u);
}

/* --- the door -------------------------------------------------------------------------------- */

int udp_new(struct gw *gw, struct err **e)
{
    return 0; /* made where a policy needs it */
}

void udp_free(struct gw *gw)
{
    struct udp *u = gw->udp;
    if (!u)
        return;
    while (u->oldest)
        flow_free(u->oldest);
    loop_disarm(gw->loop, &u->idle);
    loop_del(gw->loop, &u->tproxy);
    close_p(&u->tproxy.fd);
    close_p(&u->raw);
    free_p(&gw->udp);
}

void udp_attach(struct gw *gw, int tproxy, int raw)
{
    udp_free(gw);
    if (tproxy < 0 || raw < 0) {
        close_p(&tproxy);
        close_p(&raw);
        return;
    }
    struct udp *u = gw->udp = mem_zalloc(sizeof *u);
    u->gw = gw;
    u->tproxy = (struct source){ .fd = tproxy, .on = on_datagram };
    u->raw = raw;
    u->idle.on = on_idle;
    if (loop_set(gw->loop, &u->tproxy, EPOLLIN) < 0)
        udp_free(gw);
}

void udp_policy(struct gw *gw)
{
    struct udp *u = gw->udp;
    for (struct uflow *f = u ? u->oldest : NULL, *next; f; f = next) {
        next = f->newer;
        bool ok = f->state == OPEN &&
                  (!f->name || net_judge_name(&gw->policy, f->name, f->wire.dport).allow) &&
                  net_judge_addr(&gw->policy, &f->addr, hostaddr_local(gw, &f->addr), f->wire.dport,
                                 f->name)
                      .allow;
        if (!ok && f->state != RESOLVING)
            flow_free(f); /* what was refused is judged anew as well */
    }
}
