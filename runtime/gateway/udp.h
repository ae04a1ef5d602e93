/* runtime/gateway/udp.h - datagrams of a sandbox under the policy `full`.
 *
 * Each pair of (sandbox address and port, destination address and port) is a flow with a connected socket in
 * the host's network, judged like a connection; what comes back goes into the sandbox with the address it
 * was sent to as its source. What is refused is answered by ICMP, so that nobody waits, and logged once.
 * Bounded: UDP_FLOWS at a time (the one idle longest gives way), UDP_IDLE_MS without a datagram ends one.
 *
 * Owns:  gw->udp: both sockets of the feed and all flows.
 * Uses:  resolve for fake addresses, hostaddr, the gateway's limits and its log (one line per flow).
 */
#pragma once
#include "base/err.h"

struct gw;

enum {
    UDP_FLOWS = 1024,
    UDP_IDLE_MS = 60000,
    UDP_HELD = 4, /* datagrams kept while a name is resolved */
};

int udp_new(struct gw *gw, struct err **e);
void udp_free(struct gw *gw);
/* Takes both sockets (FEED_TPROXY_UDP, FEED_RAW); ends all flows of older walls. -1, -1: none any more. */
void udp_attach(struct gw *gw, int tproxy, int raw);
/* The policy changed: flows that it does not allow any more end. */
void udp_policy(struct gw *gw);
