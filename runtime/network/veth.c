#include "runtime/network/veth.h"

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "runtime/network/nl.h"

enum { CREATE = NLM_F_CREATE | NLM_F_EXCL, LOOPBACK = 1, WAIT_STEP_US = 200, WAIT_STEPS = 10000 };

/* What one side of the pair is called and where the other one is. */
struct side {
    const char *name;
    int index;
    uint32_t addr, peer;
};
static const struct side gateway = { "gw0", VETH_INDEX_GATEWAY, VETH_GATEWAY, VETH_SANDBOX };
static const struct side sandbox = { "eth0", VETH_INDEX_SANDBOX, VETH_SANDBOX, VETH_GATEWAY };

static void add_mac(struct nl_batch *b, unsigned type, uint32_t addr)
{
    uint32_t be = htonl(addr);
    uint8_t mac[6] = { 0x02, 0x00 }; /* locally administered */

    memcpy(mac + 2, &be, sizeof be);
    nl_attr(b, type, mac, sizeof mac);
}

/* Name, address, size, and one queue each way: the default is one for every cpu there could be. */
static void add_link(struct nl_batch *b, const struct side *s)
{
    nl_str(b, IFLA_IFNAME, s->name);
    add_mac(b, IFLA_ADDRESS, s->addr);
    nl_u32(b, IFLA_MTU, VETH_MTU);
    nl_u32(b, IFLA_NUM_TX_QUEUES, 1);
    nl_u32(b, IFLA_NUM_RX_QUEUES, 1);
}

static void add_pair(struct nl_batch *b, int ns_sandbox)
{
    struct ifinfomsg near = { .ifi_family = AF_UNSPEC, .ifi_index = gateway.index },
                     far = { .ifi_family = AF_UNSPEC, .ifi_index = sandbox.index };
    size_t info, data, peer;

    nl_msg(b, RTM_NEWLINK, CREATE, &near, sizeof near, "make a veth pair");
    add_link(b, &gateway);
    info = nl_nest(b, IFLA_LINKINFO, NULL, 0);
    nl_str(b, IFLA_INFO_KIND, "veth");
    data = nl_nest(b, IFLA_INFO_DATA, NULL, 0);
    peer = nl_nest(b, VETH_INFO_PEER, &far, sizeof far);
    add_link(b, &sandbox);
    nl_u32(b, IFLA_NET_NS_FD, (uint32_t)ns_sandbox);
    nl_end(b, peer);
    nl_end(b, data);
    nl_end(b, info);
}

static void add_up(struct nl_batch *b, int index, unsigned flags)
{
    struct ifinfomsg m = {
        .ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP
    };
    nl_msg(b, RTM_NEWLINK, flags, &m, sizeof m, "bring an interface up");
}

/* Up, without an IPv6 address of its own (said before, or it would have one already; may fail: a kernel
 * without IPv6), and never passing anything on, whatever the host's defaults are. */
