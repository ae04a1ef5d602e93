/* runtime/sandbox/snapshot.h - layers of a sandbox that were frozen, and what its record says of them.
 *
 * All of it changes a record in memory; state_write() is the commit. A layer that no record names is garbage.
 */
#pragma once
#include "runtime/sandbox/state.h"

/* DATA/changes/LID for each of a list. */
void layers_of(const struct paths *paths, const struct strv *chain, struct strv *ret);
/* A new, empty layer: its path; its name is what follows the last slash. */
int layer_new(const struct paths *paths, char **ret, struct err **e);
/* True where nothing was written to it. */
bool layer_empty(const char *path);
/* The top joins the chain and a new one takes its place (nothing happens where it is empty). */
int state_freeze(const struct paths *paths, struct state *s, struct err **e);
/* Notes a snapshot of `chain`; its id is in the record, the last one. */
void snapshot_add(struct state *s, const struct strv *chain, const char *message);
const struct snapshot *snapshot_find(const struct state *s, const char *id, struct err **e);
int snapshot_remove(struct state *s, const char *id, struct err **e);
/* Back to a snapshot: its chain under a new top. What was there becomes a snapshot too, the record's last. */
int snapshot_back(const struct paths *paths, struct state *s, const char *id, struct err **e);
