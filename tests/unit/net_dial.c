/* Dialling by name and by address, and through the host's proxy, in a world of the test's own. */
#include "runtime/gateway/dial.h"

#include "tests/unit/net_outside.h"

/* --- dialling -------------------------------------------------------------------------------- */

struct got {
    bool done;
    int error, calls;
    char addr[INET6_ADDRSTRLEN], text[16], why[128];
};

static void on_dial(void *arg, int fd, const struct dial_result *r)
{
    struct got *g = arg;
    g->done = true;
    g->calls++;
    g->error = r->error;
    if (r->addr.family)
        addr_text(&r->addr, g->addr);
    snprintf(g->why, sizeof g->why, "%s", r->why ? r->why : r->verdict.why ? r->verdict.why : "");
    CHECK((fd >= 0) == !r->error, "fd %d with error %d", fd, r->error);
    CHECK(r->verdict.allow == !r->error, "verdict and error %d differ", r->error);
    if (fd < 0)
        return;
    fcntl(fd, F_SETFL, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 10 },
               sizeof(struct timeval));
    ssize_t n = recv(fd, g->text, 8, MSG_WAITALL);
    g->text[n > 0 ? n : 0] = '\0';
    close(fd);
}

static struct got dial(const char *where, uint16_t port)
{
    struct got g = { 0 };
    struct dial_req q = { .gw = &gw, .port = port, .done = on_dial, .arg = &g };
    if (addr_parse(where, &q.addr) < 0)
        q.name = where;
    dial_start(&q);
    CHECK(!g.calls, "%s: called back from within", where);
    until(&g.done);
    CHECK(g.calls == 1, "%s: %d calls", where, g.calls);
    return g;
}

static const struct {
    const char *allow, *deny, *where;
    uint16_t port;
    int error;
    const char *addr;
} dials[] = {
    { NULL, NULL, "ok.test", 80, 0, "203.0.113.2" },
    { NULL, NULL, "203.0.113.9", 80, 0, "203.0.113.9" },
    { NULL, NULL, "six.test", 80, 0, OUTSIDE_SIX },
    { NULL, NULL, "hosts.test", 80, 0, "203.0.113.5" },
    { NULL, NULL, "ok.test", 443, ECONNREFUSED, "203.0.113.2" },
    { NULL, NULL, "gone.test", 80, ENOENT, "" },
    { NULL, NULL, "deaf.test", 80, 0, "203.0.113.2" },
    /* what is not public needs a range, and a name never opens it */
    { NULL, NULL, "priv.test", 80, EACCES, "10.9.9.9" },
    { NULL, NULL, "both.test", 80, 0, "203.0.113.7" },
    { "priv.test", NULL, "priv.test", 80, EACCES, "10.9.9.9" },
    { "10.9.9.9", NULL, "priv.test", 80, 0, "10.9.9.9" },
    { "10.9.9.0/24", NULL, "10.9.9.9", 80, 0, "10.9.9.9" },
    { NULL, NULL, "10.9.9.9", 80, EACCES, "10.9.9.9" },
    { NULL, NULL, "self.test", 80, EACCES, "198.18.0.2" },
    { NULL, NULL, "mine.test", 80, EACCES, "203.0.113.200" },
    { NULL, NULL, "203.0.113.200", 80, EACCES, "203.0.113.200" },
    { NULL, NULL, "mapped.test", 80, EACCES, "127.0.0.1" },
    { NULL, NULL, "localhost", 80, EACCES, "127.0.0.1" },
    { NULL, NULL, "0.0.0.0", 80, EACCES, "0.0.0.0" },
    /* judged here as well */
    { NULL, "ok.test", "ok.test", 80, EACCES, "" },
    { NULL, "203.0.113.2", "ok.test", 80, EACCES, "203.0.113.2" },
    { NULL, NULL, "ok.test", 81, EACCES, "" },
};

static void test_dials(void)
{
    for (size_t i = 0; i < ARRAY_LEN(dials); i++) {
        policy(NET_LIMITED, dials[i].allow, dials[i].deny);
        struct got g = dial(dials[i].where, dials[i].port);
        CHECK(g.error == dials[i].error, "%s:%d (row %zu): %s, not %s", dials[i].where,
              dials[i].port, i, strerror(g.error), strerror(dials[i].error));
        CHECK(!strcmp(g.addr, dials[i].addr), "%s (row %zu): '%s', not '%s'", dials[i].where, i,
              g.addr, dials[i].addr);
        if (!g.error)
            CHECK_STR(g.text, "straight");
    }
}

static void test_policy_changes(void)
{
    struct got g = { 0 };
    struct dial_req q = { .gw = &gw, .name = "ok.test", .port = 80, .done = on_dial, .arg = &g };
    policy(NET_LIMITED, NULL, NULL);
    dial_start(&q);
    policy(NET_LIMITED, NULL, "ok.test");
    until(&g.done);
    CHECK(g.error == EACCES, "the policy of the start counted: %d", g.error);
}

