/* image/tree.h - makes the entries of a layer below one directory, and nowhere else.
 *
 * Every name is taken apart here: "..", over-long names and ways through symbolic links are
 * refused, so nothing outside the directory is reached whatever order the entries come in.
 * Devices, pipes and sockets are never made; setuid and setgid bits of files and all extended
 * attributes are dropped. A later entry replaces an earlier one of the same name.
 * Owns: the directory it was given, empty and private until it is done.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct tree;

struct tree_meta {
    mode_t mode; /* permission bits */
    int64_t uid, gid;
    int64_t mtime;
    long mtime_nsec;
};

/* Borrows dirfd. As root owners are kept; others own all files themselves. */
struct tree *tree_new(int dirfd);
struct tree *tree_free(struct tree *t);
static inline void tree_free_p(struct tree **t)
{
    *t = tree_free(*t);
}

int tree_dir(struct tree *t, const char *path, const struct tree_meta *m, struct err **e);
/* A new, empty file to write into; tree_file_done() gives it its size, owner, mode and time. */
int tree_file(struct tree *t, const char *path, int *ret_fd, struct err **e);
int tree_file_done(struct tree *t, int fd, uint64_t size, const struct tree_meta *m,
                   struct err **e);
int tree_symlink(struct tree *t, const char *path, const char *target, const struct tree_meta *m,
                 struct err **e);
/* `target` is a path of the same layer. */
int tree_hardlink(struct tree *t, const char *path, const char *target, struct err **e);
/* True when the last component is a whiteout (".wh.x"); such an entry goes to tree_whiteout(). */
bool tree_is_whiteout(const char *path);
int tree_whiteout(struct tree *t, const char *path, struct err **e);
/* Sets what was put off: modes and times of directories. Then checks the places where petri mounts:
 * /dev, /proc, ... must be directories or not there. */
int tree_finish(struct tree *t, struct err **e);
