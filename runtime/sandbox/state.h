/* runtime/sandbox/state.h - the directory of a sandbox in the store, and its record.
 *
 * Owns:  DATA/sandboxes/ID: lock, state.json (a sandbox that is kept), files/ (what it wrote).
 * Alive: whoever runs the sandbox holds the lock; nothing else says so.
 * Crash: a directory without a record whose lock is free is a run that is over: swept.
 */
#pragma once
#include "base/err.h"
#include "oci/plan.h"
#include "runtime/driver/ids.h"
#include "base/paths.h"

enum { STATE_SCHEMA = 1 };

/* Makes the directory with files/ in it and takes the lock; ERR_EXISTS where `name` is taken. */
int state_create(const struct paths *paths, const struct plan *p, int *ret_lock, struct err **e);
/* Writes the record of a sandbox that stays, stopped. */
int state_keep(const struct paths *paths, const struct plan *p, const struct ids *ids, int status,
               struct err **e);
int state_remove(const struct paths *paths, const char *id, struct err **e);
/* Removes what runs that were killed left. */
void state_sweep(const struct paths *paths);

struct state {
    char *id, *name, *project, *image, *created;
    int64_t exit_status;
    bool running;
};
void state_free_p(struct state *s);
/* Every kept or running sandbox; the caller frees the array and its members. */
int state_list(const struct paths *paths, struct state **ret, size_t *ret_n, struct err **e);
