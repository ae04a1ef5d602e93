/* runtime/network/policy_parse.c - the words of flags: rules, ports, rates, published ports. */
#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "runtime/network/policy.h"

static const char *const modes[] = {
    [NET_NONE] = "none",
    [NET_LIMITED] = "limited",
    [NET_ALLOWLIST] = "allowlist",
    [NET_FULL] = "full",
};

const char *net_mode_word(enum net_mode mode)
{
    return (size_t)mode < ARRAY_LEN(modes) ? modes[mode] : "none";
}

/* Somebody's text in an error: one line, not endless. */
static char *shown(const char *text)
{
    struct str s = STR_INIT;
    size_t n = strlen(text), most = 100;

    str_add_escaped(&s, text, n > most ? most : n);
    if (n > most)
        str_add(&s, "...");
    return str_take(&s);
}

static int bad(const char *flag, const char *text, const char *why, struct err **e)
{
    AUTOFREE char *s = shown(text);
    return err_new(e, ERR_INVALID, "%s '%s': %s", flag, s, why);
}

int net_mode_parse(const char *word, enum net_mode *ret, struct err **e)
{
    const char *near;

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (strcmp(word, modes[i]) == 0) {
            *ret = (enum net_mode)i;
            return 0;
        }
    }
    AUTOFREE char *s = shown(word);
    near = nearest_word(word, modes, ARRAY_LEN(modes));
    if (near)
        return err_new(e, ERR_INVALID, "--network '%s': not a policy; did you mean %s?", s, near);
    return err_new(e, ERR_INVALID,
                   "--network '%s': not a policy; use none, limited, allowlist or full", s);
}

/* 1 to 65535, digits only. */
static bool port_read(const char *text, uint16_t *ret)
{
    uint64_t n;

    if (*text == '0' || strlen(text) > 5 || parse_uint(text, 65535, &n, NULL) < 0)
        return false;
    *ret = (uint16_t)n;
    return true;
}

int net_port_parse(const char *flag, const char *text, uint16_t *ret, struct err **e)
{
    if (!port_read(text, ret))
        return bad(flag, text, "not a port; write a number from 1 to 65535", e);
    return 0;
}

int net_rate_parse(const char *flag, const char *text, uint64_t *ret, struct err **e)
{
    size_t n = strlen(text);
    AUTOFREE char *size = str_dup(text);
    uint64_t rate;

    if (strcmp(text, "none") == 0) {
        *ret = 0;
        return 0;
    }
    if (n > 2 && strcmp(text + n - 2, "/s") == 0)
        size[n - 2] = '\0';
    if (parse_size(size, &rate, NULL) < 0)
        return bad(flag, text, "not a rate; write bytes per second like 500K, 10M or 1G/s", e);
    if (!rate)
        return bad(flag, text, "nothing would ever pass; write 'none' for no limit", e);
    *ret = rate;
    return 0;
}

/* --- rules ----------------------------------------------------------------------------------- */
static const char *why_no_name(const char *name)
{
    const char *last = strrchr(name, '.');
    struct net_addr a;

    for (const char *p = name; *p; p++)
        if ((unsigned char)*p >= 0x80)
            return "not in ASCII; give the name's xn-- form";
    if (strcmp(name, "*") == 0 || strcmp(name, "*.") == 0)
        return "every name is a policy, not a rule; use --network limited or --network full";
    if (*name == '.' && name[1] && name[1] != '.')
        return "starts with a dot; write *.example.com for all below example.com";
    if (strchr(str_starts(name, "*.") ? name + 2 : name, '*'))
        return "a * may only be the whole first part, as in *.github.com";
    last = last ? last + 1 : name;
    if (isdigit((unsigned char)*last) && addr_parse(name, &a) < 0 &&
        !name[strspn(name, "0123456789abcdefxABCDEFX.")])
        return "neither a domain name nor an IP address; write an address as four numbers, like "
               "10.1.2.3";
    return "not a domain name; write it like pypi.org, *.github.com, host:8443 or 10.1.2.0/24";
}

static void range_text(const struct net_range *r, uint16_t port, struct str *s)
{
    char addr[INET6_ADDRSTRLEN];
    bool brackets = port && r->addr.family == AF_INET6;

    addr_text(&r->addr, addr);
    str_addf(s, "%s%s", brackets ? "[" : "", addr);
    if (r->bits < addr_bits(&r->addr))
        str_addf(s, "/%u", r->bits);
    if (brackets)
        str_addc(s, ']');
    if (port)
        str_addf(s, ":%u", port);
}

/* "10.1.2.0/24" or "10.1.2.3"; `text` is the whole of what was written, for the error. */
static int parse_range(const char *flag, const char *text, char *range, struct net_range *ret,
                       struct err **e)
{
    char *slash = strchr(range, '/');
    uint64_t bits = 0, most, mapped;
    struct net_range r;

