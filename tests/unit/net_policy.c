/* The words of network flags, and who may be reached. The parsing and judging tables are the policy's
 * specification. */
#include "tests/unit/check.h"

#include <inttypes.h>

#include "runtime/network/policy.h"

#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* --- names ------------------------------------------------------------------------------------- */
static const struct {
    const char *in, *want;
} names[] = {
    { "example.com", "example.com" },
    { "EXAMPLE.Com", "example.com" },
    { "example.com.", "example.com" },
    { "host", "host" },
    { "xn--bcher-kva.example", "xn--bcher-kva.example" },
    { "a-b--c.example", "a-b--c.example" },
    { "trailing-.example", "trailing-.example" },
    { "_dns.example", "_dns.example" },
    { "1.example", "1.example" },
    { "127.0.0.1.example", "127.0.0.1.example" },
    { "1a", "1a" },
    { "0xyz", "0xyz" },
    { "10.0.0.1a", "10.0.0.1a" },
    { "abc", "abc" },
    { A63 ".example", A63 ".example" },
    { "", NULL },
    { ".", NULL },
    { "..", NULL },
    { ".example.com", NULL },
    { "example..com", NULL },
    { "example.com..", NULL },
    { "a" A63 ".example", NULL },
    { "ex ample.com", NULL },
    { " example.com", NULL },
    { "example.com ", NULL },
    { "example.com\n", NULL },
    { "exa\tmple.com", NULL },
    { "example.com%00", NULL },
    { "user@example.com", NULL },
    { "example.com:80", NULL },
    { "example.com/x", NULL },
    { "*.example.com", NULL },
    { "-x.example.com", NULL },
    { "x.-.com", NULL },
    { "b\xc3\xbc"
      "cher.example",
      NULL },
    { "\xff.example", NULL },
    { "exam\x7fple.com", NULL },
    { "2130706433", NULL },
    { "127.0.0.1", NULL },
    { "127.0.0.1.", NULL },
    { "127.1", NULL },
    { "0x7f.1", NULL },
    { "0x7F000001", NULL },
    { "0177.0.0.1", NULL },
    { "1.2.3.0x", NULL },
    { "0x", NULL },
    { "example.1", NULL },
    { "example.0xff", NULL },
    { "[::1]", NULL },
    { "::1", NULL },
    { "a,b", NULL },
    { "a\\b", NULL },
    { "a'b\"c", NULL },
};

static void test_names(void)
{
    char out[NET_NAME_SIZE], in[300];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int rc = net_name(names[i].in, strlen(names[i].in), out);
        CHECK(rc == (names[i].want ? 0 : -1), "'%s': %d", names[i].in, rc);
        if (rc == 0)
            CHECK_STR(out, names[i].want);
    }
    CHECK(net_name("evil.example\0.example.com", 24, out) < 0, "a NUL inside");
    CHECK(net_name("example.comXX", 11, out) == 0 && !strcmp(out, "example.com"), "not terminated");
    memset(in, 'a', sizeof in);
    for (size_t i = 50; i < sizeof in; i += 51)
        in[i] = '.';
    CHECK(net_name(in, 253, out) == 0 && strlen(out) == 253, "253");
    CHECK(net_name(in, 254, out) < 0, "254");
    in[253] = '.';
    CHECK(net_name(in, 254, out) == 0 && strlen(out) == 253, "253 and a dot");
}

