#include "runtime/network/addr.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/macros.h"

struct known {
    uint8_t b[16];
    uint8_t bits;
    uint8_t class;
};

/* The documentation nets are missing on purpose: a resolver may answer with them, and nobody is there. */
static const struct known v4_known[] = {
    { { 169, 254, 169, 254 }, 32, ADDR_METADATA }, /* nearly every cloud */
    { { 169, 254, 170, 2 }, 32, ADDR_METADATA },   /* credentials of containers */
    { { 169, 254, 170, 23 }, 32, ADDR_METADATA },  /* credentials of pods */
    { { 100, 100, 100, 200 }, 32, ADDR_METADATA },
    { { 192, 0, 0, 192 }, 32, ADDR_METADATA },
    { { 168, 63, 129, 16 },
      32,
      ADDR_METADATA }, /* a machine's agent, on an address that looks public */
    { { 0 }, 8, ADDR_RESERVED },
    { { 10 }, 8, ADDR_PRIVATE },
    { { 100, 64 }, 10, ADDR_PRIVATE },
    { { 127 }, 8, ADDR_LOOPBACK },
    { { 169, 254 }, 16, ADDR_LINKLOCAL },
    { { 172, 16 }, 12, ADDR_PRIVATE },
    { { 192, 0, 0 }, 24, ADDR_RESERVED },
    { { 192, 168 }, 16, ADDR_PRIVATE },
    { { 198, 18 }, 15, ADDR_RESERVED }, /* for benchmarks; the gateway's own */
    { { 224 }, 4, ADDR_MULTICAST },
    { { 240 }, 4, ADDR_RESERVED },
};

static const struct known v6_known[] = {
    { { 0xfd, 0, 0x0e, 0xc2, [14] = 0x02, 0x54 }, 128, ADDR_METADATA },
    { { 0xfd, 0, 0x0e, 0xc2, [15] = 0x23 }, 128, ADDR_METADATA },
    { { 0xfd, 0x20, 0, 0xce, [14] = 0x02, 0x54 }, 128, ADDR_METADATA },
    { { [15] = 1 }, 128, ADDR_LOOPBACK },
    { { 0xfc }, 7, ADDR_PRIVATE },
    { { 0xfe, 0x80 }, 10, ADDR_LINKLOCAL },
    { { 0xfe, 0xc0 }, 10, ADDR_PRIVATE }, /* site-local: deprecated, still routed by some */
    { { 0xff }, 8, ADDR_MULTICAST },
    { { 0, 0x64, 0xff, 0x9b, 0, 1 }, 48, ADDR_PRIVATE }, /* NAT64 of a site's own */
    { { 0x20, 0x01 }, 32, ADDR_RESERVED },               /* Teredo: an IPv4 address, scrambled */
};

static const struct net_range nat64 = { { AF_INET6, { 0, 0x64, 0xff, 0x9b } }, 96 };
static const struct net_range six_to_four = { { AF_INET6, { 0x20, 0x02 } }, 16 };
static const struct net_range mapped = { { AF_INET6, { [10] = 0xff, 0xff } }, 96 };
static const struct net_range global = { { AF_INET6, { 0x20 } }, 3 };

const char *addr_class_word(enum net_class c)
{
    static const char *const words[] = {
        [ADDR_PUBLIC] = "public",     [ADDR_PRIVATE] = "private",
        [ADDR_LOOPBACK] = "loopback", [ADDR_LINKLOCAL] = "link-local",
        [ADDR_METADATA] = "metadata", [ADDR_MULTICAST] = "multicast",
        [ADDR_RESERVED] = "reserved",
    };
    return (size_t)c < ARRAY_LEN(words) ? words[c] : "unknown";
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a, b, whole) != 0)
        return false;
    return !rest || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

bool range_holds(const struct net_range *r, const struct net_addr *a)
{
    return r->addr.family == a->family && r->bits <= addr_bits(a) &&
           same_bits(r->addr.b, a->b, r->bits);
}

static bool range_within(const struct net_range *r, const struct net_range *outer)
{
    return r->bits >= outer->bits && range_holds(outer, &r->addr);
}

struct net_addr addr_make(int family, const void *bytes)
{
    struct net_addr a = { .family = (uint8_t)family };

    memcpy(a.b, bytes, addr_bits(&a) / 8);
    if (range_holds(&mapped, &a)) {
        struct net_addr v4 = { .family = AF_INET };
        memcpy(v4.b, a.b + 12, 4);
        return v4;
    }
    return a;
}

