/* Questions that a sandbox may ask, in every shape, and the packets that answer them. */
#include "tests/unit/check.h"

#include "runtime/gateway/dns.h"

#define LIT(s) (s), sizeof(s) - 1
#define ID "\x12\x34"
#define RD "\x01\x00"                           /* flags: recursion desired */
#define ONE "\x00\x01\x00\x00\x00\x00\x00\x00"  /* counts: a question */
#define PLUS "\x00\x01\x00\x00\x00\x00\x00\x01" /* and a record behind it */
#define TWO "\x00\x01\x00\x00\x00\x00\x00\x02"
#define NAME "\7example\3com\0"
#define A "\x00\x01\x00\x01"
#define OPT "\0\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
#define OPT_COOKIE                                                                                 \
    "\0\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x0c\x00\x0a\x00\x08"                                   \
    "abcdefgh"
#define L63 "\77aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define L61 "\75aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define L62 "\76aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
    const char *what, *p;
    size_t n;
    int want;
    const char *name;
    unsigned type;
    bool edns;
} rows[] = {
    { "plain", LIT(ID RD ONE NAME A), 0, "example.com", DNS_A, false },
    { "no recursion", LIT(ID "\0\0" ONE NAME A), 0, "example.com", DNS_A, false },
    { "AD, CD, Z", LIT(ID "\x01\x70" ONE NAME A), 0, "example.com", DNS_A, false },
    { "mixed case", LIT(ID RD ONE "\7eXamPLe\3COM\0" A), 0, "example.com", DNS_A, false },
    { "AAAA", LIT(ID RD ONE NAME "\x00\x1c\x00\x01"), 0, "example.com", DNS_AAAA, false },
    { "HTTPS", LIT(ID RD ONE NAME "\x00\x41\x00\x01"), 0, "example.com", DNS_HTTPS, false },
    { "service", LIT(ID RD ONE "\5_http\4_tcp\1x\0\x00\x21\x00\x01"), 0, "_http._tcp.x", 33,
      false },
    { "reverse",
      LIT(ID RD ONE "\1"
                    "7\1"
                    "1\2"
                    "18\3"
                    "198\7in-addr\4arpa\0\x00\x0c\x00\x01"),
      0, "7.1.18.198.in-addr.arpa", DNS_PTR, false },
    { "one label", LIT(ID RD ONE "\4mail\0" A), 0, "mail", DNS_A, false },
    { "EDNS", LIT(ID RD PLUS NAME A OPT), 0, "example.com", DNS_A, true },
    { "EDNS options", LIT(ID RD PLUS NAME A OPT_COOKIE), 0, "example.com", DNS_A, true },
    { "EDNS and a pointer", LIT(ID RD TWO NAME A "\xc0\x0c\x00\xfa\x00\xff\0\0\0\0\0\1x" OPT), 0,
      "example.com", DNS_A, true },
    { "longest", LIT(ID RD ONE L63 L63 L63 L61 "\0" A), 0, NULL, DNS_A, false },
    /* nothing to answer */
    { "empty", LIT(""), -1, "", 0, false },
    { "short", LIT("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00"), -1, "", 0, false },
    { "a response", LIT(ID "\x81\x80" ONE NAME A), -1, "", 0, false },
    /* errors */
    { "no question", LIT(ID RD "\0\0\0\0\0\0\0\0"), DNS_FORMERR, "", 0, false },
    { "two questions", LIT(ID RD "\0\2\0\0\0\0\0\0" NAME A NAME A), DNS_FORMERR, "", 0, false },
    { "65535 questions", LIT(ID RD "\xff\xff\0\0\0\0\0\0" NAME A), DNS_FORMERR, "", 0, false },
    { "an answer inside", LIT(ID RD "\0\1\0\1\0\0\0\0" NAME A), DNS_FORMERR, "", 0, false },
    { "an authority", LIT(ID RD "\0\1\0\0\0\1\0\0" NAME A), DNS_FORMERR, "", 0, false },
    { "truncated", LIT(ID "\x03\x00" ONE NAME A), DNS_FORMERR, "", 0, false },
    { "header only", LIT(ID RD ONE), DNS_FORMERR, "", 0, false },
    { "name cut", LIT(ID RD ONE "\7exam"), DNS_FORMERR, "", 0, false },
    { "name without end", LIT(ID RD ONE "\7example\3com"), DNS_FORMERR, "", 0, false },
    { "no type", LIT(ID RD ONE NAME), DNS_FORMERR, "", 0, false },
    { "half a class", LIT(ID RD ONE NAME "\0\1\0"), DNS_FORMERR, "", 0, false },
    { "pointer to itself", LIT(ID RD ONE "\xc0\x0c" A), DNS_FORMERR, "", 0, false },
    { "pointer behind a label", LIT(ID RD ONE "\3www\xc0\x0c" A), DNS_FORMERR, "", 0, false },
    { "label type 01", LIT(ID RD ONE "\x41\1\2\3\0" A), DNS_FORMERR, "", 0, false },
    { "label type 10", LIT(ID RD ONE "\x80\1\2\3\0" A), DNS_FORMERR, "", 0, false },
    { "name of 256", LIT(ID RD ONE L63 L63 L63 L62 "\0" A), DNS_FORMERR, "", 0, false },
    { "trailing byte", LIT(ID RD ONE NAME A "x"), DNS_FORMERR, "", DNS_A, false },
    { "record missing", LIT(ID RD PLUS NAME A), DNS_FORMERR, "", DNS_A, false },
    { "record cut", LIT(ID RD PLUS NAME A "\0\x00\x29\x04\xd0\x00\x00\x00\x00\x00"), DNS_FORMERR,
      "", DNS_A, false },
    { "record too long", LIT(ID RD PLUS NAME A "\0\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x01"),
      DNS_FORMERR, "", DNS_A, false },
    { "half a pointer", LIT(ID RD PLUS NAME A "\xc0"), DNS_FORMERR, "", DNS_A, false },
    { "EDNS twice", LIT(ID RD TWO NAME A OPT OPT), DNS_FORMERR, "", DNS_A, true },
    { "EDNS with a name", LIT(ID RD PLUS NAME A "\1x\0\x00\x29\x04\xd0\0\0\0\0\0\0"), DNS_FORMERR,
      "", DNS_A, false },
    { "EDNS version 1", LIT(ID RD PLUS NAME A "\0\x00\x29\x04\xd0\x00\x01\x00\x00\x00\x00"),
      DNS_BADVERS, "", DNS_A, true },
    { "status", LIT(ID "\x11\x00" ONE NAME A), DNS_NOTIMP, "", 0, false },
    { "notify", LIT(ID "\x20\x00" ONE NAME A), DNS_NOTIMP, "", 0, false },
    { "update", LIT(ID "\x28\x00" ONE NAME A), DNS_NOTIMP, "", 0, false },
    { "class CH", LIT(ID RD ONE "\7version\4bind\0\x00\x10\x00\x03"), DNS_REFUSED, "", 16, false },
    { "class ANY", LIT(ID RD ONE NAME "\x00\x01\x00\xff"), DNS_REFUSED, "", DNS_A, false },
    { "the root", LIT(ID RD ONE "\0\x00\x02\x00\x01"), DNS_REFUSED, "", 2, false },
    /* names that nobody has */
    { "a dot in a label", LIT(ID RD ONE "\13example.com\0" A), DNS_NXDOMAIN, "", DNS_A, false },
    { "a dot at the end of a label", LIT(ID RD ONE "\10example.\3com\0" A), DNS_NXDOMAIN, "", DNS_A,
      false },
    { "a NUL", LIT(ID RD ONE "\10exa\0mple\3com\0" A), DNS_NXDOMAIN, "", DNS_A, false },
    { "a space", LIT(ID RD ONE "\10exa mple\3com\0" A), DNS_NXDOMAIN, "", DNS_A, false },
    { "a newline", LIT(ID RD ONE "\10exa\nmple\3com\0" A), DNS_NXDOMAIN, "", DNS_A, false },
    { "Latin-1", LIT(ID RD ONE "\10ex\xe4mples\3com\0" A), DNS_NXDOMAIN, "", DNS_A, false },
    { "an address",
      LIT(ID RD ONE "\3"
                    "127\1"
                    "0\1"
                    "0\1"
                    "1\0" A),
      DNS_NXDOMAIN, "", DNS_A, false },
    { "a short address",
      LIT(ID RD ONE "\3"
                    "127\1"
                    "1\0" A),
      DNS_NXDOMAIN, "", DNS_A, false },
    { "a number",
      LIT(ID RD ONE "\12"
                    "2130706433\0" A),
      DNS_NXDOMAIN, "", DNS_A, false },
};

