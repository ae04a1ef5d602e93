/* runtime/workspace/cache_merge.h - a new base of caches from an old one and what a sandbox wrote over it.
 *
 * What comes out of a sandbox is not trusted: regular files, directories and links that stay inside go along,
 * with plain modes, one owner and no attributes; everything else stays out and is counted.
 * Owns:  nothing but the tree it makes.
 * Uses:  base/, layer_node.h. Never follows a link. Needs root over all of the files (inside_run).
 * Crash: an unfinished tree, which nobody names.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct cache_rules {
    bool (*wanted)(const char *path); /* relative; false: it stays out */
    uint64_t max_bytes, max_files;    /* of the result; more is an error */
    uid_t uid;                        /* whose it all becomes; -1: as it is made */
    gid_t gid;
};

struct cache_counts {
    uint64_t files, bytes; /* of the result */
    uint64_t added, added_bytes, removed;
    uint64_t left_out;
};

/* `base` (-1: none) and `layers` (bottom first) are open directories that nobody writes to; `dst` is an open one,
 * in which the directories at its top may be there already. Files of the base are the same files in the new one. */
int cache_merge(const struct cache_rules *r, int base, const int *layers, size_t n, int dst,
                struct cache_counts *ret, struct err **e);
/* Files and bytes of a tree. */
void cache_count(int dir, struct cache_counts *ret);
/* A link with this text, in the directory `dir` (relative) of the tree, leads nowhere outside. */
bool cache_link_stays(const char *dir, const char *text);