/* --- rules ------------------------------------------------------------------------------------- */
static const struct {
    const char *in, *text, *name;
    bool below;
    uint16_t port;
    const char *addr;
    unsigned bits;
} rules[] = {
    { "pypi.org", "pypi.org", "pypi.org", false, 0, NULL, 0 },
    { "PyPI.org.", "pypi.org", "pypi.org", false, 0, NULL, 0 },
    { "*.GitHub.com", "*.github.com", "github.com", true, 0, NULL, 0 },
    { "*.example.com.:8443", "*.example.com:8443", "example.com", true, 8443, NULL, 0 },
    { "host:8443", "host:8443", "host", false, 8443, NULL, 0 },
    { "example.com:65535", "example.com:65535", "example.com", false, 65535, NULL, 0 },
    { "localhost:1", "localhost:1", "localhost", false, 1, NULL, 0 },
    { "10.1.2.3", "10.1.2.3", NULL, false, 0, "10.1.2.3", 32 },
    { "10.1.2.3/32", "10.1.2.3", NULL, false, 0, "10.1.2.3", 32 },
    { "10.1.2.3:5432", "10.1.2.3:5432", NULL, false, 5432, "10.1.2.3", 32 },
    { "10.1.2.0/24", "10.1.2.0/24", NULL, false, 0, "10.1.2.0", 24 },
    { "10.1.2.0/24:5432", "10.1.2.0/24:5432", NULL, false, 5432, "10.1.2.0", 24 },
    { "0.0.0.0/0", "0.0.0.0/0", NULL, false, 0, "0.0.0.0", 0 },
    { "::/0", "::/0", NULL, false, 0, "::", 0 },
    { "fd00:1::/32", "fd00:1::/32", NULL, false, 0, "fd00:1::", 32 },
    { "FD00:1::/32:443", "[fd00:1::/32]:443", NULL, false, 443, "fd00:1::", 32 },
    { "[fd00:1::/32]:443", "[fd00:1::/32]:443", NULL, false, 443, "fd00:1::", 32 },
    { "2001:db8::1", "2001:db8::1", NULL, false, 0, "2001:db8::1", 128 },
    { "[2001:db8::1]", "2001:db8::1", NULL, false, 0, "2001:db8::1", 128 },
    { "[2001:db8::1]:443", "[2001:db8::1]:443", NULL, false, 443, "2001:db8::1", 128 },
    { "::ffff:10.1.2.3", "10.1.2.3", NULL, false, 0, "10.1.2.3", 32 },
    { "::ffff:10.0.0.0/104", "10.0.0.0/8", NULL, false, 0, "10.0.0.0", 8 },
    { "[::ffff:10.0.0.0/104]:80", "10.0.0.0/8:80", NULL, false, 80, "10.0.0.0", 8 },
};

static const struct {
    const char *in, *says;
} bad_rules[] = {
    { "", "not a domain name" },
    { "ex ample.com", "not a domain name; write it like pypi.org, *.github.com, host:8443 or "
                      "10.1.2.0/24" },
    { ".", "not a domain name" },
    { "example..com", "not a domain name" },
    { "user@example.com", "not a domain name" },
    { "example.com%41", "not a domain name" },
    { "example.com\n", "example.com\\x0a" },
    { "b\xc3\xbc"
      "cher.example",
      "xn--" },
    { "\xe2\x80\xae"
      "example",
      "\\u202e" },
    { "*", "--network limited" },
    { "*.", "--network limited" },
    { "*:443", "--network limited" },
    { "*.*.example.com", "a * may only" },
    { "www*.example.com", "a * may only" },
    { "example.*", "a * may only" },
    { "**.example.com", "a * may only" },
    { ".example.com", "*.example.com" },
    { "https://example.com/", "only the host" },
    { "http://example.com:80", "only the host" },
    { "example.com/path", "not a domain name" },
    { "example.com:", "1 to 65535" },
    { "example.com:0", "1 to 65535" },
    { "example.com:65536", "1 to 65535" },
    { "example.com:99999999999999999999", "1 to 65535" },
    { "example.com:080", "1 to 65535" },
    { "example.com:-1", "1 to 65535" },
    { "example.com:80 ", "1 to 65535" },
    { "example.com:https", "1 to 65535" },
    { "example.com:80:90", "not an IPv6 address" },
    { ":443", "not a domain name" },
    { "10.1.2.3/24", "write 10.1.2.0/24 for the range or 10.1.2.3 for the address" },
    { "10.1.2.3/0", "write 0.0.0.0/0" },
    { "fd00::1/8", "write fd00::/8 for the range or fd00::1 for the address" },
    { "10.1.2.129/25:80", "write 10.1.2.128/25" },
    { "::ffff:10.1.2.3/104", "write 10.0.0.0/8" },
    { "::ffff:10.0.0.0/95", "0 to 32" },
    { "10.1.2.0/33", "0 to 32" },
    { "10.1.2.0/", "0 to 32" },
    { "10.1.2.0/024", "0 to 32" },
    { "10.1.2.0/-1", "" },
    { "10.1.2.0/24/8", "" },
    { "10.1.2.0/255.255.255.0", "0 to 32" },
    { "10.1.2/24", "not a range of addresses" },
    { "256.1.2.0/24", "not a range of addresses" },
    { "/24", "not a range of addresses" },
    { "fd00::/129", "0 to 128" },
    { "fd00::/", "0 to 128" },
    { "fd00:::/8", "not a range of addresses" },
    { "1.2.3.256", "four numbers" },
    { "1.2.3", "four numbers" },
    { "127.1", "four numbers" },
    { "2130706433", "four numbers" },
    { "0x7f.0.0.1", "four numbers" },
    { "010.1.2.3", "four numbers" },
    { "*.0.0.1", "" },
    { "[::1", "brackets" },
    { "[::1]x", "brackets" },
    { "[10.1.2.3]:80", "brackets" },
    { "[example.com]:80", "brackets" },
    { "[]", "brackets" },
    { "[::1]:", "1 to 65535" },
    { "[::1]:0", "1 to 65535" },
    { "[::g]:1", "not an IPv6 address" },
    { "fe80::1%eth0", "not an IPv6 address" },
    { "::1:80:90000", "not an IPv6 address" },
};

