/* runtime/network/veth.h - the only cable of a sandbox: a veth pair to its gateway's namespace.
 *
 * In the gateway's namespace every address is local (a local default route), so a plain listener takes
 * what was meant for anyone, and a port without one is refused at once by the kernel itself. The sandbox
 * has one address, one route (default, by the gateway) and no IPv6 but its own ::1.
 * Uses:  base/, nl.h.
 */
#pragma once
#include "base/err.h"

enum {
    VETH_GATEWAY = 0xc6120001, /* 198.18.0.1 */
    VETH_SANDBOX = 0xc6120002, /* 198.18.0.2 */
    VETH_MTU = 65535,
    /* Fixed, so that nothing has to be looked up; above what tunnel modules put in new namespaces. */
    VETH_INDEX_GATEWAY = 64,
    VETH_INDEX_SANDBOX = 65,
};

/* Loopback up. `nl`: an rtnetlink socket of the namespace. */
int veth_loopback(int nl, struct err **e);
/* The pair, both ends up and configured, and the sandbox's loopback. */
int veth_make(int nl_sandbox, int nl_gateway, int ns_sandbox, struct err **e);
/* Until packets can pass: the kernel finishes an interface that came up before its peer later, by a
 * worker, and what is sent before that is lost. Call it last. */
int veth_wait(int nl_gateway, struct err **e);
