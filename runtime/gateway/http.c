#include "runtime/gateway/http.h"

#include <string.h>

#include "runtime/gateway/http_impl.h"

enum {
    AT_REQUEST,
    AT_HEADERS,
    AT_BODY,       /* `left` bytes */
    AT_CHUNK_SIZE, /* the line before a chunk */
    AT_CHUNK,      /* `left` bytes */
    AT_CHUNK_END,  /* the line end behind it */
    AT_TRAILER,
    AT_TUNNEL,
    AT_BAD,
};

static const uint64_t CHUNK_MAX = 0x7fffffff; /* none that a server could take for a smaller one */

void http_init(struct http *h)
{
    *h = (struct http){ 0 };
}

static enum http_verdict fail(struct http *h, enum http_bad bad)
{
    h->bad = bad;
    h->at = AT_BAD;
    return HTTP_BAD;
}

static bool go(struct http *h, uint8_t at)
{
    h->at = at;
    h->line = h->seen = 0;
    return true;
}

/* Looks for the end of the line at h->line. True: it ends at h->seen. False: h->bad, or more is needed. The
 * part that is held back may have `limit` bytes. */
static bool find_line(struct http *h, const char *p, size_t n, size_t limit)
{
    while (h->seen < n && h->seen < limit) {
        unsigned char c = (unsigned char)p[h->seen];
        bool behind_cr = h->seen > h->line && p[h->seen - 1] == '\r';

        if (behind_cr != (c == '\n') || c == 0x7f ||
            (c < 0x20 && c != '\t' && c != '\r' && c != '\n')) {
            h->bad = HTTP_BAD_BYTE;
            return false;
        }
        h->seen++;
        if (c == '\n')
            return true;
    }
    if (h->seen == limit)
        h->bad = HTTP_BAD_LONG;
    return false;
}

static size_t line_length(const struct http *h)
{
    return h->seen - h->line - 2;
}

static enum http_verdict next_head(struct http *h, const char *p, size_t n, size_t *ret_used)
{
    while (find_line(h, p, n, HTTP_HEAD_MAX)) {
        size_t len = line_length(h);

        if (h->at == AT_HEADERS && len == 0) {
            h->bad = http_head_end(h, p);
            if (h->bad)
                break;
            *ret_used = h->seen;
            go(h, h->head.connect ? AT_TUNNEL
                  : h->chunked    ? AT_CHUNK_SIZE
                  : h->left       ? AT_BODY
                                  : AT_REQUEST);
            return HTTP_HEAD;
        }
        h->bad = h->at == AT_REQUEST ? http_request_line(h, p, len) : http_header_line(h, p, len);
        if (h->bad)
            break;
        h->at = AT_HEADERS;
        h->line = h->seen;
    }
    return h->bad ? fail(h, h->bad) : HTTP_MORE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "1a", "1a;name=value": what stands behind the semicolon is of no meaning to anyone. */
static bool chunk_size(const char *p, size_t n, uint64_t *ret)
{
    uint64_t v = 0;
    size_t i = 0;

    for (; i < n && hex_digit(p[i]) >= 0; i++) {
        v = v << 4 | (unsigned)hex_digit(p[i]);
        if (v > CHUNK_MAX)
            return false;
    }
    *ret = v;
    return i > 0 && (i == n || p[i] == ';');
}

/* One line of a chunked body at p. True: it is done with, h->seen or all of the trailer may go on. */
static bool chunk_line(struct http *h, const char *p, size_t n, size_t *ret_used)
{
    if (h->at == AT_CHUNK_END) {
        if (n && p[0] != '\r')
            h->bad = HTTP_BAD_CHUNK;
        else if (find_line(h, p, n, 2)) {
            *ret_used = h->seen;
            return go(h, AT_CHUNK_SIZE);
        }
        return false;
    }
    if (h->at == AT_CHUNK_SIZE) {
        if (!find_line(h, p, n, HTTP_CHUNK_LINE_MAX))
            return false;
        if (!chunk_size(p, line_length(h), &h->left)) {
            h->bad = HTTP_BAD_CHUNK;
            return false;
        }
        *ret_used = h->seen;
        h->headers = 0;
        return go(h, h->left ? AT_CHUNK : AT_TRAILER);
    }
    while (find_line(h, p, n, HTTP_TRAILER_MAX)) {
        if (line_length(h) == 0) {
            *ret_used = h->seen;
            return go(h, AT_REQUEST);
        }
        h->bad = http_trailer_line(h, p, line_length(h));
        if (h->bad)
            return false;
        h->line = h->seen;
    }
    return false;
}

static enum http_verdict next_body(struct http *h, const char *p, size_t n, size_t *ret_used)
{
    size_t at = 0;

    while (h->at != AT_REQUEST) {
        size_t used;

        if (h->left) {
            used = h->left < n - at ? (size_t)h->left : n - at;
            if (!used)
                break;
            http_passed(h, used);
        } else if (!chunk_line(h, p + at, n - at, &used)) {
            if (h->bad)
                fail(h, h->bad);
            break;
        }
        at += used;
    }
    *ret_used = at; /* what was good before the bad may go; the next call tells */
    return at ? HTTP_BODY : h->bad ? HTTP_BAD : HTTP_MORE;
}

enum http_verdict http_next(struct http *h, const char *p, size_t n, size_t *ret_used)
{
    *ret_used = 0;
    switch (h->at) {
    case AT_BAD:
        return HTTP_BAD;
    case AT_TUNNEL:
        return n ? fail(h, HTTP_BAD_TUNNEL) : HTTP_MORE;
    case AT_REQUEST:
    case AT_HEADERS:
        return next_head(h, p, n, ret_used);
    default:
        return next_body(h, p, n, ret_used);
    }
}

uint64_t http_through(const struct http *h)
{
    return h->at == AT_BODY || h->at == AT_CHUNK ? h->left : 0;
}

void http_passed(struct http *h, uint64_t n)
{
    h->left -= n;
    if (!h->left)
        go(h, h->at == AT_CHUNK ? AT_CHUNK_END : AT_REQUEST);
}

bool http_idle(const struct http *h)
{
    return h->at == AT_REQUEST && h->seen == 0;
}

const char *http_why(enum http_bad bad)
{
    switch (bad) {
    case HTTP_FINE:
        break;
    case HTTP_BAD_BYTE:
        return "not HTTP: control characters";
    case HTTP_BAD_REQUEST:
        return "malformed request line";
    case HTTP_BAD_OLD:
        return "HTTP/0.9";
    case HTTP_BAD_H2:
        return "HTTP/2 without TLS";
    case HTTP_BAD_VERSION:
        return "unknown version of HTTP";
    case HTTP_BAD_HEADER:
        return "malformed header";
    case HTTP_BAD_HOST:
        return "no Host, or an ambiguous one";
    case HTTP_BAD_LENGTH:
        return "ambiguous length of a request";
    case HTTP_BAD_CHUNK:
        return "malformed chunk";
    case HTTP_BAD_LONG:
        return "request head too long";
    case HTTP_BAD_TUNNEL:
        return "data behind CONNECT";
    }
    return "fine";
}

int http_switched(const char *p, size_t n)
{
    static const char want[] = "HTTP/1.1 101";
    size_t len = sizeof want - 1;

    if (memcmp(p, want, n < len ? n : len) != 0)
        return 0;
    if (n <= len)
        return -1;
    return p[len] == ' ' || p[len] == '\r';
}
