/* runtime/gateway/proxy.h - the host's own way out, where it is an HTTP proxy: HTTP_PROXY for port 80,
 * HTTPS_PROXY for all others, ALL_PROXY for both where the one is missing; NO_PROXY says what goes straight.
 *
 * Owns:  gw->proxy: what the environment said at the start.
 * Uses:  nothing; dial.c asks it which way to take and runs the CONNECT.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "runtime/network/addr.h"

struct gw;

enum {
    PROXY_HEAD = 8192, /* of an answer */
};

/* Where a connection goes through; not the caller's. */
struct proxy_way {
    char *host; /* a name, or the text of `addr` */
    bool literal;
    struct net_addr addr;
    uint16_t port;
    char *auth; /* base64 of user:password; NULL: none */
    char *bad;  /* not usable: why; then nothing else is set */
};

int proxy_new(struct gw *gw, struct err **e);
void proxy_free(struct gw *gw);
/* The way for a name or, where it is NULL, an address; NULL: straight. */
const struct proxy_way *proxy_for(const struct gw *gw, const char *name,
                                  const struct net_addr *addr, uint16_t port);

/* "CONNECT host:port HTTP/1.1 ..." */
void proxy_ask(const struct proxy_way *w, const char *name, const struct net_addr *addr,
               uint16_t port, struct str *ret);
/* The answer's head of `n` bytes so far. Returns its length once it is complete (what follows belongs to the
 * stream), 0: more is needed, -1: not one of HTTP or too long. ret_status: 200 to 299 is a yes. */
int proxy_answer(const char *p, size_t n, int *ret_status);
