/* runtime/gateway/relay.h - bytes between two sockets, by splice(2), with half-close and back-pressure.
 *
 * A pipe is held only while bytes are in it; pipes come from a pool. An idle relay has no buffer at all.
 *
 * Owns:  the pipes. Both sockets and their sources belong to whoever embeds the relay.
 * Uses:  loop.h, limits.h.
 */
#pragma once
#include "runtime/gateway/gw.h"
#include "runtime/gateway/limits.h"

/* One direction: what was read of `from` and not yet written to `to` is in the pipe. */
struct flow {
    int pipe[2]; /* -1: none held */
    uint32_t held;
    bool readable, writable; /* as far as known (edge-triggered) */
    bool eof;                /* `from` has ended */
    bool shut;               /* ... and `to` was told */
    uint64_t bytes;          /* that reached `to` */
};

struct relay {
    struct gw *gw;
    struct source in, out; /* in: the sandbox's side, out: the world's */
    struct flow up, down;  /* up: in -> out */
    struct task run;
    struct timer idle;
    struct limits_wait wait;
    uint64_t last; /* when bytes moved */
    void (*done)(struct relay *,
                 int error); /* once; the relay is at rest then. 0: both sides ended */
};

/* Takes over two connected, non-blocking sockets. The caller closes them in or after `done`, after relay_stop(). */
void relay_start(struct relay *r, struct gw *gw, int in, int out,
                 void (*done)(struct relay *, int error));
/* Takes both out of the loop, gives pipes back; closes both sockets. Safe more than once. */
void relay_stop(struct relay *r);
