/* Bytes between two sockets, whatever their ends do. */
#include "runtime/gateway/relay.h"

#include "tests/unit/net_turns.h"

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

/* Many with much to say: in one round nobody moves more than a little, and all move. */
static void test_shares(void)
{
    enum { N = 24, MOST = 128 << 10 };
    static struct trip t[N];
    static char block[1 << 20];
    uint64_t before[N] = { 0 }, least = UINT64_MAX;
    for (int i = 0; i < N; i++) {
        trip_start(&t[i]);
        while (send(t[i].server, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            ;
    }
    for (int k = 0; k < 3; k++) {
        turn(deadline());
        for (int i = 0; i < N; i++) {
            uint64_t now = t[i].relay.down.bytes + t[i].relay.down.held;
            CHECK(now - before[i] <= MOST, "%d: %lu bytes in a round", i,
                  (unsigned long)(now - before[i]));
            before[i] = now;
        }
    }
    for (int i = 0; i < N; i++) {
        least = before[i] < least ? before[i] : least;
        trip_end(&t[i]);
    }
    CHECK(least > 0, "nobody is left out");
}

int main(void)
{
    turns_start();
    test_transfer("nothing", 0, 0, SIZE_MAX);
    test_transfer("a byte", 1, 1, SIZE_MAX);
    test_transfer("both ways", 9 << 20, 5 << 20, SIZE_MAX);
    test_transfer("a slow reader", 300000, 1 << 20, 20000);
    test_half_close();
    test_reset();
    test_pressure();
    test_shares();
    turns_end();
    return check_done();
}