/* One line, with flag and text in it. */
static void check_error(int rc, struct err *e, const char *flag, const char *text, const char *says)
{
    AUTOFREE char *msg = e ? err_text(e) : str_dup("");

    CHECK(rc == -ERR_INVALID, "'%s': %d", text, rc);
    CHECK(*msg && !strpbrk(msg, "\n\r\x1b"), "'%s': not a line", text);
    CHECK(strncmp(msg, flag, strlen(flag)) == 0, "'%s': %s", text, msg);
    CHECK(strstr(msg, says), "'%s': '%s' does not say '%s'", text, msg, says);
    err_free(e);
}

static void test_rules(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        CLEANUP(net_rule_free_p) struct net_rule r = { 0 }, again = { 0 };
        struct net_addr a = { 0 };
        CHECK(net_rule_parse("--allow-domain", rules[i].in, &r, NULL) == 0, "'%s'", rules[i].in);
        CHECK_STR(r.text, rules[i].text);
        CHECK_STR(r.name, rules[i].name);
        CHECK(r.below == rules[i].below && r.port == rules[i].port, "'%s'", rules[i].in);
        if (rules[i].addr)
            CHECK(addr_parse(rules[i].addr, &a) == 0 && addr_eq(&a, &r.range.addr) &&
                      r.range.bits == rules[i].bits,
                  "'%s'", rules[i].in);
        CHECK(r.text && net_rule_parse("x", r.text, &again, NULL) == 0, "'%s'", rules[i].in);
        CHECK_STR(again.text, r.text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_rules); i++) {
        struct net_rule r = { 0 };
        struct err *e = NULL;
        int rc = net_rule_parse("--deny-domain", bad_rules[i].in, &r, &e);
        check_error(rc, e, "--deny-domain '", bad_rules[i].in, bad_rules[i].says);
        CHECK(!r.text && !r.name, "'%s' wrote its result", bad_rules[i].in);
    }
    AUTOFREE char *big = mem_zalloc(100001);
    memset(big, 'a', 100000);
    struct err *e = NULL;
    struct net_rule r;
    int rc = net_rule_parse("--allow-domain", big, &r, &e);
    CHECK(e && strlen(e->msg) < 400, "a long text in full");
    check_error(rc, e, "--allow-domain 'aaa", "aaa...", "...'");
}

/* --- the other words ---------------------------------------------------------------------------- */
static const struct {
    const char *in;
    uint64_t want; /* 0: wrong */
} rates[] = {
    { "1", 1 },
    { "500K", 500 << 10 },
    { "500k/s", 500 << 10 },
    { "10M", 10 << 20 },
    { "10MB/s", 10 << 20 },
    { "1.5M", 3 << 19 },
    { "1G/s", 1 << 30 },
    { "0", 0 },
    { "0/s", 0 },
    { "", 0 },
    { "/s", 0 },
    { "-1", 0 },
    { "10Mbit", 0 },
    { "10M/m", 0 },
    { "10M/s/s", 0 },
    { "fast", 0 },
    { "10 M", 0 },
    { "99999999999999E", 0 },
};

