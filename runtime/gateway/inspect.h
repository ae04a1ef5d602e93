/* runtime/gateway/inspect.h - whom a connection is really for, told from its first bytes, and whether it may.
 *
 * Three things can name a server: the fake address that was connected to (DNS gave it for a name), the server
 * name of a TLS hello, the host of an HTTP request. Whatever the client says itself is what gets dialled,
 * and only where every name that was given is allowed; an address that nobody's rule names is never
 * dialled because a hello looked right.
 * Protocols that are neither TLS nor HTTP have no name of their own: under an allowlist only ports other than
 * 80 and 443 take them, and only by the name of a fake address.
 * Owns:  nothing; no allocation, no descriptor.
 * Uses:  hello.h, http.h, runtime/network/policy.h.
 */
#pragma once
#include "runtime/gateway/gw.h"
#include "runtime/gateway/http.h"

struct inspect_ask {
    const struct net_policy *policy;
    const char
        *fake; /* the name behind the address that was connected to; NULL: it is a real one */
    struct net_addr addr; /* that address */
    uint16_t port;
    const void *p; /* all that the client sent up to now */
    size_t n;
    bool quiet; /* and it waits: maybe the server speaks first */
};

enum inspect_what { INSPECT_MORE, INSPECT_PASS, INSPECT_DENY };
enum inspect_speaks { SPEAKS_NOTHING, SPEAKS_TLS, SPEAKS_HTTP, SPEAKS_OTHER };

struct inspect {
    enum inspect_what what;
    enum inspect_speaks
        speaks; /* SPEAKS_NOTHING with INSPECT_PASS: the server has to speak first */
    char name
        [NET_NAME_SIZE]; /* to be dialled, or the one refused; empty: there is only the address */
    struct net_verdict verdict; /* points into the policy */
    enum gw_hint hint;
    bool malformed;
};

/* Must the first bytes be seen at all? */
bool inspect_needed(const struct net_policy *p, const char *fake, const struct net_addr *addr,
                    uint16_t port);
/* A verdict other than INSPECT_MORE does not change with more bytes. */
void inspect(const struct inspect_ask *ask, struct inspect *ret);

/* What one request says its host is, as text that can be compared: a name, an address, or "". */
void inspect_host(const struct http_head *h, char ret[NET_NAME_SIZE]);
/* TLS, HTTP, neither, or SPEAKS_NOTHING: too few bytes to tell. */
enum inspect_speaks inspect_speaks(const void *p, size_t n);
