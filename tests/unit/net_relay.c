/* The gateway's loop, limits, relay and what watches a relay, over sockets of the loopback. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "runtime/gateway/conn_impl.h"
#include "runtime/gateway/control.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/relay.h"
#include "tests/unit/check.h"

enum { PATIENCE_MS = 30000 };

static struct gw gw;

/* --- a loop that never sleeps for long -------------------------------------------------------- */

static void on_tick(struct timer *t)
{
    loop_arm(gw.loop, t, 5);
}

static struct timer tick = { .on = on_tick };

static uint64_t deadline(void)
{
    return clock_ms(CLOCK_MONOTONIC) + PATIENCE_MS;
}

static bool turn(uint64_t until)
{
    if (!tick.pos)
        loop_arm(gw.loop, &tick, 5);
    loop_run(gw.loop, true, NULL);
    return clock_ms(CLOCK_MONOTONIC) < until;
}

#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        uint64_t end_ = deadline();                                                                \
        bool ok_;                                                                                  \
        while (!(ok_ = (cond)) && turn(end_))                                                      \
            ;                                                                                      \
        CHECK(ok_, "%s, in time", #cond);                                                          \
    } while (0)

/* Two ends of a TCP connection, non-blocking. */
static void tcp_pair(int v[2])
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l, 1) < 0 ||
        getsockname(l, (struct sockaddr *)&a, &n) < 0)
        abort();
    v[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(v[0], (struct sockaddr *)&a, sizeof(a)) < 0)
        abort();
    v[1] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    fcntl(v[0], F_SETFL, O_NONBLOCK);
    close(l);
}

/* --- loop ------------------------------------------------------------------------------------- */

static int order[16];
static unsigned n_order;
static struct timer t1, t2, t3;
static struct task k1, k2;

static void note(int what)
{
    if (n_order < ARRAY_LEN(order))
        order[n_order++] = what;
}

static void on_t1(struct timer *t)
{
    note(1);
    loop_disarm(gw.loop, &t3);
}

static void on_t2(struct timer *t)
{
    note(2);
}

static void on_k1(struct task *t)
{
    note(11);
    loop_forget(gw.loop, &k2);
    loop_later(gw.loop, &k1);
    if (n_order >= 4)
        loop_forget(gw.loop, &k1);
}

static void on_k2(struct task *t)
{
    note(12);
}

static void test_loop(void)
{
    t1.on = on_t1;
    t2.on = on_t2;
    t3.on = on_t2;
    loop_arm(gw.loop, &t2, 30);
    loop_arm(gw.loop, &t1, 50);
    loop_arm(gw.loop, &t3, 60);
    loop_arm(gw.loop, &t1, 1); /* moves it */
    UNTIL(n_order == 2);
    CHECK(order[0] == 1 && order[1] == 2 && !t3.pos, "%d %d", order[0], order[1]);
    k1.on = on_k1;
    k2.on = on_k2;
    n_order = 0;
    loop_later(gw.loop, &k1);
    loop_later(gw.loop, &k2);
    UNTIL(n_order >= 4);
    CHECK(order[0] == 11 && order[1] == 11, "a task that was taken back ran");

    /* the heap, with many */
    enum { MANY = 500 };
    static struct timer many[MANY];
    uint64_t last = 0;
    for (unsigned i = 0; i < MANY; i++) {
        many[i].on = on_t2;
        loop_arm(gw.loop, &many[i], (i * 7919) % MANY + 100000);
    }
    for (unsigned i = 0; i < MANY; i += 3)
        loop_disarm(gw.loop, &many[(i * 31) % MANY]);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(!many[i].pos || many[i].at >= last / 2, "order");
        loop_disarm(gw.loop, &many[i]);
    }
}

/* Two sources that are ready at once; the first removes the second, whose memory is gone then. */
static struct source *victim;

static void on_killer(struct source *s, uint32_t ev)
{
    note(21);
    loop_del(gw.loop, s);
    if (victim) {
        loop_del(gw.loop, victim);
        memset(victim, 0xff, sizeof(*victim));
        free_p(&victim);
    }
}

