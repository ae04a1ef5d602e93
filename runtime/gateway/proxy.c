#include "runtime/gateway/proxy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/gateway/gw.h"

/* One word of NO_PROXY. */
struct straight {
    bool all, range;
    struct net_range r;
    char *name; /* itself and all below it */
    uint16_t port;
};

struct proxy {
    struct proxy_way *http, *https; /* NULL: straight */
    struct straight *straight;
    size_t n_straight;
};

static const char *env(const char *lower, const char *upper)
{
    const char *v = getenv(lower);
    if (!v || !*v)
        v = getenv(upper);
    return v && *v ? v : NULL;
}

static int port_of(const char *text, uint16_t *ret)
{
    uint64_t n;
    if (parse_uint(text, 65535, &n, NULL) < 0 || !n)
        return -1;
    *ret = n;
    return 0;
}

/* "host", "host:8080", "[::1]:8080", "::1": splits in place. */
static int split_port(char *text, char **ret_host, uint16_t *ret_port)
{
    char *end;
    if (*text == '[') {
        *ret_host = text + 1;
        end = strchr(text, ']');
        if (!end)
            return -1;
        *end++ = '\0';
        if (*end && *end != ':')
            return -1;
    } else {
        *ret_host = text;
        end = strchr(text, ':');
        if (!end || strchr(end + 1, ':'))
            return 0; /* no port, or an IPv6 address */
    }
    if (!*end)
        return 0;
    *end = '\0';
    return port_of(end + 1, ret_port);
}

/* %XX in a user's name or password. */
static void add_decoded(struct str *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char hex[3] = { 0 };
        if (p[i] == '%' && i + 2 < n && isxdigit((unsigned char)p[i + 1]) &&
            isxdigit((unsigned char)p[i + 2])) {
            memcpy(hex, p + i + 1, 2);
            str_addc(s, (char)strtoul(hex, NULL, 16));
            i += 2;
        } else {
            str_addc(s, p[i]);
        }
    }
}

static void way_free_p(struct proxy_way **w)
{
    if (!*w)
        return;
    free((*w)->host);
    free((*w)->auth);
    free((*w)->bad);
    free_p(w);
}

/* Never repeats the value in a message: it may hold a password. */
static struct proxy_way *way_parse(const char *var, const char *url)
{
    struct proxy_way *w = mem_zalloc(sizeof *w);
    const char *scheme = strstr(url, "://");
    if (scheme && strncasecmp(url, "http://", 7)) {
        w->bad = str_printf("%s of the host is a %.*s:// proxy; only http:// is supported", var,
                            (int)(scheme - url < 16 ? scheme - url : 16), url);
        return w;
    }
    if (scheme)
        url = scheme + 3;
    AUTOFREE char *rest = str_dup(url);
    rest[strcspn(rest, "/?#")] = '\0';
    char *at = strrchr(rest, '@'), *host = at ? at + 1 : rest;
    if (at) {
        AUTOSTR struct str plain = STR_INIT, coded = STR_INIT;
        add_decoded(&plain, rest, at - rest);
        str_add_base64(&coded, plain.p ? plain.p : "", plain.len);
        w->auth = str_take(&coded);
    }
    w->port = 80;
    char name[NET_NAME_SIZE];
    if (split_port(host, &host, &w->port) < 0 || !*host) {
        w->bad = str_printf("%s of the host is not of the form http://HOST:PORT", var);
    } else if (!addr_parse(host, &w->addr)) {
        w->literal = true;
        w->host = str_dup(host);
    } else if (!net_name(host, strlen(host), name)) {
        w->host = str_dup(name);
    } else {
        w->bad = str_printf("%s of the host names no valid host", var);
    }
    return w;
}

