/* runtime/gateway/conn_impl.h - a connection as conn.c, conn_look.c and refuse.c see it. */
#pragma once
#include "runtime/gateway/conn.h"
#include "runtime/gateway/dial.h"
#include "runtime/gateway/inspect.h"
#include "runtime/gateway/relay.h"

enum { PEEK_MAX = HTTP_HEAD_MAX };

enum conn_state { CONN_HEAD, CONN_DIAL, CONN_RELAY, CONN_REFUSED };

struct conn {
    struct gw *gw;
    struct conn *prev, *next;
    enum conn_state state;
    enum inspect_speaks speaks;
    struct relay relay; /* relay.in is the client's socket from the start */
    struct timer head;  /* for a hello, a request, an answer that is read */
    struct dial *dial;
    struct net_addr addr;    /* connected to */
    struct net_addr dialled; /* no family: not yet, or the host's proxy was given the name */
    uint32_t fake;           /* addr where it stands for a name (pinned), else 0 */
    uint16_t port;
    bool server_first; /* nobody has spoken yet */
    bool hushed;       /* the client let QUIET_MS pass without a byte */
    bool ended;        /* the client says no more */
    bool reset;        /* how it ends */
    char *name;        /* dialled by it; NULL: by address */
    char *rule;        /* by which it is allowed */
    struct http_watch *http;
};

/* The later requests of an HTTP connection. */
struct http_watch {
    struct http http;
    bool first_seen, waits; /* waits: for the server's answer to an upgrade */
    enum http_upgrade upgrade;
    uint64_t answered; /* relay.down.bytes when the last request went through */
    char host[NET_NAME_SIZE];
};

/* conn.c */
/* With its line in the log where it was dialled. Its memory stays until the loop's next round. */
void conn_free(struct conn *c);
/* Logs, tells the client. Nothing may be done with it after that. */
void conn_deny(struct conn *c, const char *name, const struct net_verdict *v, enum gw_hint hint);
const char *conn_fake(const struct conn *c);
/* The bytes that wait in a socket, left where they are: > 0, 0 at the end, -1 with errno. */
ssize_t conn_peek(int fd, const char **ret);

/* conn_look.c: for a relay whose bytes must be looked at. */
void conn_look_http(struct conn *c);
void conn_look_first(struct conn *c);

/* refuse.c: tells the client in its own words and waits until it has read them. */
void refuse(struct conn *c, const struct gw_line *line);
