/* runtime/gateway/packets.h - packets that the kernel refused on its own: connections to ports without a
 * listener, and datagrams. All that is left to do is to say so.
 * Owns:  gw->packets: what was said of late.
 * Uses:  fakeip.h for the name behind an address.
 */
#pragma once
#include "runtime/gateway/gw.h"

int packets_new(struct gw *gw, struct err **e);
void packets_free(struct gw *gw);
void packets_read(struct gw *gw, int fd); /* a batch of what is there */
/* One packet, from its IPv4 header on. */
void packets_take(struct gw *gw, const uint8_t *p, size_t n);
