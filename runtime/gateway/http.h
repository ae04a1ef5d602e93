/* runtime/gateway/http.h - the requests of one HTTP/1.x connection, checked one after the other.
 *
 * Finds each head and each body exactly, so that no request hides from the check of its host. What two
 * servers might read in two ways is refused. Bytes are never changed: the caller forwards what was checked.
 *
 *     for (;;) {
 *         switch (http_next(&h, p, n, &used)) {      p, n: what came and was not yet forwarded
 *         case HTTP_MORE:  wait; then call with the same bytes and more behind them
 *         case HTTP_HEAD:  judge h.head; forward `used` bytes, drop them from p
 *         case HTTP_BODY:  forward `used` bytes, drop them from p
 *         case HTTP_BAD:   close; http_why(h.bad) says why
 *         }
 *     }
 *
 * A buffer of HTTP_HEAD_MAX bytes is always enough. While http_through() is not 0, that many bytes belong
 * to a body and may be moved without being looked at (splice); http_passed() tells how many were.
 * A request to upgrade is only reported. Where the server agrees (http_switched() on the first bytes of its
 * answer), what follows is no HTTP; so the caller holds back what the client sends behind such a head until
 * the answer is there, and takes one only while no other answer is outstanding.
 * Owns:  nothing; no allocation, no descriptor.
 * Uses:  runtime/network/ for names and addresses.
 * Crash: nothing to leave behind.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/network/addr.h"

enum { HTTP_HEAD_MAX = 32768, HTTP_HEADERS_MAX = 100, HTTP_CHUNK_LINE_MAX = 256 };
enum { HTTP_TRAILER_MAX = 8192 };

enum http_verdict { HTTP_MORE, HTTP_HEAD, HTTP_BODY, HTTP_BAD };

enum http_bad {
    HTTP_FINE,
    HTTP_BAD_BYTE,    /* NUL, control character, bare CR or LF */
    HTTP_BAD_REQUEST, /* the request line */
    HTTP_BAD_OLD,     /* HTTP/0.9 */
    HTTP_BAD_H2,      /* the preface of HTTP/2 */
    HTTP_BAD_VERSION, /* any other version */
    HTTP_BAD_HEADER,  /* folded, a space before the colon, no token for a name */
    HTTP_BAD_HOST,    /* none, several, malformed, another than in the target */
    HTTP_BAD_LENGTH,  /* Content-Length, Transfer-Encoding: several, malformed, both, unknown */
    HTTP_BAD_CHUNK,   /* framing of a chunked body */
    HTTP_BAD_LONG,    /* a head, line or trailer past the limits */
    HTTP_BAD_TUNNEL,  /* more after a CONNECT */
};

enum http_upgrade {
    HTTP_UPGRADE_NONE,
    HTTP_UPGRADE_WEBSOCKET,
    HTTP_UPGRADE_OTHER /* h2c, a list ... */
};

struct http_head {
    char method[32];
    char name[256]; /* canonical; empty: `literal`, or HTTP/1.0 without a host */
    bool literal;   /* an address for a host: `addr` */
    struct net_addr addr;
    uint16_t port; /* as said with the host; 0: not said */
    bool connect;  /* CONNECT: host and port are the target's */
    bool old;      /* HTTP/1.0 */
    enum http_upgrade upgrade;
};

struct http {
    struct http_head head; /* of the last HTTP_HEAD */
    enum http_bad bad;
    /* private */
    uint8_t at;
    bool chunked, has_length, secure;
    uint16_t headers;
    uint32_t line,
        seen; /* offsets in the part that is held back: start of a line, first byte not looked at */
    uint32_t target, target_len, host, host_len;
    uint64_t left;
};

void http_init(struct http *h);
/* `ret_used` is 0 for HTTP_MORE and HTTP_BAD. Stays HTTP_BAD once it was. */
enum http_verdict http_next(struct http *h, const char *p, size_t n, size_t *ret_used);
uint64_t http_through(const struct http *h);
void http_passed(struct http *h, uint64_t n); /* n <= http_through() */
/* Between two requests: the client may close without cutting one off. */
bool http_idle(const struct http *h);
/* A short phrase for a log: "HTTP/2 without TLS". */
const char *http_why(enum http_bad bad);
/* The first bytes of an answer: 1: "101 Switching Protocols", 0: anything else, -1: too few to tell. */
int http_switched(const char *p, size_t n);
