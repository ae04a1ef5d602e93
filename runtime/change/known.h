/* runtime/change/known.h - what petri itself last wrote to a file of the project for a sandbox.
 *
 * A file that still is what this sandbox's last promotion (or its undo) made of it was changed by nobody
 * since. Promotions of the sandbox that it was forked from count up to the fork.
 */
#pragma once
#include "runtime/change/journal.h"
#include "runtime/change/record.h"

struct known;
int known_load(const struct record *r, struct known **ret, struct err **e);
/* What was last put there; NULL: nothing ever was. */
const struct node *known_find(const struct known *k, const char *path);
struct known *known_free(struct known *k);