static void test_removal(void)
{
    int p[2], q[2];
    struct source *a = mem_zalloc(sizeof(*a));
    struct source *b = mem_zalloc(sizeof(*b));
    if (pipe2(p, O_CLOEXEC) < 0 || pipe2(q, O_CLOEXEC) < 0)
        abort();
    *a = (struct source){ .fd = p[0], .on = on_killer };
    *b = (struct source){ .fd = q[0], .on = on_killer };
    victim = b;
    loop_set(gw.loop, a, EPOLLIN);
    loop_set(gw.loop, b, EPOLLIN);
    CHECK(write(p[1], "x", 1) == 1 && write(q[1], "x", 1) == 1, "write");
    n_order = 0;
    UNTIL(n_order);
    turn(deadline());
    CHECK(n_order == 1 || order[0] == 21, "%u", n_order);
    loop_del(gw.loop, a);
    free(a);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(q[i]);
    }
}

/* --- limits ----------------------------------------------------------------------------------- */

static unsigned granted[4];
static struct limits_wait waits[4];

static void on_grant(struct limits_wait *w)
{
    granted[w - waits]++;
    size_t n = limits_ask(&gw, 1 << 20, w);
    CHECK(n > 0, "what was set aside is there");
    limits_moved(&gw, n, n, true);
    if (granted[w - waits] < 20)
        CHECK(limits_ask(&gw, 1 << 20, w) == 0, "the line is honoured");
}

static void test_rate(void)
{
    uint64_t start = clock_ms(CLOCK_MONOTONIC), before = gw.counts.bytes_in;
    size_t first = 0, n;
    gw.policy.rate = 4 << 20;
    limits_policy(&gw);
    for (unsigned i = 0; i < 4; i++)
        waits[i].on = on_grant;
    while ((n = limits_ask(&gw, 1 << 20, &waits[0])))
        limits_moved(&gw, n, n, true), first += n;
    CHECK(first <= (4 << 20) / 10 + LIMITS_QUANTUM, "a burst of %zu", first);
    for (unsigned i = 1; i < 4; i++)
        CHECK(limits_ask(&gw, 100, &waits[i]) == 0, "nobody jumps the line");
    UNTIL(granted[3] >= 20);
    unsigned min = granted[0], max = granted[0];
    for (unsigned i = 1; i < 4; i++) {
        min = granted[i] < min ? granted[i] : min;
        max = granted[i] > max ? granted[i] : max;
    }
    CHECK(max - min <= 1, "shares from %u to %u", min, max);
    uint64_t ms = clock_ms(CLOCK_MONOTONIC) - start;
    uint64_t moved = gw.counts.bytes_in - before;
    CHECK(moved <= (ms + 1) * 4195 + (4 << 20) / 10, "%lu bytes in %lu ms", (unsigned long)moved,
          (unsigned long)ms);
    for (unsigned i = 0; i < 4; i++)
        limits_cancel(&gw, &waits[i]);
    gw.policy.rate = 0;
    limits_policy(&gw);
    CHECK(limits_ask(&gw, 12345, &waits[0]) == 12345, "no rate");
}

static unsigned spent;

static void on_spent(struct gw *g)
{
    spent++;
}

static void test_total(void)
{
    limits_on_spent(&gw, on_spent);
    uint64_t used = gw.counts.bytes_in + gw.counts.bytes_out;
    gw.policy.bytes = used + 1000;
    limits_policy(&gw);
    CHECK(!limits_spent(&gw), "not yet");
    CHECK(limits_ask(&gw, 5000, &waits[0]) == 1000, "only what is left");
    limits_moved(&gw, 1000, 400, false);
    CHECK(limits_packet(&gw, 600, true), "the last packet passes");
    CHECK(limits_spent(&gw) && !limits_packet(&gw, 1, true), "used up");
    CHECK(limits_ask(&gw, 1, &waits[0]) == 0, "nothing any more");
    UNTIL(spent == 1);
    turn(deadline());
    CHECK(spent == 1, "told %u times", spent);
    gw.policy.bytes = 0;
    limits_policy(&gw);
}

