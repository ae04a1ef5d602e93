/* runtime/network/agent.h - the sandbox's network namespaces and the process that stays in them.
 *
 * agent_setup() makes the sandbox's namespace and, unless the policy is none, the gateway's: one veth
 * pair between the two and nothing else, so that whatever leaves the sandbox ends at the gateway's
 * sockets. agent_serve() hands those out (feed.h).
 * Owns:  both namespaces' devices, addresses, routes, sysctls; the end of the feed.
 * Uses:  base/, policy.h, feed.h, veth.h, tproxy.h.
 * Crash: namespaces go with the last process and descriptor; nothing is left.
 */
#pragma once
#include "base/err.h"
#include "runtime/network/feed.h"
#include "runtime/network/policy.h"

struct agent_req {
    const struct net_policy *policy;
    int feed; /* the agent's end, borrowed until agent_serve(); -1 where nobody will serve */
    /* Called when the sandbox's namespace is there, nothing in it yet; may be NULL. */
    void (*made)(void *arg, int inside);
    void *arg;
};

struct agent {
    int feed;
    int inside, outside; /* the sandbox's and the gateway's network namespace; outside may be -1 */
    bool full;
    size_t n;
    struct feed_item v[FEED_MAX_FDS]; /* what a hello has */
    int fd[FEED_MAX_FDS];             /* -1 once handed out: a dead gateway means refused at once */
};

/* In a single-threaded process with all capabilities in the user namespace that will own the sandbox's
 * network; its own network namespace may be any. Leaves the process in the sandbox's (loopback up). */
int agent_setup(const struct agent_req *req, struct agent *ret, struct err **e);

/* Serves until the feed ends. Closes all other descriptors (stdio becomes /dev/null) and drops the
 * capabilities it does not need; keeps a PDEATHSIG that is set. */
_Noreturn void agent_serve(struct agent *a);