static void test_parse(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dns_query q;
        uint8_t *p = malloc(rows[i].n); /* exactly as long as it is, for the address sanitizer */
        int rc;

        memcpy(p, rows[i].p, rows[i].n);
        rc = dns_parse(p, rows[i].n, &q);
        CHECK(rc == rows[i].want, "%s: %d, want %d", rows[i].what, rc, rows[i].want);
        if (rows[i].name)
            CHECK(strcmp(q.name, rows[i].name) == 0, "%s: '%s'", rows[i].what, q.name);
        else
            CHECK(strlen(q.name) == 253, "%s: %zu", rows[i].what, strlen(q.name));
        CHECK(q.type == rows[i].type, "%s: type %u", rows[i].what, q.type);
        CHECK(q.edns == rows[i].edns, "%s: EDNS %d", rows[i].what, q.edns);
        CHECK(rc < 0 || q.id == 0x1234, "%s: id %x", rows[i].what, q.id);
        free(p);
    }
}

/* A good question that is cut anywhere is none. */
static void test_cut(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t n = 0; rows[i].want == DNS_NOERROR && n < rows[i].n; n++) {
            struct dns_query q;
            uint8_t *p = malloc(n);

            memcpy(p, rows[i].p, n);
            CHECK(dns_parse(p, n, &q) != DNS_NOERROR, "%s cut at %zu", rows[i].what, n);
            free(p);
        }
}

