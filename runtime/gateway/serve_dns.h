/* runtime/gateway/serve_dns.h - the only name server a sandbox finds, whatever address it asks.
 *
 * A name that is allowed on some port gets an address that stands for it; others do not exist. Nothing is asked of the
 * world for that: names are resolved when somebody connects. Only `full` passes questions of other types on.
 * Owns:  connections over TCP, and questions that were passed on.
 * Uses:  dns.h, fakeip.h, resolve.h.
 */
#pragma once
#include "runtime/gateway/dns.h"
#include "runtime/gateway/gw.h"

int serve_dns_new(struct gw *gw, struct err **e);
void serve_dns_free(struct gw *gw);
void serve_dns_policy(struct gw *gw); /* it changed */
void serve_dns_drop(struct gw *gw);   /* the sockets are about to go */

void serve_dns_udp(struct gw *gw, int fd);    /* a batch of what is there */
bool serve_dns_accept(struct gw *gw, int fd); /* false: no descriptors left */

/* What serve_dns_tcp.c shares with serve_dns.c. */
#define SERVE_DNS_PASS SIZE_MAX
/* One question: the length of the answer, 0: none, SERVE_DNS_PASS: to be passed on. */
size_t serve_dns_answer(struct gw *gw, const uint8_t *p, size_t n, struct dns_query *ret_q,
                        uint8_t out[DNS_ANSWER_MAX]);
/* Somebody else's answer in place: as if it were ours, in at most `max` bytes. Its length, 0: unusable. */
size_t serve_dns_adopt(const struct dns_query *q, uint8_t *msg, size_t len, size_t max);
struct dns_tcp;
struct dns_tcp **serve_dns_tcp(struct gw *gw);
unsigned *serve_dns_tcp_count(struct gw *gw);
void serve_dns_tcp_drop(struct gw *gw);
