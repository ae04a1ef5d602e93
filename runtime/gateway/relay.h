/* runtime/gateway/relay.h - bytes between two sockets, by splice(2), with half-close and back-pressure.
 *
 * A pipe is held only while bytes are in it; pipes come from a pool. An idle relay has no buffer at all.
 * Where the pool has no more pipes, bytes are copied out of the one socket only as far as the other takes
 * them. Bytes that somebody must look at first stay in their socket until they may pass: a flow moves no
 * more than it `may`, and asks `look` when that is used up.
 *
 * Owns:  its two sockets from relay_start() on; the pipes.
 * Uses:  loop.h, limits.h.
 */
#pragma once
#include "runtime/gateway/gw.h"
#include "runtime/gateway/limits.h"

#define RELAY_ALL UINT64_MAX

enum {
    RELAY_IDLE_MS = 10 * 60 * 1000, /* no byte in either direction */
    RELAY_HALF_MS = 60 * 1000,      /* the same, when one side has ended */
};

/* One direction: what was read of one socket and not yet written to the other is in the pipe. */
struct flow {
    int pipe[2]; /* -1: none held */
    uint32_t held;
    bool readable, writable; /* as far as known (edge-triggered) */
    bool eof;                /* the source has ended */
    bool shut;               /* ... and the other side was told */
    uint64_t may;            /* bytes that may be read */
    uint64_t bytes;          /* that reached the other side */
    struct limits_wait wait;
};

struct relay {
    struct gw *gw;
    struct source in, out; /* in: the sandbox's side, out: the world's */
    struct flow up, down;  /* up: in -> out */
    struct task run;
    struct timer idle;
    uint64_t last; /* when bytes moved */
    int error;
    bool running;
    /* Once: both sides have ended (0), or an errno; call relay_stop() in it or later. */
    void (*done)(struct relay *, int error);
    /* Something is there to be read of a flow that may not. Raises its `may` (1), or waits for more bytes
     * (0), or has ended the relay (-1). NULL where both may everything. */
    int (*look)(struct relay *, struct flow *);
};

/* Takes two non-blocking sockets, TCP_NODELAY set; the second may still be connecting. `r` was zeroed before; r->in may
 * be in the loop already, for RELAY_EVENTS. Set `look` and `may` after it, if at all. */
void relay_start(struct relay *r, struct gw *gw, int in, int out,
                 void (*done)(struct relay *, int error));
#define RELAY_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
/* To be looked at again, though nothing happened on a socket. */
void relay_kick(struct relay *r);
/* No callback from here on; gives pipes back, closes both sockets. Safe more than once. */
void relay_stop(struct relay *r);
void relay_reset(struct relay *r); /* the same, and both sides hear of it by a RST */
/* The same, but the sandbox's socket stays open and is returned, out of the loop. */
int relay_take_in(struct relay *r);

/* At the end: closes the pipes of the pool. */
void relay_pool_free(void);
/* close(2) that sends a RST, whatever is queued; from relay_linger() on any close does. */
void relay_reset_fd(int *fd);
void relay_linger(int fd);
