/* runtime/sandbox/keep.h - from a plan to a keeper that runs: shared by start and fork. */
#pragma once
#include "runtime/sandbox/live.h"
#include "runtime/sandbox/start.h"

struct kept {
    struct plan *plan;
    struct plan_holds holds;
    struct state state;
    int lock;          /* on its directory */
    int store;         /* while its layers have no record */
    int callers_store; /* the caller's own, which a keeper must not keep */
    bool aside;        /* not to be the project's own */
    bool made;         /* new: nothing of it stays when the start fails */
    bool sweep;        /* look for what the dead left: not in each of many forks */
    const char *note;  /* ids_note() */
};
#define KEPT_INIT                                                                                  \
    {                                                                                              \
        .lock = -1, .store = -1, .callers_store = -1, .holds = {.etc_fd = -1, .caches_fd = -1 }    \
    }
void kept_free_p(struct kept *k);

/* The times that its flags give it; 0: none. */
int kept_times(const struct strv *flags, uint64_t *ret_idle_ms, uint64_t *ret_life_ms,
               struct err **e);
/* Whether its project is where it was, and the same directory. */
int kept_same_project(const struct state *s, struct err **e);
/* Whether the plan's image and project are those that the record is about. */
int kept_same_base(const struct state *s, const struct plan *p, struct err **e);
/* Whether the limits that were asked for can be enforced. */
int kept_limits(const struct plan *p, struct err **e);
/* Fills the record of a new one: its first layers, the project's clock, the git index of this moment. */
int kept_make(const struct paths *paths, struct kept *k, struct err **e);
/* Forks the keeper; its word comes through the pipe. The lock goes with it. */
int kept_fork(const struct paths *paths, struct kept *k, int *ret_pipe, struct err **e);
/* Waits for that word; on_prepare (may be NULL) is called where it takes seconds. */
int kept_wait(int pipe, void (*on_prepare)(void), struct err **e);
/* Both. */
int kept_start(const struct paths *paths, struct kept *k, struct started *ret, struct err **e);