enum { EMPTY, ADDRESS, POINTER };

static const struct {
    const char *what, *q;
    size_t qn;
    int kind, rcode;
    const char *want;
    size_t n;
} answers[] = {
    { "address", LIT(ID RD ONE NAME A), ADDRESS, 0,
      LIT(ID "\x81\x80\0\1\0\1\0\0\0\0" NAME A "\xc0\x0c" A "\0\0\0\x3c\0\4\xc6\x12\1\7") },
    { "case is kept", LIT(ID RD ONE "\7eXamPLe\3COM\0" A), ADDRESS, 0,
      LIT(ID "\x81\x80\0\1\0\1\0\0\0\0\7eXamPLe\3COM\0" A "\xc0\x0c" A
             "\0\0\0\x3c\0\4\xc6\x12\1\7") },
    { "address, EDNS", LIT(ID RD PLUS NAME A OPT_COOKIE), ADDRESS, 0,
      LIT(ID "\x81\x80\0\1\0\1\0\0\0\1" NAME A "\xc0\x0c" A "\0\0\0\x3c\0\4\xc6\x12\1\7" OPT) },
    { "no recursion, CD", LIT(ID "\0\x10" ONE NAME A), EMPTY, 0,
      LIT(ID "\x80\x90\0\1\0\0\0\0\0\0" NAME A) },
    { "no data", LIT(ID RD ONE NAME "\0\x1c\0\1"), EMPTY, 0,
      LIT(ID "\x81\x80\0\1\0\0\0\0\0\0" NAME "\0\x1c\0\1") },
    { "no name", LIT(ID RD PLUS NAME A OPT), EMPTY, DNS_NXDOMAIN,
      LIT(ID "\x81\x83\0\1\0\0\0\0\0\1" NAME A OPT) },
    { "failed", LIT(ID RD ONE NAME A), EMPTY, DNS_SERVFAIL, LIT(ID "\x81\x82" ONE NAME A) },
    { "refused", LIT(ID RD ONE NAME A), EMPTY, DNS_REFUSED, LIT(ID "\x81\x85" ONE NAME A) },
    { "malformed", LIT(ID RD ONE "\xc0\x0c" A), EMPTY, DNS_FORMERR,
      LIT(ID "\x81\x81\0\0\0\0\0\0\0\0") },
    { "update", LIT(ID "\x28\x00" ONE NAME A), EMPTY, DNS_NOTIMP,
      LIT(ID "\xa8\x84\0\0\0\0\0\0\0\0") },
    { "EDNS version", LIT(ID RD PLUS NAME A "\0\x00\x29\x04\xd0\x00\x01\x00\x00\x00\x00"), EMPTY,
      DNS_BADVERS, LIT(ID "\x81\x80\0\1\0\0\0\0\0\1" NAME A "\0\x00\x29\x04\xd0\1\0\0\0\0\0") },
    { "pointer",
      LIT(ID RD ONE "\1"
                    "7\1"
                    "1\2"
                    "18\3"
                    "198\7in-addr\4arpa\0\0\x0c\0\1"),
      POINTER, 0,
      LIT(ID "\x81\x80\0\1\0\1\0\0\0\0"
             "\1"
             "7\1"
             "1\2"
             "18\3"
             "198\7in-addr\4arpa\0\0\x0c\0\1"
             "\xc0\x0c\0\x0c\0\1\0\0\0\x3c\0\x0d" NAME) },
};

