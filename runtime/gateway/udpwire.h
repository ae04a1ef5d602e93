/* runtime/gateway/udpwire.h - datagrams on the sandbox's wire: read with the address they were sent to,
 * written with the source they are expected from. IPv4 only, as everything inside.
 * Owns:  nothing.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { UDPWIRE_MAX = 65507 }; /* bytes of a datagram */

/* Who to whom; addresses and ports in the host's byte order. */
struct udpwire {
    uint32_t src, dst;
    uint16_t sport, dport;
};

/* One datagram of a socket with IP_RECVORIGDSTADDR: its length, or -1 with errno (EPROTO: one without
 * an address, skip it). */
ssize_t udpwire_recv(int fd, void *buf, size_t size, struct udpwire *ret);
/* An answer to what came as `w`: from its destination to its source. False: not sent. */
bool udpwire_answer(int raw, const struct udpwire *w, const void *p, size_t n);
/* "Port unreachable" for what came as `w`. */
bool udpwire_refuse(int raw, const struct udpwire *w);