static void add_straight(struct proxy *p, char *word)
{
    struct straight s = { 0 };
    char *host = word, *slash = strchr(word, '/');
    uint64_t bits;
    if (!strcmp(word, "*")) {
        s.all = true;
    } else if (slash) {
        *slash = '\0';
        if (addr_parse(word, &s.r.addr) < 0 ||
            parse_uint(slash + 1, addr_bits(&s.r.addr), &bits, NULL) < 0)
            return;
        s.range = true;
        s.r.bits = bits;
        s.r.addr = addr_masked(&s.r.addr, s.r.bits);
    } else if (split_port(word, &host, &s.port) < 0) {
        return;
    } else if (!addr_parse(host, &s.r.addr)) {
        s.range = true;
        s.r.bits = addr_bits(&s.r.addr);
    } else {
        char name[NET_NAME_SIZE];
        host += !strncmp(host, "*.", 2) ? 2 : *host == '.';
        if (net_name(host, strlen(host), name) < 0)
            return;
        s.name = str_dup(name);
    }
    struct straight *v = realloc(p->straight, (p->n_straight + 1) * sizeof *v);
    if (!v)
        abort();
    p->straight = v;
    v[p->n_straight++] = s;
}

int proxy_new(struct gw *gw, struct err **e)
{
    struct proxy *p = gw->proxy = mem_zalloc(sizeof *p);
    const char *all = env("all_proxy", "ALL_PROXY"), *no = env("no_proxy", "NO_PROXY");
    const char *http = env("http_proxy", "HTTP_PROXY"), *https = env("https_proxy", "HTTPS_PROXY");
    if (http || all)
        p->http = way_parse(http ? "HTTP_PROXY" : "ALL_PROXY", http ? http : all);
    if (https || all)
        p->https = way_parse(https ? "HTTPS_PROXY" : "ALL_PROXY", https ? https : all);
    AUTOFREE char *words = str_dup(no ? no : "");
    for (char *save, *w = strtok_r(words, ", \t", &save); w; w = strtok_r(NULL, ", \t", &save))
        add_straight(p, w);
    return 0;
}

void proxy_free(struct gw *gw)
{
    struct proxy *p = gw->proxy;
    if (!p)
        return;
    way_free_p(&p->http);
    way_free_p(&p->https);
    for (size_t i = 0; i < p->n_straight; i++)
        free(p->straight[i].name);
    free(p->straight);
    free_p(&gw->proxy);
}

static bool goes_straight(const struct straight *s, const char *name, const struct net_addr *addr,
                          uint16_t port)
{
    if (s->all)
        return true;
    if (s->port && s->port != port)
        return false;
    if (!name)
        return s->range && range_holds(&s->r, addr);
    if (!s->name)
        return false;
    size_t n = strlen(name), m = strlen(s->name);
    return n >= m && !strcmp(name + n - m, s->name) && (n == m || name[n - m - 1] == '.');
}

const struct proxy_way *proxy_for(const struct gw *gw, const char *name,
                                  const struct net_addr *addr, uint16_t port)
{
    const struct proxy *p = gw->proxy;
    const struct proxy_way *w = port == 80 ? p->http : p->https;
    if (!w || (!name && addr_class(addr) == ADDR_LOOPBACK))
        return NULL;
    for (size_t i = 0; i < p->n_straight; i++)
        if (goes_straight(&p->straight[i], name, addr, port))
            return NULL;
    return w;
}

void proxy_ask(const struct proxy_way *w, const char *name, const struct net_addr *addr,
               uint16_t port, struct str *ret)
{
    char host[NET_NAME_SIZE + 2], text[INET6_ADDRSTRLEN];
    if (!name)
        addr_text(addr, text);
    snprintf(host, sizeof host, !name && addr->family == AF_INET6 ? "[%s]" : "%s",
             name ? name : text);
    str_addf(ret, "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n", host, port, host, port);
    if (w->auth)
        str_addf(ret, "Proxy-Authorization: Basic %s\r\n", w->auth);
    str_add(ret, "\r\n");
}

int proxy_answer(const char *p, size_t n, int *ret_status)
{
    size_t end = 0;
    for (size_t i = 0; i + 1 < n && !end; i++)
        if (p[i] == '\n' && (p[i + 1] == '\n' || (i + 2 < n && !memcmp(p + i + 1, "\r\n", 2))))
            end = i + (p[i + 1] == '\n' ? 2 : 3);
    if (n && memcmp(p, "HTTP/1.", n < 7 ? n : 7))
        return -1;
    if (!end)
        return n >= PROXY_HEAD ? -1 : 0;
    if (end < 13 || p[8] != ' ' || !isdigit((unsigned char)p[9]) ||
        !isdigit((unsigned char)p[10]) || !isdigit((unsigned char)p[11]))
        return -1;
    *ret_status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + (p[11] - '0');
    return (int)end;
}
