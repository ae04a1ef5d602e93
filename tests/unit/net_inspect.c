/* Whom a connection is for, by its first bytes; what is refused, and what the log says about it. */
#include <arpa/inet.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/str.h"
#include "runtime/gateway/control.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/inspect.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/packets.h"
#include "runtime/gateway/serve_dns.h"
#include "tests/unit/check.h"

/* --- a TLS hello ------------------------------------------------------------------------------ */

static void put16(struct str *s, size_t n)
{
    str_addc(s, (char)(n >> 8));
    str_addc(s, (char)n);
}

static void put_vec16(struct str *s, const struct str *v)
{
    put16(s, v->len);
    if (v->len)
        str_addn(s, v->p, v->len);
}

/* `name` may be NULL. `ech`: with an encrypted inner hello. */
static void hello(struct str *out, const char *name, bool ech)
{
    AUTOSTR struct str ext = STR_INIT;
    AUTOSTR struct str body = STR_INIT;
    if (name) {
        put16(&ext, 0);
        put16(&ext, strlen(name) + 5);
        put16(&ext, strlen(name) + 3);
        str_addc(&ext, 0);
        put16(&ext, strlen(name));
        str_add(&ext, name);
    }
    if (ech) {
        put16(&ext, 0xfe0d);
        put16(&ext, 4);
        str_addn(&ext, "\0\0\0\0", 4);
    }
    put16(&body, 0x0303);
    for (int i = 0; i < 32; i++)
        str_addc(&body, (char)i);
    str_addc(&body, 0);
    put16(&body, 2);
    put16(&body, 0x1301);
    str_addn(&body, "\1\0", 2);
    put_vec16(&body, &ext);
    str_addc(out, 0x16);
    put16(out, 0x0301);
    put16(out, body.len + 4);
    str_addn(out, "\1\0", 2);
    put_vec16(out, &body);
}

/* --- verdicts --------------------------------------------------------------------------------- */

enum { P = INSPECT_PASS, D = INSPECT_DENY, M = INSPECT_MORE };

#define GET(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

