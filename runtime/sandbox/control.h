/* runtime/sandbox/control.h - a running sandbox is its keeper's: these ask it. A stopped one is whoever's who has the
 * lock: these do it themselves. ERR_BUSY after two seconds of neither.
 *
 * Crash: state_write() is the commit of everything here.
 */
#pragma once
#include "base/json.h"
#include "runtime/sandbox/start.h"

/* One request to the keeper, and its answer; ERR_STOPPED where none runs. */
int sandbox_ask(const struct paths *paths, const char *id, const char *request, struct json **ret,
                struct err **e);
/* Ends it; 1: it was not running. With `ret` it promotes by itself where that is configured: *ret, NULL where it was
 * not running, has it as "promotion". */
int sandbox_stop(const struct paths *paths, const char *id, struct json **ret, struct err **e);
int sandbox_snapshot(const struct paths *paths, const char *id, const char *message,
                     char **ret_snap, uint64_t *ret_paused_ms, struct err **e);
int sandbox_snapshot_rm(const struct paths *paths, const char *id, const char *snap,
                        struct err **e);
/* Back to a snapshot; what was there is a new one, *ret_saved. */
int sandbox_rollback(const struct paths *paths, const char *id, const char *snap, char **ret_saved,
                     struct err **e);
/* What it wrote so far, as layers that nobody writes to any more, bottom first. The caller has the store's lock,
 * shared, as long as it needs them. `idle`: ERR_BUSY where processes run in it, instead of a copy of what they
 * are writing. */
int sandbox_freeze(const struct paths *paths, const char *id, bool idle, struct state *ret,
                   struct strv *chain, uint64_t *paused_ms, struct err **e);
/* `n` new sandboxes, running, that start from what `id` holds now. ret has room for n. Of `given` its name
 * and what concerns the start itself. */
int sandbox_fork(const struct paths *paths, const char *id, const struct options *given, size_t n,
                 struct started *ret, uint64_t *ret_paused_ms, struct err **e);
