/* runtime/network/tproxy.h - every port at once: nftables' tproxy in the gateway's namespace (policy full).
 *
 * All addresses are local there already, so neither marks nor routing rules are needed: TCP and UDP to
 * any port but 53 is given to the socket on TPROXY_PORT, which keeps the original destination.
 * Uses:  base/, nl.h.
 */
#pragma once
#include "base/err.h"

enum {
    TPROXY_PORT = 65535
}; /* of the two transparent sockets; nothing else lives in that namespace */

/* In the gateway's namespace; the sockets need not exist yet. */
int tproxy_rules(struct err **e);
