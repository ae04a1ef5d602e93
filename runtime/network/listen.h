/* runtime/network/listen.h - the sockets that an agent hands to a gateway.
 * Each is made in the namespace this process is in, O_NONBLOCK and close-on-exec; fd or -1 with errno.
 * Uses:  base/, feed.h.
 */
#pragma once
#include "runtime/network/feed.h"

/* Any kind of feed.h but FEED_PACKET. */
int listen_open(enum feed_kind kind, uint16_t port);
/* FEED_PACKET: sees what no listener of the list is there for. */
int listen_refused(const struct feed_item *v, size_t n);
int listen_refused_filter(int fd, const struct feed_item *v, size_t n); /* another list */
/* A connection to 127.0.0.1, else ::1; after `wait_ms` as it is, still connecting. */
int listen_dial(uint16_t port, int wait_ms);
