/* runtime/gateway/loop.h - the one loop of the gateway: descriptors, timers, work for later.
 *
 * Everything happens in one thread. A callback may add, change and remove any source, timer or task, its own
 * included; what was removed is never called again, not even for an event that came together with the
 * current one. Memory of a source may be freed as soon as loop_del() returned.
 *
 * Owns:  the epoll descriptor; never the descriptors of sources.
 * Uses:  base/.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"

struct loop;

/* A descriptor to watch; embed it. `on` gets EPOLL* bits. */
struct source {
    int fd;
    bool added; /* loop's */
    void (*on)(struct source *, uint32_t events);
};

/* One shot; embed it. Arming an armed timer moves it. */
struct timer {
    uint64_t at;  /* loop's: milliseconds of loop_now() */
    uint32_t pos; /* loop's: place in the heap plus one, 0: not armed */
    void (*on)(struct timer *);
};

/* Called once, after the events of this round, in the order of loop_later(); a loop with tasks does not
 * sleep. Embed it. */
struct task {
    struct task *prev, *next; /* loop's: NULL while not queued */
    void (*on)(struct task *);
};

int loop_new(struct loop **ret, struct err **e);
struct loop *loop_free(struct loop *l);
/* Until loop_stop(); a round at a time where `once`. */
int loop_run(struct loop *l, bool once, struct err **e);
void loop_stop(struct loop *l);

/* Events as of epoll, EPOLLET included. Adding again changes them. 0, or -1 with errno. */
int loop_set(struct loop *l, struct source *s, uint32_t events);
/* Must be called before the descriptor is closed; does nothing where it was not added. */
void loop_del(struct loop *l, struct source *s);

/* For a source whose descriptor is to be closed: as loop_del() and close(), but at the end of this round, behind
 * all other work. */
void loop_close(struct loop *l, struct source *s);

uint64_t loop_now(const struct loop *l); /* CLOCK_MONOTONIC in ms, as of this round */
void loop_arm(struct loop *l, struct timer *t, uint64_t ms);
void loop_disarm(struct loop *l, struct timer *t);

void loop_later(struct loop *l, struct task *t); /* queued already: stays where it is */
void loop_forget(struct loop *l, struct task *t);
unsigned loop_turns(const struct loop *l); /* how many have their turn in this round */

/* The owner of an embedded member. */
#define CONTAINER(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
