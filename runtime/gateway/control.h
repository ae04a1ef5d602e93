/* runtime/gateway/control.h - the keeper's word, and what it is told: one JSON object per packet.
 *
 * In:  policy, walls (with the way to the agent), publish (with listening sockets), ping.
 * Out: pong with the counters, log, failed. Sending never waits: a log line that the keeper has no room for
 *      is lost and counted, a pong waits for room.
 * Owns:  descriptor 3. Its end is the gateway's.
 * Uses:  base/json.h; walls.h, limits.h, conn.h, publish.h for what it is told.
 */
#pragma once
#include "runtime/gateway/gw.h"

int control_new(struct gw *gw, int fd, struct err **e);
void control_free(struct gw *gw);
