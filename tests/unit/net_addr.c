/* Addresses: which spellings count, what each of them is, and what a range holds. */
#include "tests/unit/check.h"

#include <arpa/inet.h>

#include "runtime/network/addr.h"

static const struct {
    const char *in, *text;
    enum net_class class;
} good[] = {
    { "192.0.2.1", "192.0.2.1", ADDR_PUBLIC }, /* documentation: nobody's, not refused */
    { "198.51.100.7", "198.51.100.7", ADDR_PUBLIC },
    { "203.0.113.255", "203.0.113.255", ADDR_PUBLIC },
    { "1.1.1.1", "1.1.1.1", ADDR_PUBLIC },
    { "0.0.0.0", "0.0.0.0", ADDR_RESERVED },
    { "0.255.255.255", "0.255.255.255", ADDR_RESERVED },
    { "1.0.0.0", "1.0.0.0", ADDR_PUBLIC },
    { "9.255.255.255", "9.255.255.255", ADDR_PUBLIC },
    { "10.0.0.0", "10.0.0.0", ADDR_PRIVATE },
    { "10.255.255.255", "10.255.255.255", ADDR_PRIVATE },
    { "11.0.0.0", "11.0.0.0", ADDR_PUBLIC },
    { "100.63.255.255", "100.63.255.255", ADDR_PUBLIC },
    { "100.64.0.0", "100.64.0.0", ADDR_PRIVATE },
    { "100.127.255.255", "100.127.255.255", ADDR_PRIVATE },
    { "100.128.0.0", "100.128.0.0", ADDR_PUBLIC },
    { "126.255.255.255", "126.255.255.255", ADDR_PUBLIC },
    { "127.0.0.1", "127.0.0.1", ADDR_LOOPBACK },
    { "127.255.255.255", "127.255.255.255", ADDR_LOOPBACK },
    { "128.0.0.0", "128.0.0.0", ADDR_PUBLIC },
    { "169.253.255.255", "169.253.255.255", ADDR_PUBLIC },
    { "169.254.0.0", "169.254.0.0", ADDR_LINKLOCAL },
    { "169.254.169.253", "169.254.169.253", ADDR_LINKLOCAL },
    { "169.254.169.254", "169.254.169.254", ADDR_METADATA },
    { "169.254.170.2", "169.254.170.2", ADDR_METADATA },
    { "169.254.255.255", "169.254.255.255", ADDR_LINKLOCAL },
    { "169.255.0.0", "169.255.0.0", ADDR_PUBLIC },
    { "100.100.100.200", "100.100.100.200", ADDR_METADATA },
    { "168.63.129.16", "168.63.129.16", ADDR_METADATA },
    { "168.63.129.17", "168.63.129.17", ADDR_PUBLIC },
    { "172.15.255.255", "172.15.255.255", ADDR_PUBLIC },
    { "172.16.0.0", "172.16.0.0", ADDR_PRIVATE },
    { "172.31.255.255", "172.31.255.255", ADDR_PRIVATE },
    { "172.32.0.0", "172.32.0.0", ADDR_PUBLIC },
    { "192.0.0.1", "192.0.0.1", ADDR_RESERVED },
    { "192.0.0.192", "192.0.0.192", ADDR_METADATA },
    { "192.0.1.0", "192.0.1.0", ADDR_PUBLIC },
    { "192.167.255.255", "192.167.255.255", ADDR_PUBLIC },
    { "192.168.0.0", "192.168.0.0", ADDR_PRIVATE },
    { "192.168.255.255", "192.168.255.255", ADDR_PRIVATE },
    { "192.169.0.0", "192.169.0.0", ADDR_PUBLIC },
    { "198.17.255.255", "198.17.255.255", ADDR_PUBLIC },
    { "198.18.0.1", "198.18.0.1", ADDR_RESERVED },
    { "198.19.255.255", "198.19.255.255", ADDR_RESERVED },
    { "198.20.0.0", "198.20.0.0", ADDR_PUBLIC },
    { "223.255.255.255", "223.255.255.255", ADDR_PUBLIC },
    { "224.0.0.1", "224.0.0.1", ADDR_MULTICAST },
    { "239.255.255.255", "239.255.255.255", ADDR_MULTICAST },
    { "240.0.0.0", "240.0.0.0", ADDR_RESERVED },
    { "255.255.255.255", "255.255.255.255", ADDR_RESERVED },
    { "::", "::", ADDR_RESERVED },
    { "::1", "::1", ADDR_LOOPBACK },
    { "::2", "::2", ADDR_RESERVED },
    { "::127.0.0.1", "::127.0.0.1", ADDR_RESERVED },
    { "2001:db8::1", "2001:db8::1", ADDR_PUBLIC },
    { "2001:DB8:0:0:0:0:0:1", "2001:db8::1", ADDR_PUBLIC },
    { "2600::", "2600::", ADDR_PUBLIC },
    { "3fff:ffff::", "3fff:ffff::", ADDR_PUBLIC },
    { "4000::", "4000::", ADDR_RESERVED },
    { "1fff::", "1fff::", ADDR_RESERVED },
    { "2001::1", "2001::1", ADDR_RESERVED },
    { "2001:1::1", "2001:1::1", ADDR_PUBLIC },
    { "fbff::", "fbff::", ADDR_RESERVED },
    { "fc00::", "fc00::", ADDR_PRIVATE },
    { "fdff:ffff::1", "fdff:ffff::1", ADDR_PRIVATE },
    { "fd00:ec2::254", "fd00:ec2::254", ADDR_METADATA },
    { "fd00:ec2::23", "fd00:ec2::23", ADDR_METADATA },
    { "fd20:ce::254", "fd20:ce::254", ADDR_METADATA },
    { "fe80::1", "fe80::1", ADDR_LINKLOCAL },
    { "febf::1", "febf::1", ADDR_LINKLOCAL },
    { "fec0::1", "fec0::1", ADDR_PRIVATE },
    { "ff02::1", "ff02::1", ADDR_MULTICAST },
    { "::ffff:192.0.2.1", "192.0.2.1", ADDR_PUBLIC },
    { "::ffff:127.0.0.1", "127.0.0.1", ADDR_LOOPBACK },
    { "::ffff:a00:1", "10.0.0.1", ADDR_PRIVATE },
    { "::ffff:169.254.169.254", "169.254.169.254", ADDR_METADATA },
    { "64:ff9b::192.0.2.1", "64:ff9b::c000:201", ADDR_PUBLIC },
    { "64:ff9b::10.0.0.1", "64:ff9b::a00:1", ADDR_PRIVATE },
    { "64:ff9b::127.0.0.1", "64:ff9b::7f00:1", ADDR_LOOPBACK },
    { "64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe", ADDR_METADATA },
    { "64:ff9b:1::1", "64:ff9b:1::1", ADDR_PRIVATE },
    { "64:ff9b:2::1", "64:ff9b:2::1", ADDR_RESERVED },
    { "2002:c000:201::1", "2002:c000:201::1", ADDR_PUBLIC },
    { "2002:a00:1::1", "2002:a00:1::1", ADDR_PRIVATE },
    { "2002:7f00:1::", "2002:7f00:1::", ADDR_LOOPBACK },
    { "2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1", ADDR_METADATA },
};

