/* runtime/gateway/limits.h - how many connections, how many bytes a second, how many in total.
 *
 * Who wants to move bytes asks first, and waits in line where the second is used up: each in line gets one
 * quantum before anyone gets a second one.
 *
 * Owns:  the bucket and the line.
 * Uses:  loop.h.
 */
#pragma once
#include "runtime/gateway/gw.h"

enum { LIMITS_QUANTUM = 64 * 1024 };

/* A place in the line; embed it. `on` is called when bytes are set aside for it: ask again, soon. */
struct limits_wait {
    struct limits_wait *prev, *next; /* limits': NULL while not in line */
    size_t grant;                    /* limits': set aside */
    void (*on)(struct limits_wait *);
};

int limits_new(struct gw *gw, struct err **e);
void limits_free(struct gw *gw);
/* Called once from the loop when the total is used up. */
void limits_on_spent(struct gw *gw, void (*spent)(struct gw *));
/* Bytes that count towards the total already: of a gateway before this one. */
void limits_used(struct gw *gw, uint64_t bytes);
unsigned limits_max(const struct gw *gw);   /* connections */
unsigned limits_pipes(const struct gw *gw); /* a relay may hold at a time, all together */
void limits_policy(struct gw *gw);          /* rate or total changed */

/* A connection more: false where there are too many. Pairs with limits_leave(). */
bool limits_enter(struct gw *gw);
void limits_leave(struct gw *gw);
unsigned limits_open(const struct gw *gw);

/* How many of `want` bytes may be moved now; 0: not now, and `wait` stands in line. */
size_t limits_ask(struct gw *gw, size_t want, struct limits_wait *wait);
void limits_cancel(struct gw *gw, struct limits_wait *wait);
/* Counts bytes that were moved (`in`: to the sandbox), and gives back what was granted and not used. */
void limits_moved(struct gw *gw, size_t granted, size_t moved, bool in);
/* For a packet, which is moved or dropped: true where it may pass; counts it. */
bool limits_packet(struct gw *gw, size_t n, bool in);
/* The total is used up: nothing passes any more. */
bool limits_spent(const struct gw *gw);
