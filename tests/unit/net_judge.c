/* Who may be reached: the tables are the policy's specification. */
#include "tests/unit/check.h"

#include "runtime/network/policy.h"

/* "+example.com -10.0.0.0/8 8080": allow, deny, own port. */
static struct net_policy policy(enum net_mode mode, const char *words)
{
    struct net_policy p = { .mode = mode };
    AUTOFREE char *copy = str_dup(words);
    char *save = NULL;

    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (*w == '+' || *w == '-') {
            struct net_rule r = { 0 };
            CHECK(net_rule_parse("rule", w + 1, &r, NULL) == 0, "%s", w);
            CHECK(net_rules_add(*w == '+' ? &p.allow : &p.deny, &r), "%s", w);
        } else {
            p.ports = realloc(p.ports, (p.n_ports + 1) * sizeof *p.ports);
            p.ports[p.n_ports++] = (uint16_t)atoi(w);
        }
    }
    return p;
}

/* --- names ------------------------------------------------------------------------------------- */
static const struct {
    enum net_mode mode;
    const char *rules, *name;
    uint16_t port;
    bool allow;
    const char *rule;
} by_name[] = {
    { NET_NONE, "+example.com", "example.com", 443, false, "none" },
    { NET_NONE, "", "example.com", 443, false, "none" },

    { NET_LIMITED, "", "example.com", 443, true, "limited" },
    { NET_LIMITED, "", "example.com", 80, true, "limited" },
    { NET_LIMITED, "", "example.com", 22, false, "limited" },
    { NET_LIMITED, "", "example.com", 0, false, "limited" },
    { NET_LIMITED, "22", "example.com", 22, true, "limited" },
    { NET_LIMITED, "22", "example.com", 443, false, "limited" },
    { NET_LIMITED, "+git.example.com:22", "git.example.com", 22, true, "git.example.com:22" },
    { NET_LIMITED, "+git.example.com:22", "git.example.com", 443, true, "limited" },
    { NET_LIMITED, "+git.example.com:22", "example.com", 22, false, "limited" },
    { NET_LIMITED, "+*.example.com:22", "git.example.com", 22, true, "*.example.com:22" },
    { NET_LIMITED, "-example.com", "example.com", 443, false, "example.com" },
    { NET_LIMITED, "-example.com", "www.example.com", 443, true, "limited" },
    { NET_LIMITED, "-*.example.com", "www.example.com", 443, false, "*.example.com" },
    { NET_LIMITED, "-*.example.com", "example.com", 443, true, "limited" },
    { NET_LIMITED, "-example.com:80", "example.com", 80, false, "example.com:80" },
    { NET_LIMITED, "-example.com:80", "example.com", 443, true, "limited" },
    { NET_LIMITED, "-example.com +example.com", "example.com", 443, false, "example.com" },
    { NET_LIMITED, "-example.com +example.com:22", "example.com", 22, false, "example.com" },
    { NET_LIMITED, "-EXAMPLE.com.", "Example.COM.", 443, false, "example.com" },
    { NET_LIMITED, "-0.0.0.0/0", "example.com", 443, true, "limited" }, /* its address, later */

    { NET_ALLOWLIST, "", "example.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "example.com", 443, true, "example.com" },
    { NET_ALLOWLIST, "+example.com", "example.com", 80, true, "example.com" },
    { NET_ALLOWLIST, "+example.com", "example.com", 8443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com 8443", "example.com", 8443, true, "example.com" },
    { NET_ALLOWLIST, "+example.com:8443", "example.com", 8443, true, "example.com:8443" },
    { NET_ALLOWLIST, "+example.com:8443", "example.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "www.example.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "notexample.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "example.com.evil.example", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "example.co", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+*.example.com", "www.example.com", 443, true, "*.example.com" },
    { NET_ALLOWLIST, "+*.example.com", "a.b.c.example.com", 443, true, "*.example.com" },
    { NET_ALLOWLIST, "+*.example.com", "example.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+*.example.com", "notexample.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+*.example.com", "www.notexample.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+*.example.com", "www.example.com.evil.example", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+*.example.com", ".example.com", 443, false, "default" },
    { NET_ALLOWLIST, "+*.com", "example.com", 443, true, "*.com" },
    { NET_ALLOWLIST, "+example.com", "EXAMPLE.COM", 443, true, "example.com" },
    { NET_ALLOWLIST, "+example.com", "example.com.", 443, true, "example.com" },
    { NET_ALLOWLIST, "+example.com", "example.com ", 443, false, "default" },
    { NET_ALLOWLIST, "+example.com", "", 443, false, "default" },
    { NET_ALLOWLIST, "+*.example.com -bad.example.com", "bad.example.com", 443, false,
      "bad.example.com" },
    { NET_ALLOWLIST, "+*.example.com -bad.example.com", "good.example.com", 443, true,
      "*.example.com" },
    { NET_ALLOWLIST, "+bad.example.com -*.example.com", "bad.example.com", 443, false,
      "*.example.com" },
    { NET_ALLOWLIST, "+0.0.0.0/0", "example.com", 443, false, "allowlist" },
    { NET_ALLOWLIST, "+a.example +a.example:8443", "a.example", 8443, true, "a.example:8443" },

    { NET_FULL, "", "example.com", 1, true, "full" },
    { NET_FULL, "", "example.com", 65535, true, "full" },
    { NET_FULL, "-example.com", "example.com", 1, false, "example.com" },
    { NET_FULL, "-example.com:22", "example.com", 22, false, "example.com:22" },
    { NET_FULL, "-example.com:22", "example.com", 23, true, "full" },
    { NET_FULL, "", "2130706433", 80, false, "default" },
    { NET_FULL, "", "127.0.0.1", 80, false, "default" },
};

/* --- addresses ---------------------------------------------------------------------------------- */
enum { NAMED = 1, LOCAL = 2 };

static const struct {
    enum net_mode mode;
    const char *rules, *addr;
    uint16_t port;
    int how;
    bool allow;
    const char *rule;
} by_addr[] = {
    { NET_NONE, "+192.0.2.1", "192.0.2.1", 443, 0, false, "none" },
    { NET_NONE, "", "192.0.2.1", 443, NAMED, false, "none" },

    { NET_LIMITED, "", "192.0.2.1", 443, 0, true, "limited" },
    { NET_LIMITED, "", "192.0.2.1", 22, 0, false, "limited" },
    { NET_LIMITED, "", "192.0.2.1", 22, NAMED, true, "name" },
    { NET_LIMITED, "", "2001:db8::1", 443, NAMED, true, "name" },
    { NET_LIMITED, "+192.0.2.1:22", "192.0.2.1", 22, 0, true, "192.0.2.1:22" },
    { NET_LIMITED, "+example.com:22", "192.0.2.1", 22, 0, false, "limited" },
    { NET_LIMITED, "-192.0.2.0/24", "192.0.2.1", 443, 0, false, "192.0.2.0/24" },
    { NET_LIMITED, "-192.0.2.0/24", "192.0.2.1", 443, NAMED, false, "192.0.2.0/24" },
    { NET_LIMITED, "-192.0.2.0/24 +192.0.2.1", "192.0.2.1", 443, 0, false, "192.0.2.0/24" },
    { NET_LIMITED, "-192.0.2.0/24:80", "192.0.2.1", 443, 0, true, "limited" },
    { NET_LIMITED, "-192.0.2.0/24", "64:ff9b::192.0.2.1", 443, NAMED, false, "192.0.2.0/24" },
    { NET_LIMITED, "-192.0.2.0/24", "2002:c000:201::1", 443, NAMED, false, "192.0.2.0/24" },
    { NET_LIMITED, "-example.com", "192.0.2.1", 443, 0, true, "limited" },

    /* What is not public, by name and by address. */
    { NET_LIMITED, "", "10.0.0.1", 443, 0, false, "private" },
    { NET_LIMITED, "", "10.0.0.1", 443, NAMED, false, "private" },
    { NET_FULL, "", "10.0.0.1", 443, NAMED, false, "private" },
    { NET_FULL, "", "127.0.0.1", 443, NAMED, false, "loopback" },
    { NET_FULL, "", "127.0.0.1", 443, NAMED | LOCAL, false, "loopback" },
    { NET_FULL, "", "::1", 443, NAMED, false, "loopback" },
    { NET_FULL, "", "169.254.1.1", 80, 0, false, "link-local" },
    { NET_FULL, "", "169.254.169.254", 80, 0, false, "metadata" },
    { NET_FULL, "", "fd00:ec2::254", 80, NAMED, false, "metadata" },
    { NET_FULL, "", "224.0.0.251", 5353, 0, false, "multicast" },
    { NET_FULL, "", "198.18.0.1", 80, 0, false, "reserved" },
    { NET_FULL, "", "64:ff9b::10.0.0.1", 443, NAMED, false, "private" },
    { NET_FULL, "", "::ffff:127.0.0.1", 443, NAMED, false, "loopback" },
    { NET_FULL, "", "0.0.0.0", 80, NAMED, false, "default" },
    { NET_FULL, "+0.0.0.0", "0.0.0.0", 80, 0, false, "default" },
    { NET_FULL, "+::", "::", 80, NAMED, false, "default" },
    { NET_ALLOWLIST, "+db.example", "10.0.0.1", 443, NAMED, false, "private" },
    { NET_ALLOWLIST, "+*.example", "127.0.0.1", 443, NAMED, false, "loopback" },

    /* A range that means it opens it; one that merely holds it does not. */
    { NET_LIMITED, "+10.0.0.0/8", "10.0.0.1", 443, 0, true, "10.0.0.0/8" },
    { NET_LIMITED, "+10.0.0.0/8", "10.0.0.1", 443, NAMED, true, "10.0.0.0/8" },
    { NET_LIMITED, "+10.0.0.0/8", "10.0.0.1", 5432, NAMED, false, "private" },
    { NET_LIMITED, "+10.0.0.1:5432", "10.0.0.1", 5432, 0, true, "10.0.0.1:5432" },
    { NET_LIMITED, "+10.0.0.1:5432", "10.0.0.1", 443, 0, false, "private" },
    { NET_LIMITED, "+10.0.0.1:5432", "10.0.0.2", 5432, 0, false, "private" },
    { NET_LIMITED, "+10.0.0.0/8", "192.168.0.1", 443, 0, false, "private" },
    { NET_LIMITED, "+10.0.0.0/8 -10.0.0.1", "10.0.0.1", 443, 0, false, "10.0.0.1" },
    { NET_FULL, "+10.0.0.0/8", "10.0.0.1", 5432, 0, true, "10.0.0.0/8" },
    { NET_FULL, "+0.0.0.0/0", "10.0.0.1", 443, 0, false, "private" },
    { NET_FULL, "+0.0.0.0/0", "127.0.0.1", 443, NAMED, false, "loopback" },
    { NET_FULL, "+0.0.0.0/1 +128.0.0.0/1", "10.0.0.1", 443, 0, false, "private" },
    { NET_FULL, "+8.0.0.0/6", "10.0.0.1", 443, 0, false, "private" },
    { NET_FULL, "+192.168.0.0/15", "192.168.0.1", 443, 0, false, "private" },
    { NET_FULL, "+::/0", "fd00::1", 443, NAMED, false, "private" },
    { NET_FULL, "+::/0", "::1", 443, NAMED, false, "loopback" },
    { NET_FULL, "+::/1", "64:ff9b::10.0.0.1", 443, NAMED, false, "private" },
    { NET_FULL, "+::/0", "10.0.0.1", 443, 0, false, "private" },
    { NET_FULL, "+fd00::/8", "fd00::1", 443, NAMED, true, "fd00::/8" },
    { NET_FULL, "+127.0.0.0/8", "127.0.0.1", 443, LOCAL, true, "127.0.0.0/8" },
    { NET_LIMITED, "+127.0.0.1:8080", "127.0.0.1", 8080, LOCAL, true, "127.0.0.1:8080" },
    { NET_LIMITED, "+127.0.0.1:8080", "::ffff:127.0.0.1", 8080, NAMED, true, "127.0.0.1:8080" },
    { NET_LIMITED, "+127.0.0.1:8080", "127.0.0.1", 8081, LOCAL, false, "loopback" },
    { NET_FULL, "+10.0.0.0/8", "64:ff9b::10.0.0.1", 443, NAMED, false, "private" },
    { NET_FULL, "+64:ff9b::a00:0/104", "64:ff9b::10.0.0.1", 443, NAMED, true,
      "64:ff9b::a00:0/104" },

    /* The metadata service: only by its own address. */
    { NET_FULL, "+169.254.0.0/16", "169.254.1.1", 80, 0, true, "169.254.0.0/16" },
    { NET_FULL, "+169.254.0.0/16", "169.254.169.254", 80, 0, false, "metadata" },
    { NET_FULL, "+fd00::/8", "fd00:ec2::254", 80, NAMED, false, "metadata" },
    { NET_LIMITED, "+169.254.169.254", "169.254.169.254", 80, 0, true, "169.254.169.254" },
    { NET_LIMITED, "+169.254.169.254", "169.254.169.254", 81, 0, false, "metadata" },

    /* The host itself, wherever it lives. */
    { NET_FULL, "", "192.0.2.1", 22, LOCAL, false, "host" },
    { NET_FULL, "", "192.0.2.1", 22, LOCAL | NAMED, false, "host" },
    { NET_FULL, "", "10.0.0.1", 22, LOCAL, false, "host" },
    { NET_FULL, "+0.0.0.0/0", "192.0.2.1", 22, LOCAL, false, "host" },
    { NET_FULL, "+192.0.2.0/24", "192.0.2.1", 22, LOCAL, false, "host" },
    { NET_FULL, "+192.0.2.0/24", "192.0.2.2", 22, 0, true, "192.0.2.0/24" },
    { NET_FULL, "+192.0.2.1", "192.0.2.1", 22, LOCAL, true, "192.0.2.1" },
    { NET_FULL, "+::/0", "2001:db8::1", 22, LOCAL, false, "host" },
    { NET_FULL, "+[2001:db8::1]:22", "2001:db8::1", 22, LOCAL, true, "[2001:db8::1]:22" },
    { NET_LIMITED, "", "192.0.2.1", 443, LOCAL | NAMED, false, "host" },
    { NET_ALLOWLIST, "+host.example", "192.0.2.1", 443, LOCAL | NAMED, false, "host" },

    { NET_ALLOWLIST, "", "192.0.2.1", 443, 0, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "192.0.2.1", 443, 0, false, "allowlist" },
    { NET_ALLOWLIST, "+example.com", "192.0.2.1", 443, NAMED, true, "name" },
    { NET_ALLOWLIST, "+192.0.2.0/24", "192.0.2.1", 443, 0, true, "192.0.2.0/24" },
    { NET_ALLOWLIST, "+192.0.2.0/24", "192.0.2.1", 22, 0, false, "allowlist" },
    { NET_ALLOWLIST, "+192.0.2.0/24:22", "192.0.2.1", 22, 0, true, "192.0.2.0/24:22" },
    { NET_ALLOWLIST, "+192.0.2.0/24", "192.0.3.1", 443, 0, false, "allowlist" },
    { NET_ALLOWLIST, "+0.0.0.0/0", "192.0.2.1", 443, 0, true, "0.0.0.0/0" },
    { NET_ALLOWLIST, "+0.0.0.0/0", "10.0.0.1", 443, 0, false, "private" },
    { NET_ALLOWLIST, "+0.0.0.0/0", "2001:db8::1", 443, 0, false, "allowlist" },
    { NET_ALLOWLIST, "+::/0", "2001:db8::1", 443, 0, true, "::/0" },

    { NET_FULL, "", "192.0.2.1", 12345, 0, true, "full" },
    { NET_FULL, "-192.0.2.1", "192.0.2.1", 12345, NAMED, false, "192.0.2.1" },
    { NET_FULL, "-0.0.0.0/0", "192.0.2.1", 12345, NAMED, false, "0.0.0.0/0" },
    { NET_FULL, "-0.0.0.0/0", "64:ff9b::192.0.2.1", 12345, NAMED, false, "0.0.0.0/0" },
};

static void check_verdict(struct net_verdict v, bool allow, const char *rule)
{
    CHECK(v.allow == allow, "rule %s", v.rule);
    CHECK_STR(v.rule, rule);
    CHECK(allow == !v.why, "why %s", v.why ? v.why : "(null)");
}

static void test_judgement(void)
{
    for (size_t i = 0; i < ARRAY_LEN(by_name); i++) {
        CLEANUP(net_policy_free_p) struct net_policy p = policy(by_name[i].mode, by_name[i].rules);
        int before = check_failed;
        check_verdict(net_judge_name(&p, by_name[i].name, by_name[i].port), by_name[i].allow,
                      by_name[i].rule);
        CHECK(check_failed == before, "in row %zu: %s '%s' %s:%u", i, net_mode_word(p.mode),
              by_name[i].rules, by_name[i].name, by_name[i].port);
    }
    for (size_t i = 0; i < ARRAY_LEN(by_addr); i++) {
        CLEANUP(net_policy_free_p) struct net_policy p = policy(by_addr[i].mode, by_addr[i].rules);
        int before = check_failed;
        struct net_addr a;
        CHECK(addr_parse(by_addr[i].addr, &a) == 0, "%s", by_addr[i].addr);
        check_verdict(
            net_judge_addr(&p, &a, by_addr[i].how & LOCAL, by_addr[i].port, by_addr[i].how & NAMED),
            by_addr[i].allow, by_addr[i].rule);
        CHECK(check_failed == before, "in row %zu: %s '%s' %s:%u", i, net_mode_word(p.mode),
              by_addr[i].rules, by_addr[i].addr, by_addr[i].port);
    }
    /* Mapped bytes that no parser has seen. */
    CLEANUP(net_policy_free_p) struct net_policy p = policy(NET_FULL, "-192.0.2.1");
    struct net_addr a = { AF_INET6, { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
    check_verdict(net_judge_addr(&p, &a, false, 80, true), false, "loopback");
    memcpy(a.b + 12, (uint8_t[]){ 192, 0, 2, 1 }, 4);
    check_verdict(net_judge_addr(&p, &a, false, 80, true), false, "192.0.2.1");
    check_verdict(net_judge_addr(&p, &(struct net_addr){ 0 }, false, 80, true), false, "default");
    check_verdict(net_judge_addr(&p, &(struct net_addr){ AF_UNIX, { 1 } }, false, 80, true), false,
                  "reserved");
}

/* --- ports ------------------------------------------------------------------------------------- */
static const struct {
    enum net_mode mode;
    const char *rules, *ports;
    bool names;
} listens[] = {
    { NET_NONE, "+a.example:22 -b.example", "", false },
    { NET_LIMITED, "", "80 443 ", false },
    { NET_LIMITED, "-a.example", "80 443 ", true },
    { NET_LIMITED, "-10.0.0.0/8", "80 443 ", false },
    { NET_LIMITED, "+a.example:22 -b.example:23", "22 80 443 ", true },
    { NET_LIMITED, "8080", "8080 ", false },
    { NET_LIMITED, "8080 22 8080", "22 8080 ", false },
    { NET_LIMITED, "+a.example:443 +b.example:22 +c.example:22", "22 80 443 ", false },
    { NET_ALLOWLIST, "", "80 443 ", true },
    { NET_ALLOWLIST, "+10.0.0.0/8:5432", "80 443 5432 ", true },
    { NET_ALLOWLIST, "+a.example:53 443", "443 ", true },
    { NET_FULL, "", "80 443 ", false },
    { NET_FULL, "-a.example", "80 443 ", true },
};

static void test_ports(void)
{
    for (size_t i = 0; i < ARRAY_LEN(listens); i++) {
        CLEANUP(net_policy_free_p) struct net_policy p = policy(listens[i].mode, listens[i].rules);
        AUTOFREE uint16_t *v = NULL;
        AUTOSTR struct str s = STR_INIT;
        size_t n = net_ports(&p, &v);
        str_add(&s, "");
        for (size_t k = 0; k < n; k++) {
            str_addf(&s, "%u ", v[k]);
            CHECK(net_listens(&p, v[k]), "%u", v[k]);
        }
        CHECK_STR(s.p, listens[i].ports);
        CHECK(net_listens(&p, 9) == (p.mode == NET_FULL), "row %zu", i);
        CHECK(net_needs_names(&p) == listens[i].names, "row %zu", i);
    }
}

/* --- the whole ---------------------------------------------------------------------------------- */
static void check_whole(struct net_policy *p, const char *says)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    int rc = net_policy_check(p, &e);
    AUTOFREE char *text = e ? err_text(e) : NULL;

    CHECK(says ? rc < 0 && text && strstr(text, says) : rc == 0, "%d %s", rc, text ? text : "");
    net_policy_free_p(p);
}

static void test_check(void)
{
    struct net_policy p = policy(NET_LIMITED, "+a.example:22 -b.example:53");
    struct net_publish two[] = { { { AF_INET, { 127, 0, 0, 1 } }, 8080, 80 },
                                 { { AF_INET, { 127, 0, 0, 1 } }, 8080, 81 } };

    check_whole(&p, NULL);
    p = policy(NET_ALLOWLIST, "+a.example:53");
    check_whole(&p, "'a.example:53': port 53");
    p = policy(NET_LIMITED, "443 53");
    check_whole(&p, "port 53");
    p = policy(NET_FULL, "+10.0.0.1:53");
    check_whole(&p, NULL);
    p = policy(NET_LIMITED, "");
    p.publish = mem_dup(two, sizeof two);
    p.n_publish = 2;
    check_whole(&p, "port 8080 of 127.0.0.1 is published twice");
    p = policy(NET_LIMITED, "");
    p.publish = mem_dup(two, sizeof two);
    p.publish[1].host_port++;
    p.n_publish = 2;
    check_whole(&p, NULL);

    AUTOSTR struct str s = STR_INIT;
    for (int i = 0; i < 126; i++)
        str_addf(&s, "+a.example:%d ", 1000 + i);
    p = policy(NET_LIMITED, s.p);
    check_whole(&p, NULL);
    str_add(&s, "+b.example:2 +c.example:3");
    p = policy(NET_LIMITED, s.p);
    AUTOFREE uint16_t *v = NULL;
    CHECK(net_ports(&p, &v) == NET_MAX_PORTS, "at most so many");
    check_whole(&p, "more than 128 ports");
    str_reset(&s);
    for (int i = 0; i < 1500; i++)
        str_addf(&s, "+name-%d.with-a-long-tail.in-a-long.domain.example ", i);
    p = policy(NET_ALLOWLIST, s.p);
    check_whole(&p, "too many rules (1500 allow, 0 deny)");
}

static void test_add(void)
{
    CLEANUP(net_policy_free_p) struct net_policy p = policy(NET_LIMITED, "+a.example");
    struct net_rule r = { 0 };

    CHECK(net_rule_parse("x", "A.example.", &r, NULL) == 0, "same");
    CHECK(!net_rules_add(&p.allow, &r) && p.allow.n == 1 && !r.text, "same");
    CHECK(net_rule_parse("x", "a.example:80", &r, NULL) == 0, "other");
    CHECK(net_rules_add(&p.allow, &r) && p.allow.n == 2 && !r.text, "other");
}

int main(void)
{
    test_judgement();
    test_ports();
    test_check();
    test_add();
    return check_done();
}
