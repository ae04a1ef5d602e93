/* runtime/gateway/gw.h - what all files of the gateway share: its parts, its counters, its log.
 *
 * One process, one thread, one struct gw. Parts are opaque to each other; each is made by its own file and
 * reached through here.
 *
 * Owns:  nothing by itself.
 * Crash: all sockets close with the process: whoever is inside is refused at once.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "runtime/gateway/loop.h"
#include "runtime/network/policy.h"

struct control;
struct walls;
struct limits;
struct conns;
struct fakeip;
struct serve_dns;
struct packets;
struct resolve;
struct proxy;
struct hostaddr;
struct publish;
struct udp;

struct gw_counts {
    uint64_t allowed, denied;     /* connections, and names and packets that were refused */
    uint64_t bytes_in, bytes_out; /* in: to the sandbox */
    uint64_t malformed;           /* what no parser could read */
    uint64_t lost;                /* log lines that the keeper did not take */
};

struct gw {
    struct loop *loop;
    struct net_policy policy; /* may be replaced between two callbacks: keep no pointer into it */
    bool have_policy;
    struct gw_counts counts;
    /* core */
    struct control *control;
    struct walls *walls;
    struct limits *limits;
    struct conns *conns;
    struct fakeip *names;
    struct serve_dns *dns;
    struct packets *packets;
    /* towards the world */
    struct resolve *resolve;
    struct proxy *proxy;
    struct hostaddr *host;
    struct publish *publish;
    struct udp *udp;
};

/* What `petri net allow` could be told about a refusal. */
enum gw_hint {
    GW_HINT_NONE, /* nothing can allow it */
    GW_HINT_NAME, /* the name, with the port where it is not one of the policy's */
    GW_HINT_ADDR, /* the address, the same way */
};

/* One line of the log. Borrowed only. A refusal counts as denied, the rest as allowed. */
struct gw_line {
    bool allow;
    const char *proto;           /* "tcp", "udp", "dns" */
    const char *name;            /* NULL: none */
    const struct net_addr *addr; /* NULL: none */
    uint16_t port;
    uint64_t in, out;
    const char *rule;
    const char *why; /* of a refusal */
    enum gw_hint hint;
};

/* Counts, and tells the keeper; never blocks, never fails. */
void gw_log(struct gw *gw, const struct gw_line *line);
/* What stands behind `petri net allow` for a refusal; false: nothing would help. */
bool gw_allow_text(const struct gw *gw, const struct gw_line *line, struct str *ret);
/* Something that leaves no way on: tells the keeper, exits. */
_Noreturn void gw_fail(struct gw *gw, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* What the core calls of the parts towards the world (their own headers say the rest):
 *   resolve_new(gw, e) resolve_free(gw)   at start and end; reads resolv.conf before the walls close
 *   proxy_new(gw, e)   proxy_free(gw)     reads the environment
 *   hostaddr_new(gw, e) hostaddr_free(gw)
 *   publish_new(gw, e) publish_free(gw)   publish_set(gw, const struct net_publish *v, const int *fds, n): takes fds
 *   udp_new(gw, e)     udp_free(gw)       udp_attach(gw, tproxy_fd, raw_fd): takes both; -1, -1: none any more
 *   resolve_pass(...)                     a DNS question of another type, in `full`
 *   publish_drop(gw)                      other walls
 */
