/* runtime/network/feed.h - what the agent in the sandbox's namespaces and the gateway tell each other.
 *
 * A SEQPACKET pair. The gateway asks, the agent answers in the order of the questions; sockets come
 * along as SCM_RIGHTS, all of them O_NONBLOCK and close-on-exec. A gateway that took over from a dead
 * one starts with FEED_HELLO and drops what comes (closing its sockets) until the hello with its tag.
 * Uses:  base/ only; part of petri and of petri-gateway.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

enum { FEED_MAGIC = 0x50464431, FEED_MAX_FDS = 140 };

/* Every socket is one of the gateway's namespace, where all addresses are local: getsockname() of an
 * accepted connection is the address and port the sandbox asked for. */
enum feed_kind {
    FEED_TCP = 1, /* a listener on .port */
    FEED_DNS_UDP, /* port 53, with IP_PKTINFO: answer from ipi_addr, by ipi_spec_dst */
    FEED_DNS_TCP, /* a listener on port 53 */
    FEED_PACKET,  /* AF_PACKET, read only: IP headers (up to 64 bytes) of TCP SYNs to a port without
                      * listener and of UDP datagrams but those to port 53 */
    FEED_TPROXY_TCP, /* full: one listener for all ports but 53 */
    FEED_TPROXY_UDP, /* full: all ports but 53, with IP_RECVORIGDSTADDR */
    FEED_RAW,        /* full: IP_HDRINCL, for answers to UDP under the source the sandbox expects */
};

struct feed_item {
    uint16_t kind, port;
};

enum feed_op {
    FEED_LISTEN = 1, /* one more port; its listener comes with the answer, and with later hellos */
    FEED_DIAL, /* a connection to a port on the sandbox's 127.0.0.1, else ::1. Of a server that
                      * lets connections wait the socket may come while it still connects. */
    FEED_HELLO, /* answered by a feed_hello with the same tag; new listeners, old ones must be closed */
};

struct feed_ask {
    uint32_t op, tag;
    uint16_t port, pad;
};

struct feed_answer { /* to FEED_LISTEN and FEED_DIAL; a failed FEED_HELLO as well */
    uint32_t op, tag;
    int32_t error; /* errno; 0: one socket comes along */
};

struct feed_hello {
    uint32_t magic, tag;
    uint32_t n; /* of v, and of the sockets that come along, in this order; only those n are sent */
    struct feed_item v[FEED_MAX_FDS];
};

union feed_packet { /* what the gateway may receive */
    uint32_t word;  /* FEED_MAGIC: a hello; else the answer's op */
    struct feed_hello hello;
    struct feed_answer answer;
};

/* 0, or -1 with errno (EAGAIN, EPIPE, ...). `flags`: MSG_DONTWAIT or 0; never raises SIGPIPE. */
int feed_send(int feed, const void *p, size_t n, const int *fds, size_t n_fds, int flags);
/* FEED_LISTEN, FEED_DIAL or FEED_HELLO (port 0), without waiting. */
int feed_ask(int feed, enum feed_op op, uint32_t tag, uint16_t port);
/* One packet: its length, 0 at the end, -1 with errno. *ret_n_fds sockets, at most `max`, are the
 * caller's; where more came, or the packet did not fit, all are closed and errno is EPROTO. */
ssize_t feed_recv(int feed, void *p, size_t size, int *fds, size_t max, size_t *ret_n_fds,
                  int flags);
/* True for a whole hello with exactly n_fds sockets, resp. for an answer (0 or 1 socket, by .error). */
bool feed_is_hello(const union feed_packet *p, size_t len, size_t n_fds);
bool feed_is_answer(const union feed_packet *p, size_t len, size_t n_fds);