static void test_answers(void)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        uint8_t out[DNS_ANSWER_MAX];
        struct dns_query q;
        size_t n;

        dns_parse((const uint8_t *)answers[i].q, answers[i].qn, &q);
        if (answers[i].kind == ADDRESS)
            n = dns_answer_a(&q, 0xc6120107, 60, out);
        else if (answers[i].kind == POINTER)
            n = dns_answer_ptr(&q, "example.com", 60, out);
        else
            n = dns_answer(&q, (enum dns_rcode)answers[i].rcode, out);
        CHECK(n == answers[i].n && memcmp(out, answers[i].want, n) == 0, "%s: %zu bytes, want %zu",
              answers[i].what, n, answers[i].n);
    }
}

/* The longest question and the longest name: an answer, or an error where it does not fit. */
static void test_longest(void)
{
    static const char q_long[] = ID RD PLUS L63 L63 L63 L61 "\0\0\x0c\0\1" OPT;
    uint8_t out[DNS_ANSWER_MAX];
    struct dns_query q;
    char name[256];

    CHECK(dns_parse((const uint8_t *)q_long, sizeof q_long - 1, &q) == 0, "longest");
    memcpy(name, q.name, sizeof name);
    CHECK(dns_answer_a(&q, 1, 1, out) == 12 + 259 + 16 + 11, "address");
    CHECK(dns_answer_ptr(&q, name, 1, out) == 12 + 259 + 11 && (out[3] & 15) == DNS_SERVFAIL,
          "does not fit");
    CHECK(dns_answer_ptr(&q, "a..b", 1, out) && (out[3] & 15) == DNS_SERVFAIL, "no name");
    CHECK(dns_answer_ptr(&q, "", 1, out) && (out[3] & 15) == DNS_SERVFAIL, "empty");
    dns_parse((const uint8_t *)ID RD ONE NAME A, 29, &q);
    CHECK(dns_answer_ptr(&q, name, 1, out) == 12 + 17 + 12 + 255, "longest name");
}

static const struct {
    const char *name;
    uint32_t addr; /* 0: none */
} reverse[] = {
    { "7.1.18.198.in-addr.arpa", 0xc6120107 },
    { "255.255.19.198.in-addr.arpa", 0xc613ffff },
    { "0.0.0.10.in-addr.arpa", 0x0a000000 },
    { ".1.18.198.in-addr.arpa", 0 },
    { "07.1.18.198.in-addr.arpa", 0 },
    { "256.1.18.198.in-addr.arpa", 0 },
    { "1000.1.18.198.in-addr.arpa", 0 },
    { "1.18.198.in-addr.arpa", 0 },
    { "7.7.1.18.198.in-addr.arpa", 0 },
    { "7.1.18.198.in-addr.arpa.example", 0 },
    { "7.1.18.198.ip6.arpa", 0 },
    { "7.1.18.x.in-addr.arpa", 0 },
    { "in-addr.arpa", 0 },
    { "7", 0 },
    { "7.1.18.198", 0 },
    { "", 0 },
};

static void test_reverse(void)
{
    for (size_t i = 0; i < ARRAY_LEN(reverse); i++) {
        uint32_t addr = 0;
        bool ok = dns_reverse(reverse[i].name, &addr);

        CHECK(ok == (reverse[i].addr != 0) && addr == reverse[i].addr, "%s: %x", reverse[i].name,
              addr);
    }
}

int main(void)
{
    test_parse();
    test_cut();
    test_answers();
    test_longest();
    test_reverse();
    return check_done();
}