static const char *const bad[] = {
    "",          "1",           "127.1",
    "0x7f.1",    "2130706433",  "0177.0.0.1",
    "1.2.3",     "1.2.3.4.",    "1.2.3.4.5",
    " 1.2.3.4",  "1.2.3.4 ",    "1.2.3.256",
    "1.2.3.-1",  "1.2.3.4/8",   "1.2.3.4:80",
    "01.2.3.4",  "1.2.3.4\n",   "[::1]",
    "::1%lo",    "fe80::1%1",   "2001:db8::1::2",
    ":::",       "1:2:3:4:5:6", "12345::",
    "localhost", "a.b.c.d",     "::g",
    "::1.2.3",   "::/0",        "1..2.3",
};

static void test_addresses(void)
{
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct net_addr a, again, from;
        struct sockaddr_storage ss;
        uint16_t port = 0;
        char text[INET6_ADDRSTRLEN];
        CHECK(addr_parse(good[i].in, &a) == 0, "%s", good[i].in);
        CHECK(addr_class(&a) == good[i].class, "%s is %s", good[i].in,
              addr_class_word(addr_class(&a)));
        addr_text(&a, text);
        CHECK_STR(text, good[i].text);
        CHECK(addr_parse(text, &again) == 0 && addr_eq(&a, &again), "%s", text);
        socklen_t len = addr_to_sockaddr(&a, 8080, &ss);
        CHECK(len ==
                  (a.family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)),
              "%s", text);
        CHECK(addr_from_sockaddr((struct sockaddr *)&ss, &from, &port) == 0 && port == 8080 &&
                  addr_eq(&a, &from),
              "%s", text);
        CHECK(addr_unspecified(&a) == (!strcmp(text, "::") || !strcmp(text, "0.0.0.0")), "%s",
              text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct net_addr a;
        CHECK(addr_parse(bad[i], &a) < 0, "%s", bad[i]);
    }
}

/* "10.0.0.0/8" in a table. */
static struct net_range range(const char *text)
{
    struct net_range r = { .bits = (unsigned)atoi(strchr(text, '/') + 1) };
    char addr[64];

    snprintf(addr, sizeof addr, "%.*s", (int)strcspn(text, "/"), text);
    CHECK(addr_parse(addr, &r.addr) == 0, "%s", text);
    return r;
}

static const struct {
    const char *range, *in, *out;
} holds[] = {
    { "10.0.0.0/8", "10.255.1.2", "11.0.0.0" },
    { "10.1.2.0/24", "10.1.2.255", "10.1.3.0" },
    { "10.1.2.128/25", "10.1.2.128", "10.1.2.127" },
    { "10.1.2.3/32", "10.1.2.3", "10.1.2.2" },
    { "172.16.0.0/12", "172.31.0.1", "172.32.0.1" },
    { "0.0.0.0/0", "255.0.0.1", "::1" },
    { "128.0.0.0/1", "200.0.0.1", "127.0.0.1" },
    { "::/0", "2001:db8::1", "10.0.0.1" },
    { "2001:db8::/32", "2001:db8:ffff::1", "2001:db9::" },
    { "2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::" },
    { "2001:db8::1/128", "2001:db8::1", "2001:db8::" },
    { "fc00::/7", "fdff::1", "fe00::" },
};

