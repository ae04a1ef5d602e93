/* gateway/publish.h - ports of the sandbox on the host's loopback.
 *
 * The keeper makes the listening sockets; a connection there asks the agent over FEED for a socket
 * connected inside the sandbox (so that servers bound to 127.0.0.1 are reached too), and both are
 * relayed. Nobody listening inside: the caller gets a reset.
 *
 * Owns:  gw->publish: the listeners, and connections until they are relayed.
 * Uses:  gw's FEED socket to ask; whoever reads FEED hands the answers over.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "runtime/network/feed.h"

struct gw;

enum {
    PUBLISH_TAG = 1u << 31, /* set in the tag of every ask made here */
    PUBLISH_PENDING = 256, /* asks at a time; beyond, connections wait in the listeners' backlogs */
    PUBLISH_LIMIT_MS = 10000, /* for an answer */
};

/* One listening socket (taken, non-blocking made) for the sandbox's `port`. */
void publish_add(struct gw *gw, int fd, uint16_t port);
/* Closes all listeners: a "publish" packet names them all anew. */
void publish_clear(struct gw *gw);
/* An answer from FEED; true when its tag was one of ours: `fd` is taken then (-1: none came). */
bool publish_answer(struct gw *gw, const struct feed_answer *a, int fd);
/* FEED is gone or another one (gw->feed is set already): what was asked is reset. */
void publish_walls(struct gw *gw);
void publish_close(struct gw *gw);
