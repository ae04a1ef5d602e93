/* runtime/gateway/publish.h - ports of the sandbox on the host's loopback.
 *
 * The keeper makes the listening sockets; a connection there asks the agent for a socket connected inside
 * the sandbox (so that servers bound to 127.0.0.1 are reached too), and both are relayed. Nobody
 * listening inside: the caller gets a reset.
 *
 * Owns:  gw->publish: the listeners and every connection that came in by them.
 * Uses:  walls.h to ask, relay.h, limits.h.
 */
#pragma once
#include <stddef.h>

#include "base/err.h"
#include "runtime/network/policy.h"

struct gw;

enum {
    PUBLISH_ASKS = 128,       /* at a time; beyond, connections wait in the listeners' backlogs */
    PUBLISH_LIMIT_MS = 10000, /* for an answer */
};

int publish_new(struct gw *gw, struct err **e);
void publish_free(struct gw *gw);
/* The listeners from now on, taken; older ones close, connections that were made stay. */
void publish_set(struct gw *gw, const struct net_publish *v, const int *fds, size_t n);
/* Other walls: connections into the old ones are reset. Their sockets would keep its namespace alive. */
void publish_drop(struct gw *gw);
