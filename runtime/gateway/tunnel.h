/* runtime/gateway/tunnel.h - CONNECT through the host's proxy, on a socket that is connected to it.
 * Reads exactly the answer's head: the first byte after it is the stream's.
 * Owns:  nothing; the socket stays its caller's.
 * Uses:  proxy.h for the words, loop.h.
 */
#pragma once
#include "runtime/gateway/loop.h"
#include "runtime/gateway/proxy.h"

/* Embed it. */
struct tunnel {
    struct loop *loop;
    struct source src;
    struct str out;
    size_t sent;
    /* Once, from the loop; stopped already. error 0: the stream is open. status: the proxy's, or 0. */
    void (*done)(struct tunnel *t, int error, int status);
};

/* `name`, or where it is NULL `addr`. */
void tunnel_start(struct tunnel *t, struct loop *l, int fd, const struct proxy_way *w,
                  const char *name, const struct net_addr *addr, uint16_t port);
void tunnel_stop(struct tunnel *t); /* fine where it never started (all zero) */