static const struct {
    const char *range;
    enum net_class class;
} classes[] = {
    { "0.0.0.0/0", ADDR_PUBLIC },
    { "10.0.0.0/8", ADDR_PRIVATE },
    { "10.0.0.0/7", ADDR_PUBLIC },
    { "10.9.0.0/16", ADDR_PRIVATE },
    { "8.0.0.0/6", ADDR_PUBLIC },
    { "192.168.0.0/15", ADDR_PUBLIC },
    { "192.168.0.0/16", ADDR_PRIVATE },
    { "169.254.0.0/16", ADDR_LINKLOCAL },
    { "224.0.0.0/4", ADDR_MULTICAST },
    { "127.0.0.0/8", ADDR_LOOPBACK },
    { "::/0", ADDR_PUBLIC },
    { "::/3", ADDR_PUBLIC },
    { "::/8", ADDR_PUBLIC },
    { "::/64", ADDR_PUBLIC },
    { "::1/128", ADDR_LOOPBACK },
    { "8000::/1", ADDR_RESERVED },
    { "::/1", ADDR_PUBLIC },
    { "fc00::/7", ADDR_PRIVATE },
    { "fd00:1::/32", ADDR_PRIVATE },
    { "fe80::/10", ADDR_LINKLOCAL },
    { "2000::/3", ADDR_PUBLIC },
    { "2001::/16", ADDR_PUBLIC },
    { "2001::/32", ADDR_RESERVED },
    { "64:ff9b::/96", ADDR_PUBLIC },
    { "64:ff9b::a00:0/104", ADDR_PRIVATE },
    { "64:ff9b::/32", ADDR_PUBLIC },
    { "64:ff9b:1::/48", ADDR_PRIVATE },
    { "2002::/16", ADDR_PUBLIC },
    { "2002:a00::/24", ADDR_PRIVATE },
    { "2002:a00::/23", ADDR_PUBLIC },
    { "2002:a00:1::/48", ADDR_PRIVATE },
    { "2002:a00:1:2::/64", ADDR_PRIVATE },
};

static void test_ranges(void)
{
    for (size_t i = 0; i < ARRAY_LEN(holds); i++) {
        struct net_range r = range(holds[i].range);
        struct net_addr in, out, first;
        CHECK(addr_parse(holds[i].in, &in) == 0 && addr_parse(holds[i].out, &out) == 0, "%s",
              holds[i].in);
        CHECK(range_holds(&r, &in), "%s %s", holds[i].range, holds[i].in);
        CHECK(!range_holds(&r, &out), "%s %s", holds[i].range, holds[i].out);
        first = addr_masked(&in, r.bits);
        CHECK(addr_eq(&first, &r.addr), "%s", holds[i].range);
    }
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        struct net_range r = range(classes[i].range);
        CHECK(range_class(&r) == classes[i].class, "%s is %s", classes[i].range,
              addr_class_word(range_class(&r)));
    }
}

/* Bytes that nobody unmapped are still seen for what they are. */
static void test_by_hand(void)
{
    struct net_addr a = { AF_INET6, { [10] = 0xff, 0xff, 10, 0, 0, 1 } }, v4;
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(1) };
    struct sockaddr un = { .sa_family = AF_UNIX };
    uint8_t odd[16] = { 1 };

    CHECK(addr_class(&a) == ADDR_PRIVATE, "mapped");
    CHECK(addr_embedded(&a, &v4) && v4.family == AF_INET && v4.b[0] == 10, "mapped");
    memcpy(&in6.sin6_addr, a.b, 16);
    CHECK(addr_from_sockaddr((struct sockaddr *)&in6, &v4, NULL) == 0 && v4.family == AF_INET,
          "mapped");
    CHECK(addr_from_sockaddr(&un, &v4, NULL) < 0, "AF_UNIX");
    CHECK(addr_parse("2002:c000:201::1", &a) == 0 && addr_embedded(&a, &v4) && v4.b[0] == 192,
          "6to4");
    CHECK(addr_parse("2001:db8::1", &a) == 0 && !addr_embedded(&a, &v4), "plain");
    CHECK(addr_parse("10.0.0.1", &a) == 0 && !addr_embedded(&a, &v4), "IPv4");
    a = addr_make(AF_UNIX, odd);
    CHECK(addr_class(&a) != ADDR_PUBLIC, "no family");
    a = (struct net_addr){ 0 };
    CHECK(addr_class(&a) != ADDR_PUBLIC, "nothing");
}

int main(void)
{
    test_addresses();
    test_ranges();
    test_by_hand();
    return check_done();
}
