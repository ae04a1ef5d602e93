#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "runtime/gateway/http_impl.h"
#include "runtime/network/policy.h"

struct field {
    const char *name, *value;
    size_t name_len, value_len;
};

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_word(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(p, word, n) == 0;
}

/* The same to a server that takes '_' for '-' in names of headers, as CGI does. */
static bool looks_like(const struct field *f, const char *name)
{
    if (f->name_len != strlen(name))
        return false;
    for (size_t i = 0; i < f->name_len; i++) {
        char c = f->name[i] == '_' ? '-' : f->name[i];

        if (strncasecmp(&c, &name[i], 1) != 0)
            return false;
    }
    return true;
}

/* "Name: value"; no space before the colon, nor at the start, where it would continue the line before. */
static bool split_field(const char *p, size_t n, struct field *ret)
{
    size_t colon = 0, start, end = n;

    while (colon < n && is_token(p[colon]))
        colon++;
    if (colon == 0 || colon == n || p[colon] != ':')
        return false;
    for (start = colon + 1; start < end && (p[start] == ' ' || p[start] == '\t');)
        start++;
    while (end > start && (p[end - 1] == ' ' || p[end - 1] == '\t'))
        end--;
    *ret = (struct field){
        .name = p, .name_len = colon, .value = p + start, .value_len = end - start
    };
    return true;
}

/* Decimal digits, no sign, and no zero in front that would make it octal to someone. */
static bool number(const char *p, size_t n, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (n < 1 || n > 18 || (n > 1 && p[0] == '0'))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        v = v * 10 + (unsigned)(p[i] - '0');
    }
    *ret = v;
    return v <= max;
}

static bool literal(const char *p, size_t n, struct http_head *ret)
{
    char text[INET6_ADDRSTRLEN];

    if (n >= sizeof text || memchr(p, '\0', n))
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    ret->literal = addr_parse(text, &ret->addr) == 0;
    return ret->literal;
}

/* NAME, V4 or [V6], each with :PORT. Fills in name, literal, addr, port. */
static bool authority(const char *p, size_t n, struct http_head *ret)
{
    const char *end = n && p[0] == '[' ? memchr(p, ']', n) : NULL;
    uint64_t port;
    size_t len;

    if (end) {
        if (!memchr(p, ':', (size_t)(end - p)) || !literal(p + 1, (size_t)(end - p) - 1, ret))
            return false;
        len = (size_t)(end - p) + 1;
    } else {
        end = memchr(p, ':', n);
        len = end ? (size_t)(end - p) : n;
        if (!literal(p, len, ret) && net_name(p, len, ret->name) < 0)
            return false;
    }
    if (len == n)
        return true;
    if (p[len] != ':' || !number(p + len + 1, n - len - 1, UINT16_MAX, &port) || !port)
        return false;
    ret->port = (uint16_t)port;
    return true;
}

static bool starts(const char *p, size_t n, const char *prefix)
{
    return n >= strlen(prefix) && strncasecmp(p, prefix, strlen(prefix)) == 0;
}

/* What the target says about the host goes to h->target: nothing for "/path" and "*". */
static enum http_bad read_target(struct http *h, const char *p, size_t at, size_t n)
{
    const char *t = p + at;
    size_t skip = starts(t, n, "http://") ? 7 : starts(t, n, "https://") ? 8 : 0;

    h->target = h->target_len = 0;
    if (n == 0 || memchr(t, '\t', n) || memchr(t, '#', n))
        return HTTP_BAD_REQUEST;
    if (h->head.connect) {
        h->target = (uint32_t)at;
        h->target_len = (uint32_t)n;
        return HTTP_FINE;
    }
    if (!skip) {
        bool all = n == 1 && t[0] == '*' && strcmp(h->head.method, "OPTIONS") == 0;

        return all || t[0] == '/' ? HTTP_FINE : HTTP_BAD_REQUEST;
    }
    h->secure = skip == 8;
    h->target = (uint32_t)(at + skip);
    while (skip + h->target_len < n && !strchr("/?", t[skip + h->target_len]))
        h->target_len++;
    return HTTP_FINE;
}

enum http_bad http_request_line(struct http *h, const char *p, size_t len)
{
    const char *line = p + h->line, *space = memchr(line, ' ', len), *second, *version;
    size_t method = space ? (size_t)(space - line) : len, rest = len - method;

    h->head = (struct http_head){ 0 };
    h->chunked = h->has_length = h->secure = false;
    h->headers = 0;
    h->host = h->host_len = 0;
    h->left = 0;
    if (len == 14 && memcmp(line, "PRI * HTTP/2.0", 14) == 0)
        return HTTP_BAD_H2;
    for (size_t i = 0; i < method; i++)
        if (!is_token(line[i]))
            return HTTP_BAD_REQUEST;
    if (method == 0 || method >= sizeof h->head.method || rest < 2)
        return HTTP_BAD_REQUEST;
    memcpy(h->head.method, line, method);
    h->head.connect = strcmp(h->head.method, "CONNECT") == 0;
    second = memchr(space + 1, ' ', rest - 1);
    if (!second)
        return HTTP_BAD_OLD;
    version = second + 1;
    rest = (size_t)(line + len - version);
    if (rest != 8 || memcmp(version, "HTTP/1.", 7) != 0 || (version[7] != '0' && version[7] != '1'))
        return starts(version, rest, "HTTP/") && !memchr(version, ' ', rest) ? HTTP_BAD_VERSION
                                                                             : HTTP_BAD_REQUEST;
    h->head.old = version[7] == '0';
    return read_target(h, p, (size_t)(space + 1 - p), (size_t)(second - space - 1));
}