static void test_cancel(void)
{
    struct got slow = { 0 }, deaf = { 0 }, ok = { 0 };
    struct dial_req q = { .gw = &gw, .name = "slow.test", .port = 80, .done = on_dial };
    policy(NET_LIMITED, NULL, NULL);
    q.arg = &slow;
    struct dial *one = dial_start(&q), *two = dial_start(&q);
    q.name = NULL;
    addr_parse("203.0.113.99", &q.addr);
    q.arg = &deaf;
    struct dial *three = dial_start(&q);
    addr_parse("203.0.113.2", &q.addr);
    struct dial *four = dial_start(&q);
    dial_cancel(four); /* before the first round */
    q.arg = &ok;
    dial_start(&q);
    until(&ok.done);
    dial_cancel(one);
    dial_cancel(three);
    dial_cancel(two);
    ok.done = false;
    q.name = "ok.test";
    dial_start(&q);
    until(&ok.done);
    CHECK(!slow.calls && !deaf.calls && ok.calls == 2, "%d %d %d", slow.calls, deaf.calls,
          ok.calls);
}

/* --- proxy ----------------------------------------------------------------------------------- */

static const struct {
    const char *no, *where;
    uint16_t port;
    bool straight;
} ways[] = {
    { "", "ok.test", 80, false },
    { "*", "ok.test", 80, true },
    { "ok.test", "ok.test", 80, true },
    { ".test", "ok.test", 80, true },
    { "*.ok.test, x", "a.ok.test", 80, true },
    { "ok.test", "nok.test", 80, false },
    { "k.test", "ok.test", 80, false },
    { "ok.test:81", "ok.test", 80, false },
    { "a,OK.test:80", "ok.test", 80, true },
    { "203.0.113.0/24", "203.0.113.9", 80, true },
    { "203.0.113.0/24", "203.0.114.9", 80, false },
    { "2001:db8::/32,10.0.0.1", "2001:db8::1", 443, true },
    { "[2001:db8::1]:443", "2001:db8::1", 443, true },
    { "", "127.0.0.1", 80, true },
    { "bogus/99,/,:,[", "ok.test", 80, false },
};

static const struct {
    const char *text;
    int rc, status;
} answers[] = {
    { "HTTP/1.1 200 OK\r\n\r\nmore", 19, 200 },
    { "HTTP/1.0 200\r\nA: b\r\n\r\n", 22, 200 },
    { "HTTP/1.1 407 Who\n\n", 18, 407 },
    { "HTTP/1.1 200 OK\r\n", 0, 0 },
    { "HTT", 0, 0 },
    { "SSH-2.0", -1, 0 },
    { "HTTP/1.1 2x0 OK\r\n\r\n", -1, 0 },
    { "HTTP/1.\n\n", -1, 0 },
};

static void test_proxy(void)
{
    policy(NET_LIMITED, NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct net_addr a;
        bool literal = addr_parse(ways[i].where, &a) == 0;
        proxy_env("http://203.0.113.128:3128", ways[i].no);
        CHECK(!proxy_for(&gw, literal ? NULL : ways[i].where, &a, ways[i].port) == ways[i].straight,
              "no_proxy '%s' for %s", ways[i].no, ways[i].where);
    }
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        int status = 0, rc = proxy_answer(answers[i].text, strlen(answers[i].text), &status);
        CHECK(rc == answers[i].rc && status == answers[i].status, "'%s': %d, %d", answers[i].text,
              rc, status);
    }
    static const struct {
        const char *proxy, *where;
        uint16_t port;
        int error;
        const char *text, *head;
    } t[] = {
        { "http://us%65r:p%40ss@203.0.113.128:3128/", "ok.test", 443, 0, "proxied",
          "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n"
          "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n" },
        { "way.test:3128", "2001:db8::7", 443, 0, "proxied",
          "CONNECT [2001:db8::7]:443 HTTP/1.1\r\nHost: [2001:db8::7]:443\r\n\r\n" },
        { "203.0.113.128:3128", "unknown.test", 80, 0, "proxied",
          "CONNECT unknown.test:80 HTTP/1.1\r\nHost: unknown.test:80\r\n\r\n" },
        { "203.0.113.128:3128", "no.test", 80, ECONNREFUSED, "the host's proxy answers 403", NULL },
        { "203.0.113.128:3128", "priv.test", 80, EACCES, NULL, NULL },
        { "203.0.113.128:3128", "10.9.9.9", 80, EACCES, NULL, NULL },
        { "203.0.113.128:3129", "ok.test", 80, ECONNREFUSED, NULL, NULL },
        { "socks5://u:secret@203.0.113.128:1080", "ok.test", 80, EACCES,
          "ALL_PROXY of the host is a socks5:// proxy; only http:// is supported", NULL },
        { "http://", "ok.test", 80, EACCES, NULL, NULL },
        { "http://a:99999", "ok.test", 80, EACCES, NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        proxy_env(t[i].proxy, NULL);
        outside->host[0] = '\0';
        struct got g = dial(t[i].where, t[i].port);
        CHECK(g.error == t[i].error, "%s by %s: %s", t[i].where, t[i].proxy, strerror(g.error));
        if (t[i].text)
            CHECK_STR(g.error ? g.why : g.text, t[i].text);
        if (t[i].head)
            CHECK_STR(outside->host, t[i].head);
        else if (!strstr(t[i].where, "no."))
            CHECK_STR(outside->host, "");
    }
    proxy_env(NULL, NULL);
}

int main(void)
{
    int rc = outside_begin();
    if (rc)
        return rc;
    test_dials();
    test_policy_changes();
    test_cancel();
    test_proxy();
    return outside_end();
}
