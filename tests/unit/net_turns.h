/* tests/unit/net_turns.h - a gateway without a world: its loop, its limits, sockets of the loopback. */
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
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
static inline void tcp_pair(int v[2])
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

/* Limits that are reached soon: a few pipes, a few connections. */
static inline void turns_start(void)
{
    struct rlimit r, few;
    if (loop_new(&gw.loop, NULL) < 0)
        abort();
    getrlimit(RLIMIT_NOFILE, &r);
    few = (struct rlimit){ .rlim_cur = 64 + 32, .rlim_max = r.rlim_max };
    setrlimit(RLIMIT_NOFILE, &few);
    if (limits_new(&gw, NULL) < 0)
        abort();
    setrlimit(RLIMIT_NOFILE, &r);
}

static inline void turns_end(void)
{
    loop_disarm(gw.loop, &tick);
    relay_pool_free();
    limits_free(&gw);
    gw.loop = loop_free(gw.loop);
}
