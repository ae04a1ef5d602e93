/* runtime/sandbox/layers.h - the store of layers as a whole: what is garbage, and chains that got long.
 *
 * Owns:  DATA/changes/.gone-LID, layers on their way out. Makes and removes layers, writes records.
 * Uses:  the records (state.h), DATA/changes.lock (store_lock.h).
 * Crash: a layer that no record names is garbage at any time; a record is replaced as a whole, and before and
 *        after a compaction it describes the same content.
 */
#pragma once
#include "runtime/sandbox/state.h"

enum {
    LAYERS_LONG = 100, /* a chain of more than these is made shorter when there is time, */
    LAYERS_MOST = 400, /* and one of these at once: the kernel takes 500 */
};

/* Every layer that a record names, sorted. An error where a record can't be read: then nobody knows. */
int layers_named(const struct paths *paths, struct strv *ret, struct err **e);
bool layers_has(const struct strv *named, const char *layer);
/* 16 hexadecimal digits. */
bool layer_name_valid(const char *name);
/* The namespace in which the sandbox's files are one's own, for inside_run(). */
int layers_ids(const struct state *s, struct ids *ret, struct err **e);

/* Removes the layers that no record names, and links that lead to no sandbox; how many layers. 0 where somebody makes layers at the moment. */
int layers_remove_unreferenced(const struct paths *paths, struct err **e);
/* The same in a process of its own, once the caller's locks are free; for what is there now. */
void layers_remove_later(const struct paths *paths);

/* Where a chain of the record is longer than `longest`: its lowest layers become one, in every chain of the record
 * that begins with them, and the record is written. What the layers show stays the same; the old ones stay
 * for other sandboxes and for snapshots that name fewer of them. The caller holds the sandbox's lock, and
 * none of its layers is mounted. Takes about as long as making a directory entry for each file. Where it does not
 * work (no room on the disk), that is an error only when there are more than LAYERS_MOST. */
int layers_compact(const struct paths *paths, struct state *s, size_t longest, struct err **e);
