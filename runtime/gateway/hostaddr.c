#include "runtime/gateway/hostaddr.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/gw.h"

/* An answer holds for so long: who opens many connections to one address asks once. */
enum { HOLDS_MS = 1000, SLOTS = 64 };

struct slot {
    struct net_addr addr;
    bool local;
    uint64_t until;
};

struct hostaddr {
    int fd;
    uint32_t seq;
    struct slot known[SLOTS];
};

int hostaddr_new(struct gw *gw, struct err **e)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0)
        return err_sys(e, "gateway: can't ask the host's routing table");
    gw->host = mem_zalloc(sizeof *gw->host);
    gw->host->fd = fd;
    return 0;
}

void hostaddr_free(struct gw *gw)
{
    if (gw->host)
        close_p(&gw->host->fd);
    free_p(&gw->host);
}

static int ask(struct hostaddr *h, const struct net_addr *a)
{
    struct {
        struct nlmsghdr n;
        struct rtmsg r;
        struct rtattr dst;
        uint8_t addr[16];
    } m = { 0 };
    size_t len = a->family == AF_INET ? 4 : 16;
    m.n = (struct nlmsghdr){ .nlmsg_len = offsetof(__typeof__(m), addr) + len,
                             .nlmsg_type = RTM_GETROUTE,
                             .nlmsg_flags = NLM_F_REQUEST,
                             .nlmsg_seq = ++h->seq };
    m.r = (struct rtmsg){ .rtm_family = a->family, .rtm_dst_len = len * 8 };
    m.dst = (struct rtattr){ .rta_type = RTA_DST, .rta_len = RTA_LENGTH(len) };
    memcpy(m.addr, a->b, len);
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    return RETRY(sendto(h->fd, &m, m.n.nlmsg_len, 0, (void *)&kernel, sizeof kernel)) < 0 ? -1 : 0;
}

/* The type of the route (RTN_*), 0: there is none, -1: no clear answer. */
static int answer(struct hostaddr *h)
{
    for (int i = 0; i < 8; i++) { /* what is left of an earlier question is skipped */
        _Alignas(struct nlmsghdr) char buf[4096];
        struct sockaddr_nl from = { 0 };
        socklen_t from_len = sizeof from;
        ssize_t n = RETRY(recvfrom(h->fd, buf, sizeof buf, 0, (void *)&from, &from_len));
        struct nlmsghdr *m = (void *)buf;
        if (n < 0)
            return -1;
        if (from.nl_pid || !NLMSG_OK(m, (size_t)n) || m->nlmsg_seq != h->seq)
            continue;
        if (m->nlmsg_type == RTM_NEWROUTE && m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg)))
            return ((struct rtmsg *)NLMSG_DATA(m))->rtm_type;
        if (m->nlmsg_type == NLMSG_ERROR && m->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
            int error = -((struct nlmsgerr *)NLMSG_DATA(m))->error;
            return error == ENETUNREACH || error == EHOSTUNREACH || error == EACCES ? 0 : -1;
        }
        return -1;
    }
    return -1;
}

static bool look_up(struct hostaddr *h, const struct net_addr *a)
{
    if (ask(h, a) < 0)
        return true;
    switch (answer(h)) {
    case 0:
    case RTN_UNICAST:
    case RTN_BLACKHOLE:
    case RTN_UNREACHABLE:
    case RTN_PROHIBIT:
        return false;
    default:
        return true;
    }
}

static struct slot *slot_of(struct hostaddr *h, const struct net_addr *a)
{
    uint32_t n = a->family;
    for (size_t i = 0; i < sizeof a->b; i++)
        n = (n ^ a->b[i]) * 16777619u;
    return &h->known[(n ^ n >> 16) % SLOTS];
}

bool hostaddr_local(struct gw *gw, const struct net_addr *a)
{
    struct net_addr inner;
    struct slot *s = slot_of(gw->host, a);
    uint64_t now = loop_now(gw->loop);
    if (addr_unspecified(a))
        return true;
    if (addr_embedded(a, &inner) && hostaddr_local(gw, &inner))
        return true; /* a translator would bring it back to us */
    if (s->until <= now || !addr_eq(&s->addr, a))
        *s = (struct slot){ *a, look_up(gw->host, a), now + HOLDS_MS };
    return s->local;
}