static enum http_bad read_framing(struct http *h, const struct field *f, bool length)
{
    if (h->has_length || h->chunked)
        return HTTP_BAD_LENGTH;
    if (length) {
        h->has_length = true;
        return number(f->value, f->value_len, INT64_MAX, &h->left) ? HTTP_FINE : HTTP_BAD_LENGTH;
    }
    h->chunked = !h->head.old && is_word(f->value, f->value_len, "chunked");
    return h->chunked ? HTTP_FINE : HTTP_BAD_LENGTH;
}

/* A header named by "Connection" is one that the next server drops. */
static bool drops_framing(const struct field *f)
{
    for (size_t at = 0, len; at < f->value_len; at += len + 1) {
        struct field item = { .name = f->value + at };

        for (len = 0; at + len < f->value_len && item.name[len] != ',';)
            len++;
        item.name_len = len;
        while (item.name_len && strchr(" \t", item.name[0]))
            item.name++, item.name_len--;
        while (item.name_len && strchr(" \t", item.name[item.name_len - 1]))
            item.name_len--;
        if (looks_like(&item, "host") || looks_like(&item, "content-length") ||
            looks_like(&item, "transfer-encoding"))
            return true;
    }
    return false;
}

enum http_bad http_header_line(struct http *h, const char *p, size_t len)
{
    struct field f;

    if (++h->headers > HTTP_HEADERS_MAX)
        return HTTP_BAD_LONG;
    if (!split_field(p + h->line, len, &f))
        return HTTP_BAD_HEADER;
    if (is_word(f.name, f.name_len, "host")) {
        if (h->host || f.value_len == 0)
            return HTTP_BAD_HOST;
        h->host = (uint32_t)(f.value - p);
        h->host_len = (uint32_t)f.value_len;
    } else if (is_word(f.name, f.name_len, "content-length")) {
        return read_framing(h, &f, true);
    } else if (is_word(f.name, f.name_len, "transfer-encoding")) {
        return read_framing(h, &f, false);
    } else if (looks_like(&f, "content-length") || looks_like(&f, "transfer-encoding")) {
        return HTTP_BAD_LENGTH;
    } else if (is_word(f.name, f.name_len, "upgrade")) {
        bool socket =
            h->head.upgrade == HTTP_UPGRADE_NONE && is_word(f.value, f.value_len, "websocket");

        h->head.upgrade = socket ? HTTP_UPGRADE_WEBSOCKET : HTTP_UPGRADE_OTHER;
    } else if (is_word(f.name, f.name_len, "connection") && drops_framing(&f)) {
        return HTTP_BAD_HEADER;
    }
    return HTTP_FINE;
}

enum http_bad http_trailer_line(struct http *h, const char *p, size_t len)
{
    struct field f;

    if (++h->headers > HTTP_HEADERS_MAX)
        return HTTP_BAD_LONG;
    if (!split_field(p + h->line, len, &f) || looks_like(&f, "host") ||
        looks_like(&f, "content-length") || looks_like(&f, "transfer-encoding"))
        return HTTP_BAD_CHUNK;
    return HTTP_FINE;
}

static bool same_host(const struct http_head *a, const struct http_head *b)
{
    return strcmp(a->name, b->name) == 0 && a->literal == b->literal &&
           (!a->literal || addr_eq(&a->addr, &b->addr));
}

static void set_host(struct http_head *head, const struct http_head *from)
{
    memcpy(head->name, from->name, sizeof head->name);
    head->literal = from->literal;
    head->addr = from->addr;
    head->port = from->port;
}

enum http_bad http_head_end(struct http *h, const char *p)
{
    struct http_head target = { 0 };
    uint16_t usual = h->secure ? 443 : 80;

    if (!h->host && !h->head.old)
        return HTTP_BAD_HOST;
    if (h->host && !authority(p + h->host, h->host_len, &h->head))
        return HTTP_BAD_HOST;
    if (!h->target)
        return HTTP_FINE;
    if (!authority(p + h->target, h->target_len, &target) || (h->head.connect && !target.port))
        return HTTP_BAD_HOST;
    if (h->host && !same_host(&h->head, &target))
        return HTTP_BAD_HOST;
    if (h->host && !h->head.connect &&
        (h->head.port ? h->head.port : usual) != (target.port ? target.port : usual))
        return HTTP_BAD_HOST;
    if (!h->host || h->head.connect)
        set_host(&h->head, &target);
    return HTTP_FINE;
}
