/* runtime/gateway/dial.h - a connection to the world: by name or by address, judged, then connected.
 *
 * A name is resolved by the host at this very moment and every address it has is judged; those the
 * policy refuses are skipped, what is left is tried in turn (IPv4 and IPv6 alternating, the next one
 * after a failure or 300 ms, at most six). The sockaddr that was judged is the one connected.
 * Where the host reaches the world through a proxy, so does this (proxy.h).
 *
 * Owns:  its sockets until one is handed over.
 * Uses:  resolve, hostaddr, proxy; the policy of the gateway, as it is when the address is judged.
 */
#pragma once
#include <stdint.h>

#include "runtime/network/addr.h"
#include "runtime/network/policy.h"

struct gw;
struct dial;

enum {
    DIAL_LIMIT_MS = 30000, /* from start to callback, resolving included */
    DIAL_NEXT_MS = 300,
    DIAL_TRIES = 6,
};

/* Pointers in it are valid within the callback only. */
struct dial_result {
    /* 0, or ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH ..., ENOENT: the name has no address, EACCES: denied */
    int error;
    struct net_verdict verdict;
    /* Connected, refused or tried last; family 0: none (not resolved, or the proxy was given the name). */
    struct net_addr addr;
    const char *why; /* one phrase where error is set and no verdict says it, else NULL */
};

struct dial_req {
    struct gw *gw;
    const char *name;     /* canonical, allowed by net_judge_name(); copied. NULL: by address */
    struct net_addr addr; /* where name is NULL */
    uint16_t port;
    /* Exactly once unless cancelled, always from the loop, never from within dial_start(). `fd`: a
     * connected non-blocking socket, the receiver's from here on; negative where r->error is set. */
    void (*done)(void *arg, int fd, const struct dial_result *r);
    void *arg;
};

/* Never NULL: what goes wrong at once is reported by the callback too. */
struct dial *dial_start(const struct dial_req *req);
/* Before the callback, at any time, from any callback but its own; takes NULL. */
void dial_cancel(struct dial *d);