static const struct {
    const char *in, *host; /* NULL: wrong, for the reason in `says` */
    uint16_t host_port, port;
    const char *says;
} publishes[] = {
    { "8080:80", "127.0.0.1", 8080, 80, NULL },
    { "1:65535", "127.0.0.1", 1, 65535, NULL },
    { "127.0.0.1:8080:80", "127.0.0.1", 8080, 80, NULL },
    { "localhost:8080:80", "127.0.0.1", 8080, 80, NULL },
    { "0.0.0.0:8080:80", "0.0.0.0", 8080, 80, NULL },
    { "[::1]:8080:80", "::1", 8080, 80, NULL },
    { "[::]:8080:80", "::", 8080, 80, NULL },
    { "192.0.2.7:443:8443", "192.0.2.7", 443, 8443, NULL },
    { "", NULL, 0, 0, "not two ports" },
    { "80", NULL, 0, 0, "8080:80" },
    { ":", NULL, 0, 0, "1 to 65535" },
    { "80:", NULL, 0, 0, "1 to 65535" },
    { ":80", NULL, 0, 0, "1 to 65535" },
    { "::80", NULL, 0, 0, "1 to 65535" },
    { ":8080:80", NULL, 0, 0, "localhost" },
    { "0:80", NULL, 0, 0, "1 to 65535" },
    { "80:0", NULL, 0, 0, "1 to 65535" },
    { "65536:80", NULL, 0, 0, "1 to 65535" },
    { "80:65536", NULL, 0, 0, "1 to 65535" },
    { "080:80", NULL, 0, 0, "1 to 65535" },
    { "8080-8090:80", NULL, 0, 0, "1 to 65535" },
    { "8080:80/tcp", NULL, 0, 0, "1 to 65535" },
    { "8080:53/udp", NULL, 0, 0, "only TCP" },
    { "::1:8080:80", NULL, 0, 0, "brackets" },
    { "[::1:8080:80", NULL, 0, 0, "brackets" },
    { "[127.0.0.1]:8080:80", NULL, 0, 0, "localhost" },
    { "[]:8080:80", NULL, 0, 0, "localhost" },
    { "127.1:8080:80", NULL, 0, 0, "localhost" },
    { "example.com:8080:80", NULL, 0, 0, "localhost" },
    { "a:b:8080:80", NULL, 0, 0, "brackets" },
    { "8080:80\n", NULL, 0, 0, "8080:80\\x0a" },
};

static void test_words(void)
{
    static const char *const modes[] = { "none", "limited", "allowlist", "full" };
    static const char *const bad_modes[] = { "", "Full", "host", "limited ", "allow", "bridge" };
    static const char *const bad_ports[] = { "",   "0",   "65536", "-1",     "+1",         "1 ",
                                             " 1", "080", "http",  "80,443", "4294967376", "1e3" };
    uint16_t port;

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        enum net_mode m = NET_FULL;
        CHECK(net_mode_parse(modes[i], &m, NULL) == 0 && m == i, "%s", modes[i]);
        CHECK_STR(net_mode_word(m), modes[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad_modes); i++) {
        enum net_mode m;
        struct err *e = NULL;
        int rc = net_mode_parse(bad_modes[i], &m, &e);
        check_error(rc, e, "--network '", bad_modes[i], "not a policy");
    }
    CHECK(net_port_parse("--port", "1", &port, NULL) == 0 && port == 1, "1");
    CHECK(net_port_parse("--port", "65535", &port, NULL) == 0 && port == 65535, "65535");
    for (size_t i = 0; i < ARRAY_LEN(bad_ports); i++) {
        struct err *e = NULL;
        int rc = net_port_parse("--port", bad_ports[i], &port, &e);
        check_error(rc, e, "--port '", bad_ports[i], "1 to 65535");
    }
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        struct err *e = NULL;
        uint64_t rate = 0;
        int rc = net_rate_parse("--rate", rates[i].in, &rate, &e);
        CHECK(rate == rates[i].want, "%s: %" PRIu64, rates[i].in, rate);
        if (rates[i].want)
            CHECK(rc == 0 && !e, "%s", rates[i].in);
        else
            check_error(rc, e, "--rate '", rates[i].in, "write");
    }
    uint64_t rate = 7;
    CHECK(net_rate_parse("--rate", "none", &rate, NULL) == 0 && rate == 0, "none");
    for (size_t i = 0; i < ARRAY_LEN(publishes); i++) {
        struct net_publish p = { 0 };
        struct net_addr a = { 0 };
        struct err *e = NULL;
        int rc = net_publish_parse(publishes[i].in, &p, &e);
        if (!publishes[i].host) {
            check_error(rc, e, "-p '", publishes[i].in, publishes[i].says);
            continue;
        }
        CHECK(rc == 0 && addr_parse(publishes[i].host, &a) == 0 && addr_eq(&a, &p.host) &&
                  p.host_port == publishes[i].host_port && p.port == publishes[i].port,
              "%s", publishes[i].in);
    }
}

int main(void)
{
    test_names();
    test_rules();
    test_words();
    return check_done();
}
