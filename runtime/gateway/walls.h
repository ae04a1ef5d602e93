/* runtime/gateway/walls.h - the sandbox's side: listeners and sockets that the agent behind FEED hands out.
 *
 * Owns:  the FEED socket and every descriptor that came with its hello.
 * Uses:  runtime/network/feed.h, loop.h; gives listeners to conn.h, serve_dns.h, packets.h and udp.h.
 * Crash: the agent lives on and says hello to the next gateway.
 */
#pragma once
#include "runtime/gateway/gw.h"
#include "runtime/network/feed.h"

/* A question to the agent; embed it. `done` is called once with a descriptor (then the callee's), or with
 * -1 and an errno; never after walls_cancel(), never from within walls_ask(). */
struct walls_ask {
    struct walls_ask *next; /* walls' */
    uint32_t op, tag;
    uint16_t port;
    void (*done)(struct walls_ask *, int fd, int error);
};

int walls_new(struct gw *gw, struct err **e);
void walls_free(struct gw *gw);

/* A new sandbox side: drops everything of the old one; takes the descriptor. */
void walls_attach(struct gw *gw, int feed);
/* The policy changed: asks for the listeners that are missing. */
void walls_listen(struct gw *gw);
/* FEED_DIAL: a TCP socket, connected to `port` inside the sandbox. FEED_LISTEN: a listener. */
void walls_ask(struct gw *gw, enum feed_op op, uint16_t port, struct walls_ask *ask);
void walls_cancel(struct gw *gw, struct walls_ask *ask);