static const struct probe {
    const char *
        mode; /* "a": allowlist, "l": limited with a denied name, "r": allowlist and a denied name */
    const char *to; /* a name (by its fake address) or an address */
    uint16_t port;
    const char *bytes; /* "tls NAME", "ech NAME", "tls" or what is sent; NULL: it waits */
    int want;
    const char *name; /* dialled, "" by address; or the one refused */
    const char *why;
} probes[] = {
    /* names agree, differ, are none */
    { "a", "ok.test", 443, "tls ok.test", P, "ok.test", NULL },
    { "a", "ok.test", 443, "tls also.test", P, "also.test", NULL },
    { "a", "ok.test", 443, "tls evil.test", D, "evil.test", "not in the allowlist" },
    { "a", "ok.test", 443, "tls", D, "ok.test", "TLS without a server name" },
    { "a", "ok.test", 443, "ech ok.test", D, "ok.test", "TLS with an encrypted server name" },
    { "a", "ok.test", 443, GET("ok.test"), D, "ok.test", "not a TLS hello that can be read" },
    { "a", "ok.test", 443, "\x16\x03", M, NULL, NULL },
    { "a", "ok.test", 443, NULL, M, NULL, NULL },
    { "a", "ok.test", 80, GET("ok.test"), P, "ok.test", NULL },
    { "a", "ok.test", 80, GET("OK.TEST.:80"), P, "ok.test", NULL },
    { "a", "ok.test", 80, GET("also.test"), P, "also.test", NULL },
    { "a", "ok.test", 80, GET("evil.test"), D, "evil.test", "not in the allowlist" },
    { "a", "ok.test", 80, GET("198.51.100.1"), D, "ok.test", "HTTP without the name of a host" },
    { "a", "ok.test", 80, "GET / HTTP/1.0\r\n\r\n", D, "ok.test",
      "HTTP without the name of a host" },
    { "a", "ok.test", 80, "GET / HT", M, NULL, NULL },
    { "a", "ok.test", 80, "\x01\x02\n", D, "ok.test", NULL },
    { "a", "ok.test", 80, "CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test:80\r\n\r\n", D, "ok.test",
      "CONNECT is refused" },
    { "a", "evil.test", 80, GET("ok.test"), D, "evil.test", "not in the allowlist" },
    { "a", "ok.test", 81, GET("ok.test"), D, "ok.test", "port is not open" },
    /* by address: never that address, unless a rule has it */
    { "a", "198.51.100.1", 443, "tls ok.test", P, "ok.test", NULL },
    { "a", "198.51.100.1", 443, "tls evil.test", D, "evil.test", "not in the allowlist" },
    { "a", "198.51.100.1", 443, "tls", D, "", "not in the allowlist" },
    { "a", "198.51.100.1", 80, GET("198.51.100.1"), D, "", "not in the allowlist" },
    { "a", "169.254.169.254", 80, GET("169.254.169.254"), D, "", "metadata address" },
    { "r", "192.0.2.9", 443, "tls evil.test", P, "", NULL },
    { "r", "192.0.2.9", 443, "tls bad.test", D, "bad.test", "denied by a rule" },
    { "r", "192.0.2.9", 443, "tls", P, "", NULL },
    { "r", "192.0.2.9", 80, GET("192.0.2.9"), P, "", NULL },
    { "r", "192.0.2.9", 80, GET("192.0.2.10"), D, "", "HTTP for another address" },
    /* other protocols on other ports */
    { "a", "ok.test", 22, NULL, P, "ok.test", NULL },
    { "a", "ok.test", 22, "SSH-2.0-OpenSSH_9 Debian\r\n", P, "ok.test", NULL },
    { "a", "ok.test", 22, "AMQP\1", P, "ok.test", NULL },
    { "a", "ok.test", 22, "*1\r\n$4\r\nPING\r\n", P, "ok.test", NULL },
    { "a", "ok.test", 22, "\x01\x02", P, "ok.test", NULL },
    { "a", "ok.test", 22, "tls evil.test", D, "evil.test", NULL },
    { "a", "ok.test", 22, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", D, "evil.test", NULL },
    { "a", "ok.test", 22, "GET /", M, NULL, NULL },
    { "a", "ok.test", 22, "GET / HTTP/1.1\rHost: evil.test\r\r", D, "ok.test", NULL },
    { "a", "ok.test", 22, "GET  / HTTP/1.1\r\nHost: ok.test\r\n\r\n", D, "ok.test", NULL },
    { "a", "ok.test", 22, "\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", D, NULL, NULL },
    { "a", "ok.test", 22, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", D, "ok.test", "HTTP/2 without TLS" },
    { "a", "198.51.100.1", 22, NULL, D, "", NULL },
    { "a", "198.51.100.1", 22, "\x01\x02", D, "", NULL },
    /* limited, with a name that is denied */
    { "l", "ok.test", 443, "tls ok.test", P, "ok.test", NULL },
    { "l", "ok.test", 443, "tls bad.test", D, "bad.test", "denied by a rule" },
    { "l", "ok.test", 443, "tls x.bad.test", P, "x.bad.test", NULL },
    { "l", "ok.test", 443, "tls", P, "ok.test", NULL },
    { "l", "ok.test", 443, "ech bad.test", D, "bad.test", NULL },
    { "l", "198.51.100.1", 443, "tls bad.test", D, "bad.test", "denied by a rule" },
    { "l", "198.51.100.1", 443, "tls", P, "", NULL },
    { "l", "198.51.100.1", 443, "\x01\x02", P, "", NULL },
    { "l", "198.51.100.1", 80, GET("bad.test"), D, "bad.test", NULL },
    { "l", "10.0.0.1", 443, "tls", D, "", "private address" },
    { "l", "bad.test", 443, "tls ok.test", D, "bad.test", "denied by a rule" },
};

static void rules(struct net_rules *l, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct net_rule r;
        if (net_rule_parse("--allow-domain", v[i], &r, NULL) < 0 || !net_rules_add(l, &r))
            abort();
    }
}

static void make_policy(struct net_policy *p, char mode)
{
    static const char *const allow[] = { "ok.test", "also.test", "ok.test:22", "192.0.2.0/24" };
    static const char *const deny[] = { "bad.test" };
    *p = (struct net_policy){ .mode = mode == 'l' ? NET_LIMITED : NET_ALLOWLIST };
    rules(&p->allow, allow, mode == 'l' ? 0 : mode == 'r' ? 4 : 3);
    rules(&p->deny, deny, mode == 'a' ? 0 : 1);
}

static void ask(const struct probe *t, const char *bytes, size_t n, struct inspect *got,
                struct net_policy *p)
{
    struct inspect_ask a = { .policy = p, .port = t->port, .p = bytes, .n = n, .quiet = !n };
    if (addr_parse(t->to, &a.addr) < 0)
        a.fake = t->to;
    inspect(&a, got);
}

static void test_probes(void)
{
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        const struct probe *t = &probes[i];
        CLEANUP(net_policy_free_p) struct net_policy p;
        AUTOSTR struct str b = STR_INIT;
        struct inspect got;
        bool ech = t->bytes && str_starts(t->bytes, "ech");
        make_policy(&p, t->mode[0]);
        if (ech || (t->bytes && str_starts(t->bytes, "tls")))
            hello(&b, t->bytes[3] ? t->bytes + 4 : NULL, ech);
        else if (t->bytes)
            str_add(&b, t->bytes);
        ask(t, b.p, b.len, &got, &p);
        CHECK((int)got.what == t->want, "%zu: %s %u: %d, want %d (%s)", i, t->to, t->port, got.what,
              t->want, got.verdict.why ? got.verdict.why : "");
        if (t->name)
            CHECK(strcmp(got.name, t->name) == 0, "%zu: '%s', want '%s'", i, got.name, t->name);
        if (t->why)
            CHECK_STR(got.verdict.why, t->why);
        /* a verdict never depends on where the bytes were cut */
        enum inspect_what last = INSPECT_MORE;
        for (size_t n = 1; n < b.len; n++) {
            struct inspect part;
            ask(t, b.p, n, &part, &p);
            CHECK(part.what == INSPECT_MORE || part.what == got.what, "%zu: %d after %zu bytes", i,
                  part.what, n);
            CHECK(last == INSPECT_MORE || part.what == last, "%zu: changed after %zu bytes", i, n);
            last = part.what;
        }
    }
}

