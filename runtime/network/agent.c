#include "runtime/network/agent.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "base/fs.h"
#include "runtime/network/agent_impl.h"
#include "runtime/network/listen.h"
#include "runtime/network/nl.h"
#include "runtime/network/tproxy.h"
#include "runtime/network/veth.h"

/* A new network namespace for this process; its descriptor and an rtnetlink socket in it. */
static int new_net(int *ret_ns, int *ret_nl, struct err **e)
{
    if (unshare(CLONE_NEWNET) < 0) {
        if (errno == ENOSPC)
            return err_new(e, ERR_LIMIT,
                           "this user has all the network namespaces it may; raise "
                           "user.max_net_namespaces (sysctl) or remove sandboxes");
        return err_sys(e, "make a network namespace");
    }
    *ret_nl = nl_open(NETLINK_ROUTE);
    *ret_ns = *ret_nl < 0 ? -1 : ioctl(*ret_nl, SIOCGSKNS);
    return *ret_ns < 0 ? err_sys(e, "look into a new network namespace") : 0;
}

/* Of the namespace this process is in; not to be had where /proc/sys is read-only, and no wall: without
 * them a ping is answered by the gateway, and refusals of UDP come one a second. */
static void sysctl_net(const char *file, const char *value)
{
    (void)fs_write_at(AT_FDCWD, file, value, NULL);
}

static void sysctl_gateway(void)
{
    sysctl_net("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
    sysctl_net("/proc/sys/net/ipv4/icmp_ratemask", "0"); /* no kind is limited */
}

void agent_add(struct agent *a, enum feed_kind kind, uint16_t port)
{
    a->fd[a->n] = -1;
    a->v[a->n++] = (struct feed_item){ .kind = (uint16_t)kind, .port = port };
}

static int list_items(struct agent *a, const struct net_policy *p, struct err **e)
{
    AUTOFREE uint16_t *ports = NULL;
    size_t n;

    agent_add(a, FEED_DNS_UDP, 53);
    agent_add(a, FEED_DNS_TCP, 53);
    if (a->full) {
        agent_add(a, FEED_TPROXY_TCP, 0);
        agent_add(a, FEED_TPROXY_UDP, 0);
        agent_add(a, FEED_RAW, 0);
        return 0;
    }
    agent_add(a, FEED_PACKET, 0);
    n = net_ports(p, &ports);
    if (n > FEED_MAX_FDS - a->n)
        return err_new(e, ERR_LIMIT, "%zu ports are too many for one sandbox; at most %zu", n,
                       FEED_MAX_FDS - a->n);
    for (size_t i = 0; i < n; i++)
        agent_add(a, FEED_TCP, ports[i]);
    return 0;
}

void agent_close_items(struct agent *a)
{
    for (size_t i = 0; i < a->n; i++)
        close_p(&a->fd[i]);
}

int agent_open_items(struct agent *a)
{
    for (size_t i = 0; i < a->n; i++) {
        a->fd[i] = a->v[i].kind == FEED_PACKET ? listen_refused(a->v, a->n)
                                               : listen_open(a->v[i].kind, a->v[i].port);
        if (a->fd[i] < 0) {
            int saved = errno;
            agent_close_items(a);
            errno = saved;
            return -1;
        }
    }
    return 0;
}

static int setup_gateway(struct agent *a, const struct net_policy *p, int nl_inside, struct err **e)
{
    AUTOCLOSE int nl = -1;
    int rc;

    if ((rc = list_items(a, p, e)) < 0 || (rc = new_net(&a->outside, &nl, e)) < 0 ||
        (rc = veth_make(nl_inside, nl, a->inside, e)) < 0 ||
        (a->full && (rc = tproxy_rules(e)) < 0))
        return rc;
    sysctl_gateway();
    if (agent_open_items(a) < 0)
        return err_sys(e, "listen in the gateway's namespace");
    if ((rc = veth_wait(nl, e)) < 0)
        return rc;
    return setns(a->inside, CLONE_NEWNET) < 0 ? err_sys(e, "go back to the sandbox's network") : 0;
}

int agent_setup(const struct agent_req *req, struct agent *ret, struct err **e)
{
    struct agent *a = ret;
    AUTOCLOSE int nl = -1;
    int rc;

    *a = (struct agent){
        .feed = req->feed, .inside = -1, .outside = -1, .full = req->policy->mode == NET_FULL
    };
    rc = new_net(&a->inside, &nl, e);
    if (rc == 0) {
        if (req->made)
            req->made(req->arg, a->inside);
        rc = req->policy->mode == NET_NONE ? veth_loopback(nl, e)
                                           : setup_gateway(a, req->policy, nl, e);
    }
    if (rc < 0) {
        agent_close_items(a);
        if (!req->made) /* else somebody may be about to open it */
            close_p(&a->inside);
        close_p(&a->outside);
        return err_wrap(e, "the sandbox's network");
    }
    return 0;
}
