#include "runtime/gateway/serve_dns.h"

#include <ctype.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/recent.h"
#include "runtime/gateway/resolve.h"

enum {
    BATCH = 64,
    PASSES = 64, /* questions that wait for the host's resolver */
    TTL = 60,
    PACKET_MAX = 4096,
    EDNS_MAX = 1232,
};

/* A question over UDP that was passed on. */
struct pass {
    struct serve_dns *s;
    struct pass *prev, *next;
    struct lookup *look;
    int fd;
    struct sockaddr_in peer;
    struct in_addr to;
    struct dns_query q;
};

struct serve_dns {
    struct gw *gw;
    uint16_t *ports; /* on which anything can be reached */
    size_t n_ports;
    struct recent denied;
    struct pass *passes;
    unsigned n_passes;
    struct dns_tcp *tcp;
    unsigned n_tcp;
};

struct dns_tcp **serve_dns_tcp(struct gw *gw)
{
    return &gw->dns->tcp;
}

unsigned *serve_dns_tcp_count(struct gw *gw)
{
    return &gw->dns->n_tcp;
}

/* --- one question ---------------------------------------------------------------------------- */

/* Allowed on any port that there is: on which one is asked at the connection. */
static bool name_allowed(struct gw *gw, const char *name)
{
    const struct serve_dns *s = gw->dns;
    if (gw->policy.mode == NET_FULL)
        return net_judge_name(&gw->policy, name, 443).allow;
    for (size_t i = 0; i < s->n_ports; i++)
        if (net_judge_name(&gw->policy, name, s->ports[i]).allow)
            return true;
    return false;
}

static void log_denied(struct gw *gw, const char *name)
{
    uint64_t key = recent_hash(name, strlen(name));
    if (recent_said(&gw->dns->denied, key, loop_now(gw->loop))) {
        gw->counts.denied++;
        return;
    }
    struct net_verdict v =
        net_judge_name(&gw->policy, name, gw->dns->n_ports ? gw->dns->ports[0] : 443);
    struct gw_line l = { .proto = "dns", .name = name, .rule = v.rule, .why = v.why };
    l.hint = GW_HINT_NAME;
    gw_log(gw, &l);
}

static size_t answer_ptr(struct gw *gw, const struct dns_query *q, uint8_t out[DNS_ANSWER_MAX])
{
    uint32_t addr;
    if (dns_reverse(q->name, &addr) && fakeip_range(addr)) {
        const char *name = fakeip_name(gw->names, addr);
        return name ? dns_answer_ptr(q, name, TTL, out) : dns_answer(q, DNS_NXDOMAIN, out);
    }
    return gw->policy.mode == NET_FULL ? SERVE_DNS_PASS : dns_answer(q, DNS_NXDOMAIN, out);
}

size_t serve_dns_answer(struct gw *gw, const uint8_t *p, size_t n, struct dns_query *q,
                        uint8_t out[DNS_ANSWER_MAX])
{
    int rc = dns_parse(p, n, q);
    if (rc != DNS_NOERROR) {
        if (rc != DNS_NXDOMAIN)
            gw->counts.malformed++;
        return rc < 0 ? 0 : dns_answer(q, (enum dns_rcode)rc, out);
    }
    if (q->type == DNS_PTR)
        return answer_ptr(gw, q, out);
    if (!name_allowed(gw, q->name)) {
        log_denied(gw, q->name);
        return dns_answer(q, DNS_NXDOMAIN, out);
    }
    if (q->type == DNS_A) {
        uint32_t addr = fakeip_addr(gw->names, q->name);
        return addr ? dns_answer_a(q, addr, TTL, out) : dns_answer(q, DNS_SERVFAIL, out);
    }
    if (gw->policy.mode == NET_FULL && q->type != DNS_AAAA && q->type != DNS_HTTPS &&
        q->type != DNS_SVCB)
        return SERVE_DNS_PASS;
    return dns_answer(q, DNS_NOERROR, out);
}

size_t serve_dns_adopt(const struct dns_query *q, uint8_t *msg, size_t len, size_t max)
{
    size_t head = 12 + (size_t)q->question_len;
    if (len < head || len > 65535 || msg[4] != 0 || msg[5] != 1)
        return 0;
    for (size_t i = 0; i < q->question_len; i++)
        if (tolower(msg[12 + i]) != tolower(q->question[i]))
            return 0;
    msg[0] = (uint8_t)(q->id >> 8);
    msg[1] = (uint8_t)q->id;
    memcpy(msg + 12, q->question, q->question_len); /* with the case that was asked */
    if (len <= max)
        return len;
    msg[2] |= 2; /* TC: ask again over TCP */
    memset(msg + 6, 0, 6);
    return head;
}