static void test_needed(void)
{
    CLEANUP(net_policy_free_p) struct net_policy p;
    struct net_addr in, out;
    addr_parse("192.0.2.9", &in);
    addr_parse("198.51.100.1", &out);
    make_policy(&p, 'r');
    CHECK(inspect_needed(&p, NULL, &in, 443), "a name is denied");
    net_policy_free_p(&p);
    make_policy(&p, 'r');
    net_rule_free_p(&p.deny.v[--p.deny.n]);
    CHECK(!inspect_needed(&p, NULL, &in, 443), "a range is all there is to ask");
    CHECK(inspect_needed(&p, NULL, &out, 443) && inspect_needed(&p, "ok.test", &out, 443), "names");
    p.mode = NET_LIMITED;
    CHECK(!inspect_needed(&p, "ok.test", &out, 443), "limited asks for no names");
}

/* --- what the log says ------------------------------------------------------------------------ */

static int keeper;

static struct json *line(void)
{
    static char buf[65536];
    struct json *j = NULL;
    ssize_t n = recv(keeper, buf, sizeof(buf), MSG_DONTWAIT);
    if (n > 0)
        json_parse(buf, (size_t)n, &j, NULL);
    return j;
}

static void packet(struct gw *gw, const char *hex_addr, uint16_t port, uint8_t proto)
{
    uint8_t p[28] = { 0x45, [9] = proto };
    memcpy(p + 16, hex_addr, 4);
    p[22] = (uint8_t)(port >> 8);
    p[23] = (uint8_t)port;
    packets_take(gw, p, sizeof(p));
    for (size_t n = 0; n < sizeof(p); n++)
        packets_take(gw, p, n < 24 ? n : 0); /* cut short: nothing */
}

static void test_packets(struct gw *gw)
{
    AUTOJSON struct json *a = NULL;
    AUTOJSON struct json *b = NULL;
    AUTOJSON struct json *c = NULL;
    AUTOJSON struct json *d = NULL;
    packet(gw, "\xc6\x33\x64\x01", 25, 6);
    packet(gw, "\xc6\x33\x64\x01", 25, 6); /* the same within a second: counted only */
    a = line();
    CHECK_STR(json_str(a, "addr"), "198.51.100.1");
    CHECK_STR(json_str(a, "allow"), "198.51.100.1:25");
    CHECK_STR(json_str(a, "verdict"), "deny");
    b = line();
    CHECK(!b, "said twice");
    CHECK(gw->counts.denied == 2, "%lu", (unsigned long)gw->counts.denied);
    uint32_t fake = htonl(fakeip_addr(gw->names, "ok.test"));
    packet(gw, (const char *)&fake, 25, 6);
    c = line();
    CHECK_STR(json_str(c, "name"), "ok.test");
    CHECK_STR(json_str(c, "allow"), "ok.test:25");
    packet(gw, (const char *)&fake, 443, 17);
    d = line();
    CHECK_STR(json_str(d, "proto"), "udp");
    CHECK(!json_get(d, "allow"), "nothing opens UDP");
}