/* The IPv4 range that an IPv6 range is another spelling of. */
static bool range_embedded(const struct net_range *r, struct net_range *ret)
{
    unsigned at, prefix;

    if (range_within(r, &nat64)) {
        at = 12;
        prefix = 96;
    } else if (range_within(r, &six_to_four)) {
        at = 2;
        prefix = 16;
    } else if (range_within(r, &mapped)) {
        at = 12;
        prefix = 96;
    } else {
        return false;
    }
    *ret = (struct net_range){ { .family = AF_INET }, r->bits - prefix };
    if (ret->bits > 32)
        ret->bits = 32;
    memcpy(ret->addr.b, r->addr.b + at, 4);
    return true;
}

bool addr_embedded(const struct net_addr *a, struct net_addr *ret)
{
    struct net_range r = { *a, addr_bits(a) }, v4;

    if (!range_embedded(&r, &v4))
        return false;
    *ret = v4.addr;
    return true;
}

static enum net_class known_class(const struct net_range *r, const struct known *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (r->bits >= v[i].bits && same_bits(r->addr.b, v[i].b, v[i].bits))
            return v[i].class;
    return ADDR_PUBLIC;
}

enum net_class range_class(const struct net_range *r)
{
    struct net_range v4;
    enum net_class c;

    if (r->addr.family == AF_INET)
        return known_class(r, v4_known, ARRAY_LEN(v4_known));
    if (r->addr.family != AF_INET6)
        return ADDR_RESERVED;
    if (range_embedded(r, &v4))
        return known_class(&v4, v4_known, ARRAY_LEN(v4_known));
    c = known_class(r, v6_known, ARRAY_LEN(v6_known));
    if (c != ADDR_PUBLIC || range_within(r, &global))
        return c;
    /* Only 2000::/3 is given out to the world, and what NAT64 makes of it. */
    if (range_holds(r, &global.addr) || range_holds(r, &nat64.addr) || range_holds(r, &mapped.addr))
        return ADDR_PUBLIC;
    return ADDR_RESERVED;
}

enum net_class addr_class(const struct net_addr *a)
{
    struct net_range r = { *a, addr_bits(a) };
    return range_class(&r);
}

bool addr_unspecified(const struct net_addr *a)
{
    static const uint8_t zero[16];
    return memcmp(a->b, zero, addr_bits(a) / 8) == 0;
}

unsigned addr_bits(const struct net_addr *a)
{
    return a->family == AF_INET ? 32 : 128;
}

int addr_parse(const char *text, struct net_addr *ret)
{
    int family = strchr(text, ':') ? AF_INET6 : AF_INET;
    uint8_t b[16];

    if (inet_pton(family, text, b) != 1)
        return -1;
    *ret = addr_make(family, b);
    return 0;
}

void addr_text(const struct net_addr *a, char buf[INET6_ADDRSTRLEN])
{
    if (!inet_ntop(a->family, a->b, buf, INET6_ADDRSTRLEN))
        memcpy(buf, "?", 2);
}

bool addr_eq(const struct net_addr *a, const struct net_addr *b)
{
    return a->family == b->family && memcmp(a->b, b->b, addr_bits(a) / 8) == 0;
}

struct net_addr addr_masked(const struct net_addr *a, unsigned bits)
{
    struct net_addr m = { .family = a->family };
    unsigned whole;

    if (bits > addr_bits(a))
        bits = addr_bits(a);
    whole = bits / 8;
    memcpy(m.b, a->b, whole);
    if (bits % 8)
        m.b[whole] = (uint8_t)(a->b[whole] & (0xff00 >> bits % 8));
    return m;
}

int addr_from_sockaddr(const struct sockaddr *sa, struct net_addr *ret, uint16_t *ret_port)
{
    uint16_t port;

    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        *ret = addr_make(AF_INET, &in.sin_addr);
        port = ntohs(in.sin_port);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, sa, sizeof in6);
        *ret = addr_make(AF_INET6, &in6.sin6_addr);
        port = ntohs(in6.sin6_port);
    } else {
        return -1;
    }
    if (ret_port)
        *ret_port = port;
    return 0;
}

socklen_t addr_to_sockaddr(const struct net_addr *a, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (a->family == AF_INET) {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
        memcpy(&in.sin_addr, a->b, 4);
        memcpy(ret, &in, sizeof in);
        return sizeof in;
    }
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    memcpy(&in6.sin6_addr, a->b, 16);
    memcpy(ret, &in6, sizeof in6);
    return sizeof in6;
}
