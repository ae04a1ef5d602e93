#include "runtime/gateway/inspect.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "runtime/gateway/hello.h"

enum { LINE_MAX_SEEN = 4096 };

/* --- protocols ------------------------------------------------------------------------------- */

static bool token_char(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* A server that reads this as HTTP must find that we do too: whatever has "HTTP/" in its first line or starts
 * with white space is HTTP, and then strictly so. */
static enum inspect_speaks text_or_not(const unsigned char *p, size_t n)
{
    size_t token = 0;
    if (isspace(p[0]))
        return SPEAKS_HTTP;
    while (token < n && token_char(p[token]))
        token++;
    if (token == 0 || (token < n && !strchr(" \t\r\n\v\f", p[token])) || (token < n && !p[token]))
        return SPEAKS_OTHER;
    const unsigned char *end = memchr(p, '\n', n);
    size_t line = end ? (size_t)(end - p) : n;
    for (size_t i = 0; i + 5 <= line; i++)
        if (strncasecmp((const char *)p + i, "HTTP/", 5) == 0)
            return SPEAKS_HTTP;
    if (end)
        return SPEAKS_OTHER;
    return n >= LINE_MAX_SEEN ? SPEAKS_HTTP : SPEAKS_NOTHING;
}

enum inspect_speaks inspect_speaks(const void *p, size_t n)
{
    if (n == 0)
        return SPEAKS_NOTHING;
    return *(const unsigned char *)p == 0x16 ? SPEAKS_TLS : text_or_not(p, n);
}

void inspect_host(const struct http_head *h, char ret[NET_NAME_SIZE])
{
    ret[0] = 0;
    if (h->literal) {
        char text[INET6_ADDRSTRLEN];
        addr_text(&h->addr, text);
        memcpy(ret, text, strlen(text) + 1);
    } else {
        memcpy(ret, h->name, strlen(h->name) + 1);
    }
}

/* --- verdicts -------------------------------------------------------------------------------- */

static bool denies_names(const struct net_policy *p)
{
    for (size_t i = 0; i < p->deny.n; i++)
        if (p->deny.v[i].name)
            return true;
    return false;
}

/* A rule's own text, not the word of a policy. */
static bool by_rule(const struct net_rules *l, const struct net_verdict *v)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].text == v->rule)
            return true;
    return false;
}

bool inspect_needed(const struct net_policy *p, const char *fake, const struct net_addr *addr,
                    uint16_t port)
{
    if (!net_needs_names(p))
        return false;
    if (fake || denies_names(p))
        return true;
    struct net_verdict v = net_judge_addr(p, addr, false, port, false);
    return !(v.allow && by_rule(&p->allow, &v)); /* a range that a rule names: nothing to ask */
}

static void deny(struct inspect *ret, const char *name, struct net_verdict v, enum gw_hint hint)
{
    ret->what = INSPECT_DENY;
    ret->verdict = v;
    ret->verdict.allow = false;
    ret->hint = hint;
    memmove(ret->name, name, strlen(name) + 1);
}

static void deny_why(const struct inspect_ask *a, struct inspect *ret, const char *why)
{
    struct net_verdict v = { .rule = net_mode_word(a->policy->mode), .why = why };
    deny(ret, a->fake ? a->fake : "", v, GW_HINT_NONE);
}

static void pass(struct inspect *ret, const char *name, struct net_verdict v)
{
    ret->what = INSPECT_PASS;
    ret->verdict = v;
    memmove(ret->name, name, strlen(name) + 1);
}

/* The client named a server: in its hello, in its request. */
static void judge_named(const struct inspect_ask *a, struct inspect *ret, const char *name)
{
    struct net_verdict v = net_judge_name(a->policy, name, a->port);
    if (!a->fake) {
        struct net_verdict va = net_judge_addr(a->policy, &a->addr, false, a->port, false);
        if (va.allow && by_rule(&a->policy->allow, &va) && !by_rule(&a->policy->deny, &v)) {
            pass(ret, "", va);
            return;
        }
    }
    if (!v.allow)
        deny(ret, name, v, GW_HINT_NAME);
    else
        pass(ret, name, v);
}

/* It named nobody; `need` says what an allowlist wants to see. */
static void judge_unnamed(const struct inspect_ask *a, struct inspect *ret, const char *need)
{
    bool strict = a->policy->mode == NET_ALLOWLIST;
    if (a->fake) {
        if (strict && need)
            deny_why(a, ret, need);
        else
            pass(ret, a->fake, net_judge_name(a->policy, a->fake, a->port));
        return;
    }
    struct net_verdict v = net_judge_addr(a->policy, &a->addr, false, a->port, false);
    if (v.allow)
        pass(ret, "", v);
    else
        deny(ret, "", v, GW_HINT_ADDR);
}

static void read_tls(const struct inspect_ask *a, struct inspect *ret)
{
    char name[NET_NAME_SIZE];
    bool strict = a->policy->mode == NET_ALLOWLIST;
    ret->speaks = SPEAKS_TLS;
    switch (hello_read(a->p, a->n, name)) {
    case HELLO_MORE:
        return;
    case HELLO_ECH:
        if (strict || !name[0])
            judge_unnamed(a, ret, "TLS with an encrypted server name");
        else
            judge_named(a, ret, name);
        return;
    case HELLO_NAME:
        judge_named(a, ret, name);
        return;
    case HELLO_NO_NAME:
        judge_unnamed(a, ret, "TLS without a server name");
        return;
    case HELLO_BAD:
        break;
    }
    ret->malformed = true;
    deny_why(a, ret, "not a TLS hello that can be read");
}

static void read_http(const struct inspect_ask *a, struct inspect *ret)
{
    struct http h;
    size_t used;
    ret->speaks = SPEAKS_HTTP;
    http_init(&h);
    switch (http_next(&h, a->p, a->n, &used)) {
    case HTTP_MORE:
        return;
    case HTTP_HEAD:
        if (h.head.connect)
            deny_why(a, ret, "CONNECT is refused");
        else if (h.head.name[0])
            judge_named(a, ret, h.head.name);
        else if (h.head.literal && !a->fake && !addr_eq(&h.head.addr, &a->addr))
            deny_why(a, ret, "HTTP for another address");
        else
            judge_unnamed(a, ret, "HTTP without the name of a host");
        return;
    default:
        ret->malformed = true;
        deny_why(a, ret, http_why(h.bad));
    }
}

void inspect(const struct inspect_ask *a, struct inspect *ret)
{
    bool strict = a->policy->mode == NET_ALLOWLIST;
    bool web = a->port == 80 || a->port == 443;

    *ret = (struct inspect){ .what = INSPECT_MORE };
    if (a->fake) { /* whatever it will say, this name must be allowed as well */
        struct net_verdict v = net_judge_name(a->policy, a->fake, a->port);
        if (!v.allow) {
            deny(ret, a->fake, v, GW_HINT_NAME);
            return;
        }
    }
    if (a->n == 0) {
        if (a->quiet && !web)
            judge_unnamed(a, ret, NULL);
        return;
    }
    enum inspect_speaks s = inspect_speaks(a->p, a->n);
    if (s == SPEAKS_TLS || (strict && a->port == 443))
        read_tls(a, ret);
    else if (s == SPEAKS_HTTP || (strict && a->port == 80))
        read_http(a, ret);
    else if (s == SPEAKS_OTHER) {
        ret->speaks = s;
        judge_unnamed(a, ret, NULL);
    }
}
