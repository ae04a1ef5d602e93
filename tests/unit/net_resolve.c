/* Names: shared questions, the cache, bounds, servers that change, in a world of the test's own. */
#include "runtime/gateway/resolve.h"

#include "runtime/gateway/namecache.h"
#include "tests/unit/net_outside.h"

struct names {
    bool done;
    int calls, want, error;
    size_t n;
};

static void on_names(void *arg, const struct resolve_result *r)
{
    struct names *g = arg;
    g->error = r->error;
    g->n = r->n;
    g->done = ++g->calls >= g->want;
}

static void on_pass(void *arg, const uint8_t *msg, size_t len)
{
    struct names *g = arg;
    g->n = len;
    g->error = len > 40 && msg[len - 1] == 'i' ? 0 : 1;
    g->done = true;
}

static void test_names(void)
{
    struct names g = { .want = 50 };
    resolve_free(&gw);
    CHECK(resolve_new(&gw, NULL) == 0, "resolver");
    int before = outside->asked;
    for (int i = 0; i < 50; i++)
        resolve_name(&gw, "both.test", on_names, &g);
    until(&g.done);
    CHECK(!g.error && g.n == 2, "error %d, %zu addresses", g.error, g.n);
    CHECK(outside->asked == before + 2, "%d questions for one name", outside->asked - before);
    g = (struct names){ .want = 1 };
    resolve_name(&gw, "both.test", on_names, &g);
    until(&g.done);
    CHECK(outside->asked == before + 2 && g.n == 2, "not from the cache");
    g = (struct names){ 0 };
    resolve_pass(&gw, "text.test", 16, on_pass, &g);
    until(&g.done);
    CHECK(!g.error, "an answer of another type: %zu bytes", g.n);
    /* more than fit */
    struct lookup *l[RESOLVE_QUERIES];
    char name[64];
    for (int i = 0; i < RESOLVE_QUERIES; i++) {
        snprintf(name, sizeof name, "n%d.test", i);
        l[i] = resolve_name(&gw, name, on_names, &g);
    }
    g = (struct names){ .want = 1 };
    resolve_name(&gw, "late.test", on_names, &g);
    for (int i = 0; i < RESOLVE_QUERIES; i++)
        resolve_cancel(l[i]);
    until(&g.done);
    CHECK(g.error == EAGAIN && g.calls == 1, "%d, %d calls", g.error, g.calls);
}

static void set_server(const char *text)
{
    AUTOCLOSE int fd = open("/etc/resolv.conf", O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0, "/etc/resolv.conf");
}

/* Other servers from now on: what is under way is asked there. */
static void test_other_servers(void)
{
    set_server("nameserver 203.0.113.99\n");
    resolve_free(&gw);
    CHECK(resolve_new(&gw, NULL) == 0, "resolver");
    struct names first = { .want = 1 }, other = { 0 };
    resolve_name(&gw, "ok.test", on_names, &first);
    set_server("nameserver " OUTSIDE_DNS "\n# new\n");
    for (int i = 0; i < 100 && !first.done; i++) { /* it looks once a second */
        other = (struct names){ .want = 1 };
        struct lookup *l = resolve_name(&gw, "both.test", on_names, &other);
        uint64_t end = clock_ms(CLOCK_MONOTONIC) + 100;
        while (clock_ms(CLOCK_MONOTONIC) < end)
            tick(100);
        if (!other.done)
            resolve_cancel(l);
    }
    CHECK(first.done && !first.error && first.n == 1, "a changed resolv.conf was not noticed");
}

static void test_cache(void)
{
    struct namecache c = { 0 };
    struct net_addr a = { .family = AF_INET, .b = { 203, 0, 113, 1 } }, got[2];
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "n%d.test", i);
        namecache_put(&c, name, &a, 1, 1000 + i);
    }
    CHECK(namecache_get(&c, "n4999.test", 5998, got, 2) == 1, "the newest is gone");
    CHECK(namecache_get(&c, "n4999.test", 5999, got, 2) == 0, "too old");
    CHECK(namecache_get(&c, "n0.test", 0, got, 2) == 0, "nothing was given up");
    namecache_clear(&c);
}

int main(void)
{
    int rc = outside_begin();
    if (rc)
        return rc;
    test_names();
    test_other_servers();
    test_cache();
    return outside_end();
}