/* --- UDP ------------------------------------------------------------------------------------- */

static void reply(int fd, const struct sockaddr_in *peer, struct in_addr from, const void *p,
                  size_t n)
{
    union {
        char room[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } u = { { 0 } };
    struct in_pktinfo info = { .ipi_spec_dst = from };
    struct sockaddr_in to = *peer;
    struct iovec iov = { (void *)(uintptr_t)p, n };
    struct msghdr m = { .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &iov };
    m.msg_iovlen = 1;
    m.msg_control = u.room;
    m.msg_controllen = sizeof(u.room);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof(info));
    memcpy(CMSG_DATA(c), &info, sizeof(info));
    sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void pass_free(struct pass *p)
{
    struct serve_dns *s = p->s;
    resolve_cancel(TAKE_PTR(p->look));
    *(p->prev ? &p->prev->next : &s->passes) = p->next;
    if (p->next)
        p->next->prev = p->prev;
    s->n_passes--;
    free(p);
}

static void on_passed(void *arg, const uint8_t *msg, size_t len)
{
    struct pass *p = arg;
    uint8_t out[EDNS_MAX];
    size_t n = 0;
    p->look = NULL;
    if (msg) {
        AUTOFREE uint8_t *copy = mem_dup(msg, len);
        n = serve_dns_adopt(&p->q, copy, len, p->q.edns ? EDNS_MAX : DNS_ANSWER_MAX);
        memcpy(out, copy, n);
    }
    if (!n)
        n = dns_answer(&p->q, DNS_SERVFAIL, out);
    reply(p->fd, &p->peer, p->to, out, n);
    pass_free(p);
}

/* False: too many wait already. */
static bool pass_on(struct serve_dns *s, int fd, const struct sockaddr_in *peer, struct in_addr to,
                    const struct dns_query *q)
{
    if (s->n_passes >= PASSES)
        return false;
    struct pass *p = mem_zalloc(sizeof(*p));
    *p = (struct pass){ .s = s, .next = s->passes, .fd = fd, .peer = *peer, .to = to, .q = *q };
    if (p->next)
        p->next->prev = p;
    s->passes = p;
    s->n_passes++;
    p->look = resolve_pass(s->gw, q->name, q->type, on_passed, p);
    return true;
}

/* One packet; false: there is none. */
static bool serve_one(struct gw *gw, int fd)
{
    static uint8_t in[PACKET_MAX];
    uint8_t out[DNS_ANSWER_MAX];
    union {
        char room[128];
        struct cmsghdr align;
    } u;
    struct sockaddr_in peer = { 0 };
    struct in_addr to = { 0 };
    struct iovec iov = { in, sizeof(in) };
    struct msghdr m = { .msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = &iov };
    struct dns_query q;

    m.msg_iovlen = 1;
    m.msg_control = u.room;
    m.msg_controllen = sizeof(u.room);
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof(info));
            to = info.ipi_addr;
        }
    if (m.msg_flags & MSG_TRUNC) {
        gw->counts.malformed++;
        return true;
    }
    size_t len = serve_dns_answer(gw, in, (size_t)n, &q, out);
    if (len == SERVE_DNS_PASS)
        len = pass_on(gw->dns, fd, &peer, to, &q) ? 0 : dns_answer(&q, DNS_SERVFAIL, out);
    if (len)
        reply(fd, &peer, to, out, len);
    return true;
}

void serve_dns_udp(struct gw *gw, int fd)
{
    for (int i = 0; i < BATCH && serve_one(gw, fd); i++)
        ;
}

/* --- life ------------------------------------------------------------------------------------ */

int serve_dns_new(struct gw *gw, struct err **e)
{
    gw->dns = mem_zalloc(sizeof(*gw->dns));
    gw->dns->gw = gw;
    return 0;
}

void serve_dns_policy(struct gw *gw)
{
    free_p(&gw->dns->ports);
    gw->dns->n_ports = net_ports(&gw->policy, &gw->dns->ports);
    gw->dns->denied = (struct recent){ 0 };
}

void serve_dns_drop(struct gw *gw)
{
    while (gw->dns->passes)
        pass_free(gw->dns->passes);
    serve_dns_tcp_drop(gw);
}

void serve_dns_free(struct gw *gw)
{
    if (!gw->dns)
        return;
    serve_dns_drop(gw);
    free(gw->dns->ports);
    free_p(&gw->dns);
}
