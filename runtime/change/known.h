/* runtime/change/known.h - what petri itself last wrote to a file of the project for a sandbox.
 *
 * A file that still is what this sandbox's last promotion (or its undo) made of it was changed by nobody
 * since. Promotions of the sandbox that it was forked from count where they were done before the fork.
 */
#pragma once
#include "runtime/change/journal.h"
#include "runtime/change/record.h"

struct known;
int known_load(const struct record *r, struct known **ret, struct err **e);
/* What was last put there; NULL: nothing ever was, or it holds what somebody else had written: merged, or put back
 * where a promotion had overridden it. */
const struct node *known_find(const struct known *k, const char *path);
/* True when the directory is as petri left it, and was beyond doubt before that. */
bool known_dir(const struct known *k, const char *path, const struct stat *st);
/* The same from one operation's notes, for its undo. */
bool known_dir_of(int entry, const char *path, const struct stat *st);
struct known *known_free(struct known *k);