static void test_places(void)
{
    unsigned n = 0;
    while (limits_enter(&gw))
        n++;
    CHECK(n == limits_max(&gw) && n == limits_open(&gw), "%u places", n);
    while (limits_open(&gw))
        limits_leave(&gw);
}

/* --- relay ------------------------------------------------------------------------------------ */

struct trip {
    struct relay relay;
    int client, server;
    bool done;
    int error;
    uint64_t sent[2], got[2]; /* up, down */
    bool wrong, shut[2], ended[2];
};

static void on_done(struct relay *r, int error)
{
    struct trip *t = CONTAINER(r, struct trip, relay);
    t->done = true;
    t->error = error;
    relay_stop(r);
}

static void trip_start(struct trip *t)
{
    int in[2], out[2];
    *t = (struct trip){ 0 };
    tcp_pair(in);
    tcp_pair(out);
    t->client = in[0];
    t->server = out[0];
    relay_start(&t->relay, &gw, in[1], out[1], on_done);
}

static void trip_end(struct trip *t)
{
    relay_stop(&t->relay);
    close_p(&t->client);
    close_p(&t->server);
}

static char byte_at(uint64_t pos, int dir)
{
    return (char)(pos * 31 + (pos >> 12) + (uint64_t)dir * 7);
}

/* Sends up to `total` bytes of a pattern and then ends; reads and compares. */
static void trip_move(struct trip *t, int dir, uint64_t total, size_t sip)
{
    static char buf[1 << 16];
    int from = dir ? t->server : t->client, to = dir ? t->client : t->server;
    if (t->sent[dir] < total) {
        size_t n = total - t->sent[dir] < sizeof(buf) ? total - t->sent[dir] : sizeof(buf);
        for (size_t i = 0; i < n; i++)
            buf[i] = byte_at(t->sent[dir] + i, dir);
        ssize_t k = send(from, buf, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        t->sent[dir] += k > 0 ? (uint64_t)k : 0;
    }
    if (t->sent[dir] == total && !t->shut[dir])
        t->shut[dir] = shutdown(from, SHUT_WR) == 0;
    if (!sip)
        return;
    ssize_t k = recv(to, buf, sip < sizeof(buf) ? sip : sizeof(buf), MSG_DONTWAIT);
    for (ssize_t i = 0; i < k; i++)
        t->wrong |= buf[i] != byte_at(t->got[dir] + (uint64_t)i, dir);
    if (k > 0)
        t->got[dir] += (uint64_t)k;
    t->ended[dir] |= k == 0;
}

static void test_transfer(const char *what, uint64_t up, uint64_t down, size_t sip)
{
    struct trip t;
    uint64_t end = deadline();
    trip_start(&t);
    while (!(t.done && t.ended[0] && t.ended[1]) && turn(end)) {
        trip_move(&t, 0, up, sip);
        trip_move(&t, 1, down, sip);
    }
    CHECK(t.done && t.error == 0, "%s: error %d", what, t.error);
    CHECK(t.got[0] == up && t.got[1] == down && !t.wrong, "%s: %lu of %lu up, %lu of %lu down",
          what, (unsigned long)t.got[0], (unsigned long)up, (unsigned long)t.got[1],
          (unsigned long)down);
    CHECK(t.relay.up.bytes == up && t.relay.down.bytes == down, "%s: counted", what);
    CHECK(t.relay.up.pipe[0] == -1 && t.relay.down.pipe[0] == -1, "%s: no pipe is held", what);
    trip_end(&t);
}

static void test_half_close(void)
{
    struct trip t;
    char c;
    trip_start(&t);
    shutdown(t.client, SHUT_WR);
    UNTIL(recv(t.server, &c, 1, MSG_DONTWAIT) == 0);
    CHECK(!t.done, "one side is still open");
    CHECK(send(t.server, "answer", 6, 0) == 6, "send");
    UNTIL(recv(t.client, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
    close_p(&t.server);
    UNTIL(t.done);
    CHECK(t.error == 0 && t.relay.down.bytes == 6, "error %d", t.error);
    trip_end(&t);
}

static void test_reset(void)
{
    struct trip t;
    char c;
    trip_start(&t);
    CHECK(send(t.server, "x", 1, 0) == 1, "send");
    UNTIL(recv(t.client, &c, 1, MSG_DONTWAIT) == 1);
    relay_reset_fd(&t.server);
    UNTIL(t.done);
    CHECK(t.error == ECONNRESET, "error %d", t.error);
    ssize_t n = recv(t.client, &c, 1, 0);
    CHECK(n < 0 && errno == ECONNRESET, "a reset is passed on: %zd, errno %d", n, errno);
    trip_end(&t);
}

/* A reader that does not read: bytes stop in the relay, not in memory. With more of such than there are pipes
 * the rest is copied, and all arrives. */
static void test_pressure(void)
{
    enum { N = 6 };
    const uint64_t total = 12 << 20;
    static struct trip t[N];
    uint64_t end = deadline();
    unsigned left = N;
    CHECK(limits_pipes(&gw) < N, "%u pipes", limits_pipes(&gw));
    for (int i = 0; i < N; i++)
        trip_start(&t[i]);
    for (int k = 0; k < 60; k++) {
        for (int i = 0; i < N; i++) /* nobody reads */
            trip_move(&t[i], 0, total, 0);
        turn(end);
    }
    for (int i = 0; i < N; i++)
        CHECK(t[i].sent[0] < total && t[i].relay.up.held <= 4 << 20, "%d: took all %lu", i,
              (unsigned long)t[i].sent[0]);
    while (left && turn(end)) {
        left = 0;
        for (int i = 0; i < N; i++) {
            trip_move(&t[i], 0, total, SIZE_MAX);
            trip_move(&t[i], 1, 1, SIZE_MAX);
            left += !t[i].done || !t[i].ended[0];
        }
    }
    for (int i = 0; i < N; i++) {
        CHECK(t[i].done && t[i].got[0] == total && !t[i].wrong, "%d: %lu bytes", i,
              (unsigned long)t[i].got[0]);
        trip_end(&t[i]);
    }
}

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

/* --- all of it -------------------------------------------------------------------------------- */

static void few_files(void)
{
    struct rlimit r, few;
    getrlimit(RLIMIT_NOFILE, &r);
    few = (struct rlimit){ .rlim_cur = 64 + 32, .rlim_max = r.rlim_max };
    setrlimit(RLIMIT_NOFILE, &few);
    if (limits_new(&gw, NULL) < 0)
        abort();
    setrlimit(RLIMIT_NOFILE, &r);
}

int main(void)
{
    static const uint8_t key[16] = { 1 };
    static const char *const allow[] = { "ok.test", "also.test", "ok.test:8080" };
    if (loop_new(&gw.loop, NULL) < 0 || conns_new(&gw, NULL) < 0)
        return 1;
    gw.names = fakeip_new(key);
    few_files();
    test_loop();
    test_removal();
    test_rate();
    test_total();
    test_places();
    test_transfer("nothing", 0, 0, SIZE_MAX);
    test_transfer("a byte", 1, 1, SIZE_MAX);
    test_transfer("both ways", 9 << 20, 5 << 20, SIZE_MAX);
    test_transfer("a slow reader", 300000, 1 << 20, 20000);
    test_half_close();
    test_reset();
    test_pressure();
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
    loop_disarm(gw.loop, &tick);
    relay_pool_free();
    limits_free(&gw);
    gw.names = fakeip_free(gw.names);
    net_policy_free_p(&gw.policy);
    gw.loop = loop_free(gw.loop);
    return check_done();
}