static size_t question(uint8_t *p, const char *name, uint16_t type)
{
    size_t n = 12;
    memset(p, 0, 12);
    p[2] = 1;
    p[5] = 1;
    while (*name) {
        size_t len = strcspn(name, ".");
        p[n++] = (uint8_t)len;
        memcpy(p + n, name, len);
        n += len;
        name += len + (name[len] == '.');
    }
    memcpy(p + n, "\0\0\0\0\1", 5);
    p[n + 1] = (uint8_t)(type >> 8);
    p[n + 2] = (uint8_t)type;
    return n + 5;
}

static const struct {
    const char *name;
    uint16_t type;
    int rcode, answers;
    bool logged;
} questions[] = {
    { "ok.test", DNS_A, DNS_NOERROR, 1, false },
    { "OK.test", DNS_AAAA, DNS_NOERROR, 0, false },
    { "ok.test", DNS_HTTPS, DNS_NOERROR, 0, false },
    { "ok.test", 16, DNS_NOERROR, 0, false },
    { "evil.test", DNS_A, DNS_NXDOMAIN, 0, true },
    { "evil.test", DNS_AAAA, DNS_NXDOMAIN, 0, false },
    { "bad.test", 16, DNS_NXDOMAIN, 0, true },
    { "4.3.2.1.in-addr.arpa", 12, DNS_NXDOMAIN, 0, false },
};

static void test_names(struct gw *gw)
{
    for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
        uint8_t p[512], out[DNS_ANSWER_MAX];
        struct dns_query q;
        size_t n =
            serve_dns_answer(gw, p, question(p, questions[i].name, questions[i].type), &q, out);
        CHECK(n >= 12 && n != SERVE_DNS_PASS && (out[3] & 15) == questions[i].rcode &&
                  out[7] == questions[i].answers,
              "%zu: rcode %d, %d answers", i, out[3] & 15, out[7]);
        AUTOJSON struct json *l = line();
        CHECK(!!l == questions[i].logged, "%zu: log", i);
        if (l)
            CHECK_STR(json_str(l, "allow"),
                      strcmp(questions[i].name, "bad.test") ? "evil.test" : NULL);
    }
    /* an answer of somebody else's under the asker's id and spelling, cut where it must be */
    uint8_t p[512], msg[600], out[DNS_ANSWER_MAX];
    struct dns_query q;
    size_t n = question(p, "oK.test", 16);
    p[1] = 77;
    serve_dns_answer(gw, p, n, &q, out);
    memset(msg, 9, sizeof(msg));
    question(msg, "ok.test", 16);
    CHECK(serve_dns_adopt(&q, msg, 600, 1232) == 600 && msg[1] == 77, "all of it");
    CHECK(memcmp(msg + 12, p + 12, n - 12) == 0, "spelling");
    CHECK(serve_dns_adopt(&q, msg, 600, 512) == n && (msg[2] & 2), "truncated");
    question(msg, "no.test", 16);
    CHECK(serve_dns_adopt(&q, msg, 600, 1232) == 0, "an answer to another question");
    CHECK(serve_dns_adopt(&q, msg, 13, 1232) == 0, "a short one");
}

static void test_log(void)
{
    static const uint8_t key[16] = { 2 };
    int pair[2];
    struct gw gw = { 0 };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        loop_new(&gw.loop, NULL) < 0 || control_new(&gw, pair[1], NULL) < 0 ||
        limits_new(&gw, NULL) < 0 || packets_new(&gw, NULL) < 0 || serve_dns_new(&gw, NULL) < 0)
        abort();
    keeper = pair[0];
    gw.names = fakeip_new(key);
    make_policy(&gw.policy, 'r');
    serve_dns_policy(&gw);
    test_packets(&gw);
    test_names(&gw);
    /* a keeper that does not read: nothing blocks, and what is lost is counted */
    struct gw_line l = { .allow = true, .proto = "tcp", .name = "ok.test", .port = 443 };
    for (int i = 0; i < 5000; i++)
        gw_log(&gw, &l);
    CHECK(gw.counts.lost > 0 && gw.counts.allowed == 5000, "lost %lu",
          (unsigned long)gw.counts.lost);
    serve_dns_free(&gw);
    packets_free(&gw);
    limits_free(&gw);
    control_free(&gw);
    gw.names = fakeip_free(gw.names);
    net_policy_free_p(&gw.policy);
    gw.loop = loop_free(gw.loop);
    close(keeper);
}

int main(void)
{
    test_probes();
    test_needed();
    test_log();
    return check_done();
}
