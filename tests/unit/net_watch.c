/* A relay under watch: each request of an HTTP connection, upgrades, servers that speak first. */
#include "runtime/gateway/conn_impl.h"
#include "runtime/gateway/fakeip.h"
#include "tests/unit/net_turns.h"

/* --- HTTP under watch ------------------------------------------------------------------------- */

struct watched {
    struct conn *c;
    int client, server;
};

static void on_watched(struct relay *r, int error)
{
    conn_free(CONTAINER(r, struct conn, relay));
}

static struct watched watch(bool server_first)
{
    int in[2], out[2];
    struct watched w;
    tcp_pair(in);
    tcp_pair(out);
    w.client = in[0];
    w.server = out[0];
    w.c = mem_zalloc(sizeof(*w.c));
    limits_enter(&gw);
    w.c->gw = &gw;
    w.c->state = CONN_RELAY;
    w.c->port = server_first ? 8080 : 80;
    addr_parse("192.0.2.1", &w.c->addr);
    w.c->name = str_dup("ok.test");
    w.c->rule = str_dup("ok.test");
    w.c->fake = fakeip_addr(gw.names, "ok.test");
    fakeip_pin(gw.names, w.c->fake);
    relay_start(&w.c->relay, &gw, in[1], out[1], on_watched);
    if (server_first) {
        conn_look_first(w.c);
    } else {
        w.c->speaks = SPEAKS_HTTP;
        conn_look_http(w.c);
    }
    return w;
}

/* All that comes until `want` is in it, or the end; then what it is. */
static char *receive(int fd, const char *want)
{
    static char buf[8192];
    size_t n = 0;
    bool end = false;
    uint64_t until = deadline();
    buf[0] = 0;
    while (!end && !(want && strstr(buf, want)) && turn(until)) {
        ssize_t k = recv(fd, buf + n, sizeof(buf) - 1 - n, MSG_DONTWAIT);
        end = k == 0 || (k < 0 && errno != EAGAIN);
        n += k > 0 ? (size_t)k : 0;
        buf[n] = 0;
    }
    return buf;
}

static void say(int fd, const char *text)
{
    CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text), "send '%s'", text);
}

static void watch_end(struct watched *w)
{
    close_p(&w->client);
    close_p(&w->server);
    UNTIL(limits_open(&gw) == 0);
    turn(deadline());
}

#define REQUEST(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

static const struct {
    const char *first, *then;
    const char *server; /* must have come there after it, and never evil.test */
    const char *client; /* must come back */
} watches[] = {
    { REQUEST("ok.test"), REQUEST("OK.test."), REQUEST("OK.test."), NULL },
    { REQUEST("ok.test"), REQUEST("evil.test"), NULL, "403 Forbidden" },
    { REQUEST("ok.test"), REQUEST("also.test"), NULL, "a second host on one connection" },
    { REQUEST("ok.test"), "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", NULL,
      "403" },
    { REQUEST("ok.test"), "GET / HTTP/1.1\r\nHost : ok.test\r\n\r\n", NULL, "403" },
    { "POST / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 39\r\n\r\n"
      "GET / HTTP/1.1\r\nHost: a-body.test\r\n\r\n..",
      REQUEST("evil.test"), NULL, "petri net allow evil.test" },
    { "POST / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n",
      REQUEST("evil.test"), NULL, "403" },
    { REQUEST("ok.test"),
      "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", NULL,
      "403" },
};

static void test_watches(void)
{
    for (size_t i = 0; i < ARRAY_LEN(watches); i++) {
        struct watched w = watch(false);
        say(w.client, watches[i].first);
        char *got = receive(w.server, strrchr(watches[i].first, '\n') - 2);
        CHECK(strstr(got, "Host: ok.test"), "%zu: the first request arrives: '%s'", i, got);
        say(w.server, "HTTP/1.1 204 No Content\r\n\r\n");
        receive(w.client, "\r\n\r\n");
        say(w.client, watches[i].then);
        if (watches[i].server) {
            got = receive(w.server, watches[i].server);
            CHECK(strstr(got, watches[i].server), "%zu: the server got '%s'", i, got);
        } else {
            got = receive(w.client, NULL);
            CHECK(strstr(got, watches[i].client), "%zu: the client got '%s'", i, got);
            CHECK(!strstr(receive(w.server, NULL), "evil.test"), "%zu: it got through", i);
        }
        watch_end(&w);
    }
}

/* Bytes behind an upgrade wait for the answer; only a yes to a WebSocket opens the way. */
static void test_upgrade(const char *proto, const char *answer, const char *arrives)
{
    AUTOFREE char *ask = str_printf(
        "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", proto);
    struct watched w = watch(false);
    char c[256];
    say(w.client, ask);
    receive(w.server, "\r\n\r\n");
    say(w.client, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
    for (int i = 0; i < 10; i++)
        turn(deadline());
    CHECK(recv(w.server, c, sizeof(c), MSG_DONTWAIT) < 0, "%s: before the answer", proto);
    say(w.server, answer);
    char *got = receive(w.server, arrives ? arrives : "evil");
    if (arrives)
        CHECK(strstr(got, arrives), "%s: '%s'", proto, got);
    else
        CHECK(!strstr(got, "evil"), "%s: '%s'", proto, got);
    watch_end(&w);
}

/* Where the server may speak first, nothing of the client passes before it did or named its server. */
static void test_first(void)
{
    struct watched w = watch(true);
    say(w.server, "SSH-2.0-x\r\n");
    receive(w.client, "\r\n");
    say(w.client, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"); /* no server of HTTP greets */
    CHECK(strstr(receive(w.server, "\r\n\r\n"), "GET"), "opaque");
    watch_end(&w);
    w = watch(true);
    say(w.client, REQUEST("evil.test"));
    CHECK(strstr(receive(w.client, NULL), "403"), "the client named another server");
    CHECK(!strstr(receive(w.server, NULL), "evil"), "it got through");
    watch_end(&w);
    w = watch(true);
    say(w.client, REQUEST("ok.test"));
    CHECK(strstr(receive(w.server, "\r\n\r\n"), "ok.test"), "its own server");
    say(w.client, REQUEST("evil.test"));
    CHECK(!strstr(receive(w.server, "evil"), "evil"), "the second request got through");
    watch_end(&w);
}

int main(void)
{
    static const uint8_t key[16] = { 1 };
    static const char *const allow[] = { "ok.test", "also.test", "ok.test:8080" };
    turns_start();
    if (conns_new(&gw, NULL) < 0)
        return 1;
    gw.names = fakeip_new(key);
    gw.policy.mode = NET_ALLOWLIST;
    for (size_t i = 0; i < ARRAY_LEN(allow); i++) {
        struct net_rule r;
        if (net_rule_parse("--allow-domain", allow[i], &r, NULL) < 0 ||
            !net_rules_add(&gw.policy.allow, &r))
            return 1;
    }
    test_watches();
    test_upgrade("websocket", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "Host: evil.test");
    test_upgrade("websocket", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", NULL);
    test_upgrade("h2c", "HTTP/1.1 101 Switching Protocols\r\n\r\n", NULL);
    test_first();
    conns_free(&gw);
    gw.names = fakeip_free(gw.names);
    net_policy_free_p(&gw.policy);
    turns_end();
    return check_done();
}
