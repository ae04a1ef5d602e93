/* runtime/gateway/conn.h - TCP connections of the sandbox: accepted, judged, dialled, relayed, logged.
 *
 *   HEAD --first bytes--> DIAL --connected--> RELAY --> gone
 *     |                     |                   |
 *     +------ refused ------+-------------------+--> REFUSED (its answer is read, or 2 s are over) --> gone
 *
 * HEAD is skipped where the policy needs no names. Bytes that are looked at stay in the socket, so a connection
 * that waits costs a few hundred bytes, whatever its client sends.
 * Owns:  every connection that came from a listener of the sandbox.
 * Uses:  inspect.h, dial.h, relay.h, limits.h, fakeip.h.
 */
#pragma once
#include "runtime/gateway/gw.h"

int conns_new(struct gw *gw, struct err **e);
void conns_free(struct gw *gw);
/* Takes who is waiting, a batch of them. False: no descriptors left, come back later. */
bool conns_accept(struct gw *gw, int listener);
/* The policy changed: what it does not allow any more ends now. */
void conns_policy(struct gw *gw);
/* All of them end. */
void conns_drop(struct gw *gw);
