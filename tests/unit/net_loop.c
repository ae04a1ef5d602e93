/* The gateway's loop, and its limits. */
#include "runtime/gateway/loop.h"

#include "tests/unit/net_turns.h"

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

static int left_open; /* by on_closer, for others of this round to see */

static void on_closer(struct source *s, uint32_t ev)
{
    int fd = s->fd;
    note(31);
    loop_close(gw.loop, victim);
    memset(victim, 0xff, sizeof(*victim));
    loop_close(gw.loop, s);
    CHECK(s->fd < 0, "taken");
    left_open = fcntl(fd, F_GETFD) >= 0 ? fd : -1;
    free(s);
}

/* Two that are ready at once; the first closes both: the second is not called, and both are closed a little later. */
static void test_close(void)
{
    int p[2], q[2];
    struct source *v[2];
    if (pipe2(p, O_CLOEXEC) < 0 || pipe2(q, O_CLOEXEC) < 0)
        abort();
    CHECK(write(p[1], "x", 1) == 1 && write(q[1], "x", 1) == 1, "write");
    for (int i = 0; i < 2; i++) {
        v[i] = mem_zalloc(sizeof(*v[i]));
        *v[i] = (struct source){ .fd = i ? q[0] : p[0], .on = on_closer };
    }
    victim = v[1];
    loop_set(gw.loop, v[0], EPOLLIN);
    loop_set(gw.loop, v[1], EPOLLIN);
    n_order = 0;
    UNTIL(n_order);
    turn(deadline());
    CHECK(n_order == 1 && left_open == p[0], "%u calls, %d open", n_order, left_open);
    CHECK(fcntl(p[0], F_GETFD) < 0 && fcntl(q[0], F_GETFD) < 0, "closed after the round");
    free_p(&victim);
    close(p[1]);
    close(q[1]);
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

int main(void)
{
    turns_start();
    test_loop();
    test_removal();
    test_close();
    test_rate();
    test_total();
    test_places();
    turns_end();
    return check_done();
}