    if (slash)
        *slash++ = '\0';
    if (addr_parse(range, &r.addr) < 0)
        return bad(flag, text,
                   slash ? "not a range of addresses; write it like 10.1.2.0/24 or fd00:1::/32"
                         : "not an IPv6 address; write it like 2001:db8::1, with a port "
                           "like [2001:db8::1]:443",
                   e);
    most = addr_bits(&r.addr);
    r.bits = (unsigned)most;
    if (slash) {
        mapped = strchr(range, ':') && most == 32 ? 96 : 0; /* ::ffff:10.0.0.0/104 */
        if (strlen(slash) > 3 || (slash[0] == '0' && slash[1]) ||
            parse_uint(slash, most + mapped, &bits, NULL) < 0 || bits < mapped)
            return bad(flag, text,
                       most == 32 ? "not a range; after the slash stands a number from 0 to 32"
                                  : "not a range; after the slash stands a number from 0 to 128",
                       e);
        r.bits = (unsigned)(bits - mapped);
    }
    struct net_addr first = addr_masked(&r.addr, r.bits);
    if (!addr_eq(&first, &r.addr)) {
        AUTOSTR struct str one = STR_INIT, all = STR_INIT;
        AUTOFREE char *s = shown(text);
        range_text(&(struct net_range){ r.addr, addr_bits(&r.addr) }, 0, &one);
        range_text(&(struct net_range){ first, r.bits }, 0, &all);
        return err_new(
            e, ERR_INVALID,
            "%s '%s': not the start of its range; write %s for the range or %s for the address",
            flag, s, all.p, one.p);
    }
    *ret = r;
    return 0;
}

/* Cuts "HOST:PORT", "CIDR:PORT", "[V6]:PORT" in two; *ret_port NULL where there is none. False: brackets
 * that do not match. */
static bool split(char *text, char **ret_host, char **ret_port)
{
    char *slash = strchr(text, '/'), *colon = strchr(text, ':');

    *ret_host = text;
    *ret_port = NULL;
    if (*text == '[') {
        char *end = strchr(text, ']');
        *ret_host = text + 1;
        if (!end || (end[1] && end[1] != ':') || !memchr(text, ':', (size_t)(end - text)))
            return false;
        *end = '\0';
        *ret_port = end[1] ? end + 2 : NULL;
        return true;
    }
    if (slash)
        colon = strchr(slash, ':');
    else if (colon && strchr(colon + 1, ':'))
        colon = NULL; /* IPv6 without a port */
    if (colon) {
        *colon = '\0';
        *ret_port = colon + 1;
    }
    return true;
}

static int parse_name(const char *flag, const char *text, const char *host, struct net_rule *r,
                      struct err **e)
{
    char name[NET_NAME_SIZE];

    r->below = str_starts(host, "*.");
    if (net_name(host + (r->below ? 2 : 0), strlen(host) - (r->below ? 2 : 0), name) < 0)
        return bad(flag, text, why_no_name(host), e);
    r->name = str_dup(name);
    return 0;
}

static void rule_text(struct net_rule *r)
{
    struct str s = STR_INIT;

    if (r->name) {
        str_addf(&s, "%s%s", r->below ? "*." : "", r->name);
        if (r->port)
            str_addf(&s, ":%u", r->port);
    } else {
        range_text(&r->range, r->port, &s);
    }
    r->text = str_take(&s);
}

int net_rule_parse(const char *flag, const char *text, struct net_rule *ret, struct err **e)
{
    AUTOFREE char *copy = str_dup(text);
    CLEANUP(net_rule_free_p) struct net_rule r = { 0 };
    char *host, *port;
    struct net_addr a;
    int rc;

    if (strstr(text, "://"))
        return bad(flag, text, "a URL; write only the host in it, like pypi.org", e);
    if (!split(copy, &host, &port))
        return bad(flag, text, "brackets hold an IPv6 address; write it like [2001:db8::1]:443", e);
    if (port && !port_read(port, &r.port))
        return bad(flag, text,
                   "what follows the last colon is not a port; write a number from 1 to 65535", e);
    /* A slash after a name is the path of a URL, not a range. */
    if (strchr(host, ':') || addr_parse(host, &a) == 0 ||
        (strchr(host, '/') && !host[strspn(host, "0123456789./")]))
        rc = parse_range(flag, text, host, &r.range, e);
    else
        rc = parse_name(flag, text, host, &r, e);
    if (rc < 0)
        return rc;
    rule_text(&r);
    *ret = r;
    r = (struct net_rule){ 0 };
    return 0;
}

/* --- published ports -------------------------------------------------------------------------- */
int net_publish_parse(const char *text, struct net_publish *ret, struct err **e)
{
    static const char flag[] = "-p";
    AUTOFREE char *copy = str_dup(text);
    struct net_publish p = { 0 };
    char *port = strrchr(copy, ':'), *host_port, *host;

    if (!port)
        return bad(flag, text,
                   "not two ports; write it like 8080:80 (host's port, then the sandbox's)", e);
    *port++ = '\0';
    host_port = strrchr(copy, ':');
    host = host_port ? copy : "127.0.0.1";
    if (host_port)
        *host_port++ = '\0';
    else
        host_port = copy;
    if (str_ends(port, "/udp"))
        return bad(flag, text, "only TCP ports can be published; leave out /udp", e);
    if (!port_read(port, &p.port) || !port_read(host_port, &p.host_port))
        return bad(flag, text, "a port is a number from 1 to 65535; write it like 8080:80", e);
    if (*host == '[' && str_ends(host, "]")) {
        host[strlen(host) - 1] = '\0';
        host++;
        if (!strchr(host, ':'))
            host = "";
    } else if (strchr(host, ':')) {
        return bad(flag, text, "an IPv6 address needs brackets; write it like [::1]:8080:80", e);
    } else if (strcmp(host, "localhost") == 0) {
        host = "127.0.0.1";
    }
    if (addr_parse(host, &p.host) < 0)
        return bad(flag, text,
                   "the host's side is not an IP address or localhost; write it like "
                   "127.0.0.1:8080:80",
                   e);
    *ret = p;
    return 0;
}