static void add_side_up(struct nl_batch *b, const struct side *s)
{
    struct ifinfomsg m = { .ifi_family = AF_UNSPEC, .ifi_index = s->index };
    size_t spec, family, conf;

    nl_msg(b, RTM_NEWLINK, 0, &m, sizeof m, NULL);
    spec = nl_nest(b, IFLA_AF_SPEC, NULL, 0);
    family = nl_nest(b, AF_INET6, NULL, 0);
    nl_u8(b, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
    nl_end(b, family);
    nl_end(b, spec);
    add_up(b, s->index, 0);
    spec = nl_nest(b, IFLA_AF_SPEC, NULL, 0);
    family = nl_nest(b, AF_INET, NULL, 0);
    conf = nl_nest(b, IFLA_INET_CONF, NULL, 0);
    nl_u32(b, IPV4_DEVCONF_FORWARDING, 0);
    nl_end(b, conf);
    nl_end(b, family);
    nl_end(b, spec);
}

static void add_address(struct nl_batch *b, const struct side *s)
{
    struct ifaddrmsg a = { .ifa_family = AF_INET,
                           .ifa_prefixlen = 32,
                           .ifa_scope = RT_SCOPE_UNIVERSE,
                           .ifa_index = (uint32_t)s->index };

    nl_msg(b, RTM_NEWADDR, CREATE, &a, sizeof a, "give an interface its address");
    nl_be32(b, IFA_LOCAL, s->addr);
}

static void add_neighbour(struct nl_batch *b, const struct side *s)
{
    struct ndmsg n = { .ndm_family = AF_INET, .ndm_ifindex = s->index, .ndm_state = NUD_PERMANENT };

    nl_msg(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &n, sizeof n, "set a neighbour");
    nl_be32(b, NDA_DST, s->peer);
    add_mac(b, NDA_LLADDR, s->peer);
}

/* Between two namespaces nothing is ever lost or late: the congestion control that does least. */
static void add_metrics(struct nl_batch *b)
{
    size_t m = nl_nest(b, RTA_METRICS, NULL, 0);
    nl_str(b, RTAX_CC_ALGO, "reno");
    nl_end(b, m);
}

/* Every address, so the gateway needs none of its own, and no loopback.
 * In the local table: only there the kernel looks when it asks whether an address is its own, and the
 * route to the sandbox must win over the one that makes every address local. */
static void add_gateway_routes(struct nl_batch *b)
{
    struct rtmsg any = { .rtm_family = AF_INET,
                         .rtm_table = RT_TABLE_LOCAL,
                         .rtm_protocol = RTPROT_STATIC,
                         .rtm_scope = RT_SCOPE_HOST,
                         .rtm_type = RTN_LOCAL },
                 one = { .rtm_family = AF_INET,
                         .rtm_dst_len = 32,
                         .rtm_table = RT_TABLE_LOCAL,
                         .rtm_protocol = RTPROT_STATIC,
                         .rtm_scope = RT_SCOPE_LINK,
                         .rtm_type = RTN_UNICAST };

    nl_msg(b, RTM_NEWROUTE, CREATE, &any, sizeof any, "make every address local");
    nl_u32(b, RTA_OIF, (uint32_t)gateway.index);
    nl_msg(b, RTM_NEWROUTE, CREATE | NLM_F_ACK, &one, sizeof one, "set the route to the sandbox");
    nl_be32(b, RTA_DST, gateway.peer);
    nl_u32(b, RTA_OIF, (uint32_t)gateway.index);
    add_metrics(b);
}

static void add_sandbox_route(struct nl_batch *b)
{
    struct rtmsg r = { .rtm_family = AF_INET,
                       .rtm_table = RT_TABLE_MAIN,
                       .rtm_protocol = RTPROT_STATIC,
                       .rtm_scope = RT_SCOPE_UNIVERSE,
                       .rtm_type = RTN_UNICAST,
                       .rtm_flags = RTNH_F_ONLINK };

    nl_msg(b, RTM_NEWROUTE, CREATE | NLM_F_ACK, &r, sizeof r, "set the sandbox's route");
    nl_be32(b, RTA_GATEWAY, sandbox.peer);
    nl_u32(b, RTA_OIF, (uint32_t)sandbox.index);
    add_metrics(b);
}

static int send_batch(int nl, struct nl_batch *b, struct err **e)
{
    const char *what;

    if (nl_send(nl, b, &what) == 0)
        return 0;
    if (errno == EOPNOTSUPP && strstr(what, "veth"))
        return err_new(e, ERR_UNSUPPORTED,
                       "the kernel can't %s (%s); load the module veth, or use --network none",
                       what, strerror(errno));
    return err_sys(e, "can't %s for the sandbox; --network none needs none", what);
}

int veth_loopback(int nl, struct err **e)
{
    struct nl_batch b = { .len = 0 };

    add_up(&b, LOOPBACK, NLM_F_ACK);
    return send_batch(nl, &b, e);
}

int veth_make(int nl_sandbox, int nl_gateway, int ns_sandbox, struct err **e)
{
    struct nl_batch out = { .len = 0 }, in = { .len = 0 };
    int rc;

    add_pair(&out, ns_sandbox);
    add_side_up(&out, &gateway);
    add_neighbour(&out, &gateway);
    add_gateway_routes(&out);
    if ((rc = send_batch(nl_gateway, &out, e)) < 0)
        return rc;
    add_up(&in, LOOPBACK, 0);
    add_side_up(&in, &sandbox);
    add_address(&in, &sandbox);
    add_neighbour(&in, &sandbox);
    add_sandbox_route(&in);
    return send_batch(nl_sandbox, &in, e);
}

/* The kernel's word for an interface that is ready to send, or 0. */
static int operstate(int nl, int index)
{
    struct ifinfomsg m = { .ifi_family = AF_UNSPEC, .ifi_index = index };
    struct nl_batch b = { .len = 0 };
    union {
        char p[8192];
        struct nlmsghdr head;
    } u;
    ssize_t n;

    nl_msg(&b, RTM_GETLINK, 0, &m, sizeof m, "look at an interface");
    if (RETRY(send(nl, b.p, b.len, 0)) < 0 ||
        (n = RETRY(recv(nl, u.p, sizeof u.p, MSG_DONTWAIT))) < 0)
        return -1;
    if (!NLMSG_OK(&u.head, (size_t)n) || u.head.nlmsg_type != RTM_NEWLINK)
        return 0;
    struct rtattr *a = IFLA_RTA(NLMSG_DATA(&u.head));
    for (int left = (int)IFLA_PAYLOAD(&u.head); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_OPERSTATE)
            return *(uint8_t *)RTA_DATA(a);
    return 0;
}

int veth_wait(int nl_gateway, struct err **e)
{
    const struct timespec step = { .tv_nsec = WAIT_STEP_US * 1000 };

    for (int i = 0; i < WAIT_STEPS; i++) {
        if (operstate(nl_gateway, gateway.index) == IF_OPER_UP)
            return 0;
        nanosleep(&step, NULL);
    }
    return err_new(e, ERR_FAILED, "the sandbox's veth pair does not come up");
}
