/* runtime/network/policy_judge.c - may this name, this address be reached? */
#include <string.h>

#include "base/str.h"
#include "runtime/network/policy.h"

static struct net_verdict yes(const char *rule)
{
    return (struct net_verdict){ .allow = true, .rule = rule };
}

static struct net_verdict no(const char *rule, const char *why)
{
    return (struct net_verdict){ .rule = rule, .why = why };
}

static bool name_matches(const struct net_rule *r, const char *name)
{
    if (!r->name)
        return false;
    if (!r->below)
        return strcmp(name, r->name) == 0;
    size_t n = strlen(name), m = strlen(r->name);
    return n > m + 1 && name[n - m - 1] == '.' && strcmp(name + n - m, r->name) == 0;
}

static bool allows_port(const struct net_policy *p, const struct net_rule *r, uint16_t port)
{
    if (r->port)
        return r->port == port;
    return p->mode == NET_FULL || net_own_port(p, port);
}

/* Where no rule decided. */
static struct net_verdict by_mode(const struct net_policy *p, uint16_t port)
{
    const char *word = net_mode_word(p->mode);

    switch (p->mode) {
    case NET_FULL:
        return yes(word);
    case NET_LIMITED:
        return net_own_port(p, port) ? yes(word) : no(word, "port is not open");
    case NET_ALLOWLIST:
        return no(word, "not in the allowlist");
    case NET_NONE:
        break;
    }
    return no("none", "network is off");
}

struct net_verdict net_judge_name(const struct net_policy *p, const char *name, uint16_t port)
{
    char canonical[NET_NAME_SIZE];
    bool known = false;

    if (p->mode == NET_NONE)
        return by_mode(p, port);
    if (net_name(name, strlen(name), canonical) < 0)
        return no("default", "not a domain name");
    for (size_t i = 0; i < p->deny.n; i++) {
        const struct net_rule *r = &p->deny.v[i];
        if (name_matches(r, canonical) && (!r->port || r->port == port))
            return no(r->text, "denied by a rule");
    }
    for (size_t i = 0; i < p->allow.n; i++) {
        const struct net_rule *r = &p->allow.v[i];
        if (!name_matches(r, canonical))
            continue;
        if (allows_port(p, r, port))
            return yes(r->text);
        known = true;
    }
    if (known && p->mode == NET_ALLOWLIST)
        return no(net_mode_word(p->mode), "port is not open");
    return by_mode(p, port);
}

/* By the address as it is dialled or, for a deny rule, by the IPv4 address inside it. */
static bool denies_addr(const struct net_rule *r, const struct net_addr *a, uint16_t port)
{
    struct net_addr v4;

    if (r->name || (r->port && r->port != port))
        return false;
    return range_holds(&r->range, a) || (addr_embedded(a, &v4) && range_holds(&r->range, &v4));
}

/* Is the rule meant for such an address, or does it merely hold it? */
static bool opens(const struct net_rule *r, enum net_class class, bool local)
{
    bool exact = r->range.bits == addr_bits(&r->range.addr);

    if (class == ADDR_METADATA || (local && class == ADDR_PUBLIC))
        return exact;
    return class == ADDR_PUBLIC || range_class(&r->range) != ADDR_PUBLIC;
}

static struct net_verdict closed(enum net_class class, bool local)
{
    static const char *const why[] = {
        [ADDR_PUBLIC] = "public address",     [ADDR_PRIVATE] = "private address",
        [ADDR_LOOPBACK] = "loopback address", [ADDR_LINKLOCAL] = "link-local address",
        [ADDR_METADATA] = "metadata address", [ADDR_MULTICAST] = "multicast address",
        [ADDR_RESERVED] = "reserved address",
    };
    if (local && class != ADDR_LOOPBACK)
        return no("host", "address of the host itself");
    return no(addr_class_word(class), why[class]);
}

struct net_verdict net_judge_addr(const struct net_policy *p, const struct net_addr *addr,
                                  bool local, uint16_t port, bool named)
{
    struct net_addr a = addr_make(addr->family, addr->b);
    enum net_class class = addr_class(&a);

    if (p->mode == NET_NONE)
        return by_mode(p, port);
    if (addr_unspecified(&a))
        return no("default", "unspecified address");
    for (size_t i = 0; i < p->deny.n; i++)
        if (denies_addr(&p->deny.v[i], &a, port))
            return no(p->deny.v[i].text, "denied by a rule");
    for (size_t i = 0; i < p->allow.n; i++) {
        const struct net_rule *r = &p->allow.v[i];
        if (!r->name && range_holds(&r->range, &a) && opens(r, class, local) &&
            allows_port(p, r, port))
            return yes(r->text);
    }
    if (class != ADDR_PUBLIC || local)
        return closed(class, local);
    return named ? yes("name") : by_mode(p, port);
}

bool net_needs_names(const struct net_policy *p)
{
    if (p->mode == NET_ALLOWLIST)
        return true;
    for (size_t i = 0; i < p->deny.n; i++)
        if (p->deny.v[i].name)
            return p->mode != NET_NONE;
    return false;
}
